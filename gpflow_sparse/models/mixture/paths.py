"""Functions drawn from a mixture: draws of exact GPs whose hyperparameters are drawn too."""

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, Linear, Sum

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.kernels.main_effects import MainEffects
from gpflow_sparse.models.mixture.transform import YeoJohnson
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.pathwise import Paths, PriorPaths, Sampler


class LinearPaths(Paths):
    """Functions ``x^T w`` with ``w ~ N(0, variance I)``, one for each sample and output."""

    def __init__(
        self, kernel: Linear, num_outputs: int, num_columns: int, sampler: Sampler
    ) -> None:
        super().__init__(kernel.variance.dtype, num_columns)
        columns = kernel.slice(tf.zeros([1, num_columns], self.dtype), None)[0].shape[1]
        w = sampler.normal((sampler.num_samples, columns, num_outputs), self.dtype)
        self.kernel, self.weights = gpflow.utilities.freeze(kernel), tf.sqrt(kernel.variance) * w

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        return tf.einsum("nd,sdp->snp", self.kernel.slice(X, None)[0], self.weights)


class MainEffectsPaths(Paths):
    """Averages of independent functions of one column each."""

    def __init__(
        self, kernel: MainEffects, num_outputs: int, num_columns: int, sampler: Sampler
    ) -> None:
        self.columns = [
            PriorPaths(kernel.base, num_outputs, 1, sampler) for _ in range(num_columns)
        ]
        super().__init__(self.columns[0].dtype, self.columns[0].entries_per_row)

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        values = [path(X[:, d : d + 1]) for d, path in enumerate(self.columns)]
        return tf.add_n(values) / tf.sqrt(tf.cast(len(values), X.dtype))


class ComponentPaths(Paths):
    """
    Functions of one exact GP, ``g(x) + k(x, X) (K + noise)^-1 (y - g(X) - e)`` with a draw g of
    the prior and a draw e of the noise.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        L: tf.Tensor,
        transform: YeoJohnson | None,
        mean_function: MeanFunction | None,
        sampler: Sampler,
    ) -> None:
        """
        :param kernel: with the hyperparameters of the draw; kept.
        :param rows: ``X [N, D]``, outputs less the prior mean ``[N, P]``, noise variances ``[N]``.
        :param L: lower factor of ``K + noise``.
        :param mean_function: copied; None for zero.
        """
        X, Y, noises = rows
        terms = kernel.kernels if type(kernel) is Sum else [kernel]
        self.prior = [_prior_of(term, Y.shape[1], X.shape[1], sampler) for term in terms]
        super().__init__(X.dtype, max(int(X.shape[0]), *(p.entries_per_row for p in self.prior)))
        shape = (sampler.num_samples, *Y.shape)
        error = tf.sqrt(noises)[:, None] * sampler.normal(shape, Y.dtype)
        deviation = self._prior_values(X) + error  # in which draws are linear
        solve = linalg.solve_triangular
        L += tf.zeros_like(deviation[:, :1, :1])
        self.weights = solve(L, solve(L, Y - deviation), adjoint=True)  # [S, N, P]
        self.kernel, self.X, self.transform = kernel, X, transform
        self.mean_function = None
        if mean_function is not None:
            self.mean_function = gpflow.utilities.freeze(mean_function)

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        values = self._prior_values(X) + covariance(self.kernel, X, self.X) @ self.weights
        if self.mean_function is not None:
            values += self.mean_function(X)
        return values if self.transform is None else self.transform.inverse(values)

    def _prior_values(self, X: tf.Tensor) -> tf.Tensor:
        return tf.add_n([path(X) for path in self.prior])  # [S, N, P]


class MixturePaths(Paths):
    """Functions of several draws of hyperparameters."""

    def __init__(self, functions: Sequence[ComponentPaths], order: np.ndarray) -> None:
        """:param order: places of the functions among all, one after the other."""
        super().__init__(functions[0].dtype, max(f.entries_per_row for f in functions))
        self.functions, self.order = tuple(functions), order

    def evaluate(self, X: tf.Tensor) -> tf.Tensor:
        values = tf.concat([function(X) for function in self.functions], axis=0)
        return tf.gather(values, self.order)


def _prior_of(term: Kernel, num_outputs: int, num_columns: int, sampler: Sampler) -> Paths:
    """:raises ValueError: for a kernel without random Fourier features."""
    special = {Linear: LinearPaths, MainEffects: MainEffectsPaths}
    return special.get(type(term), PriorPaths)(term, num_outputs, num_columns, sampler)
