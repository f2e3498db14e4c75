"""Files from the network, kept in pooch's cache folder."""

import warnings
from pathlib import Path

__all__ = ["ROOT_VARIABLE", "fetch"]

ROOT_VARIABLE = "GPFLOW_SPARSE_DATA"
"""The environment variable that names the folder of local files."""


def fetch(url: str, sha256: str | None, folder: str) -> Path:
    """Download a file once into a folder of the cache, and check it on every use.

    :param sha256: None where it is not known, which is warned of.
    :param folder: below the cache folder.
    :raises ValueError: if that fails, or the file is another one.
    """
    import pooch

    cache, file_name = Path(pooch.os_cache("gpflow_sparse")) / folder, url.rsplit("/", 1)[-1]
    if sha256 is None:
        warnings.warn(f"{url} has no known checksum: the file could not be verified", stacklevel=2)
    try:
        return Path(pooch.retrieve(url, known_hash=sha256, fname=file_name, path=cache))
    except OSError as error:
        raise ValueError(
            f"could not download {url} into {cache}: {error}. Without a network, pass root= or set "
            f"{ROOT_VARIABLE} to a folder that holds the data set as NAME.npz"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"the file at {url} does not have the expected SHA-256 {sha256}, so it was not kept; "
            "try again later, or pass root= with a copy that you trust"
        ) from error
