"""The file format: arrays and texts in one safetensors file with a checksum, without code.

Does not depend on models and does not import TensorFlow.
"""

import hashlib
import json
import os
import reprlib
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from gpflow_sparse.persistence.schema import Between, parse_json

FORMAT = "gpflow_sparse model"
FORMAT_VERSION = 2
"""Version of the format and of all names in files; every later version of the package reads it."""
CHECKPOINT = "checkpoint"  # the "kind" of a file of `training.fit`
TEMPORARY = ".saving-*.tmp"  # a killed process leaves such a file
_MAX_HEADER = 2**25  # bytes; the checksum of a longer one would take seconds
_MAX_ARRAYS = 100_000
MAX_JITTER = 1.0
"""The largest jitter in a file; kernels of standardized data have variances of about one."""
_FLOATS = ("float16", "float32", "float64")
# Types of the JSON values in a model's header beside its tree.
_HEADER = {"jitter": Between(0.0, MAX_JITTER), "versions": dict}
_REMEDY = "copy or save it again"


def write(path: str | os.PathLike, arrays: dict[str, np.ndarray], header: dict[str, str]) -> None:
    """
    Write a file as a whole or not at all: an existing file is kept until the new one is complete.

    :param path: path of the file; missing folders are created, a symbolic link is followed.
    :param arrays: C-contiguous arrays by name.
    :param header: texts by name.
    :raises ValueError: if the path is a folder or device, or a parent of it is a file.
    """
    target = Path(os.path.realpath(as_path(path)))
    if target.exists() and not target.is_file():
        raise ValueError(f"path must name a file, but {path} is a folder or a device; add a name.")
    if target.parent.exists() and not target.parent.is_dir():
        raise ValueError(f"path must lie in a folder, but {target.parent} is a file.")
    header = {**header, "format": FORMAT, "format_version": str(FORMAT_VERSION)}
    content = safetensors.numpy.save(arrays, {**header, "sha256": digest(header, arrays)})
    _require_bounded(path, int.from_bytes(content[:8], "little"), len(arrays))
    _replace(target, [content])


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text in UTF-8, see :func:`write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
    """Write a file as a whole or not at all, and missing folders; a device is written to."""
    write_parts(path, [content])


def write_parts(path: str | os.PathLike, parts: Iterable[bytes]) -> None:
    """:func:`write_bytes` of parts that are made while the file is written."""
    target = Path(os.path.realpath(as_path(path)))
    if not target.exists() or target.is_file():
        _replace(target, parts)
    else:
        with open(target, "wb") as file:
            file.writelines(parts)


def _replace(target: Path, parts: Iterable[bytes]) -> None:
    """
    Write a temporary file with the permissions of the old one, and rename it to ``target``. Of
    processes that write the same file at once, the last one wins.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(TEMPORARY.replace("*", secrets.token_hex(8)))
    try:
        with open(temporary, "xb") as file:
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:  # name the requested file, not the temporary one
        raise type(error)(error.errno, error.strerror, str(target)) from error
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | os.PathLike) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """
    Header and arrays of a file, after a check of its checksum.

    :raises FileNotFoundError: if there is no file.
    :raises ValueError: for a file of another format or a newer version, truncated or damaged.
    """
    metadata, arrays = _contents(path, with_arrays=True)
    header = {name: text for name, text in metadata.items() if name != "sha256"}
    if digest(header, arrays) != metadata.get("sha256"):
        raise ValueError(_damaged(path, "its checksum does not match its contents"))
    return header, arrays


def read_header(path: str | os.PathLike) -> dict[str, Any]:
    """
    Float type, jitter and versions of a saved model, without reading its arrays.

    Quick, without the check of the whole file of :func:`gpflow_sparse.load`.

    :return: "float", the name of its float type; "jitter", GPflow's default jitter when it was
        saved; "versions", of the packages that saved it, by name.
    :raises FileNotFoundError: if there is no file.
    :raises ValueError: for a file of another format or a newer version.
    """
    metadata, _ = _contents(path, with_arrays=False)
    require_model(path, metadata)
    if metadata.get("float") not in _FLOATS:
        got = reprlib.repr(metadata.get("float"))
        raise ValueError(_damaged(path, f"float must be one of {', '.join(_FLOATS)}, got {got}"))
    found = {
        name: parse_json(metadata.get(name, "null"), kind, f"{name} of {path}", _REMEDY)
        for name, kind in _HEADER.items()
    }
    versions = {name: str(text) for name, text in found["versions"].items()}
    return {"float": metadata["float"], "jitter": float(found["jitter"]), "versions": versions}


def require_model(path: str | os.PathLike, header: dict[str, str]) -> None:
    """:raises ValueError: if the file is a checkpoint of a training run."""
    if header.get("kind") == CHECKPOINT:
        raise ValueError(
            f"{path} is a checkpoint of a training run, not a model: build the model and call "
            "gpflow_sparse.training.fit with its checkpoint_dir and resume=True."
        )


def digest(header: dict[str, str], arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over all texts and all arrays with their names, types and shapes, in sorted order."""
    result = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        result.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        result.update(array.reshape(-1).view(np.uint8).data)
    return result.hexdigest()


def _contents(
    path: str | os.PathLike, *, with_arrays: bool
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    file_path = as_path(path)
    if not os.path.exists(file_path):
        raise FileNotFoundError(f"no saved model at {path}: there is no such file.")
    if not os.path.isfile(file_path):
        raise ValueError(f"path must name a file written by gs.save, but {path} is not a file.")
    try:
        with open(file_path, "rb") as start:
            length = int.from_bytes(start.read(8), "little")
        if length < file_path.stat().st_size:  # else it is not a safetensors file
            _require_bounded(path, length)
        with safetensors.safe_open(str(file_path), framework="np") as file:
            metadata = file.metadata() or {}
            _require_version(path, metadata)
            names = file.keys() if with_arrays else ()
            _require_bounded(path, length, len(names))
            return metadata, {name: file.get_tensor(name) for name in names}
    except (KeyboardInterrupt, SystemExit, _RefusedError):
        raise
    except BaseException as error:  # the reader, in Rust, may panic, which is no Exception
        raise ValueError(_unreadable(path, error)) from error


class _RefusedError(ValueError):
    """An error whose message is already complete."""


def _require_bounded(path: str | os.PathLike, header_bytes: int, num_arrays: int = 0) -> None:
    """Refuse files over the limits, in writing and reading, so that saved files can be loaded."""
    if header_bytes > _MAX_HEADER or num_arrays > _MAX_ARRAYS:
        raise _RefusedError(
            f"{path} has a header of {header_bytes} bytes and {num_arrays} arrays, and a model "
            f"file has at most {_MAX_HEADER} and {_MAX_ARRAYS}; keep many numbers in one array."
        )


def _require_version(path: str | os.PathLike, metadata: dict[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise _RefusedError(_foreign(path))
    text = metadata.get("format_version", "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _RefusedError(_damaged(path, f"its format version is {text[:20]!r}"))
    if int(text) > FORMAT_VERSION:
        raise _RefusedError(
            f"{path} was saved by a newer gpflow_sparse: its format version is {text}, and this "
            f"one reads {FORMAT_VERSION}; upgrade gpflow_sparse."
        )
    if int(text) < FORMAT_VERSION:
        raise _RefusedError(
            f"{path} was saved by a gpflow_sparse before version 1.0, whose files later versions "
            "cannot read: train the model again and save it."
        )


def _unreadable(path: str | os.PathLike, error: BaseException) -> str:
    if isinstance(error, OSError):
        return f"{path} cannot be read: {error}."
    with open(path, "rb") as file:
        ours = FORMAT.encode() in file.read(_MAX_HEADER)
    reason = str(error).removeprefix("Error while deserializing header: ")
    return _damaged(path, f"it cannot be read ({reason})") if ours else _foreign(path)


def _foreign(path: str | os.PathLike) -> str:
    return (
        f"{path} is not a saved model: expected a file written by gs.save, got something else (or "
        "only a piece of one); pass the file that gs.save wrote."
    )


def _damaged(path: str | os.PathLike, how: str) -> str:
    return f"{path} is truncated or damaged: {how}; {_REMEDY}."


def as_path(path: str | os.PathLike, name: str = "path") -> Path:
    """``path`` with "~" expanded; ``name`` is the argument's name in errors."""
    try:
        return Path(path).expanduser()
    except TypeError as error:
        raise ValueError(f"{name} must be a str or a Path, got {type(path).__name__}.") from error
    except RuntimeError as error:
        raise ValueError(
            f"{name} {str(path)!r} names the home folder of an unknown user; write ./~ for a name "
            "that starts with ~."
        ) from error
