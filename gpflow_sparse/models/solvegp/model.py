"""SOLVE-GP: sparse orthogonal variational inference."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import triangular

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.inducing_variables.orthogonal import require_orthogonal
from gpflow_sparse.inducing_variables.shared import without_wrapper
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.models.conditioning import condition_blocks
from gpflow_sparse.models.solvegp.posterior import OrthogonalPosterior, require_sizes
from gpflow_sparse.models.starting import parameters
from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.posteriors.multioutput import MultioutputPosterior, latent_kernels
from gpflow_sparse.validation import checks, component_checks


class OrthogonalModel(VariationalModel):
    """
    A variational model with :class:`OrthogonalInducingVariables` and a Gaussian q per set.

    A multi-output kernel gives each latent function a posterior over the same inducing inputs;
    ``num_latent_gps`` is then the kernel's. :class:`SOLVEGP` has a covariance for every set,
    :class:`~gpflow_sparse.models.ODVGP` for the base set alone.
    """

    _single_output_posterior: Callable[..., SparsePosterior] = OrthogonalPosterior
    """Class of the posterior of latent functions that share a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: OrthogonalInducingVariables,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        whiten: bool = True,
        q_mu: Sequence[Any] | None = None,
        q_sqrt: Sequence[Any] | None = None,
        num_data: int | None = None,
        bound: str = "standard",
    ) -> None:
        """
        :param kernel: a single-output kernel, shared by all latent functions; or GPflow's
            ``SharedIndependent``, ``SeparateIndependent`` or ``LinearCoregionalization``.
        :param likelihood: any GPflow likelihood.
        :param inducing_variable: the base set and the orthogonal sets; in GPflow's
            ``SharedIndependentInducingVariables`` or without it, which is the same.
        :param mean_function: added to the prior mean; zero by default.
        :param num_latent_gps: number of latent functions L, which is the number of outputs P but
            for ``LinearCoregionalization``; 1 by default, or the kernel's own number.
        :param whiten: parametrize ``q`` relative to the prior; recommended, and needed in float32.
        :param q_mu: starting means, one ``[M_b, L]`` per set, base set first; default zero.
        :param q_sqrt: starting lower factors, one ``[L, M_b, M_b]`` per set; default the prior's.
        :param num_data: N, the number of training rows,
        :param bound: "standard" or "log": see :class:`VariationalModel`.
        :raises ValueError: for arguments of a wrong kind or of shapes that do not match.
        """
        super().__init__(
            kernel,
            likelihood,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            num_data=num_data,
            bound=bound,
        )
        checks.require_flag(whiten, "whiten")
        self.inducing_variable = without_wrapper(inducing_variable)
        self.whiten = whiten
        self._require_parts(self.input_dim)
        mean_shapes, sqrt_shapes = self.variational_shapes
        sqrts = prior_factors(self)[: len(sqrt_shapes)] if q_sqrt is None else q_sqrt
        self.q_mu = parameters(q_mu, mean_shapes, "q_mu")
        self.q_sqrt = parameters(sqrts, sqrt_shapes, "q_sqrt", triangular)

    @property
    @abstractmethod
    def variational_shapes(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Shapes of the entries of ``q_mu``, and of the entries of ``q_sqrt``."""

    def _make_posterior(self, **options: Any) -> SparsePosterior:
        parts = self.kernel, self.inducing_variable, self.q_mu, self.q_sqrt
        options |= {"whiten": self.whiten, "jitter": self.jitter}
        if isinstance(self.kernel, MultioutputKernel):
            return MultioutputPosterior(*parts, part=self._single_output_posterior, **options)
        return self._single_output_posterior(*parts, **options)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        for kernel, _ in latent_kernels(self.kernel, self.num_latent_gps):
            require_orthogonal(self.inducing_variable).require_kernel(kernel)
        if "q_sqrt" in vars(self):
            require_sizes(self.q_mu, self.q_sqrt, self.inducing_variable.sizes)

    @property
    def input_dim(self) -> int | None:
        return require_orthogonal(self.inducing_variable).input_dim

    @property
    def dtype(self) -> tf.DType:
        return self.q_mu[0].dtype

    @property
    def variational_parameters(self) -> tuple[tuple[Parameter, Parameter], ...]:
        """Pairs ``(q_mu, q_sqrt)``, base set first, for natural-gradient steps."""
        return tuple(zip(self.q_mu, self.q_sqrt, strict=False))


class SOLVEGP(OrthogonalModel):
    """
    Sparse variational GP with orthogonal inducing sets ``u = f(Z)`` and ``v = f_perp(O)``.

        elbo = (N / n) sum_i E_q[log p(y_i | f_i)] - KL[q(u) || p(u)] - KL[q(v) || p(v)]

    For whitened ``q(u) = N(mu, Ru Ru^T)`` and ``q(v) = N(mv, Rv Rv^T)``, f(x) has

        mean  A^T mu + D^T mv,     variance  k(x, x) - |A|^2 - |D|^2 + |Ru^T A|^2 + |Rv^T D|^2,

    with the projections ``A = Luu^-1 Kuf`` and ``D = Lvv^-1 (Kvf - B^T A)`` of
    :class:`~gpflow_sparse.posteriors.OrthogonalPosterior`, which computes them.

    M + M2 inducing points, but two covariance factors of sizes M and M2 in place of one of size M +
    M2: half the variational parameters of SVGP(2M) at M = M2, and a cheaper step. The bound is at
    most the bound of SVGP on the union of the sets with the best full covariance, and at least the
    bound of SVGP on Z alone.

    Shi, Titsias and Mnih, "Sparse Orthogonal Variational Inference for Gaussian Processes" (2020,
    arXiv:1910.10596v5), eq. (8). We whiten by default (their appendix F), start un-whitened models
    at the prior, and allow more than one orthogonal set; ``docs/errata.md`` lists where the printed
    formulas are wrong.

    Time per step on a batch of n rows: O(n (M + M2)^2 + (M + M2)^3); see
    ``docs/methods/solvegp.md`` for measured times.
    """

    takes_mixed_precision = True
    """Whether `fit` may compute products with a batch in float32."""

    @property
    def variational_shapes(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        sizes, latents = self.inducing_variable.sizes, self.num_latent_gps
        return [(size, latents) for size in sizes], [(latents, size, size) for size in sizes]

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        factors = [tf.convert_to_tensor(R) for R in self.q_sqrt]
        changes = condition_blocks(self, data, factors)
        for m, R, (change, factor) in zip(self.q_mu, self.q_sqrt, changes, strict=True):
            m.assign_add(change)
            R.assign(factor)
        self._count_rows(data)

    def with_sets(self, *orthogonal: Any) -> "SOLVEGP":
        """
        A copy of this model with additional orthogonal sets.

        The new sets start at their prior, so the copy predicts what this model predicts and has its
        bound. (A kernel that is not stationary may have another mean variance on the new sets;
        the jitter, a fraction of it, and all results then change a little.) The copy shares no
        parameters with this model.

        :param orthogonal: arrays ``[M, D]`` or GPflow inducing variables; see
            :func:`gpflow_sparse.initialization.greedy_orthogonal` for a good choice.
        :raises ValueError: for sets that do not fit the model's, and in ``tf.function``.
        """
        if not tf.executing_eagerly():
            raise ValueError("with_sets must be called outside of tf.function: it makes a model.")
        old = gpflow.utilities.deepcopy(self)
        added = OrthogonalInducingVariables(old.inducing_variable.sets[0], *orthogonal).sets[1:]
        new = SOLVEGP(
            old.kernel,
            old.likelihood,
            OrthogonalInducingVariables(*old.inducing_variable.sets, *added),
            mean_function=old.mean_function,
            num_latent_gps=old.num_latent_gps,
            whiten=old.whiten,
            num_data=old.num_data,
            bound=old.bound,
        )
        size = len(old.q_mu)
        new.q_mu = (*old.q_mu, *new.q_mu[size:])
        new.q_sqrt = (*old.q_sqrt, *new.q_sqrt[size:])
        new.jitter, new.standardizer = old.jitter, old.standardizer
        new.residual_scale = old.residual_scale
        new.calibration = old.calibration
        for R, factor in zip(new.q_sqrt[size:], prior_factors(new)[size:], strict=True):
            R.assign(factor)  # the prior's with the jitter of this model
        return new


def prior_factors(owner: Any) -> list[Any]:
    """
    Factors with which q is the prior, one ``[L, M_b, M_b]`` per set: the identity, or Luu, Lvv, ...
    if un-whitened.

    :param owner: a model or a layer.
    """
    iv, L = owner.inducing_variable, owner.num_latent_gps
    if owner.whiten:
        return [np.eye(size)[None].repeat(L, axis=0) for size in iv.sizes]
    factors = []
    for kernel, columns in latent_kernels(owner.kernel, L):
        nothing = [None] * len(iv.sizes)
        posterior = OrthogonalPosterior(kernel, iv, nothing, nothing, jitter=owner.jitter)
        with component_checks.explain_failures(owner):
            blocks = posterior.prior_factors()
        factors.append([tf.repeat(R[None], columns.stop - columns.start, 0) for R in blocks])
    return [tf.concat(per_set, axis=0) for per_set in zip(*factors, strict=True)]
