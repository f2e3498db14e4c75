"""The posterior of which each row sees its neighbors only."""

from typing import Any

import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.posteriors import PrecomputeCacheType, PrecomputedValue, get_posterior_class

from gpflow_sparse import linalg, neighborhoods
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.posteriors.base import SparsePosterior, spread_outputs
from gpflow_sparse.posteriors.draws import in_blocks
from gpflow_sparse.stationary import covariance, local_covariances


class NeighborPosterior(SparsePosterior):
    """
    ``f(x) | u_I`` of the prior, with ``q(u) = N(q_mu, S)`` of all M inducing variables and ``I``
    the H neighbors of x.

    Time O(n H^3) for n rows, and that of finding neighbors. Every row is predicted from neighbors
    of its own; rows that are predicted together (``full_cov``) share the union of their neighbors,
    so that their means and variances depend on the company they are in: section 4.5 of the paper.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: NeighborInducingPoints,
        q_mu: Any,
        q_sqrt: Any,
        whiten: bool = False,
        mean_function: MeanFunction | None = None,
        *,
        precompute_cache: PrecomputeCacheType | None = None,
    ) -> None:
        """
        :param q_mu: ``[M, P]``.
        :param q_sqrt: standard deviations ``[M, P]``, or lower factors ``[P, M, M]``; None for a
            fixed mean.
        :param whiten: must be False: neighborhoods overlap, and a variable cannot be relative to
            all of them.
        """
        super().__init__(kernel, inducing_variable, mean_function=mean_function)
        self._refuse_multioutput()
        require_not_whitened(whiten)
        self._q_mu, self._q_sqrt = q_mu, q_sqrt
        if precompute_cache is not None:
            self.update_cache(precompute_cache)

    @property
    def input_dim(self) -> int | None:
        return self.X_data.Z.shape[1]

    def prior_kl(self, X: tf.Tensor | None = None) -> tf.Tensor:
        """
        The sum over rows of the KL of their neighbors, which is no KL of anything; see SWSGP.

        :raises ValueError: without X.
        """
        if X is None:
            raise ValueError(
                "prior_kl needs X for NeighborInducingPoints, since every row has neighbors of its "
                "own: call model.prior_kl(X) of a gs.models.SWSGP."
            )
        return tf.reduce_sum(self.local(X, self.X_data.neighbors(X, self.kernel)).kl)

    def marginals_and_kl(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        local = self.local(X, self.X_data.neighbors(X, self.kernel))
        return self._add_mean_function(X, local.mean), local.var, tf.reduce_sum(local.kl)

    def local(self, X: tf.Tensor, neighbors: tf.Tensor) -> neighborhoods.Local:
        """
        Moments and KL of every row from the given neighbors, prior mean excluded.

        :param neighbors: int32 ``[n, H]``.
        """
        places = tf.gather(self.X_data.Z, neighbors)  # [n, H, D]
        K, k, diagonal = local_covariances(self.kernel, X, places)
        K = linalg.add_jitter(K, linalg.jitter(diagonal, self.jitter))
        m = tf.gather(self._q_mu, neighbors)  # [n, H, P]
        S, half_log_det = self._spread_at(neighbors)
        local = neighborhoods.conditionals(K, k, diagonal, m, S)
        return local._replace(kl=local.kl - half_log_det)

    def _spread_at(self, neighbors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """``S_I``, variances or covariances, and ``log |S_I| / 2 [n]`` over all outputs."""
        q_sqrt = tf.convert_to_tensor(self._q_sqrt)
        if q_sqrt.shape.rank == 2:
            scales = tf.gather(q_sqrt, neighbors)  # [n, H, P]
            return tf.square(scales), tf.reduce_sum(tf.math.log(scales), axis=[1, 2])
        rows = tf.gather(q_sqrt, neighbors, axis=1)  # [P, n, H, M]
        S = tf.transpose(tf.linalg.matmul(rows, rows, transpose_b=True), [1, 0, 2, 3])
        tiny = tf.constant(1e-10 if S.dtype == tf.float64 else 1e-6, S.dtype)
        L = linalg.cholesky(linalg.add_jitter(S, tiny), "S_I (covariance of q at the neighbors)")
        return S, tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=[1, 2])

    def joint(self, X: tf.Tensor, active: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and covariance of all rows together, from one set of points that all of them see.

        :param active: int32 ``[m]``, no point twice.
        :return: mean ``[n, P]``, prior mean excluded, and covariance ``[P, n, n]``.
        """
        places = tf.gather(self.X_data.Z, active)  # [m, D]
        diagonal = self.kernel(places, full_cov=False)
        K = linalg.add_jitter(
            covariance(self.kernel, places), linalg.jitter(diagonal, self.jitter)
        )
        L = linalg.cholesky(K, "K_A (covariance of the active inducing points)")
        A = linalg.solve_triangular(L, covariance(self.kernel, places, X))  # [m, n]
        W = linalg.solve_triangular(L, A, adjoint=True)  # K_A^-1 k_A
        mean = tf.linalg.matmul(W, tf.gather(self._q_mu, active), transpose_a=True)
        residual = self.kernel(X) - tf.linalg.matmul(A, A, transpose_a=True)
        return mean, residual + self._spread_of(W, active)

    def _spread_of(self, W: tf.Tensor, active: tf.Tensor) -> tf.Tensor:
        """``W^T S_A W [P, n, n]``."""
        q_sqrt = tf.convert_to_tensor(self._q_sqrt)
        if q_sqrt.shape.rank == 2:
            half = tf.transpose(tf.gather(q_sqrt, active))[:, :, None] * W  # [P, m, n]
        else:
            rows = tf.gather(q_sqrt, active, axis=1)  # [P, m, M]
            half = tf.linalg.matmul(rows, W, transpose_a=True)  # [P, M, n]
        return tf.linalg.matmul(half, half, transpose_a=True)

    def _conditional_fused(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        flat = Xnew if Xnew.shape.rank == 2 else tf.reshape(Xnew, [-1, Xnew.shape[-1]])
        if full_cov:
            return self._predict_jointly(Xnew, full_output_cov)
        both = in_blocks(self._moments, flat, self.X_data.num_neighbors**2)  # [2, n, P]
        shape = tf.concat([tf.shape(Xnew)[:-1], [both.shape[2]]], axis=0)
        mean, var = (tf.reshape(part, shape) for part in (both[0], both[1]))
        return mean, spread_outputs(var, False) if full_output_cov else var

    def _moments(self, X: tf.Tensor) -> tf.Tensor:
        """Mean and variance, ``[2, n, P]``."""
        local = self.local(X, self.X_data.neighbors(X, self.kernel))
        return tf.stack([local.mean, local.var])

    def _predict_jointly(
        self, X: tf.Tensor, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """One joint distribution for each batch of rows, over the union of their neighbors."""

        def of_batch(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            active, _ = tf.unique(tf.reshape(self.X_data.neighbors(X, self.kernel), [-1]))
            return self.joint(X, active)

        if X.shape.rank == 2:
            mean, cov = of_batch(X)
        else:
            rows = tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], axis=0))
            mean, cov = tf.map_fn(of_batch, rows, fn_output_signature=(X.dtype, X.dtype))
            lead = tf.shape(X)[:-2]
            mean = tf.reshape(mean, tf.concat([lead, tf.shape(mean)[1:]], axis=0))
            cov = tf.reshape(cov, tf.concat([lead, tf.shape(cov)[1:]], axis=0))
        return mean, spread_outputs(cov, True) if full_output_cov else cov

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        """q as it is now; the rest depends on the row."""
        q_mu, q_sqrt = (tf.convert_to_tensor(part) for part in (self._q_mu, self._q_sqrt))
        return (
            PrecomputedValue(q_mu, (False,) * 2),
            PrecomputedValue(q_sqrt, (False,) * q_sqrt.shape.rank),
        )

    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        frozen = NeighborPosterior(self.kernel, self.X_data, *cache)
        frozen.jitter = self.jitter
        return frozen._conditional_fused(Xnew, full_cov, full_output_cov)


def require_not_whitened(whiten: Any) -> None:
    """:raises ValueError: for ``whiten=True``."""
    if whiten:
        raise ValueError(
            "whiten must be False for NeighborInducingPoints: each row has a prior covariance of "
            "its own neighbors, and no coordinates of u are white in all of them."
        )


@get_posterior_class.register(Kernel, NeighborInducingPoints)
def _neighbor_posterior(
    kernel: Kernel, inducing_variable: NeighborInducingPoints
) -> type[NeighborPosterior]:
    return NeighborPosterior
