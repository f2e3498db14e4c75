"""Functions drawn from a basis and from the part of its kernel that it leaves, together."""

import numpy as np
import tensorflow as tf

from gpflow_sparse.bases import FiniteBasis, GridEigenfunctions, KernelDictionary
from gpflow_sparse.bases.product import ProductFactors
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.draws import WeightPaths
from gpflow_sparse.posteriors.pathwise import PriorPaths


class ResidualPaths(tf.Module):
    r"""
    ``A(x)^T w + r(x)`` with ``r ~ GP(0, k - A^T A)`` independent of the weights w.

    For a basis that projects its kernel the weights of ``f ~ GP(0, k)`` are linear functionals
    ``w_0(f)`` with ``Cov[w_0] = I`` and ``Cov[f(x), w_0] = A(x)``, so that what is left of a draw
    of the prior is

        r(x) = f_prior(x) - A(x)^T w_0(f_prior).

    As in :class:`~gpflow_sparse.posteriors.draws.FunctionDraws` every draw has frequencies of its
    own, so mean and covariance are exact for any number of features.
    """

    def __init__(
        self,
        basis: FiniteBasis,
        weights: tf.Tensor,
        num_features: int,
        generator: np.random.Generator,
    ) -> None:
        """
        :param basis: a projection of ``basis.kernel``; copied.
        :param weights: w, draws ``[S, m, P]``.
        :raises ValueError: for a kernel without random Fourier features, and for a basis whose
            functionals are not known.
        """
        super().__init__()
        shape = (weights.shape[0], weights.shape[2])
        columns = basis.input_dim
        if columns is None or not isinstance(basis, GridEigenfunctions | KernelDictionary):
            raise ValueError(
                "functions can be drawn with what the basis leaves of its kernel for "
                f"GridEigenfunctions and KernelDictionary; got {type(basis).__name__}. Draw values "
                "instead: predict_f_samples."
            )
        self.prior = PriorPaths(basis.kernel, shape, num_features, columns, generator)
        own = projections(basis, self.prior, generator)
        self._weights = WeightPaths(basis, weights - tf.cast(own, weights.dtype))

    @property
    def dtype(self) -> tf.DType:
        """Float type of X and of the values."""
        return self.prior.dtype

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """``[S, N, P]`` at ``X [N, D]``."""
        return self.prior(X) + self._weights(X)


def projections(
    basis: GridEigenfunctions | KernelDictionary,
    prior: PriorPaths,
    generator: np.random.Generator,
) -> tf.Tensor:
    """
    The functionals ``w_0 [S, m, P]`` of draws of the prior.

    Of points Z: ``L^-1 (f(Z) + sqrt(eps) zeta)``, ``L L^T = k(Z, Z) + eps I``. Of eigenfunctions on
    a grid: ``sum_u c_j(u) f(u)`` over its nodes u, where ``c_j`` is a product over columns; and so
    is ``exp(i w^T u)``, so that a sum over all nodes is a product of sums over those of a column:
    time O(S P F (m D + sum_i m_i^2)) for F cosines, whatever the size of the grid.
    """
    if isinstance(basis, KernelDictionary):
        values = prior(tf.convert_to_tensor(basis.centers))  # [S, M, P]
        jitter = linalg.jitter(basis.kernel(basis.centers, full_cov=False))
        zeta = tf.constant(generator.normal(size=values.shape), dtype=values.dtype)
        (L,) = basis.precompute()
        values = values + tf.sqrt(jitter) * zeta
        return tf.linalg.triangular_solve(tf.broadcast_to(L, [values.shape[0], *L.shape]), values)
    factors = ProductFactors(basis.kernel, len(basis.grid))
    tables = [table.numpy() for table in basis.precompute()]
    indices, scale = basis.indices.numpy(), 1.0 / np.sqrt(factors.variance().numpy())
    frequencies, phases, amplitudes = prior.cosines
    S, P = prior.shape
    found = np.empty((S, basis.num_basis, P))
    for s, p in np.ndindex(S, P):  # O(m F) memory
        terms = scale * amplitudes[s, p] * np.exp(1j * phases[s, p])  # [F]
        for i, column in enumerate(factors.columns):
            angles = np.outer(basis.grid[column], frequencies[s, p, column])
            waves = np.exp(1j * angles)  # [m_i, F]
            terms = terms * (tables[i].T @ waves)[indices[:, i]]
        found[s, :, p] = terms.real.sum(axis=1)
    return tf.constant(found)
