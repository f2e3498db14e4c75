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
from gpflow_sparse.models.held_data import columns
from gpflow_sparse.models.regression import RegressionModel
from gpflow_sparse.models.row_streaming import row_sums
from gpflow_sparse.posteriors import BasisPosterior, cache_type
from gpflow_sparse.validation import component_checks
from gpflow_sparse.validation.step_lock import reads_parameters


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
        self._require_all()

    @abstractmethod
    def _sums(self) -> collapsed.RowSums:
        """Of the features of the basis that predictions have, over all rows."""

    def _prior(self) -> tuple[Kernel, FiniteBasis]:
        """The kernel of f in predictions, and the basis that its weights belong to."""
        return self.kernel, self.basis

    @reads_parameters
    def log_marginal_likelihood(self) -> tf.Tensor:
        """
        ``log N(Y | mean, Phi Phi^T + noise I)``, of the finite sum of functions alone: a scalar, in
        nats. Time O(N m^2 + m^3).
        """
        return self._guarded(lambda: collapsed.log_density(self._sums(), self._noise()))

    def refresh_basis(self) -> bool:
        """
        Choose the functions anew for the kernel as it is now, where the basis chooses: see
        :meth:`gpflow_sparse.bases.GridEigenfunctions.refresh`.

        :return: whether they have changed.
        """
        self._require_all()
        return self.basis.refresh()

    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        The exact posterior of the weights.

        :return: mean ``[m, P]`` and lower factors ``[P, m, m]`` of the covariance, which is the
            same for all outputs.
        """
        self._require_all()
        with component_checks.blame(self):
            size = [self.basis.num_basis]
            (mean,), (factor,) = collapsed.optimal_q(*self._posterior_sums(), size)
        component_checks.require_finite_result(self, "the posterior of the weights", mean, factor)
        factors = tf.repeat(tf.cast(factor, self.dtype)[None], self.num_latent_gps, 0)
        return tf.cast(mean, self.dtype), factors

    @reads_parameters
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
        cache = cache_type(precompute_cache)
        self._require_all()
        kernel, basis = self._prior()
        return CollapsedPosterior(
            self.compute_qu,
            kernel,
            BasisFeatures(basis),
            mean_function=self.mean_function,
            precompute_cache=cache,
        )

    @property
    def input_dim(self) -> int | None:
        return columns(self.data)[0]

    def _guarded(self, compute: Callable[[], tf.Tensor]) -> tf.Tensor:
        """The value of an objective, in the model's float type."""
        self._require_all()
        with component_checks.blame(self):
            value = tf.cast(compute(), self.dtype)
        component_checks.require_finite_result(self, "the objective", value)
        return value

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

    def _require_all(self) -> None:
        """At every door: each part can be assigned at any time."""
        require_basis(self.basis)
        self._require_parts(self.input_dim, self.dtype)


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
