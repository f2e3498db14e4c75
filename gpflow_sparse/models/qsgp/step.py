"""A training step of QSGP: its draws of functions, rows of variables, and control rows."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inference import chevron
from gpflow_sparse.inference.chevron import Head, Tail
from gpflow_sparse.inference.subsampling import (
    BlockPair,
    ColumnBlocks,
    Draw,
    Functions,
    KnownProjections,
    Pair,
    Regression,
    scaled_products,
)
from gpflow_sparse.numerics import devices, linalg

# Relative change of a hyperparameter after which the projections are computed again.
_MOVED = 0.05
# Steps between checks of the hyperparameters.
_LOOK_EVERY = 100
# Steps after which the projections are computed again: their rounding adds up to 1e-5 in float32.
_ROUNDED_AFTER = 10_000
# Entries of a block of functions at the rows of a batch: 4 MB in float64.
_BLOCK_ENTRIES = 2**19
# Fewer rows count as this many, and an unknown number: there may be as many control rows.
_ROWS = 500
# The largest number of blocks of a draw, each of which adds to the graph of a step.
_MOST_BLOCKS = 32


class SubsampledStep:
    """
    The rows of row variables that a step reads and writes, as ``row_indices``: pairs of a
    variable and indices.

    The rows of ``q_mu``, and of ``basis.log_precision`` if it is trained by gradients, are the head
    and the functions in both draws; the rows of ``q_log_scale`` and ``q_columns`` are the draws.
    :meth:`read` splits the values of these rows into head and draws.
    """

    def __init__(self, model: Any, draws: Sequence[tf.Tensor], *, unique: bool = True) -> None:
        """
        :param model: a QSGP.
        :param draws: two independent draws of functions: indices in the tail, ``[k]`` each.
        :param unique: whether each row is read once, as row updates need it.
        """
        self._model, self.draws = model, draws
        both = tf.concat(draws, axis=0)  # [2 k]
        self.taken, self.places = tf.unique(both) if unique else (both, tf.range(tf.size(both)))
        h = model.num_head
        self.indices = tf.concat([tf.range(h), h + self.taken], axis=0)
        self.row_indices = [(model.q_mu, self.indices), (model.q_log_scale, self.taken)]
        if model.q_columns is not None:
            self.row_indices.append((model.q_columns, self.taken))
        if model.trains_precision:
            self.row_indices.append((model.basis.log_precision, self.indices))

    def read(self, values: Sequence[tf.Tensor]) -> tuple[Head, tf.Tensor, list[Draw]]:
        """
        :param values: values of the rows.
        :return: q of the head, the head's prior precision ``[h]``, and both draws.
        """
        model, h = self._model, self._model.num_head
        if model.trains_precision:
            precision = tf.exp(values[-1])
        else:
            precision = model.basis.precision_diagonal(self.indices)
        parts = [values[0][h:], values[1], None if model.q_columns is None else values[2]]
        draws, k = [], self.draws[0].shape[0]
        for indices, at in zip(self.draws, (self.places[:k], self.places[k:]), strict=True):
            tail = Tail(*(None if part is None else tf.gather(part, at) for part in parts))
            draws.append(Draw(indices, tail, tf.gather(precision[h:], at)))
        means, precision = (_first(part, h) for part in (values[0], precision))
        return Head(means, model.head.B), precision, draws

    def first_places(self) -> tf.Tensor:
        """Index of the first occurrence of each function taken in the two draws joined, ``[u]``."""
        order = tf.range(tf.size(self.places))
        return tf.math.unsorted_segment_min(order, self.places, tf.size(self.taken))

    def tail_changes(self, changes: Sequence[tf.Tensor]) -> Pair:
        """
        Changes of the tail's vectors at the functions of each draw, ``[k, Q]``; for a function in
        both draws in the first only.

        :param changes: changes of the rows.
        """
        D = None if self._model.q_columns is None else changes[2]
        vectors = chevron.tail_vectors(Tail(changes[0][self._model.num_head :], changes[1], D))
        first = tf.gather(self.first_places(), self.places)
        once = tf.cast(first == tf.range(tf.size(self.places)), vectors.dtype)[:, None]
        first_draw, second_draw = tf.split(tf.gather(vectors, self.places) * once, 2)
        return first_draw, second_draw


def _first(values: tf.Tensor, count: int) -> tf.Tensor:
    """The first rows; XLA takes no empty slice of as many rows as ``tf.unique`` has left."""
    return values[:count] if count else tf.zeros([0, *values.shape[1:]], values.dtype)


class ControlRows(tf.Module):
    """
    Control rows, a copy of the basis, and the projections of the tail at these rows.

    ``values = Phi_p V`` is computed once, O(p m Q), and updated for every change of a few weights:
    ``values += Phi_p[:, u] (V_u,new - V_u)`` (proposition 3 of Evans and Nair, "Quadruply
    Stochastic Gaussian Processes", 2020). This needs constant functions: the basis is a copy, whose
    variables are updated only in :meth:`refresh`.
    """

    def __init__(self, basis: FiniteBasis, num_head: int, num_vectors: int) -> None:
        """
        :param num_head: h, the number of functions in the head.
        :param num_vectors: Q, the number of vectors that are projected.
        """
        super().__init__()
        self.basis = gpflow.utilities.deepcopy(basis)
        gpflow.utilities.set_trainable(self.basis, False)
        for value in gpflow.utilities.parameter_dict(self.basis).values():
            if isinstance(value, gpflow.Parameter):
                value.prior = None  # the model's own basis has it already
        self.num_head = num_head

        def empty(*shape: int | None) -> tf.Variable:
            start = np.zeros([size or 0 for size in shape])
            return tf.Variable(start, trainable=False, shape=shape, dtype=basis.dtype)

        self.X, self.factor = empty(None, None), empty(None, None)
        self.values = empty(None, num_vectors)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore unknown shapes, which variables of TensorFlow lose when copied or unpickled."""
        self.__dict__.update(state)
        for name in ("X", "factor", "values"):
            value = getattr(self, name)
            if isinstance(value, tf.Variable):  # gpflow.utilities.freeze leaves tensors
                shape = [None, value.shape[1] if name == "values" else None]
                setattr(self, name, tf.Variable(value, trainable=value.trainable, shape=shape))

    @property
    def is_empty(self) -> bool:
        """Whether there are no control rows yet."""
        with tf.init_scope():
            return int(tf.shape(self.values)[0]) == 0

    def refresh(self, basis: FiniteBasis, tail: Tail, X: tf.Tensor | None = None) -> None:
        """
        Copy the current basis and compute all projections again; O(p m Q + p^3).

        :param X: new rows ``[p, D]``; None for the current ones.
        :raises ValueError: for another basis than the model's.
        """
        if _settings(basis) != _settings(self.basis):
            raise ValueError(
                "kernel must hold the basis that the model was built with, and it holds another: "
                "build a new model for it."
            )
        for mine, live in zip(self.basis.variables, basis.variables, strict=True):
            mine.assign(live)
        if X is not None:
            self.X.assign(X)
        X = tf.convert_to_tensor(self.X)
        K = linalg.add_jitter(self._covariance(X, X), linalg.jitter(self.basis.kernel.K_diag(X)))
        self.factor.assign(linalg.cholesky(K, "Kpp (covariance of the control rows)"))
        weights = [part for part in (tail.mu, tail.D) if part is not None]
        if not any(bool(tf.reduce_any(part != 0.0)) for part in weights):
            self.values.assign(tf.zeros([X.shape[0], self.values.shape[1]], self.values.dtype))
            return

        # not compiled: a function made here would be traced again in every call
        self.values.assign(
            chevron.tail_projections(lambda i: self.basis(X, i), self.num_head, weights, X.shape[0])
        )

    def is_due(self, step: int, basis: FiniteBasis) -> bool:
        """Whether a step should begin with :meth:`refresh`."""
        if step and step % _ROUNDED_AFTER == 0:
            return True
        # without trained hyperparameters a step evaluates only the current basis, not the copy
        if not trained_hyperparameters(basis):
            return self._has_moved(basis, by=0.0)
        return step % _LOOK_EVERY == 0 and self._has_moved(basis, by=_MOVED)

    def _has_moved(self, basis: FiniteBasis, by: float) -> bool:
        """Whether a hyperparameter of the basis has changed by more than this fraction."""
        mine, live = (gpflow.utilities.parameter_dict(part) for part in (self.basis, basis))
        for path, parameter in mine.items():
            if path.endswith(".log_precision"):  # long, and the functions do not depend on it
                continue
            then, now = np.asarray(parameter), np.asarray(live[path])
            if np.abs(now - then).max(initial=0.0) > by * np.abs(then).max(initial=0.0):
                return True
        return False

    def inputs(self, num_columns: int | None) -> tf.Tensor:
        """
        ``X [p, D]``.

        :raises ValueError: for another number of columns than they have, and before there are any.
        """
        if self.is_empty:
            raise ValueError(
                "the control rows have not been taken yet: call model.prepare_step(0, lambda: "
                "data) first, as training.fit does."
            )
        with tf.init_scope():
            found = int(tf.shape(self.X)[1])
        if num_columns not in (None, found):
            raise ValueError(
                f"X must have {found} column(s), as the control rows have; got {num_columns}. For "
                "other data call model.prepare_step(0, lambda: data) first."
            )
        return tf.ensure_shape(self.X, [None, num_columns])

    def regression(self, X: tf.Tensor) -> Regression:
        """``W = K(X, X_p) Kpp^-1 [n, p]``: regression of the tail at X on the control rows."""
        K = self._covariance(X, self.inputs(X.shape[1]))  # [n, p]

        def times(errors: tf.Tensor) -> tf.Tensor:
            # from the right: O(p^2) per column, where W would take it for each of n rows
            half = linalg.solve_triangular(self.factor, errors)  # [p, Q]
            return tf.linalg.matmul(K, linalg.solve_triangular(self.factor, half, adjoint=True))

        return times

    def projections(
        self, Phi: BlockPair, vectors: Pair, scale: Any, W: Regression
    ) -> KnownProjections:
        """
        Projections of the tail at the control rows, as both draws estimate them and exactly.

        :param Phi: the functions of both draws at the control rows, ``[p, k]``.
        :param vectors: the tail's vectors of both draws, ``[k, Q]``.
        :param scale: functions in the tail over functions drawn.
        :param W: see :class:`~gpflow_sparse.inference.subsampling.KnownProjections`.
        """
        estimates = scaled_products(Phi, vectors, scale)
        return KnownProjections(W, estimates, tf.convert_to_tensor(self.values))

    def follow(self, Phi: BlockPair, changes: Pair) -> None:
        """Update for changes ``[k, Q]`` of vectors of some functions ``[p, k]``."""
        first, second = scaled_products(Phi, changes, 1.0)
        self.values.assign_add(first + second)

    def _covariance(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """
        Prior covariance of the tail: the kernel, without the part of the head if the head is a
        projection of the kernel; see ``FiniteBasis.num_leading``.
        """
        K = covariance(self.basis.kernel, X, X2)
        h = self.num_head
        if h == 0 or not (self.basis.is_projection or self.basis.num_leading == h):
            return K
        head = tf.range(h)
        return K - tf.linalg.matmul(self.basis(X, head), self.basis(X2, head), transpose_b=True)


def functions_at(
    basis: FiniteBasis,
    h: int,
    X: tf.Tensor,
    draws: Sequence[Draw],
    anchors: ControlRows | None,
) -> Functions:
    """
    Functions of the head and of both draws at X, and of both draws at the control rows.

    :param h: functions in the head.
    """
    sizes = _block_sizes(draws[0].indices.shape[0], X.shape[0])
    drawn = [block for draw in draws for block in tf.split(h + draw.indices, sizes)]

    def of_draws(values: Sequence[tf.Tensor]) -> BlockPair:
        return ColumnBlocks(values[: len(sizes)]), ColumnBlocks(values[len(sizes) :])

    if h:
        head, *tails = basis.of_sets(X, [tf.range(h), *drawn])
    else:  # kernels of no points have no finite gradient
        head, tails = tf.zeros([tf.shape(X)[0], 0], X.dtype), basis.of_sets(X, drawn)
    if anchors is None:
        return Functions(head, of_draws(tails))
    # with trained hyperparameters the functions at the control rows are as at the last refresh
    known = anchors.basis if trained_hyperparameters(basis) else basis
    support = known.of_sets(anchors.inputs(X.shape[1]), drawn)
    return Functions(head, of_draws(tails), of_draws(support))


def _block_sizes(num_drawn: int, num_rows: int | None) -> list[int]:
    """Sizes of the blocks that the functions of a draw are computed in; one block for a GPU."""
    size = max(1, _BLOCK_ENTRIES // max(num_rows or 0, _ROWS))
    count = 1 if devices.sees_gpu() else min(max(1, num_drawn // size), _MOST_BLOCKS)
    return [num_drawn // count + (i < num_drawn % count) for i in range(count)]


def trained_hyperparameters(basis: FiniteBasis) -> list[tf.Variable]:
    """Trainable variables that the functions depend on, unlike the precision of their weights."""
    precision = getattr(basis, "log_precision", None)
    return [variable for variable in basis.trainable_variables if variable is not precision]


def _settings(basis: FiniteBasis) -> list[Any]:
    """Classes and settings of a basis and its parts; not the values of its variables."""
    parts = [part for part in basis.submodules if isinstance(part, FiniteBasis | Kernel)]
    settings: list[Any] = []
    for part in (basis, *parts):
        own = {k: v for k, v in vars(part).items() if isinstance(v, bool | int | str)}
        settings += [type(part), {k: v for k, v in own.items() if not k.startswith("_")}]
    return settings
