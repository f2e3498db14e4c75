"""Regression in the space of weights: a finite basis, Gaussian noise, q in closed form."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.inducing_variables import BasisFeatures
from gpflow_sparse.inference import collapsed
from gpflow_sparse.kernels.basis import require_basis
from gpflow_sparse.models.held_data import columns, row_sums
from gpflow_sparse.models.regression import RegressionModel
from gpflow_sparse.posteriors import BasisPosterior
from gpflow_sparse.validation.public_methods import public_method


class WeightSpaceModel(RegressionModel):
    """
    A regression model in which m weights are all that the data speak of.

    The data enter by sums over rows, ``A A^T [m, m]`` and ``A (Y - mean)``, streamed: memory O(m^2)
    and that of one block of rows, gradients included, for any N. A subclass says which basis and
    kernel its predictions have, and what is maximized.
    """

    takes_batches = True

    def __init__(
        self,
        data: Any,
        kernel: Kernel,
        basis: FiniteBasis,
        *,
        mean_function: MeanFunction | None = None,
        noise_variance: Any = 1.0,
    ) -> None:
        """As in the subclasses, which document it."""
        super().__init__(data, kernel, mean_function=mean_function, noise_variance=noise_variance)
        self.basis = basis
        self._require_parts(self.input_dim, self.dtype)

    @abstractmethod
    def _sums(self) -> collapsed.RowSums:
        """Of the features of the basis that predictions have, over all rows."""

    def _prior(self) -> tuple[Kernel, FiniteBasis]:
        """The kernel of f in predictions, and the basis that its weights belong to."""
        return self.kernel, self.basis

    @public_method("the objective")
    def log_marginal_likelihood(self) -> tf.Tensor:
        """
        ``log N(Y | mean, Phi Phi^T + noise I)``, of the finite sum of functions alone: a scalar, in
        nats. Time O(N m^2 + m^3).
        """
        return tf.cast(collapsed.log_density(self._sums(), self._noise()), self.dtype)

    @public_method()
    def refresh_basis(self) -> bool:
        """
        Choose the functions anew for the kernel as it is now, where the basis chooses: see
        :meth:`gpflow_sparse.bases.GridEigenfunctions.refresh`.

        :return: whether they have changed.
        """
        return self.basis.refresh()

    @public_method("the posterior of the weights")
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        The exact posterior of the weights.

        :return: mean ``[m, P]`` and lower factors ``[P, m, m]`` of the covariance, which is the
            same for all outputs.
        """
        size = [self.basis.num_basis]
        (mean,), (factor,) = collapsed.optimal_q(*self._posterior_sums(), size)
        factors = tf.repeat(tf.cast(factor, self.dtype)[None], self.num_latent_gps, 0)
        return tf.cast(mean, self.dtype), factors

    @public_method()
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> BasisPosterior:
        """
        The posterior process with the q of :meth:`compute_qu`.

        ``predict_f`` of a posterior with a cache keeps the q of the last ``update_cache()``; all
        else computes q anew at every call, in a pass over the rows, as the model's ``predict``
        methods do.

        :param precompute_cache: "tensor", "variable" or "nocache", as in GPflow.
        """
        kernel, basis = self._prior()
        return CollapsedPosterior(
            self.compute_qu,
            kernel,
            BasisFeatures(basis),
            mean_function=self.mean_function,
            precompute_cache=precompute_cache,
        )

    @property
    def input_dim(self) -> int | None:
        return columns(self.data)[0]

    def _posterior_sums(self) -> tuple[collapsed.RowSums, tf.Tensor]:
        """Sums and noise variance from which the posterior of the weights follows."""
        return self._sums(), self._noise()

    def _row_sums(self) -> collapsed.RowSums:
        """Of ``self.basis``, streamed over all rows; gradients flow to all parameters."""
        parts = (self.basis, self.data, self.mean_function, self.dtype)
        return row_sums(*parts, self._kernel_diagonal)

    def _kernel_diagonal(self, X: tf.Tensor) -> tf.Tensor:
        """``k(x, x) [n]`` of the kernel whose bound is sought; a finite sum leaves nothing."""
        return tf.zeros_like(X[:, 0])

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        require_basis(self.basis)
        super()._require_parts(num_columns, dtype)


class CollapsedPosterior(BasisPosterior):
    """
    A posterior whose q follows from the parameters, as they are whenever it is needed.

    No underscore before the name: TensorFlow refuses it for a module that is made in a graph.
    """

    def __init__(
        self,
        compute_qu: Callable[[], tuple[tf.Tensor, tf.Tensor]],
        kernel: Kernel,
        inducing_variable: BasisFeatures,
        **options: Any,
    ) -> None:
        self._compute_qu = compute_qu
        super().__init__(kernel, inducing_variable, None, None, **options)

    def _q(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self._compute_qu()

    def _q_sqrt_is_missing(self) -> bool:
        return False
