"""Saving and loading of models as a tree of plain values and arrays in one file."""

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse._version import __version__
from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.codec import Decoder, Encoder
from gpflow_sparse.persistence.differences import first_difference
from gpflow_sparse.persistence.inspection import float_name, validate_loaded_model
from gpflow_sparse.persistence.names import can_assemble
from gpflow_sparse.persistence.sizes import require_sizes

_NONE: Mapping[str, str] = {}


def save(model: gpflow.models.BayesianModel, path: str | os.PathLike) -> None:
    """
    Save a model of this package or of GPflow, see :func:`gpflow_sparse.save`.

    :raises ValueError: naming the part of the model that a file cannot hold, such as a lambda, or
        that would not be the same in the loaded model; or if the file cannot be written. Then
        nothing is written.
    """
    save_with_classes(model, path)


def save_with_classes(
    model: gpflow.models.BayesianModel, path: str | os.PathLike, texts: Mapping[str, str] = _NONE
) -> list[type]:
    """
    Save a model like :func:`save`.

    :param texts: further texts by name, for the header of the file.
    :return: the user's own classes in the model, which :func:`load` needs.
    """
    tree, encoder = _encoded(model)
    if found := _loss(tree, encoder):
        raise ValueError(f"model cannot be saved, because {found}.")
    _write(path, tree, encoder, model, texts)
    return sorted(encoder.classes, key=str)


def save_of_run(
    model: gpflow.models.BayesianModel, path: str | os.PathLike, texts: Mapping[str, str] = _NONE
) -> None:
    """
    Save a model like :func:`save_with_classes`, and write the file before it is compared with the
    model: a difference is warned of, since the model exists nowhere else, and what the file holds
    of it can still be read.
    """
    tree, encoder = _encoded(model)
    _write(path, tree, encoder, model, texts)
    if found := _loss(tree, encoder):
        warnings.warn(
            f"{path} is written, but predictions from it may differ from the scores of this run, "
            f"or fail, because {found}.",
            stacklevel=2,
        )


def described(model: Any) -> str:
    """The class of what is not a GPflow model; for a fitted estimator also where its model is."""
    name = type(model).__name__
    return f"{name}, whose model is its .model_" if hasattr(model, "model_") else name


def _encoded(model: gpflow.models.BayesianModel) -> tuple[str, Encoder]:
    """The tree of a model as JSON text, and its encoder, which has the arrays."""
    if not isinstance(model, gpflow.models.BayesianModel):
        raise ValueError(f"model must be a GPflow model, got {described(model)}.")
    jitter = gpflow.default_jitter()
    if not jitter <= files.MAX_JITTER:
        raise ValueError(
            f"model cannot be saved under GPflow's default jitter of {jitter:g}: the largest in a "
            f"file is {files.MAX_JITTER:g}; call gpflow.config.set_default_jitter."
        )
    encoder = Encoder()
    return encoder.encode_model(model), encoder


def _write(
    path: str | os.PathLike,
    tree: str,
    encoder: Encoder,
    model: gpflow.models.BayesianModel,
    texts: Mapping[str, str],
) -> None:
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
    try:
        files.write(path, encoder.arrays, {**texts, **header})
    except OSError as error:
        raise ValueError(
            f"path must be a file that can be written, got {os.fspath(path)[:300]}: "
            f"{error.strerror or error}; nothing was saved."
        ) from error


def load(path: str | os.PathLike, *, classes: Iterable[type] = ()) -> gpflow.models.BayesianModel:
    """Load a model that :func:`save` wrote, see :func:`gpflow_sparse.load`."""
    return load_with_header(path, classes=classes)[0]


def load_with_header(
    path: str | os.PathLike, *, classes: Iterable[type] = ()
) -> tuple[gpflow.models.BayesianModel, dict[str, str]]:
    """The model of a file, see :func:`gpflow_sparse.load`, and all texts of its header."""
    own = tuple(classes) if isinstance(classes, Iterable) else None
    if own is None or not all(isinstance(kind, type) and can_assemble(kind) for kind in own):
        raise ValueError(
            "classes must be a list of your subclasses of gpflow.Module, such as "
            f"classes=[MyKernel]; got {classes!r}."
        )
    header, arrays = files.read(path)
    files.require_model(path, header)
    needed = files.read_header(path)
    current = np.dtype(gpflow.default_float()).name
    if needed["float"] != current:
        raise ValueError(
            f"{path} holds a {needed['float']} model, and GPflow is set to {current}; call "
            f"gpflow.config.set_default_float(np.{needed['float']}) before gs.load, and keep it."
        )
    try:
        model = _model_from_tree(header.get("tree", "null"), arrays, own)
    except Exception as error:  # TensorFlow's constructors raise many kinds of errors
        raise ValueError(f"cannot load {path}: {_reason(error)[:2000].rstrip('.')}.") from error
    jitter, now = needed["jitter"], gpflow.default_jitter()
    if getattr(model, "jitter", None) is None and jitter != now:
        warnings.warn(
            f"{path} was saved under a default jitter of {jitter:g}, and now it is {now:g}: "
            "predictions may differ. To have them equal, call "
            f"gpflow.config.set_default_jitter({jitter!r}).",
            stacklevel=3,
        )
    return model, header


def _model_from_tree(
    text: str, arrays: dict[str, np.ndarray], classes: Iterable[type]
) -> gpflow.models.BayesianModel:
    """The model described by JSON; raises any kind of error if no encoder wrote it."""
    try:
        tree = json.loads(text, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError("its description is not JSON, or is nested too deeply") from error
    if not (isinstance(tree, dict) and "root" in tree and isinstance(tree.get("objects"), list)):
        raise ValueError("its description has no root or no list of objects")
    decoder = Decoder(tree["objects"], arrays, classes)
    model = decoder.decode(tree["root"])
    require_sizes(part for part in decoder.made if can_assemble(type(part)))
    validate_loaded_model(model)
    decoder.require_all_used()
    return model


def _reason(error: Exception) -> str:
    """What is wrong with a file, without the texts of errors of other packages."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    own = trace is not None and trace.tb_frame.f_globals["__name__"].startswith("gpflow_sparse.")
    if own and type(error) is ValueError:
        return str(error)
    if isinstance(error, AttributeError) and error.name is not None:
        return f"its {type(error.obj).__name__} has no {error.name!r}"
    return "one of its parts does not fit the class that the file names"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"its description holds a bare {name}")


def _loss(tree: str, encoder: Encoder) -> str:
    """What a file would lose, found by decoding and encoding the tree again; empty for nothing."""
    again = Encoder()
    try:
        second = again.encode_model(_model_from_tree(tree, encoder.arrays, encoder.classes))
    except Exception as error:
        return f"it could not be loaded again: {str(error).rstrip('.')}"
    if second == tree and files.digest({}, again.arrays) == files.digest({}, encoder.arrays):
        return ""
    place = first_difference((tree, encoder.arrays), (second, again.arrays))
    return (
        f"{place} would come back changed; if a class of yours computes that attribute when it is "
        "set, keep the attributes that it is computed from in its place"
    )
