"""SOLVE-GP with neighbors: SWSGP on the residual of a base process that all rows share."""

from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Likelihood
from gpflow.utilities import triangular

from gpflow_sparse.inducing_variables import (
    BasisFeatures,
    NeighborInducingPoints,
    OrthogonalInducingVariables,
)
from gpflow_sparse.inference.blocks import kl_from_standard_normal
from gpflow_sparse.inference.neighborhoods import GaussianRows
from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.initialization.row_observations import row_observations
from gpflow_sparse.models.base import require_shape
from gpflow_sparse.models.residual_neighbors.posterior import (
    ResidualNeighborPosterior,
    ResidualPrior,
)
from gpflow_sparse.models.starting import parameter
from gpflow_sparse.models.swsgp import SWSGP, IndexSets, LiveSqrt, data_blocks, observations
from gpflow_sparse.models.training_data import accepts_pair_or_dataset
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.validation import component_checks
from gpflow_sparse.validation.public_methods import public_method

# Rows whose features of the base set are computed together.
_ROWS = 2048


class ResidualNeighborGP(SWSGP):
    r"""
    A base process over few inducing points or a basis, which all rows share, and the residual
    process over very many inducing points, of which each row uses only its H nearest.

        f = g + r,    g(x) = A(x)^T w,    Cov[r(x), r(x')] = c(x, x') = k(x, x') - A(x)^T A(x'),

    with ``A(x) = Luu^-1 k(Z, x)`` for M base points Z, or the functions of a basis. Under the prior
    g and r are independent, ``w ~ N(0, I)``; ``q(w) = N(base_q_mu, R R^T)`` has a full covariance.
    r is conditioned on v, its values at the points O, as :class:`SWSGP` conditions f: with
    ``C_I`` and ``c_I`` of the H neighbors I of x,

        mean  A^T m + a^T m_I,    variance  |R^T A|^2 + [c(x, x) - c_I^T a] + a^T S_I a,
        a = C_I^-1 c_I,

        elbo = N / n sum_i E_q[log p(y_i | f_i)] - KL[q(w) || p(w)] - penalty of q(v).

    The penalty has the weightings of :class:`SWSGP`, with c in place of k. The bound is SOLVE-GP's
    with q(v) in other coordinates at H = M2, SWSGP's where the base explains nothing, and
    SVGP's on the base where q(v) is the prior. With "chain" it is a lower bound on the evidence of
    the model in which v has the prior of the chain.

    Jitter is a fraction of the prior variance of f, the same for all points: c nearly vanishes at
    base points, where points of O are then harmless, as are points that coincide.

    A step on n rows takes O(u M^2 + n H^2 (H + M)) time for the u <= n (H + 1) different places
    that it touches, and O(u M + n H M) memory; no matrix of all points is formed.

    The combination is new here. It is the local part of SWSGP (Tran et al., 2020) on the orthogonal
    set of SOLVE-GP (Shi, Titsias and Mnih, 2020); Gyger, Furrer and Sigrist (2025) approximate
    residuals by neighbors for Gaussian noise and by Laplace's method.
    """

    _single_output_posterior: Callable[..., SparsePosterior] = ResidualNeighborPosterior
    # None until the base set has a q
    base_q_mu: Any = None
    base_q_sqrt: Any = None

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: OrthogonalInducingVariables,
        *,
        covariance: str = "diag",
        kl_weighting: str = "counts",
        union: int | None = None,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        q_mu: Any = None,
        q_sqrt: Any = None,
        base_q_mu: Any = None,
        base_q_sqrt: Any = None,
        start: str = "sites",
        bound: str = "standard",
    ) -> None:
        """
        :param inducing_variable: ``OrthogonalInducingVariables(base, NeighborInducingPoints(O,
            H))``; the base is an array ``[M, D]``, inducing points, or
            :class:`~gpflow_sparse.inducing_variables.BasisFeatures`.
        :param q_mu: starting means of r at O, ``[M2, L]``, as in :class:`SWSGP`.
        :param q_sqrt: starting scales of r at O, as in :class:`SWSGP`.
        :param base_q_mu: starting means ``[M, L]`` of the base's whitened variables; zero by
            default.
        :param base_q_sqrt: lower factors ``[L, M, M]`` of their covariance; the identity by
            default, which is the prior.
        :param start: as in :class:`SWSGP`; always "prior" if a q of the base is given.
        :raises ValueError: for arguments of a wrong kind, or that do not go together. Other
            arguments are as in :class:`SWSGP`.
        """
        super().__init__(
            kernel,
            likelihood,
            inducing_variable,  # type: ignore[arg-type]
            covariance=covariance,
            kl_weighting=kl_weighting,
            union=union,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            num_data=num_data,
            q_mu=q_mu,
            q_sqrt=q_sqrt,
            start=start,
            bound=bound,
        )
        M, L = self._base_size, self.num_latent_gps
        if base_q_mu is not None or base_q_sqrt is not None:
            self.start = "prior"
        base_q_mu = np.zeros((M, L)) if base_q_mu is None else base_q_mu
        base_q_sqrt = np.tile(np.eye(M), (L, 1, 1)) if base_q_sqrt is None else base_q_sqrt
        self.base_q_mu = parameter(base_q_mu, (M, L), "base_q_mu")
        self.base_q_sqrt = parameter(base_q_sqrt, (L, M, M), "base_q_sqrt", triangular())

    @staticmethod
    def _points_of(inducing_variable: Any) -> NeighborInducingPoints:
        sets = component_checks.require_kind(
            inducing_variable,
            OrthogonalInducingVariables,
            "inducing_variable",
            "OrthogonalInducingVariables(base, NeighborInducingPoints(O, num_neighbors))",
        ).sets
        known = len(sets) == 2 and isinstance(sets[1], NeighborInducingPoints)
        if not known or not (type(sets[0]) is InducingPoints or isinstance(sets[0], BasisFeatures)):
            raise ValueError(
                "inducing_variable must hold a base set, InducingPoints or BasisFeatures, and "
                "NeighborInducingPoints, got "
                f"{', '.join(type(one).__name__ for one in sets)}."
            )
        return sets[1]

    @property
    def base(self) -> InducingPoints | BasisFeatures:
        """The base set."""
        return self.inducing_variable.sets[0]  # type: ignore[attr-defined]

    @property
    def _base_size(self) -> int:
        return int(self.inducing_variable.sizes[0])  # type: ignore[attr-defined]

    @property
    def priors(self) -> list[tuple[ResidualPrior, slice]]:
        sets, found = self.inducing_variable, []
        if self.base_q_mu is None:  # the points start from their prior, which needs no q
            M, L = self._base_size, self.num_latent_gps
            q_mu = tf.zeros([M, L], gpflow.default_float())
            q_sqrt = tf.eye(M, batch_shape=[L], dtype=gpflow.default_float())
        else:
            q_mu, q_sqrt = map(tf.convert_to_tensor, (self.base_q_mu, self.base_q_sqrt))
        for kernel, of in self._latents:
            q_base = q_mu[:, of], q_sqrt[of]
            found.append((ResidualPrior(sets, kernel, self.jitter, q_base), of))
        return found

    @property
    def cached_priors(self) -> list[tuple[ResidualPrior, slice]]:
        return [(prior.with_table(), of) for prior, of in self.priors]

    def _terms(self, X: tf.Tensor, sets: IndexSets, q: GaussianRows, positions: IndexSets) -> Terms:
        terms = super()._terms(X, sets, q, positions)
        return terms._replace(kl=terms.kl + self._base_kl()) if self.sums_over_rows else terms

    @public_method("the KL divergence")
    def prior_kl(self, X: Any = None) -> tf.Tensor:
        """
        The KL terms of the objective, as in :class:`SWSGP`, and the KL of the base.

        :raises ValueError: without X, unless ``kl_weighting="chain"``.
        """
        kl = super().prior_kl(X)
        return kl + self._base_kl() if X is None else kl

    def _base_kl(self) -> tf.Tensor:
        return kl_from_standard_normal(
            *map(tf.convert_to_tensor, (self.base_q_mu, self.base_q_sqrt))
        )

    @property
    def _live_q(self) -> tuple[Any, Any]:
        return (self.base_q_mu, self.q_mu), LiveFactors(self)

    @accepts_pair_or_dataset
    def start_from_sites(self, X: Any, Y: Any = None) -> None:
        """
        Set q near the posterior, by two passes over the data and without an optimizer.

        First q of the base, as if r were independent noise of the rows, of its prior variance: a
        row that is an observation of f with precision ``lambda`` is one of g with ``lambda / (1 +
        lambda c(x, x))``. Then q of r, as :meth:`SWSGP.start_from_sites` sets it, from what the
        base leaves of the rows. O(N M^2 + N H^3), and searches.

        :param data: all training data, as :meth:`update_posterior`; any likelihood.
        :raises ValueError: for data that do not fit the model.
        """
        self._require_unmixed()
        M, L = self._base_size, self.num_latent_gps
        self.base_q_mu.assign(np.zeros((M, L)))
        self.base_q_sqrt.assign(np.tile(np.eye(M), (L, 1, 1)))
        self._fit_base(self._start_observations(X, Y))
        super().start_from_sites(X if Y is None else (X, Y))

    @accepts_pair_or_dataset
    def update_base(self, X: Any, Y: Any = None) -> None:
        """
        Set q of the base to its optimum given q of r and the hyperparameters: for Gaussian noise
        exactly; for other likelihoods by a natural-gradient step of size one from the current q.
        O(N M^2 + N H^3). Alternated with :meth:`update_posterior` it maximizes the elbo over q.

        :param data: as :meth:`update_posterior`.
        :raises ValueError: for data that do not fit the model.
        """
        self._require_unmixed()
        self._fit_base(self._current_observations(X, Y))

    def fit_sites(self, data: Any) -> Any:  # type: ignore[override]
        """:raises ValueError: always: sites are a posterior of r alone."""
        raise ValueError(
            "fit_sites gives no posterior with a base; call start_from_sites(data), then posterior."
        )

    def _require_unmixed(self) -> None:
        if isinstance(self.kernel, LinearCoregionalization):
            raise ValueError(
                "the base needs outputs that are latent functions; LinearCoregionalization mixes "
                "them. Train by gs.training.fit."
            )

    def _start_observations(self, X: Any, Y: Any) -> Iterator[Any]:
        """Inputs, targets of g and precisions ``[n, L]``, with r as noise."""
        priors = self.priors
        for x, y in data_blocks(self, X, Y, _ROWS):
            targets, known = observations(self, x, y, priors)
            for prior, of in priors:
                A = prior.base.features(x)
                c = tf.maximum(prior.kernel(x, full_cov=False) - tf.reduce_sum(A**2, axis=0), 0.0)
                known[:, of] /= 1.0 + known[:, of] * c.numpy()[:, None]
            yield x, targets, known

    def _current_observations(self, X: Any, Y: Any) -> Iterator[Any]:
        posterior, priors = self.posterior(), self.priors
        for x, y in data_blocks(self, X, Y, _ROWS):
            mean, var = posterior._conditional_with_precompute(posterior.cache, x)
            mean += self.mean_function(x)
            targets, known = row_observations(self.likelihood, x, y, mean, var)
            own = tf.concat([prior.base.moments(x)[0] for prior, _ in priors], axis=1)
            yield x, targets + own.numpy(), known

    def _fit_base(self, observations: Iterator[Any]) -> None:
        """q of the base from Gaussian observations of g at all rows."""
        M, L, priors = self._base_size, self.num_latent_gps, self.priors
        precision, sums = np.tile(np.eye(M), (L, 1, 1)), np.zeros((M, L))
        for x, targets, known in observations:
            for prior, of in priors:
                A = prior.base.features(x).numpy().astype(np.float64)
                sums[:, of] += A @ (known * targets)[:, of]
                for p in range(of.start, of.stop):
                    precision[p] += (A * known[:, p]) @ A.T
        L_inverse = np.linalg.inv(np.linalg.cholesky(precision))
        S = np.swapaxes(L_inverse, 1, 2) @ L_inverse
        self.base_q_mu.assign(np.einsum("pij,jp->ip", S, sums))
        self.base_q_sqrt.assign(linalg.cholesky(tf.constant(S), "covariance of q of the base"))

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        for kernel, _ in self._latents:
            self.inducing_variable.require_kernel(kernel)  # type: ignore[attr-defined]
        if self.base_q_mu is not None:
            M, L = self._base_size, self.num_latent_gps
            require_shape(self.base_q_mu, "base_q_mu", (M, L))
            require_shape(self.base_q_sqrt, "base_q_sqrt", (L, M, M))


class LiveFactors(LiveSqrt):
    """The current ``q_sqrt`` of the base set and of r, with the variables of both."""

    def __init__(self, model: ResidualNeighborGP) -> None:
        super().__init__(model)
        self.base_q_sqrt = model.base_q_sqrt
        self._compute = lambda: (model.base_q_sqrt, model.q_sqrt)
