"""The float type of a model, and checks that a loaded model has sound parts."""

from numbers import Real
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import Function
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel, GPModel

from gpflow_sparse.bases import SoftInterpolation
from gpflow_sparse.data.standardize import Standardizer
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.models import QSGP, NearestNeighborGP, SoftKI
from gpflow_sparse.models.base import SparseGPModel
from gpflow_sparse.models.nearest_neighbor import LocalVariance
from gpflow_sparse.models.qsgp import ControlRows
from gpflow_sparse.models.snapshot import FittedWeights
from gpflow_sparse.persistence.files import MAX_JITTER
from gpflow_sparse.validation import component_checks


def float_name(model: BayesianModel) -> str:
    """The name of the float type of a model's parameters, to which GPflow must be set."""
    floats = (p.dtype for p in model.parameters if p.dtype.is_floating)
    return str(tf.as_dtype(next(floats, gpflow.default_float())).name)


def input_dim(model: GPModel) -> int | None:
    """The number D of input columns, or None where the model does not determine it."""
    if isinstance(model, SparseGPModel):
        return model.input_dim
    data = getattr(model, "data", None)
    if isinstance(data, tuple):
        return int(data[0].shape[-1])
    inducing = getattr(model, "inducing_variable", None)
    return int(inducing.Z.shape[-1]) if type(inducing) is InducingPoints else None


def _is_count(value: Any) -> bool:
    if isinstance(value, bool) or not (tf.is_tensor(value) or isinstance(value, Real)):
        return False
    value = np.asarray(value)
    return bool(value.ndim == 0 and value > 0 and value == np.floor(value))


# The attributes of models of a class, their classes, and a description for errors.
_ATTRIBUTES: list[tuple[type, str, Any, str]] = [
    (GPModel, "kernel", Kernel, "a Kernel"),
    (GPModel, "likelihood", Likelihood, "a Likelihood"),
    (GPModel, "mean_function", Function, "a Function"),
    (BayesianModel, "inducing_variable", InducingVariables, "InducingVariables"),
    (GPModel, "calibration", Calibration | None, "a Calibration or None"),
    (SparseGPModel, "whiten", bool, "a bool"),
    (SparseGPModel, "standardizer", Standardizer | None, "a Standardizer"),
    (SoftKI, "basis", SoftInterpolation, "a SoftInterpolation"),
    (SoftKI, "weights", FittedWeights, "a FittedWeights"),
    (NearestNeighborGP, "local_variance", LocalVariance | None, "a LocalVariance or None"),
    (QSGP, "anchors", ControlRows | None, "ControlRows or None"),
]
# Attributes that not all of these models have.
_OPTIONAL = ("inducing_variable", "whiten")


def validate_loaded_model(model: Any) -> None:
    """
    Refuse an object that is not a model, or a model with invalid parts.

    :raises ValueError: naming the invalid part.
    """
    _require(isinstance(model, BayesianModel), "it holds no GPflow model", model)
    for kind, name, allowed, expected in _ATTRIBUTES:
        if isinstance(model, kind) and (name not in _OPTIONAL or hasattr(model, name)):
            value = getattr(model, name, None)
            _require(isinstance(value, allowed), f"model.{name} must be {expected}", value)
    dtypes = {p.dtype for p in model.parameters if p.dtype.is_floating}
    if len(dtypes) > 1:
        raise ValueError("the parameters of model must have one float type, got several")
    if isinstance(model, GPModel):
        latents = getattr(model, "num_latent_gps", None)
        _require(_is_count(latents), "model.num_latent_gps must be a positive count", latents)
    if isinstance(model, SparseGPModel):
        rows, jitter = getattr(model, "num_data", None), getattr(model, "jitter", None)
        expected = "model.num_data must be None or a positive count"
        _require(rows is None or _is_count(rows), expected, rows)
        sound = jitter is None or (isinstance(jitter, Real) and 0.0 < float(jitter) <= MAX_JITTER)
        expected = f"model.jitter must be None or a positive number up to {MAX_JITTER:g}"
        _require(sound, expected, jitter)
        if model.standardizer is not None:
            _require_standardizer(model.standardizer)
    if getattr(model, "calibration", None) is not None:
        _require_calibration(model.calibration)
    if hasattr(model, "variational_shapes") or isinstance(model, gpflow.models.SVGP):
        _require_variational_shapes(model)
    if isinstance(model, SparseGPModel):
        model.validate_loaded()
    elif isinstance(model, GPModel):
        _require_counts_of_gpflow(model)


