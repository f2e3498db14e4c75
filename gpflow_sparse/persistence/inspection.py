"""The float type of a model, and checks that a loaded model has sound parts."""

from numbers import Real
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import Function
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel, GPModel

from gpflow_sparse.bases import SoftInterpolation
from gpflow_sparse.data.standardize import Standardizer
from gpflow_sparse.models import QSGP, SWSGP, DeepGP, SoftKI, VariationalModel
from gpflow_sparse.models.base import SparseGPModel
from gpflow_sparse.models.qsgp_step import SupportRows
from gpflow_sparse.models.snapshot import FittedWeights
from gpflow_sparse.models.solvegp import OrthogonalModel
from gpflow_sparse.persistence.files import MAX_JITTER

_KINDS = {"kernel": Kernel, "likelihood": Likelihood, "mean_function": Function}


def float_name(model: BayesianModel) -> str:
    """The name of the float type of a model's parameters, to which GPflow must be set."""
    floats = (p.dtype for p in model.parameters if p.dtype.is_floating)
    return str(tf.as_dtype(next(floats, gpflow.default_float())).name)


def require_sound(model: Any) -> None:
    """
    Refuse an object that is no model, or a model with invalid parts.

    :raises ValueError: naming the invalid part.
    """
    _require(isinstance(model, BayesianModel), "it holds no GPflow model", model)
    if isinstance(model, GPModel):
        for name, kind in _KINDS.items():
            value = getattr(model, name, None)
            _require(isinstance(value, kind), f"model.{name} must be a {kind.__name__}", value)
        latents = getattr(model, "num_latent_gps", None)
        _require(_is_count(latents), "model.num_latent_gps must be a positive count", latents)
    if hasattr(model, "inducing_variable"):
        value = model.inducing_variable
        kind = InducingVariables
        _require(isinstance(value, kind), f"model.inducing_variable must be {kind.__name__}", value)
    if isinstance(model, SparseGPModel):
        _require_options(model)
    if isinstance(model, SoftKI):
        _require_interpolation(model)
    elif isinstance(model, QSGP):
        anchors = model.anchors
        sound = anchors is None or isinstance(anchors, SupportRows)
        _require(sound, "model.anchors must be SupportRows or None", anchors)
        model._require_parts(model.input_dim, model.dtype)
    elif isinstance(model, SWSGP | DeepGP):
        model._require_parts(model.input_dim, model.dtype)
    elif isinstance(model, VariationalModel | gpflow.models.SVGP):
        _require_variational_shapes(model)


def _require_interpolation(model: SoftKI) -> None:
    for name, kind in (("basis", SoftInterpolation), ("weights", FittedWeights)):
        value = getattr(model, name, None)
        _require(isinstance(value, kind), f"model.{name} must be a {kind.__name__}", value)
    model._require_parts(model.input_dim, model.dtype)
    num_points = int(model.basis.Z.shape[0])
    model.weights.require_sound(num_points, int(model.num_latent_gps), model.dtype)


def _require_options(model: SparseGPModel) -> None:
    num_data = getattr(model, "num_data", None)
    if num_data is not None:
        _require(_is_count(num_data), "model.num_data must be None or a positive count", num_data)
    jitter = getattr(model, "jitter", None)
    sound = jitter is None or (isinstance(jitter, Real) and 0.0 < float(jitter) <= MAX_JITTER)
    _require(sound, f"model.jitter must be None or a positive number up to {MAX_JITTER:g}", jitter)
    if hasattr(model, "whiten"):
        _require(isinstance(model.whiten, bool), "model.whiten must be a bool", model.whiten)
    if model.standardizer is not None:
        _require_standardizer(model.standardizer)


def _require_standardizer(value: Any) -> None:
    _require(isinstance(value, Standardizer), "model.standardizer must be a Standardizer", value)
    statistics = {name: getattr(value, name) for name in ("x_mean", "x_scale", "y_mean", "y_scale")}
    _require(
        (statistics["y_mean"] is None) == (statistics["y_scale"] is None),
        "model.standardizer must have y_mean and y_scale, or neither",
        value,
    )
    for axis in "xy":
        mean, scale = statistics[f"{axis}_mean"], statistics[f"{axis}_scale"]
        if axis == "y" and mean is None:
            continue
        sound = all(isinstance(v, tf.Variable) and v.dtype == tf.float64 for v in (mean, scale))
        sound = sound and mean.shape.rank == 1 and mean.shape == scale.shape
        sound = sound and bool(np.isfinite(mean).all() and (scale.numpy() > 0).all())
        _require(sound, f"model.standardizer.{axis}_scale must be positive, one per column", scale)


def _require_variational_shapes(model: Any) -> None:
    """Compare the shapes of q_mu and q_sqrt with the inducing sets, for known layouts."""
    q_mu, q_sqrt = model.q_mu, model.q_sqrt
    if isinstance(model, OrthogonalModel):
        mean_shapes, sqrt_shapes = model.variational_shapes
    elif isinstance(q_mu, gpflow.Parameter):
        M, L = int(model.inducing_variable.num_inducing), model.num_latent_gps
        q_mu, q_sqrt = (q_mu,), (q_sqrt,)
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


def _is_count(value: Any) -> bool:
    if isinstance(value, bool) or not (tf.is_tensor(value) or isinstance(value, Real)):
        return False
    value = np.asarray(value)
    return value.ndim == 0 and value > 0 and value == np.floor(value)


def _require(sound: Any, expected: str, value: Any) -> None:
    if not sound:
        raise ValueError(f"{expected}, got {type(value).__name__}")
