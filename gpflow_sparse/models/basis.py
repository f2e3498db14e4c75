"""Gaussian processes with a finite basis: exact regression, and variational inference."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import triangular

from gpflow_sparse.bases import FiniteBasis, ReweightedBasis
from gpflow_sparse.bases.base import require_basis
from gpflow_sparse.inducing_variables import BasisFeatures
from gpflow_sparse.inducing_variables.basis_features import require_features, require_own_kernel
from gpflow_sparse.inference import collapsed
from gpflow_sparse.kernels import Basis, Corrected
from gpflow_sparse.models.base import VariationalModel, require_shape
from gpflow_sparse.models.conditioning import condition_blocks
from gpflow_sparse.models.regression import RegressionModel, copies
from gpflow_sparse.models.starting import parameter
from gpflow_sparse.models.training_data import columns, row_sums
from gpflow_sparse.posteriors.basis import BasisPosterior
from gpflow_sparse.validation import checks
from gpflow_sparse.validation.public_methods import public_method


class WeightSpaceModel(RegressionModel):
    """
    A regression model with a finite basis of m functions, Gaussian noise and q in closed form.

    Only sums over rows are needed, ``A A^T [m, m]`` and ``A (Y - mean)``, which are streamed:
    memory O(m^2) and one block of rows, gradients included, for any N. A subclass defines the
    objective, and the prior and the sums of its predictions if they do not follow from ``kernel``
    and ``basis``.
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
        """See the subclasses for the arguments."""
        super().__init__(data, kernel, mean_function=mean_function, noise_variance=noise_variance)
        self.basis = basis
        self._require_parts(self.input_dim, self.dtype)

    @public_method("the objective")
    @check_shapes("return: []")
    def log_marginal_likelihood(self) -> tf.Tensor:
        """
        ``log N(Y | mean, Phi Phi^T + noise I)`` of the finite sum of functions, without a residual:
        a scalar, in nats. Time O(N m^2 + m^3).
        """
        return tf.cast(collapsed.log_density(self._sums(), self._noise()), self.dtype)

    @public_method()
    def refresh_basis(self) -> bool:
        """
        Choose the functions again for the present kernel, where the basis has a choice: see
        :meth:`gpflow_sparse.bases.GridEigenfunctions.refresh`.

        :return: whether they have changed.
        """
        return self.basis.refresh()

    @public_method("the posterior of the weights")
    @check_shapes("return[0]: [m, P]", "return[1]: [P, m, m]")
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        The exact posterior of the weights.

        :return: mean ``[m, P]`` and lower factors ``[P, m, m]`` of the covariance, which is the
            same for all outputs.
        """
        return self._optimal_q(self._sums(), self._noise())

    def _make_posterior(self, **options: Any) -> BasisPosterior:
        kernel, basis = self._prior()
        return BasisPosterior(kernel, BasisFeatures(basis), self.compute_qu, **options)

    @property
    def input_dim(self) -> int | None:
        return columns(self.data)[0]

    def _prior(self) -> tuple[Kernel, FiniteBasis]:
        """The kernel of f in predictions, and the basis that its weights belong to."""
        return self.kernel, self.basis

    def _sums(self) -> collapsed.RowSums:
        """Sums of the features over all rows, streamed; gradients flow to all parameters."""
        # a finite sum has no residual variance
        parts = self.basis, self.data, self.mean_function, self.dtype
        if isinstance(self.kernel, Basis):
            return row_sums(*parts)
        return row_sums(*parts, self._kernel_diagonal, self._bounded)

    def _kernel_diagonal(self, X: tf.Tensor) -> tf.Tensor:
        return self.kernel(X, full_cov=False)

    def _optimal_q(self, sums: collapsed.RowSums, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean ``[m, P]`` and factors ``[P, m, m]`` of the posterior that the sums determine."""
        (mean,), (factor,) = collapsed.optimal_q(sums, noise, [self.basis.num_basis])
        factors = tf.repeat(tf.cast(factor, self.dtype)[None], self.num_latent_gps, 0)
        return tf.cast(mean, self.dtype), factors

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        require_basis(self.basis)
        super()._require_parts(num_columns, dtype)


