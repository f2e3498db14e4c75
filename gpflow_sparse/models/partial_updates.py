"""Training steps that update some rows of row variables and do not read or write others.

The methods ``sparse_step`` and ``step_gradients`` of a model with row-wise updates, which is a
:class:`~gpflow_sparse.training.contract.PartialUpdateModel`, are the functions here. The model
gives them ``_row_update(X, Y)``, the :class:`RowUpdate` of a batch. No gradient or other tensor
of the size of a row variable is formed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from gpflow_sparse.numerics.replicas import ONE, Replicas
from gpflow_sparse.validation import checks
from gpflow_sparse.validation.public_methods import public_method

Data = tuple[tf.Tensor, tf.Tensor]
Gradients = list[tuple[tf.Tensor, tf.Variable]]


class RowUpdate(NamedTuple):
    """The rows that a training step reads and updates, and its loss as a function of them."""

    row_indices: Sequence[tuple[tf.Variable, tf.Tensor]]
    """Long variables, each with different indices ``[u]`` of its rows."""
    loss: Callable[[Sequence[tf.Tensor]], tf.Tensor]
    """The loss as a function of the values of these rows."""
    after: Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor]], None] | None = None
    """Function that is called after an update, with the changes of these rows and the averages."""
    averages: Callable[[], Sequence[tf.Tensor]] | None = None
    """Function, called after :attr:`loss`, that returns means over the rows of the batch."""

    def gradients(
        self, dense_variables: Sequence[tf.Variable]
    ) -> tuple[tf.Tensor, list[tf.Tensor], Gradients]:
        """The loss, its gradients at the rows, and for dense variables that have one."""
        values = [tf.gather(variable, indices) for variable, indices in self.row_indices]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*values, *dense_variables])
            loss = self.loss(values)
        found = tape.gradient(loss, [*values, *dense_variables])
        of_rows = [
            # the gradient of a gathered tensor is IndexedSlices, of the size of the rows
            tf.zeros_like(value) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, value in zip(found, values, strict=False)
        ]
        others = zip(found[len(values) :], dense_variables, strict=True)
        return loss, of_rows, [(gradient, v) for gradient, v in others if gradient is not None]


@public_method()
def sparse_step(
    model: Any,
    data: Data,
    optimizer: Any,
    *,
    move: Any = True,
    scale: float = 1.0,
    replicas: Replicas = ONE,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    One training step, which changes nothing if the loss or a gradient is not finite.

    :param data: a batch ``(X [n, D], Y [n, P])``.
    :param optimizer: one of ``gpflow_sparse.training``'s optimizers for rows.
    :param move: false to evaluate only.
    :param scale: fraction of the step that is taken.
    :param replicas: how `training.fit` divides the batch.
    :return: the loss, and whether it and all gradients were finite.
    :raises ValueError: for data that do not fit the model, another kind of optimizer, or another
        ``move`` or ``scale``.
    """
    if not hasattr(optimizer, "move_rows"):
        raise ValueError(
            "optimizer must be a sparse one, such as gs.training.SparseAdagrad(0.1): others "
            f"move all rows in every step; got {type(optimizer).__name__}."
        )
    _require_move(move)
    _require_scale(scale)
    loss, moves, of_small, after = _mean_gradients(model, data, replicas)
    results = [loss, *(rows.gradient for rows in moves), *(gradient for gradient, _ in of_small)]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in results])
    optimizer.build([rows.variable for rows in moves], model.dense_variables)

    def apply() -> tf.Tensor:
        changes = [
            optimizer.move_rows(*rows, scale)
            if rows.variable.trainable
            else tf.zeros_like(rows.gradient)
            for rows in moves
        ]
        optimizer.move_dense(of_small, scale)
        optimizer.advance()
        after(changes)
        return tf.constant(True)

    tf.cond(tf.logical_and(move, finite), apply, lambda: tf.constant(False))
    return loss, finite


@public_method()
def step_gradients(model: Any, data: Data) -> tuple[tf.Tensor, Gradients]:
    """
    The loss of a step on a batch, and pairs of a gradient, which may be one of some rows, and its
    variable.
    """
    update = model._row_update(*data)
    loss, of_rows, of_small = update.gradients(model.dense_variables)
    variables = [variable for variable, _ in update.row_indices]
    return loss, [*zip(of_rows, variables, strict=True), *of_small]


class _Rows(NamedTuple):
    """Rows of a variable and the gradient at them, as ``move_rows`` takes them."""

    variable: tf.Variable
    indices: tf.Tensor
    gradient: tf.Tensor


def _mean_gradients(
    model: Any, data: Data, replicas: Replicas
) -> tuple[tf.Tensor, list[_Rows], Gradients, Callable[[Sequence[tf.Tensor]], None]]:
    """The loss, gradients of rows and of dense variables, and a function of changes of rows."""
    updates: list[RowUpdate] = []
    trained: list[tf.Variable] = []

    def compute(batch: Any) -> list[Any]:
        update = model._row_update(*batch)
        updates.append(update)
        loss, of_rows, of_small = update.gradients(model.dense_variables)
        pairs = zip(of_rows, update.row_indices, strict=True)
        slices = [tf.IndexedSlices(g, indices, tf.shape(v)) for g, (v, indices) in pairs]
        averages = [] if update.averages is None else update.averages()
        trained[:] = [variable for _, variable in of_small]
        return [loss, *slices, *(gradient for gradient, _ in of_small), *averages]

    loss, *found = replicas.mean(compute, data)
    update = updates[0]  # the others have the same draws of functions, and the same `after`
    long, rest = len(update.row_indices), len(update.row_indices) + len(trained)
    rows = zip(update.row_indices, found[:long], strict=True)
    moves = [_Rows(variable, *replicas.joined(slices)) for (variable, _), slices in rows]

    def after(changes: Sequence[tf.Tensor]) -> None:
        if update.after is not None:
            update.after(changes, found[rest:])

    return loss, moves, list(zip(found[long:rest], trained, strict=True)), after


def variational_parameters(model: Any) -> tuple[tuple[tf.Variable, ...]]:
    """The variables of q in one tuple, ``q_mu`` first; natural-gradient steps do not take them."""
    names = ("q_mu", "q_log_scale", "q_factor", "q_columns", "q_block")
    found = (getattr(model, name, None) for name in names)
    return (tuple(variable for variable in found if variable is not None),)


def _require_move(move: Any) -> None:
    """:raises ValueError: unless it is True, False, or a tensor that is one of them."""
    if not tf.is_tensor(move):
        checks.require_flag(move, "move")
    elif move.dtype != tf.bool or move.shape.rank != 0:
        raise ValueError(
            f"move must be True, False or a scalar bool tensor, got {move.dtype.name} of shape "
            f"{tuple(move.shape)}."
        )


def _require_scale(scale: Any) -> None:
    """:raises ValueError: unless it is a number from 0 to 1."""
    if not (checks.is_number(scale) and 0.0 <= scale <= 1.0):
        raise ValueError(f"scale must be a number from 0 to 1, got {scale!r}.")
