"""Export of predictions for programs that have only TensorFlow."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.models import GPModel
from gpflow.posteriors import AbstractPosterior, FullyCorrelatedPosterior, PrecomputeCacheType

from gpflow_sparse.inference.calibration import quantiles_of_observations
from gpflow_sparse.models import DeepGP
from gpflow_sparse.models.base import SparseGPModel
from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.inspection import float_name, input_dim
from gpflow_sparse.persistence.saving import described
from gpflow_sparse.posteriors.base import SparsePosterior

# Operations that call back into the Python process that made the graph.
_PYTHON_OPS = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
# List of the files of an export, itself included; the SavedModel format reserves this folder.
_WRITTEN = "assets.extra/gpflow_sparse.txt"

MeanAndVariance = tuple[tf.Tensor, tf.Tensor]
Predictor = Callable[[tf.Tensor], MeanAndVariance]


def export(model: GPModel, directory: str | os.PathLike) -> None:
    """
    Write a TensorFlow SavedModel that predicts without GPflow and without this package.

    ``loaded = tf.saved_model.load(directory)`` has ``loaded.predict_f(X)`` and
    ``loaded.predict_y(X)``, which return mean and variance ``[N, P]`` for ``X [N, D]``. If
    ``model.standardizer`` is set it also has ``loaded.predict(X)``: observations in original units
    for inputs in original units, all float64; of transformed outputs the median and the variance.
    Each is a serving signature too, with the outputs "mean" (or "median") and "variance".

    Cached tensors are computed once, where the model has a posterior that can be cached. The
    current default jitter is part of the export.

    :param model: any GPflow model.
    :param directory: a folder that does not exist, is empty, or holds only an export.
        An export is replaced as a whole by two renames; a process that is killed between them
        leaves the old one beside ``directory``, as ``.exporting-*/old``.
    :raises ValueError: if ``model`` is not a GPflow model or predicts by Python outside of its
        graph, if the folder holds other files, or cannot be written.
    """
    if not isinstance(model, GPModel):
        raise ValueError(f"model must be a GPflow model, got {described(model)}.")
    target = Path(os.path.realpath(files.as_path(directory, "directory")))
    _require_replaceable(target)
    module, functions = _exported(model)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".exporting-", dir=target.parent) as folder:
            new = Path(folder) / "new"
            tf.saved_model.save(module, str(new), signatures=functions)
            files.write_text(new / _WRITTEN, "\n".join([_WRITTEN, *_files_in(new)]))
            _replace(new, target, Path(folder) / "old")
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", error)
        raise ValueError(
            f"directory must be one that can be written, got {directory}: {reason}; nothing was "
            "exported."
        ) from error


def _exported(model: GPModel) -> tuple[tf.Module, dict[str, Any]]:
    """A module with the prediction functions and their variables, and the serving signatures."""
    module = tf.Module()
    module.source, predict_f, predict_y = _predictors(model)
    dtype = tf.as_dtype(float_name(model))
    inputs = tf.TensorSpec([None, input_dim(model)], dtype, name="X")
    functions = {"predict_f": (predict_f, inputs), "predict_y": (predict_y, inputs)}
    outputs = dict.fromkeys(functions, ("mean", "variance"))
    standardizer = getattr(model, "standardizer", None)
    if standardizer is not None:
        module.standardizer = standardizer
        original = tf.TensorSpec([None, *standardizer.x_mean.shape], tf.float64, name="X")
        functions["predict"] = (_in_original_units(model, module, predict_y, dtype), original)
        is_mean = standardizer.y_transform == "none"
        outputs["predict"] = ("mean" if is_mean else "median", "variance")
    named = {}
    for name, (function, spec) in functions.items():
        traced = compiled(function, input_signature=[spec])
        setattr(module, name, traced)
        named[name] = compiled(
            lambda X, traced=traced, names=outputs[name]: dict(zip(names, traced(X), strict=True)),
            input_signature=[spec],
        )
    _require_graph(module.predict_f)
    return module, named


def _require_graph(function: Any) -> None:
    """Refuse a function that calls Python: it could be written, and would fail when loaded."""
    definition = function.get_concrete_function().graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    if any(node.op in _PYTHON_OPS for node in nodes):
        raise ValueError(
            "model cannot be exported: its predictions call Python, which a SavedModel does not "
            "hold. Neighbors among more than 4,096 fixed inducing points are found in Python: call "
            "gpflow.set_trainable(model.inducing_variable, True) first, after which they are found "
            "in the graph, O(M D) per row. A NearestNeighborGP of so many rows is for "
            "gs.save only."
        )


def _predictors(model: GPModel) -> tuple[Any, Predictor, Predictor]:
    """The module with the variables to export, and prediction of ``f`` and of observations."""
    posterior = _cached_posterior(model)
    if posterior is None:
        # CGLB traces only with constants in place of parameters, and its loop needs AutoGraph
        frozen = gpflow.utilities.freeze(model)
        return (
            frozen,
            tf.function(lambda X: frozen.predict_f(X)),
            tf.function(lambda X: frozen.predict_y(X)),
        )
    likelihood = model.likelihood
    source = tf.Module()
    source.posterior, source.likelihood = posterior, likelihood

    def predict_y(X: tf.Tensor) -> MeanAndVariance:
        if isinstance(posterior, SparsePosterior):  # may average over more than one Gaussian
            return posterior.predict_y(X, likelihood)
        return likelihood.predict_mean_and_var(X, *posterior.predict_f(X))

    return source, lambda X: posterior.predict_f(X), predict_y


def _cached_posterior(model: GPModel) -> AbstractPosterior | None:
    """The cached posterior; None for a model that predicts by a frozen copy of itself."""
    if not _predicts_by_posterior(type(model)):
        return None
    # variables, since constants would go into the graph, which may not exceed 2 GB
    posterior = model.posterior(PrecomputeCacheType.VARIABLE)
    # GPflow's correlated posteriors fail when cached, for latent GPs with several kernels
    return None if isinstance(posterior, FullyCorrelatedPosterior) else posterior


def _predicts_by_posterior(kind: type) -> bool:
    """False for classes like CGLB, which inherits a posterior and predicts in another way."""

    def owner(name: str) -> int:
        return next((i for i, base in enumerate(kind.__mro__) if name in vars(base)), -1)

    by_posterior = kind.__mro__[owner("predict_y")] in (GPModel, SparseGPModel, DeepGP)
    return by_posterior and 0 <= owner("posterior") <= owner("predict_f")


def _in_original_units(
    model: GPModel, module: tf.Module, predict_y: Predictor, dtype: tf.DType
) -> Predictor:
    """
    Means, or medians of transformed outputs, and variances of observations.

    :param module: with the exported ``source`` and ``standardizer``.
    """
    standardizer = module.standardizer
    posterior = getattr(module.source, "posterior", None)
    calibration = getattr(model, "calibration", None)

    def predict(X: tf.Tensor) -> MeanAndVariance:
        X = tf.cast((X - standardizer.x_mean) / standardizer.x_scale, dtype)
        moments = predict_y(X)
        if standardizer.y_transform == "none":
            return standardizer.to_original_moments(*(tf.cast(m, tf.float64) for m in moments))
        summary = standardizer.to_original_summary(
            lambda levels: quantiles_of_observations(posterior, calibration, X, moments, levels)
        )
        return summary[0], summary[2]

    return predict


def _require_replaceable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"directory must name a folder, but {folder} is a file.")
    if not folder.is_dir():
        return
    written = folder / _WRITTEN
    known = written.read_text(encoding="utf-8").splitlines() if written.is_file() else []
    foreign = next((name for name in _files_in(folder) if name not in known), None)
    if foreign is not None:
        raise ValueError(
            f"directory must be new, empty or written by gs.export, but {folder} holds other "
            f"files, such as {foreign}; choose another name."
        )


def _files_in(folder: Path) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()]


def _replace(new: Path, target: Path, old: Path) -> None:
    """Move ``new`` to ``target``, and what was there to ``old``; or leave ``target`` as it was."""
    try:
        if target.exists():
            os.replace(target, old)
        os.replace(new, target)
    finally:
        if old.exists() and not target.exists():
            os.replace(old, target)