class BasisGPR(WeightSpaceModel):
    """
    Exact Gaussian process regression with a finite basis: ``y = phi(x)^T w + noise``.

    The same results as ``gpflow.models.GPR`` with ``kernels.Basis(basis)``, in time O(N m^2 + m^3)
    and memory O(m^2), gradients included, for any N. Every output has its own weights.
    """

    def __init__(
        self,
        data: Any,
        basis: FiniteBasis,
        *,
        mean_function: MeanFunction | None = None,
        noise_variance: Any = 1.0,
    ) -> None:
        """
        :param data: ``(X [N, D], Y [N, P])``: arrays; or memory maps (``np.load(path,
            mmap_mode="r")``); or a ``tf.data.Dataset`` of batches ``(X, Y)``, finite and the same
            in every pass.
        :param basis: m functions; the parameters of its kernel are trained through it.
        :param mean_function: added to the prior mean; zero by default.
        :param noise_variance: start of ``model.likelihood.variance``.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other.
        """
        kernel = Basis(basis)
        super().__init__(
            data, kernel, basis, mean_function=mean_function, noise_variance=noise_variance
        )

    @public_method("the objective")
    @check_shapes("return: []")
    def elbo(self) -> tf.Tensor:
        """The :meth:`log_marginal_likelihood`, which is not a bound but the evidence itself."""
        return self.log_marginal_likelihood()

    @property
    def num_factorized(self) -> int:
        """Number of functions over which a matrix is factorized."""
        return int(self.basis.num_basis)

    def to_svgp(self, num_data: int | None = None) -> "BasisSVGP":
        """
        A :class:`BasisSVGP` at the exact posterior: it holds no data, so it is small to save and to
        export, and can be trained on minibatches. It shares no parameters with this model.

        :param num_data: its ``num_data``; None for the N of this model, which reads the data.
        """
        return to_svgp(self, num_data, keep_residual=False)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        if not isinstance(self.kernel, Basis) or self.kernel.basis is not self.basis:
            raise ValueError(
                "kernel must be the gs.kernels.Basis of this model's basis; make a new BasisGPR "
                "for another basis."
            )


