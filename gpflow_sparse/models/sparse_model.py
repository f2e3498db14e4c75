"""Models with variables so long that a training step may touch only some of their rows."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_sparse.validation import checks


class Touched(NamedTuple):
    """What one step reads of the long variables, and what it makes of it."""

    rows: Sequence[tuple[tf.Variable, tf.Tensor]]
    """Each variable and which rows of it, ``[u]``, none twice."""
    loss: Callable[[Sequence[tf.Tensor]], tf.Tensor]
    """The loss from the values of these rows."""
    moved: Callable[[Sequence[tf.Tensor]], None]
    """What else has to follow, from the change of each of these rows; called after the step."""


class SparseModel(abc.ABC):
    """
    A model that `training.fit` moves by :meth:`sparse_step`, with one of its sparse optimizers.

    Automatic differentiation sees the rows that a step touches and not the variables they are in:
    neither their gradient nor anything else of their size is ever made.
    """

    default_optimizer = "adagrad"
    """Which of the sparse optimizers `training.fit` takes by itself: that, or "adam"."""

    trainable_variables: Sequence[tf.Variable]
    _require_data: Callable[[Any], tuple[tf.Tensor, tf.Tensor]]

    @abc.abstractmethod
    def prepare_step(self, step: int, data: Callable[[], tuple[tf.Tensor, tf.Tensor]]) -> None:
        """
        What is to be done before step 0, 1, ..., outside of the compiled step.

        :param data: returns the batch of this step.
        """

    def prepare_data(self, data: Any) -> None:
        """
        What depends on all rows: called before step 0, and about once an epoch.

        :param data: as `training.fit` was given them.
        """
        return

    def sparse_step(
        self,
        data: tuple[tf.Tensor, tf.Tensor],
        optimizer: Any,
        *,
        move: Any = True,
        scale: float = 1.0,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        One training step: everything moves or, if a number is not finite, nothing. The long
        variables always move; other parts by ``gpflow.utilities.set_trainable``.

        :param data: ``(X [n, D], Y [n, P])``.
        :param optimizer: one of ``gpflow_sparse.training``'s sparse ones.
        :param move: false to evaluate only.
        :param scale: fraction of the step that is taken.
        :return: the loss, and whether it and all gradients were finite.
        :raises ValueError: for data that do not fit the model, another kind of optimizer, or a
            ``move`` or ``scale`` that is none.
        """
        if not hasattr(optimizer, "move_rows"):
            raise ValueError(
                "optimizer must be a sparse one, such as gs.training.SparseAdagrad(0.1): others "
                f"move all rows in every step; got {type(optimizer).__name__}."
            )
        require_move(move)
        require_scale(scale)
        touched = self._touch(*self._require_data(data))
        dense = self.small_variables
        loss, rows, known = gradients_of(touched, dense)
        numbers = [loss, *rows, *(g for g, _ in known)]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in numbers])
        optimizer.build([variable for variable, _ in touched.rows], dense)

        def apply() -> tf.Tensor:
            changes = [
                optimizer.move_rows(variable, indices, gradient, scale)
                for (variable, indices), gradient in zip(touched.rows, rows, strict=True)
            ]
            optimizer.move_dense(known, scale)
            optimizer.advance()
            touched.moved(changes)
            return tf.constant(True)

        tf.cond(tf.logical_and(move, finite), apply, lambda: tf.constant(False))
        return loss, finite

    def step_gradients(
        self, data: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, list[tuple[tf.Tensor, tf.Variable]]]:
        """
        What a step from a fresh draw would see: nothing of the size of a long variable.

        :param data: as :meth:`sparse_step`.
        :return: the loss, and gradients with the variables that they, or rows of them, belong to.
        """
        touched = self._touch(*self._require_data(data))
        loss, rows, known = gradients_of(touched, self.small_variables)
        variables = [variable for variable, _ in touched.rows]
        return loss, [*zip(rows, variables, strict=True), *known]

    @property
    @abc.abstractmethod
    def long_variables(self) -> tuple[tf.Variable, ...]:
        """The variables that a step touches some rows of."""

    @property
    def small_variables(self) -> list[tf.Variable]:
        """All other trainable variables."""
        long = {variable.ref() for variable in self.long_variables}
        return [v for v in self.trainable_variables if v.ref() not in long]

    @abc.abstractmethod
    def _touch(self, X: tf.Tensor, Y: tf.Tensor) -> Touched:
        """Draw what a step on this batch takes."""


def gradients_of(
    touched: Touched, dense: Sequence[tf.Variable]
) -> tuple[tf.Tensor, list[tf.Tensor], list[tuple[tf.Tensor, tf.Variable]]]:
    """The loss, its gradients at the touched rows, and those of small variables that have one."""
    values = [tf.gather(variable, indices) for variable, indices in touched.rows]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([*values, *dense])
        loss = touched.loss(values)
    found = tape.gradient(loss, [*values, *dense])
    rows = [_as_tensor(g, value) for g, value in zip(found, values, strict=False)]
    known = [(g, v) for g, v in zip(found[len(values) :], dense, strict=True) if g is not None]
    return loss, rows, known


def _as_tensor(gradient: Any, value: tf.Tensor) -> tf.Tensor:
    """The gradient of a gathered tensor is sparse in turn; it is as small as the rows are."""
    return tf.zeros_like(value) if gradient is None else tf.convert_to_tensor(gradient)


def require_move(move: Any) -> None:
    """:raises ValueError: unless it is True, False, or a tensor that is one of them."""
    if not tf.is_tensor(move):
        checks.require_flag(move, "move")
    elif move.dtype != tf.bool or move.shape.rank != 0:
        raise ValueError(
            f"move must be True, False or a scalar bool tensor, got {move.dtype.name} of shape "
            f"{tuple(move.shape)}."
        )


def require_scale(scale: Any) -> None:
    """:raises ValueError: unless it is a number from 0 to 1."""
    number = isinstance(scale, int | float | np.number) and not isinstance(scale, bool)
    if not (number and 0.0 <= scale <= 1.0):
        raise ValueError(f"scale must be a number from 0 to 1, got {scale!r}.")
