"""Save a model: walk it, make sure that the walk can be undone, write the file."""

import json
import os

import gpflow
import tensorflow as tf

from gpflow_sparse._version import __version__
from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.encoding import Encoder
from gpflow_sparse.persistence.inspection import float_name
from gpflow_sparse.persistence.loading import model_from_tree


def save(model: gpflow.models.BayesianModel, path: str | os.PathLike) -> None:
    """
    Save a model, ours or GPflow's, as one file in the safetensors format.

    Everything is kept that makes the model what it is: values, transforms, priors, trainable flags,
    names, what is shared, the standardizer, and for models like GPR the data. The file holds no
    code and no pickle. It is written whole or not at all.

    :param model: any GPflow model.
    :param path: the file itself; missing folders are made.
    :raises ValueError: naming the part of the model that a file cannot hold, such as a lambda; then
        nothing is written; or if the file cannot be written.
    """
    save_as(None, model, path)


def save_as(kind: str | None, model: gpflow.models.BayesianModel, path: str | os.PathLike) -> None:
    """
    As :func:`save`, with a note in the header.

    :param kind: what ``files.read_kind`` shall find there.
    """
    if not isinstance(model, gpflow.models.BayesianModel):
        raise ValueError(f"model must be a GPflow model, got {type(model).__name__}.")
    if not gpflow.default_jitter() <= files.MAX_JITTER:
        raise ValueError(
            f"model cannot be saved under GPflow's default jitter of {gpflow.default_jitter():g}: "
            f"the largest in a file is {files.MAX_JITTER:g}; call "
            "gpflow.config.set_default_jitter."
        )
    encoder = Encoder()
    tree = encoder.encode_model(model)
    _require_reversible(tree, encoder)
    versions = {
        "gpflow_sparse": __version__,
        "gpflow": gpflow.__version__,
        "tensorflow": tf.__version__,
    }
    header = {
        "tree": tree,
        "versions": json.dumps(versions),
        "float": float_name(model),
        "jitter": repr(gpflow.default_jitter()),
    }
    if kind is not None:
        header["kind"] = kind
    try:
        files.write(path, encoder.arrays, header)
    except OSError as error:
        raise ValueError(
            f"path must be a file that can be written, got {os.fspath(path)[:300]}: "
            f"{error.strerror or error}; nothing was saved."
        ) from error


def _require_reversible(tree: str, encoder: Encoder) -> None:
    """Undo the walk and walk again: what would be lost in a file is found before it is written."""
    again = Encoder()
    try:
        same = again.encode_model(model_from_tree(tree, encoder.arrays, encoder.classes)) == tree
    except Exception as error:
        raise ValueError(
            f"model cannot be saved, because it could not be loaded again: {error}."
        ) from error
    if not same or files.digest({}, again.arrays) != files.digest({}, encoder.arrays):
        raise ValueError(
            "model cannot be saved, because part of it would come back changed; look for classes "
            f"that compute attributes when they are set, among {sorted(map(str, encoder.classes))}."
        )
