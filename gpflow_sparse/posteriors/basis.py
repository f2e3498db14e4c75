"""The posterior over the weights of a finite basis, which needs no factorization."""

from collections.abc import Sequence

import tensorflow as tf
from check_shapes import inherit_check_shapes

from gpflow_sparse.bases import ReweightedBasis
from gpflow_sparse.inducing_variables.basis_features import require_own_kernel
from gpflow_sparse.inference.blocks import Block, kl_from_standard_normal
from gpflow_sparse.kernels import Basis, WithMissingVariance
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.base import BlockPosterior, Cache, MeanAndVariance
from gpflow_sparse.posteriors.pathwise import Paths, Sampler, WeightPaths, residual_paths


class BasisPosterior(BlockPosterior):
    """
    ``f = A(x)^T w + r``, ``q(w) = N(q_mu, q_sqrt q_sqrt^T)``, with the prior of the residual r.

    With ``kernels.Basis`` r is zero. With the kernel that the basis projects, r has the variance
    ``k(x, x) - |A(x)|^2``. Time O(N m^2 P) plus the evaluation of the basis; a cached posterior
    keeps the precomputed tensors of the basis.

    ``q_mu`` is ``[m, P]``; ``q_sqrt`` is lower triangular ``[P, m, m]``, or ``[m, P]`` standard
    deviations, or None for a fixed mean. ``whiten`` makes no difference, since the prior of the
    weights is ``N(0, I)``, nor does ``jitter``, since nothing is factorized.
    """

    @inherit_check_shapes
    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """KL of the weights; X is not used."""
        q_mu, q_sqrt = self._q() if cache is None else self._parts(cache)[:2]
        return kl_from_standard_normal(q_mu, q_sqrt)

    @property
    def block_sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return (int(self.X_data.basis.num_basis),)

    def blocks(self, cache: Cache | None, X: tf.Tensor) -> list[Block]:
        q_mu, q_sqrt, rest = self._parts(cache)
        return [Block(self.X_data.basis.features(X, rest), q_mu, q_sqrt)]

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        """Without a residual process only the moments of ``A^T w``."""
        (q_mu, q_sqrt, rest), basis = self._parts(cache), self.X_data.basis
        is_all, mixing = isinstance(self.kernel, Basis), None
        if cache is not None:
            mixing = basis.mixing(rest)
        if q_sqrt is None or not (is_all or mixing is not None):
            return super()._marginals(cache, X)
        if mixing is None:
            A = basis.features(X, rest)
        else:  # A = L^T W^T: the cache has mean and factor of L w
            A, q_mu, q_sqrt = basis.plain_features(X), *rest[-2:]
        mean = tf.linalg.matmul(A, q_mu, transpose_a=True)
        if not is_all:
            return mean, super()._marginals(cache, X)[1]
        RA = linalg.lower_matmul(q_sqrt, A[None], adjoint=True)  # R^T A  [P, m, n]
        return mean, tf.transpose(tf.reduce_sum(tf.square(RA), axis=1))

    def _parts(
        self, cache: Cache | None
    ) -> tuple[tf.Tensor, tf.Tensor | None, Sequence[tf.Tensor]]:
        """Mean and factor of q, and the precomputed tensors of the basis, in a cache and more."""
        q_mu, *rest = self._tensors() if cache is None else cache
        q_sqrt = rest.pop(0) if self._has_factor else None
        return q_mu, q_sqrt, rest

    def _tensors(self) -> list[tf.Tensor]:
        """
        Mean and factor of q, then the precomputed tensors of the basis, then mean and factor of
        ``L w`` where its functions are mixtures ``L^T W^T`` of others.
        """
        q_mu, q_sqrt = self._q()
        precomputed = self.X_data.basis.precompute()
        found, L = [q_mu, q_sqrt, *precomputed], self.X_data.basis.mixing(precomputed)
        if L is not None and q_sqrt is not None:
            found += [tf.linalg.matmul(L, q_mu), linalg.lower_matmul(L[None], q_sqrt)]
        return [value for value in found if value is not None]

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """Draws of the weights, and of the residual process, if that is part of f."""
        basis = self.X_data.basis
        if isinstance(self.kernel, WithMissingVariance):
            raise ValueError(
                "functions cannot be drawn with kernels.WithMissingVariance, which adds noise that "
                "is independent at every input, as no function has. Draw values: predict_f_samples."
            )
        weights = sampler.gaussian(*self._q())
        if isinstance(self.kernel, Basis):
            return WeightPaths(basis, weights)
        if isinstance(basis, ReweightedBasis):
            basis, weights = basis.basis, basis.unweighted(weights)
        return residual_paths(basis, weights, sampler)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        require_own_kernel(self.X_data, self.kernel)

    def _prior_variances(self, X: tf.Tensor, blocks: Sequence[Block]) -> tf.Tensor:
        if isinstance(self.kernel, Basis):  # from the features already computed
            return tf.reduce_sum(tf.square(blocks[0].A), axis=0)
        return super()._prior_variances(X, blocks)

    @property
    def _has_factor(self) -> bool:
        return callable(self._q_mu) or self._q_sqrt is not None

    def _q(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Current mean and factor of q."""
        q_mu, q_sqrt = self._current_q()
        if q_sqrt is not None:
            q_sqrt = tf.convert_to_tensor(q_sqrt)
            q_sqrt = tf.linalg.diag(tf.transpose(q_sqrt)) if q_sqrt.shape.rank == 2 else q_sqrt
        return tf.convert_to_tensor(q_mu), q_sqrt
