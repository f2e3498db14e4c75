"""Diagnosis of a failed step: its batch is evaluated again eagerly, from data to gradients."""

from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuu
from gpflow.inducing_variables import InducingPoints

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.numerics import linalg
from gpflow_sparse.training.contract import PartialUpdateModel
from gpflow_sparse.training.feed import data_guard
from gpflow_sparse.training.optimizers import (
    natural_pairs,
    natural_updates,
    unconstrained_variables,
)
from gpflow_sparse.training.state import named_variables

# Rows closer than this, relative to the spread of all rows, make a covariance singular.
_COINCIDE = 1e-6


class TrainingError(RuntimeError):
    """NaN or infinity in training that no remedy removed; the message names its origin."""


class Diagnosis(NamedTuple):
    """Cause of a failed step."""

    text: str
    """The failing matrix, parameter, or data column, and its likely cause."""
    jitter_helps: bool = False
    """Whether a factorization failed that more jitter can make succeed."""
    data_at_fault: bool = False
    """Whether the data themselves are the cause, which no smaller step can remedy."""


def diagnose(model: gpflow.models.GPModel, batch: Any, gamma: float = 0.0) -> Diagnosis:
    """
    Find the first quantity that is not finite, at the parameters at which the step failed.

    :param batch: ``(X, Y)`` of the step, or None for a model that holds its data.
    :param gamma: size of the natural-gradient step that was taken; 0 for none.
    """
    if batch is not None:
        try:
            batch = data_guard(model)(batch)
        except ValueError as error:
            return Diagnosis(f"in this batch, {error}", data_at_fault=True)
    bad = [_path(n) for n, v in named_variables(model).items() if not _finite(v)]
    if bad:
        return Diagnosis(
            f"{' and '.join(bad[:3])} {'are' if len(bad) > 1 else 'is'} not finite. Likely causes: "
            "a learning rate that is too large, data that are not standardized, a value set by hand"
        )
    try:
        _factor_covariance(model)
        return _follow_step(model, batch, gamma)
    except (linalg.FactorizationError, tf.errors.InvalidArgumentError) as error:
        text = _first_line(error)
        # the precision of q after a natural step has no jitter to raise, I + ... needs none; a
        # covariance of q has none, and a basis takes its jitter from the float type
        others = ("natural-gradient", "factorization of I + ", "factorization of S_I ")
        helps = "positive definite" in text and not any(part in text for part in others)
        helps = helps and not (isinstance(model, PartialUpdateModel) and hasattr(model, "basis"))
        return Diagnosis(f"{text}{_suspects(model)}", jitter_helps=helps)
    except ValueError as error:
        return Diagnosis(str(error), data_at_fault=True)


def _follow_step(model: gpflow.models.GPModel, batch: Any, gamma: float) -> Diagnosis:
    """Evaluate the parts of the step in order: loss, gradients, natural-gradient steps."""
    loss, gradients = _loss_and_gradients(model, batch)
    if not _finite(loss):
        return Diagnosis(f"the objective is {-float(loss)}. {_worst_row(model, batch)}")
    bad = [_path(n) for n, g in gradients.items() if g is not None and not _finite(g)]
    if bad:
        return Diagnosis(
            f"the gradient of {' and '.join(bad[:3])} is not finite, though the objective is "
            f"{-float(loss):.6g}. Likely causes: coinciding points in a kernel that is not smooth "
            "at zero distance, a parameter at the end of its range"
        )
    if gamma:
        pairs = natural_pairs(model)
        slopes = {v.ref(): gradients.get(name) for name, v in named_variables(model).items()}
        of_q: Any = [slopes[variable.ref()] for variable in unconstrained_variables(pairs)]
        if not all(map(_finite, natural_updates(pairs, of_q, gamma))):
            return Diagnosis(
                f"a natural-gradient step of size {gamma:g} is not finite: take a smaller one"
            )
    who = "the likelihood draws"
    if isinstance(model, PartialUpdateModel):
        drawn = "functions" if hasattr(model, "basis") else "inducing points"
        who = f"choose the {drawn} of a step, or that {who}"
    return Diagnosis(
        "the failure did not occur again on the same batch. Likely causes: random numbers "
        f"that {who}, a natural-gradient step at the edge of the float type"
    )


