"""Weights of training rows for models that are trained by minibatches of rows.

A row of weight w counts as w equal rows: its expected log density is multiplied by w. During the
steps the weight is one more column of Y, which a likelihood around the model's own reads, so that
models and batches need not know of it.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood

from gpflow_sparse.tables.methods.registry import kind_of
from gpflow_sparse.tables.methods.rows import Pair

# Smallest mean of weights without advice, and largest excess over 1 that is rounding.
_USUAL_WEIGHT, _ROUNDING = 1 / 3, 1e-9


class WeightedLikelihood(Likelihood):
    """
    A likelihood of outputs ``[y, w]`` with ``w`` times the expected log density of y.

    :param base: the likelihood of y.
    :param num_outputs: columns of y.
    """

    def __init__(self, base: Likelihood, num_outputs: int) -> None:
        super().__init__(base.input_dim, base.latent_dim, num_outputs + 1)
        self.base = base

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return Y[..., -1] * self.base.log_prob(X, F, Y[..., :-1])

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        expected = self.base.variational_expectations(X, Fmu, Fvar, Y[..., :-1])
        return Y[..., -1] * expected

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self.base.predict_mean_and_var(X, Fmu, Fvar)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return Y[..., -1] * self.base.predict_log_density(X, Fmu, Fvar, Y[..., :-1])


def advice_on_mean(weights: np.ndarray) -> str:
    """What is done about weights with a mean far from 1, and what to do; empty for others."""
    mean = float(np.mean(weights))
    if mean > 1.0 + _ROUNDING:
        return (
            f"the sum {np.sum(weights):.4g} for {len(weights)} rows and was divided by the mean, "
            f"{mean:.3g}: weights compare rows with each other, and are not taken for repeated "
            "measurements with equal results."
        )
    if mean > _USUAL_WEIGHT:
        return ""
    return (
        f"the mean {mean:.3g}, as if only so many rows were there for each, which makes "
        "predictions vague; divide weights that compare rows with each other by their mean."
    )


def weights_of_copies(
    weights: np.ndarray | None, method: str, conformal: bool
) -> np.ndarray | None:
    """Weights that rows have from their copies; None where weights would be refused."""
    return weights if kind_of(method).takes_weights and not conformal else None


@contextlib.contextmanager
def weighted_rows(model: Any, rows: Pair, row_weights: np.ndarray | None) -> Iterator[Pair]:
    """
    A context in which a model takes rows with weights: its likelihood has another column of Y.

    :param model: a variational model with the objective "standard"; any model without weights.
    :param row_weights: positive ``[N]``; None for 1.
    :raises ValueError: for another objective.
    """
    if row_weights is None:
        yield rows
        return
    if getattr(model, "bound", "standard") != "standard":
        raise ValueError(
            f"bound must be 'standard' for rows of weights, got {model.bound!r}; leave it out."
        )
    X, Y = rows
    likelihood = model.likelihood
    model.likelihood = WeightedLikelihood(likelihood, Y.shape[1])
    try:
        yield X, np.column_stack([Y, row_weights])
    finally:
        model.likelihood = likelihood
