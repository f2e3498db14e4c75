"""NumPy archives, read without unpickling anything."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def read_npz(path: Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file without unpickling anything.

    :param path: the file.
    :param names: the only arrays to read, as far as they are there; None for all.
    :return: the arrays by name.
    :raises ValueError: if it is not an .npz file, is damaged, or holds Python objects.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            chosen = [key for key in archive.files if names is None or key in names]
            return {key: archive[key] for key in chosen}
    except (ValueError, OSError, EOFError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: not a readable .npz file of numbers: {error}") from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: the .npz file is damaged: {error}; copy it again") from error