def _loss_and_gradients(model: Any, batch: Any) -> tuple[tf.Tensor, dict[str, Any]]:
    """Loss, and gradients by the path of their variable; for row-wise updates, of the rows used."""
    variables = named_variables(model)
    if isinstance(model, PartialUpdateModel):
        names = {variable.ref(): name for name, variable in variables.items()}
        loss, pairs = model.step_gradients(batch)
        return loss, {names[variable.ref()]: gradient for gradient, variable in pairs}
    with tf.GradientTape() as tape:
        tape.watch(list(variables.values()))
        loss = model.training_loss(*(() if batch is None else (batch,)))
    return loss, tape.gradient(loss, variables)


def _factor_covariance(model: gpflow.models.GPModel) -> None:
    """Factor the covariance of the prior, since GPflow's models turn a failure into NaN."""
    inducing = getattr(model, "inducing_variable", None)
    if isinstance(inducing, InducingPoints):
        K = Kuu(inducing, model.kernel, jitter=gpflow.config.default_jitter())
        linalg.cholesky(K, "Kuu (covariance of the inducing points)")
    elif isinstance(model, gpflow.models.GPR | gpflow.models.VGP):
        X = tf.convert_to_tensor(model.data[0])
        K = model.kernel(X)
        amount = tf.cast(gpflow.config.default_jitter(), K.dtype)
        if isinstance(model, gpflow.models.GPR):
            amount = tf.reduce_min(model.likelihood.variance_at(X))
        linalg.cholesky(linalg.add_jitter(K, amount), "Kff (covariance of the data)")


def _suspects(model: gpflow.models.GPModel) -> str:
    """Properties of the model that are likely to make factorizations fail, as text."""
    found = []
    sets = getattr(getattr(model, "inducing_variable", None), "sets", None)
    sets = [getattr(model, "inducing_variable", None)] if sets is None else sets
    Z = [np.asarray(s.Z) for s in sets if isinstance(s, InducingPoints | NeighborInducingPoints)]
    if Z:
        points = np.concatenate(Z)
        grid = _COINCIDE * max(float(np.ptp(points, axis=0).max()), 1.0)
        coincide = len(points) - len(np.unique(np.round(points / grid), axis=0))
        if coincide:
            found.append(f"{coincide} of the {len(points)} inducing points coincide with another")
    if gpflow.default_float() == np.float32:
        found.append("this is float32")
    for path, parameter in gpflow.utilities.parameter_dict(model).items():
        if parameter.shape.rank == 0 or "lengthscales" in path:
            size = np.abs(np.asarray(parameter))
            extreme = size[(size > 1e4) | (size < 1e-4)]
            if extreme.size:
                found.append(f"model{path} is {extreme.flat[0]:.1e}")
    return f" Here, {', '.join(found)}." if found else ""


def _worst_row(model: gpflow.models.GPModel, batch: Any) -> str:
    """Text on the first row whose expected log likelihood is not finite, and likely causes."""
    advice = (
        "Likely causes: a learning rate that is too large, data that are not standardized, float32 "
        "with a tiny noise variance"
    )
    if batch is None:
        return advice
    X, Y = batch
    try:
        mean, variance = model.predict_f(X)
    except ValueError:  # a model without a posterior before `fit_posterior`
        return advice
    parts = {"mean": mean, "variance": variance}
    parts["expected log likelihood"] = model.likelihood.variational_expectations(
        X, mean, variance, Y
    )
    for what, value in parts.items():
        rows = np.flatnonzero(~np.isfinite(np.asarray(value).reshape(len(X), -1)).all(axis=1))
        if len(rows):
            entries = np.concatenate([np.asarray(X)[rows[0]], np.asarray(Y)[rows[0]]])
            largest, D = int(np.argmax(np.abs(entries))), X.shape[1]
            column = f"X column {largest}" if largest < D else f"Y column {largest - D}"
            return (
                f"The {what} of {len(rows)} of the {len(X)} rows is not finite, the first is row "
                f"{rows[0]} of the batch, whose largest entry is {column} = "
                f"{entries[largest]:.4g}. {advice}"
            )
    return advice


def _path(name: str) -> str:
    """The path of a variable as a user writes it."""
    return name.replace("._pretransformed_input", "")


def _finite(value: Any) -> bool:
    tensor = tf.convert_to_tensor(value)
    return not tensor.dtype.is_floating or bool(tf.reduce_all(tf.math.is_finite(tensor)))


def _first_line(error: Any) -> str:
    """The message of a failed check, without TensorFlow's node listing."""
    if isinstance(error, ValueError):
        return str(error)
    lines = error.message.splitlines()
    text = next((line for line in lines if "Cholesky factorization of" in line), lines[0])
    return text.split(" : Tensor had")[0]