def _require_counts_of_gpflow(model: GPModel) -> None:
    """Compare the numbers of columns and latent functions of a model of GPflow's with its parts."""
    latents, likelihood, data = model.num_latent_gps, model.likelihood, getattr(model, "data", None)
    if isinstance(data, tuple):
        found = GPModel.calc_num_latent_gps_from_data(data, model.kernel, likelihood)
        _require(latents == found, f"model.num_latent_gps must be {found}", latents)
    outputs = latents
    if isinstance(model.kernel, gpflow.kernels.LinearCoregionalization):
        outputs = model.kernel.W.shape[0]
    component_checks.require_kernel(model.kernel, input_dim(model))
    component_checks.require_mean_function(model.mean_function, input_dim(model), outputs)
    count = likelihood.latent_dim
    _require(count in (None, outputs), f"model.likelihood.latent_dim must be {outputs}", count)


def _require_standardizer(standardizer: Standardizer) -> None:
    names = ("x_mean", "x_scale", "y_mean", "y_scale", "y_power")
    statistics = {name: getattr(standardizer, name) for name in names}
    for value in statistics.values():
        sound = value is None or (isinstance(value, tf.Variable) and value.dtype == tf.float64)
        _require(sound, "model.standardizer must hold float64 variables", value)
    try:
        Standardizer(**statistics, y_transform=standardizer.y_transform)
    except ValueError as error:
        raise ValueError(f"model.standardizer.{error}") from error


def _require_calibration(calibration: Calibration) -> None:
    values = vars(calibration)
    names = ("function", "noise", "temperature", "skewness", "tail", "num_rows")
    numbers: dict[str, Any] = {name: values.get(name) for name in names}
    sound = all(type(value) in (int, float) for value in numbers.values())
    scores = values.get("scores")
    sound = sound and (scores is None or isinstance(scores, np.ndarray))
    _require(sound, "model.calibration must hold numbers", calibration)
    try:
        Calibration(**numbers, scores=scores)
    except ValueError as error:
        raise ValueError(f"model.calibration.{error}") from error


def _require_variational_shapes(model: Any) -> None:
    """Compare the shapes of q_mu and q_sqrt with the inducing sets, for known layouts."""
    q_mu, q_sqrt = model.q_mu, model.q_sqrt
    if isinstance(q_mu, gpflow.Parameter):
        q_mu, q_sqrt = (q_mu,), (q_sqrt,)
    if hasattr(model, "variational_shapes"):
        mean_shapes, sqrt_shapes = model.variational_shapes
    elif isinstance(model.q_mu, gpflow.Parameter):
        M, L = int(model.inducing_variable.num_inducing), model.num_latent_gps
        diagonal = q_sqrt[0].shape.rank == 2
        mean_shapes, sqrt_shapes = [(M, L)], [(M, L) if diagonal else (L, M, M)]
    else:
        return
    for name, values, shapes in (("q_mu", q_mu, mean_shapes), ("q_sqrt", q_sqrt, sqrt_shapes)):
        sound = len(values) == len(shapes)
        _require(sound, f"model.{name} must have {len(shapes)} entries", values)
        for value, shape in zip(values, shapes, strict=True):
            _require(tf.is_tensor(value), f"model.{name} must hold parameters", value)
            sound = value.shape.is_compatible_with(shape)
            _require(sound, f"model.{name} must have shape {shape}", value)


def _require(sound: bool, expected: str, value: Any) -> None:
    if not sound:
        raise ValueError(f"{expected}, got {type(value).__name__}")
