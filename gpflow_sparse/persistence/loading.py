"""Load a model: read the file, believe nothing, put the model together, look it over."""

import json
import os
import warnings
from collections.abc import Iterable
from typing import Any

import gpflow
import numpy as np

from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.decoding import Decoder
from gpflow_sparse.persistence.inspection import require_sound
from gpflow_sparse.persistence.names import can_assemble


def load(path: str | os.PathLike, *, classes: Iterable[type] = ()) -> gpflow.models.BayesianModel:
    """
    The model that :func:`save` wrote; it predicts the same to the last bit.

    Nothing in a file is run, and no module is imported because a file names it, so that files of
    unknown origin are safe to open.

    :param path: the file.
    :param classes: classes of your own that the model uses, such as a subclass of Kernel.
    :return: a model of the same class, ready to predict, to train on, or to save again.
    :raises FileNotFoundError: if there is no file.
    :raises ValueError: for a file that is not ours, damaged, or newer than this gpflow_sparse; that
        needs a class not given; or whose float type is not ``gpflow.default_float()``.
    """
    own = _require_classes(classes)
    header, arrays = files.read(path)
    files.require_model(path, header)
    needed = files.read_header(path)
    _require_float(path, needed["float"])
    try:
        model = model_from_tree(header["tree"], arrays, own)
    except Exception as error:  # constructors of TensorFlow's raise what they like
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(f"cannot load {path}: {reason[:2000].rstrip('.')}.") from error
    _warn_of_jitter(path, needed["jitter"], model)
    return model


def model_from_tree(
    text: str, arrays: dict[str, np.ndarray], classes: Iterable[type]
) -> gpflow.models.BayesianModel:
    """
    The model described by the JSON ``text`` and ``arrays``.

    :raises Exception: of any kind, for a description that no encoder writes.
    """
    tree = json.loads(text, parse_constant=_refuse_constant)
    decoder = Decoder(tree["objects"], arrays, classes)
    model = decoder.decode(tree["root"])
    require_sound(model)
    decoder.require_all_used()
    return model


def _refuse_constant(name: str) -> None:
    raise ValueError(f"its description holds a bare {name}")


def _require_classes(classes: Iterable[type]) -> tuple[type, ...]:
    own = tuple(classes) if isinstance(classes, Iterable) else None
    if own is None or not all(isinstance(kind, type) and can_assemble(kind) for kind in own):
        raise ValueError(
            "classes must be a list of your subclasses of gpflow.Module, such as "
            f"classes=[MyKernel]; got {classes!r}."
        )
    return own


def _require_float(path: str | os.PathLike, name: str) -> None:
    current = np.dtype(gpflow.default_float()).name
    if name in ("float16", "float32", "float64") and name != current:
        raise ValueError(
            f"{path} holds a {name} model, and GPflow is set to {current}; call "
            f"gpflow.config.set_default_float(np.{name}) before gs.load, and keep it."
        )


def _warn_of_jitter(path: str | os.PathLike, jitter: float, model: Any) -> None:
    current = gpflow.default_jitter()
    if getattr(model, "jitter", None) is None and jitter != current:
        warnings.warn(
            f"{path} was saved under a default jitter of {jitter:g}, and now it is {current:g}: "
            "predictions may differ. To have them equal, call "
            f"gpflow.config.set_default_jitter({jitter!r}).",
            stacklevel=3,
        )
