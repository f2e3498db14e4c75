"""Optimizers for variables so long that a step may touch only some of their rows."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gpflow_sparse.training.optimizers import require_rate
from gpflow_sparse.training.row_steps import Rate, SparseOptimizer


class SparseSGD(SparseOptimizer):
    """
    Plain gradient steps: ``v <- v - rate g`` on the rows that are touched.

    :param learning_rate: a number of at least 0, a Keras learning-rate schedule, or any function of
        the number of steps done.
    :param dense: a Keras optimizer for the small variables; ``gpflow_sparse.training.adam(0.001)``
        by default.
    :raises ValueError: for a rate or an optimizer that is neither.
    """

    def __init__(self, learning_rate: Rate, *, dense: Any = None) -> None:
        super().__init__(learning_rate, dense)

    def _new_slots(self, variable: tf.Variable) -> list[tf.Tensor]:
        return []

    def _step(
        self, memory: Sequence[tf.Tensor], gradient: tf.Tensor, rate: tf.Tensor
    ) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        return rate * gradient, memory


class SparseAdagrad(SparseOptimizer):
    """
    Adagrad: ``a <- a + g^2``, ``v <- v - rate g / (sqrt(a) + epsilon)``.

    A row's steps shrink with the gradients it has seen itself, so that this is also what Adagrad
    does to all rows at once if the others have gradient zero (Duchi, Hazan and Singer, "Adaptive
    subgradient methods for online learning and stochastic optimization", 2011).

    :param learning_rate: a number of at least 0, a Keras learning-rate schedule, or any function of
        the number of steps done.
    :param initial_accumulator: ``a`` at the start; 0 makes a row's first step as long as the rate,
        whatever the size of its gradient.
    :param epsilon: keeps a row that has seen no gradient from 0 / 0.
    :param dense: a Keras optimizer for the small variables; ``gpflow_sparse.training.adam(0.001)``
        by default.
    :raises ValueError: for a rate or an optimizer that is neither, or other negative settings.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.1,
        *,
        initial_accumulator: float = 0.0,
        epsilon: float = 1e-10,
        dense: Any = None,
    ) -> None:
        super().__init__(learning_rate, dense)
        self.initial_accumulator = require_rate(initial_accumulator, "initial_accumulator")
        self.epsilon = require_rate(epsilon, "epsilon")

    def get_config(self) -> dict[str, Any]:
        """The settings, as plain values."""
        own = {"initial_accumulator": self.initial_accumulator, "epsilon": self.epsilon}
        return super().get_config() | own

    def _new_slots(self, variable: tf.Variable) -> list[tf.Tensor]:
        return [tf.fill(variable.shape, tf.constant(self.initial_accumulator, variable.dtype))]

    def _step(
        self, memory: Sequence[tf.Tensor], gradient: tf.Tensor, rate: tf.Tensor
    ) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        a = memory[0] + tf.square(gradient)
        return rate * gradient / (tf.sqrt(a) + self.epsilon), [a]


class SparseAdam(SparseOptimizer):
    """
    "Lazy" Adam: moments and step counts belong to the rows, and only touched rows have any.

    With ``t`` a row's own count of steps, ``p <- beta_1 p + (1 - beta_1) g``, ``s <- beta_2 s +
    (1 - beta_2) g^2`` and ``v <- v - rate sqrt(1 - beta_2^t) / (1 - beta_1^t) p / (sqrt(s) +
    epsilon)``: on rows that every step touches this is the Adam of Keras. Of the rows that a step
    leaves out Adam would let the moments decay, and move them: this does neither.

    :param learning_rate: a number of at least 0, a Keras learning-rate schedule, or any function of
        the number of steps done.
    :param beta_1: decay of the first moments, in [0, 1).
    :param beta_2: decay of the second moments, in [0, 1).
    :param epsilon: added to the root of the second moment.
    :param dense: a Keras optimizer for the small variables; ``gpflow_sparse.training.adam(0.001)``
        by default.
    :raises ValueError: for a rate or an optimizer that is neither, or other settings out of range.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        *,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        dense: Any = None,
    ) -> None:
        super().__init__(learning_rate, dense)
        self.beta_1, self.beta_2 = (
            _require_decay(beta_1, "beta_1"),
            _require_decay(beta_2, "beta_2"),
        )
        self.epsilon = require_rate(epsilon, "epsilon")

    def get_config(self) -> dict[str, Any]:
        """The settings, as plain values."""
        own = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return super().get_config() | own

    def _new_slots(self, variable: tf.Variable) -> list[tf.Tensor]:
        counts = tf.zeros(variable.shape[:1], variable.dtype)
        return [tf.zeros(variable.shape, variable.dtype) for _ in range(2)] + [counts]

    def _step(
        self, memory: Sequence[tf.Tensor], gradient: tf.Tensor, rate: tf.Tensor
    ) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        p, s, t = memory
        p = self.beta_1 * p + (1.0 - self.beta_1) * gradient
        s = self.beta_2 * s + (1.0 - self.beta_2) * tf.square(gradient)
        t = t + 1.0
        rates = rate * tf.sqrt(_decayed(self.beta_2, t)) / _decayed(self.beta_1, t)
        trailing = tf.ones(tf.rank(p) - tf.rank(t), tf.int32)
        rates = tf.reshape(rates, tf.concat([tf.shape(t), trailing], axis=0))
        return rates * p / (tf.sqrt(s) + self.epsilon), [p, s, t]


def _decayed(beta: float, t: tf.Tensor) -> tf.Tensor:
    """``1 - beta^t`` without cancellation."""
    return -tf.math.expm1(t * math.log(beta)) if beta else tf.ones_like(t)


def _require_decay(value: Any, name: str) -> float:
    if require_rate(value, name) >= 1.0:
        raise ValueError(f"{name} must be below 1, got {value!r}.")
    return float(value)
