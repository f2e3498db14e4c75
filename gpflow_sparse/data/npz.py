"""NumPy archives, read without unpickling anything."""

import zipfile
import zlib
from pathlib import Path

import numpy as np


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file without unpickling anything.

    :param path: the file.
    :return: the arrays by name.
    :raises ValueError: if it is not an .npz file, is damaged, or holds Python objects.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: not a readable .npz file of numbers: {error}") from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: the .npz file is damaged: {error}; copy it again") from error
