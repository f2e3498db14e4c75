"""Kernel functions around centers as a basis: inducing points, and relevance vectors."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Kernel

from gpflow_sparse.bases.base import FiniteBasis
from gpflow_sparse.covariances.stationary import covariance, jittered_covariance
from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks, component_checks


class KernelDictionary(FiniteBasis):
    r"""
    Functions ``k(x, z_j)`` around M centers z, with one of two priors of their weights.

    - ``precision="dense"``: ``S = k(centers, centers)``, the inducing-point basis. ``f`` is then
      ``k(x, Z) Kzz^-1 u`` with ``u = f(Z) ~ N(0, Kzz)``, so that centers at all training inputs
      give the posterior mean of the Gaussian process itself.
    - ``precision="diagonal"``: ``S = diag(s)`` with one trainable precision for each function, the
      prior of the relevance vector machine: Tipping, "Sparse Bayesian Learning and the Relevance
      Vector Machine" (2001), eq. (5). ``constant`` adds a function that is 1, the last one.

    A call returns the functions as they are, not whitened; :meth:`features` whitens them.
    """

    def __init__(
        self,
        kernel: Kernel,
        centers: Any,
        *,
        precision: str = "dense",
        constant: bool = False,
        initial_precision: Any = None,
    ) -> None:
        """
        :param kernel: any kernel of GPflow with one output.
        :param centers: z ``[M, D]``; ``basis.centers`` is a ``gpflow.Parameter`` that is not
            trainable.
        :param precision: "dense" or "diagonal".
        :param constant: a last function that is 1, so that ``m = M + 1``; "diagonal" only.
        :param initial_precision: starting value of s, a positive number or m of them; None for 1;
            "diagonal" only. ``basis.log_precision [m]`` is a plain ``tf.Variable``, whose entries
            can be gathered and scattered.
        :raises ValueError: for a kernel or centers of a wrong kind, or that do not fit each other;
            for precisions that are not positive; for arguments of "diagonal" with "dense".
        """
        super().__init__()
        checks.require_choice(precision, "precision", ["dense", "diagonal"])
        checks.require_flag(constant, "constant")
        self.kernel = kernel
        self.centers = Parameter(require_places(kernel, centers, "centers"), trainable=False)
        self.precision = precision
        self.constant = bool(constant)
        self.num_basis = self.centers.shape[0] + self.constant
        self.is_projection = precision == "dense"
        if precision == "diagonal":
            s = 1.0 if initial_precision is None else initial_precision
            m, name = self.num_basis, "initial_precision"
            wanted = f"positive: one number or one per function, {m}"
            values = np.log(checks.require_positive(s, name, wanted, ((), (m,))))
            self.log_precision = tf.Variable(np.broadcast_to(values, m), name="log_precision")
            return
        for name, given in (("constant", constant), ("initial_precision", initial_precision)):
            if given is not None and given is not False:
                raise ValueError(
                    f'{name} belongs to precision="diagonal", but precision is "dense"; leave '
                    f"{name} out, or take the other precision."
                )

    def precompute(self) -> tuple[tf.Tensor, ...]:
        """``Lzz [M, M]``, the factor of Kzz and jitter, in O(M^3); nothing if "diagonal"."""
        if self.precision == "diagonal":
            return ()
        return (linalg.cholesky(jittered_covariance(self.kernel, self.centers), "Kzz"),)

    @property
    def input_dim(self) -> int | None:
        return self.centers.shape[1]

    def _columns(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        """Evaluations of the kernel: N m, or N k for k indices."""
        centers = self.centers if indices is None else self._centers_at(indices)
        columns = covariance(self.kernel, X, centers)  # [N, M] or [N, k]
        if not self.constant:
            return columns
        if indices is None:
            return tf.concat([columns, tf.ones_like(columns[:, :1])], axis=1)
        return tf.where(indices == self.num_basis - 1, tf.ones_like(columns), columns)

    def _of_sets(self, X: tf.Tensor, sets: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [self._columns(X, chosen) for chosen in sets]

    def _features(self, X: tf.Tensor, precomputed: Sequence[tf.Tensor]) -> tf.Tensor:
        columns = tf.transpose(self._columns(X, None))  # [m, N]
        if self.precision == "diagonal":
            return tf.exp(-0.5 * self.log_precision)[:, None] * columns
        (Lzz,) = precomputed
        return linalg.solve_triangular(Lzz, columns)

    def _prior_precision(self, i: tf.Tensor, j: tf.Tensor) -> tf.Tensor:
        """Entries of the prior precision, without jitter, unlike :meth:`precompute`."""
        if self.precision == "diagonal":
            return super()._prior_precision(i, j)
        S = covariance(self.kernel, self._centers_at(i), self._centers_at(j))  # [k, l]
        # the kernel's own diagonal: exact, and with the noise of a White kernel
        return tf.where(i[:, None] == j[None, :], self._precision_diagonal(i)[:, None], S)

    def _precision_diagonal(self, indices: tf.Tensor) -> tf.Tensor:
        if self.precision == "diagonal":
            return tf.exp(tf.gather(self.log_precision, indices))
        return self.kernel(self._centers_at(indices), full_cov=False)

    def _centers_at(self, indices: tf.Tensor) -> tf.Tensor:
        """``[k, D]``; the last center in place of one for the constant."""
        if self.constant:
            indices = tf.minimum(indices, self.num_basis - 2)
        return tf.gather(self.centers, indices)


def require_places(kernel: Kernel, value: Any, name: str) -> tf.Tensor:
    """
    ``value`` as inputs ``[M, D]`` of a kernel, both of the current float type.

    :raises ValueError: for anything else, naming the argument, and a kernel of several outputs.
    """
    component_checks.require_single(kernel, None)
    component_checks.require_dtype(kernel, "kernel", gpflow.default_float())
    places = checks.require_matrix(value, name)
    component_checks.require_kernel(kernel, places.shape[1])
    return places
