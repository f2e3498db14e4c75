"""The public functions :func:`save` and :func:`load` for models and fitted estimators."""

import os
from collections.abc import Iterable
from typing import Any

from gpflow_sparse.persistence import saving

__all__ = ["load", "save"]


def save(model: Any, path: str | os.PathLike) -> None:
    """
    Save a model of this package or of GPflow, or a fitted estimator of
    :mod:`gpflow_sparse.estimators`, as one file in the safetensors format.

    The file holds the whole model: values, transforms, priors, trainable flags,
    names, shared parts, the standardizer, and for models like GPR the data. It holds no
    code and no pickle. It is written as a whole or not at all. For an estimator it also holds the
    encoding of the columns, the labels and the parameters; a kernel or a likelihood that is a
    parameter becomes the kernel or the likelihood of the model.

    :param model: any GPflow model, or a fitted estimator.
    :param path: path of the file; missing folders are created.
    :raises ValueError: for an estimator that is not fitted; naming the part of the model that a
        file cannot hold, such as a lambda, or that would not be the same in the loaded model; or if
        the file cannot be written. Then nothing is written.
    """
    if not hasattr(model, "get_params"):
        saving.save(model, path)
        return
    from gpflow_sparse.tables.estimators.stored import as_text

    text = as_text(model)  # refuses one that is not fitted
    saving.save_with_classes(model.model_, path, {"estimator": text})


def load(path: str | os.PathLike, *, classes: Iterable[type] = ()) -> Any:
    """
    Load a model or an estimator that :func:`save` wrote; its predictions are equal to the last bit.

    No code in a file is run, and no module is imported because a file names it, so that files of
    unknown origin are safe to open.

    :param path: the file.
    :param classes: classes of your own that the model uses, such as a subclass of Kernel.
    :return: a model of the same class, or the estimator, ready to predict, to train on, or to save
        again.
    :raises FileNotFoundError: if there is no file.
    :raises ValueError: for a file of another format, damaged, or newer than this gpflow_sparse; if
        a class is missing in ``classes``; or if its float type is not ``gpflow.default_float()``.
    """
    model, header = saving.load_with_header(path, classes=classes)
    if "estimator" not in header:
        return model
    from gpflow_sparse.tables.estimators.stored import from_text

    return from_text(header["estimator"], model, str(path))