class BasisSVGP(VariationalModel):
    """
    Variational inference over the weights of a finite basis, with any likelihood and minibatches.

    The weights have prior ``N(0, I)`` and ``q = N(q_mu, q_sqrt q_sqrt^T)``, so no matrix is
    factorized. With a basis that projects its kernel (:class:`~gpflow_sparse.bases.
    GridEigenfunctions`) the rest of that kernel stays in the model, at its prior: the elbo is a
    lower bound on the evidence of the kernel itself, and variances do not vanish away from the
    grid. With any other basis, the finite sum is the model.

    Time per step on a batch of n rows: O(n m^2 L).
    """

    def __init__(
        self,
        basis: FiniteBasis,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int = 1,
        q_mu: Any = None,
        q_sqrt: Any = None,
        num_data: int | None = None,
        keep_residual: bool | None = None,
        bound: str = "standard",
    ) -> None:
        """
        :param basis: m functions; the parameters of its kernel are trained through it.
        :param likelihood: any GPflow likelihood.
        :param mean_function: added to the prior mean; zero by default.
        :param num_latent_gps: number of latent functions L, which all have this basis.
        :param q_mu: starting mean ``[m, L]``; default zero.
        :param q_sqrt: starting lower factors ``[L, m, m]``; default the prior's, the identity.
        :param num_data: N, the number of training rows; see :class:`VariationalModel`.
        :param keep_residual: whether the residual of the kernel is in the model, which needs a
            basis that is a projection; None for yes if it is one.
        :param bound: "standard" or "log": see :class:`VariationalModel`. Without the residual both
            are equal.
        :raises ValueError: for arguments of a wrong kind or of shapes that do not match.
        """
        super().__init__(
            prior_kernel(basis, keep_residual),
            likelihood,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            num_data=num_data,
            bound=bound,
        )
        self.inducing_variable = BasisFeatures(basis)
        m, L = basis.num_basis, self.num_latent_gps
        mean = np.zeros((m, L)) if q_mu is None else q_mu
        factors = np.eye(m)[None].repeat(L, axis=0) if q_sqrt is None else q_sqrt
        self.q_mu = parameter(mean, (m, L), "q_mu")
        self.q_sqrt = parameter(factors, (L, m, m), "q_sqrt", triangular())
        self._require_parts(self.input_dim)

    @property
    def basis(self) -> FiniteBasis:
        """The basis that the weights belong to."""
        return require_features(self.inducing_variable).basis

    @property
    def variational_shapes(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """The shape of the mean, and of the factor of the covariance, of all weights."""
        m, L = self.basis.num_basis, self.num_latent_gps
        return [(m, L)], [(L, m, m)]

    def _make_posterior(self, **options: Any) -> BasisPosterior:
        parts = self.kernel, self.inducing_variable, self.q_mu, self.q_sqrt
        return BasisPosterior(*parts, **options)

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        q_sqrt = tf.convert_to_tensor(self.q_sqrt)
        if q_sqrt.shape.rank == 2:  # standard deviations
            q_sqrt = tf.linalg.diag(tf.transpose(q_sqrt))
        ((change, factor),) = condition_blocks(self, data, [q_sqrt])
        self.q_mu.assign_add(change)
        trainable = self.q_sqrt.trainable
        self.q_sqrt = Parameter(factor, transform=triangular(), trainable=trainable)
        self._count_rows(data)

    @property
    def input_dim(self) -> int | None:
        return self.basis.input_dim

    @property
    def dtype(self) -> tf.DType:
        return getattr(self.q_mu, "dtype", gpflow.default_float())

    @property
    def variational_parameters(self) -> tuple[tuple[Parameter, Parameter], ...]:
        """The pair ``(q_mu, q_sqrt)`` that a natural-gradient step updates."""
        return ((self.q_mu, self.q_sqrt),)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        require_own_kernel(self.inducing_variable, self.kernel)
        m, L = self.basis.num_basis, self.num_latent_gps
        require_shape(self.q_mu, "q_mu", (m, L))
        require_shape(self.q_sqrt, "q_sqrt", (L, m, m), (m, L))  # or standard deviations


def prior_kernel(basis: FiniteBasis, keep_residual: bool | None) -> Kernel:
    """
    The kernel of a model over the weights of ``basis``.

    :param keep_residual: whether to add the residual; None to add it if basis is a projection.
    :raises ValueError: if ``basis`` is not a basis, or its residual is not a covariance.
    """
    projection = require_basis(basis)
    if isinstance(basis, ReweightedBasis):
        projection = basis.basis
    if keep_residual is None:
        keep_residual = projection.is_projection
    checks.require_flag(keep_residual, "keep_residual")
    if not keep_residual:
        return Basis(basis)
    if not projection.is_projection:
        raise ValueError(
            f"keep_residual must be False for {type(basis).__name__}: it approximates its kernel, "
            "and the residual is not a covariance."
        )
    return basis.kernel if basis is projection else Corrected(basis)


def to_svgp(model: WeightSpaceModel, num_data: int | None, *, keep_residual: bool) -> BasisSVGP:
    """A :class:`BasisSVGP` of copies of the model's components, with its optimal q."""
    q_mu, q_sqrt = model.compute_qu()
    basis, likelihood, mean_function, standardizer = copies(
        model._prior()[1], model.likelihood, model.mean_function, model.standardizer
    )
    svgp = BasisSVGP(
        basis,
        likelihood,
        mean_function=mean_function,
        num_latent_gps=model.num_latent_gps,
        q_mu=q_mu,
        q_sqrt=q_sqrt,
        num_data=int(model._sums().num_rows) if num_data is None else num_data,
        keep_residual=keep_residual,
        bound=model.bound,
    )
    svgp.jitter, svgp.standardizer = model.jitter, standardizer
    svgp.calibration = model.calibration
    return svgp
