"""Places where the tail of a sub-sampled model is known exactly, kept so at constant cost."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.inference.chevron import Tail, tail_projections
from gpflow_sparse.inference.subsampling import Anchor
from gpflow_sparse.numerics import linalg

# Relative change of a hyperparameter at which what is known becomes too old to be of use.
_MOVED = 0.05


def trained_hyperparameters(basis: FiniteBasis) -> list[tf.Variable]:
    """Trainable variables that the functions depend on; the precision of their weights is none."""
    precision = getattr(basis, "log_precision", None)
    return [variable for variable in basis.trainable_variables if variable is not precision]


class Anchors(tf.Module):
    """
    Rows of data, the functions as they were at some time, and what the tail's weights make of them.

    ``values = Phi_p V`` is computed once, O(p m Q), and then follows every move of a few weights:
    ``values += Phi_p[:, u] (V_u,new - V_u)`` (proposition 3 of Evans and Nair, "Quadruply
    Stochastic Gaussian Processes", 2020). For that the functions have to stay what they were: the
    basis is a copy, whose hyperparameters follow only in :meth:`refresh`.
    """

    def __init__(self, basis: FiniteBasis, num_head: int, num_vectors: int) -> None:
        """
        :param num_head: h; the tail begins there.
        :param num_vectors: Q.
        """
        super().__init__()
        self.basis = gpflow.utilities.deepcopy(basis)
        gpflow.utilities.set_trainable(self.basis, False)
        for value in gpflow.utilities.parameter_dict(self.basis).values():
            if isinstance(value, gpflow.Parameter):
                value.prior = None  # that of the model counts, and once
        self.num_head = num_head

        def empty(*shape: int | None) -> tf.Variable:
            start = np.zeros([size or 0 for size in shape])
            return tf.Variable(start, trainable=False, shape=shape, dtype=basis.dtype)

        self.X, self.Y = empty(None, None), empty(None, None)
        self.factor, self.values = empty(None, None), empty(None, num_vectors)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copied or unpickled, TensorFlow's variables forget that their size may change."""
        self.__dict__.update(state)
        for name in ("X", "Y", "factor", "values"):
            value = getattr(self, name)
            if isinstance(value, tf.Variable):  # and none that gpflow.utilities.freeze has replaced
                shape = [None, value.shape[1] if name == "values" else None]
                setattr(self, name, tf.Variable(value, trainable=value.trainable, shape=shape))

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows yet."""
        with tf.init_scope():
            return int(tf.shape(self.values)[0]) == 0

    def refresh(self, basis: FiniteBasis, tail: Tail, X: tf.Tensor, Y: tf.Tensor) -> None:
        """
        Take rows ``X [p, D]``, ``Y [p, P]`` and the basis as it is now; O(p m Q + p^3).

        :raises ValueError: for a basis that is not the one this was made for.
        """
        if _settings(basis) != _settings(self.basis):
            raise ValueError(
                "kernel must hold the basis that the model was built with, and it holds another: "
                "build a new model for it."
            )
        for mine, live in zip(self.basis.variables, basis.variables, strict=True):
            mine.assign(live)
        self.X.assign(X)
        self.Y.assign(Y)
        K = linalg.add_jitter(self._covariance(X, X), linalg.jitter(self.basis.kernel.K_diag(X)))
        self.factor.assign(linalg.cholesky(K, "Kpp (covariance of the support rows)"))
        weights = [part for part in (tail.mu, tail.D) if part is not None]
        if not any(bool(tf.reduce_any(part != 0.0)) for part in weights):
            self.values.assign(tf.zeros([X.shape[0], self.values.shape[1]], self.values.dtype))
            return

        # not compiled: a function made here would be traced anew in every call
        self.values.assign(
            tail_projections(lambda i: self.basis(X, i), self.num_head, weights, X.shape[0])
        )

    def have_aged(self, basis: FiniteBasis, by: float = _MOVED) -> bool:
        """Whether a hyperparameter of the basis has moved by more than this part of itself."""
        mine, live = (gpflow.utilities.parameter_dict(part) for part in (self.basis, basis))
        for path, parameter in mine.items():
            if path.endswith(".log_precision"):  # long, and the functions do not depend on it
                continue
            then, now = np.asarray(parameter), np.asarray(live[path])
            if np.abs(now - then).max(initial=0.0) > by * np.abs(then).max(initial=0.0):
                return True
        return False

    def rows(self, num_columns: int | None) -> tf.Tensor:
        """
        ``X [p, D]``.

        :raises ValueError: for another number of columns than they have.
        """
        with tf.init_scope():
            found = int(tf.shape(self.X)[1])
        if num_columns not in (None, found):
            raise ValueError(
                f"X must have {found} column(s), as the support rows have; got {num_columns}. For "
                "other data call model.prepare_step(0, lambda: data) first."
            )
        return tf.ensure_shape(self.X, [None, num_columns])

    def batch(self, num_columns: int | None, num_outputs: int | None) -> tuple[Any, Any]:
        """The rows as a batch ``(X [p, D], Y [p, P])``."""
        return self.rows(num_columns), tf.ensure_shape(self.Y, [None, num_outputs])

    def weights(self, X: tf.Tensor) -> tf.Tensor:
        """``W = K(X, X_p) Kpp^-1 [n, p]``: regression of the tail at X on the tail at the rows."""
        K = self._covariance(self.rows(X.shape[1]), X)  # [p, n]
        half = linalg.solve_triangular(self.factor, K)
        return tf.transpose(linalg.solve_triangular(self.factor, half, adjoint=True))

    def anchor(self, Phi: tuple[tf.Tensor, tf.Tensor], vectors: Any, scale: Any, W: Any) -> Anchor:
        """
        :param Phi: the functions of both draws at the rows, ``[p, k]``.
        :param vectors: the tail's vectors of both draws, ``[k, Q]``.
        :param scale: functions in the tail over functions drawn.
        :param W: see :class:`~gpflow_sparse.inference.subsampling.Anchor`.
        """
        first, second = (
            scale * tf.linalg.matmul(part, v) for part, v in zip(Phi, vectors, strict=True)
        )
        return Anchor(W, (first, second), tf.convert_to_tensor(self.values))

    def follow(self, Phi: Sequence[tf.Tensor], changes: Sequence[tf.Tensor]) -> None:
        """Weights moved: functions ``[p, k]`` and by how much theirs did ``[k, Q]``, in parts."""
        moves = [tf.linalg.matmul(part, change) for part, change in zip(Phi, changes, strict=True)]
        self.values.assign_add(tf.add_n(moves))

    def _covariance(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """Of the tail: the kernel, less what a head that the basis puts first has of it."""
        K = self.basis.kernel(X, X2)
        h = self.num_head
        if h == 0 or not (self.basis.is_projection or self.basis.num_leading == h):
            return K
        head = tf.range(h)
        return K - tf.linalg.matmul(self.basis(X, head), self.basis(X2, head), transpose_b=True)


def _settings(basis: FiniteBasis) -> tuple[Any, ...]:
    """What tells one basis from another, but for the values of its variables."""
    settings: list[Any] = []
    parts = (part for part in basis.submodules if isinstance(part, FiniteBasis | Kernel))
    for part in (basis, *parts):
        own = {k: v for k, v in vars(part).items() if isinstance(v, bool | int | str)}
        settings += [type(part), {k: v for k, v in own.items() if not k.startswith("_")}]
    return tuple(settings)
