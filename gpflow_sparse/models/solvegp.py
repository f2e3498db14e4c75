"""SOLVE-GP: sparse orthogonal variational inference."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import triangular

from gpflow_sparse import checks, component_checks
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.posteriors import OrthogonalPosterior, cache_type


class SOLVEGP(VariationalModel):
    """
    Sparse variational GP with orthogonal inducing sets.

    M + M2 inducing points, but two covariance factors of sizes M and M2 in place of one of size
    M + M2: half the variational parameters of SVGP(2M) at M = M2, and a cheaper step. The bound is
    at most that of SVGP on the union of the sets with the best full covariance, and at least that
    of SVGP on Z alone.

    Shi, Titsias and Mnih, "Sparse Orthogonal Variational Inference for Gaussian Processes" (2020,
    arXiv:1910.10596v5), eq. (8). We whiten by default (their appendix F), start un-whitened models
    at the prior, and allow more than one orthogonal set; ``docs/errata.md`` lists where the printed
    formulas are wrong.

    Time per step on a batch of n rows: O(n (M + M2)^2 + (M + M2)^3); see ``docs/methods.md`` for
    measured times.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: OrthogonalInducingVariables,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int = 1,
        whiten: bool = True,
        q_mu: Sequence[Any] | None = None,
        q_sqrt: Sequence[Any] | None = None,
        num_data: int | None = None,
    ) -> None:
        """
        :param kernel: one single-output kernel, shared by all P latent functions.
        :param likelihood: any GPflow likelihood.
        :param inducing_variable: the base set and the orthogonal sets.
        :param mean_function: added to the prior mean; zero by default.
        :param num_latent_gps: P.
        :param whiten: parametrize ``q`` relative to the prior; recommended, and needed in float32.
        :param q_mu: starting means, one ``[M_b, P]`` per set, base set first; default zero.
        :param q_sqrt: starting lower factors, one ``[P, M_b, M_b]`` per set; default the prior's.
        :param num_data: N, the number of training rows; see :class:`VariationalModel`.
        :raises ValueError: for arguments of a wrong kind or of shapes that do not match.
        """
        super().__init__(
            kernel,
            likelihood,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            num_data=num_data,
        )
        checks.require_flag(whiten, "whiten")
        self.inducing_variable = inducing_variable
        self.whiten = whiten
        self._require_parts(self.input_dim)
        sizes = inducing_variable.sizes
        mean_shapes = [(size, num_latent_gps) for size in sizes]
        sqrt_shapes = [(num_latent_gps, size, size) for size in sizes]
        means = [np.zeros(shape) for shape in mean_shapes] if q_mu is None else q_mu
        sqrts = self._prior_sqrt() if q_sqrt is None else q_sqrt
        self.q_mu = _parameters(means, mean_shapes, "q_mu")
        self.q_sqrt = _parameters(sqrts, sqrt_shapes, "q_sqrt", triangular)

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> OrthogonalPosterior:
        cache = cache_type(precompute_cache)
        self._require_parts(self.input_dim, self.dtype)
        return OrthogonalPosterior(
            self.kernel,
            self.inducing_variable,
            self.q_mu,
            self.q_sqrt,
            whiten=self.whiten,
            mean_function=self.mean_function,
            precompute_cache=cache,
            jitter=self.jitter,
        )

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        if isinstance(self.kernel, MultioutputKernel):
            raise ValueError(
                "kernel must be single-output (it is shared by all latent functions), got "
                f"{type(self.kernel).__name__}; pass one kernel and "
                f"num_latent_gps={self.num_latent_gps}."
            )

    @property
    def input_dim(self) -> int | None:
        if not isinstance(self.inducing_variable, OrthogonalInducingVariables):
            raise ValueError(
                "inducing_variable must be OrthogonalInducingVariables(Z, O), got "
                f"{type(self.inducing_variable).__name__}."
            )
        return self.inducing_variable.input_dim

    @property
    def dtype(self) -> tf.DType:
        return self.q_mu[0].dtype

    @property
    def variational_parameters(self) -> tuple[tuple[Parameter, Parameter], ...]:
        """Pairs ``(q_mu, q_sqrt)``, base set first: what a natural-gradient step moves."""
        return tuple(zip(self.q_mu, self.q_sqrt, strict=True))

    def _prior_sqrt(self) -> list[tf.Tensor]:
        """Factors with which q is the prior: the identity, or Luu, Lvv, ... if un-whitened."""
        sizes = self.inducing_variable.sizes
        eye = [np.eye(size)[None].repeat(self.num_latent_gps, axis=0) for size in sizes]
        if self.whiten:
            return eye
        posterior = OrthogonalPosterior(
            self.kernel, self.inducing_variable, [None] * len(sizes), [None] * len(sizes)
        )
        with component_checks.blame(self):
            factors = posterior.prior_factors()
        return [tf.repeat(L[None], self.num_latent_gps, axis=0) for L in factors]


def _parameters(
    values: Sequence[Any], shapes: Sequence[tuple[int, ...]], name: str, transform: Any = None
) -> tuple[Parameter, ...]:
    if not isinstance(values, Sequence) or len(values) != len(shapes):
        found = len(values) if isinstance(values, Sequence) else type(values).__name__
        raise ValueError(
            f"{name} must be a tuple with one entry per set, {len(shapes)}; got {found}."
        )
    parameters = []
    for i, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        tensor = checks.as_tensor(value, f"{name}[{i}]")
        checks.require_range(tensor, f"{name}[{i}]")
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name}[{i}] must have shape {shape}, got {tuple(tensor.shape)}.")
        made = transform() if transform is not None else None
        parameters.append(Parameter(tensor, transform=made, dtype=gpflow.default_float()))
    return tuple(parameters)
