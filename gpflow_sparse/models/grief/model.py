"""GP-GRIEF: regression with grid-structured eigenfunctions."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel

from gpflow_sparse.bases import FiniteBasis, GridEigenfunctions, ReweightedBasis
from gpflow_sparse.inference import collapsed, residual_bounds
from gpflow_sparse.inference.rotation import rotated_log_density
from gpflow_sparse.kernels import Basis, Corrected
from gpflow_sparse.models.base import require_shape
from gpflow_sparse.models.basis import BasisSVGP, WeightSpaceModel, to_svgp
from gpflow_sparse.models.grief import sampling, type_one
from gpflow_sparse.models.grief.posterior import (
    MixturePosterior,
    RotatedComponents,
    WeightedComponents,
)
from gpflow_sparse.models.grief.quadrature import quadrature
from gpflow_sparse.models.snapshot import FixedStatistics
from gpflow_sparse.models.training_data import (
    Tensors,
    keep_training_data,
    row_sums,
    some_inputs,
    streamed,
)
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import explain_arguments, public_method

_OBJECTIVES = ("bound", "likelihood", "corrected")
_REWEIGHTED = (None, "original", "rotated")


class GRIEF(WeightSpaceModel):
    """
    Gaussian process regression with the p leading eigenfunctions of a product kernel on a grid of
    any size: 10 nodes in each of 33 columns are 10^33 inducing points.

    Evans and Nair, "Scalable Gaussian Processes with Grid-Structured Eigenfunctions (GP-GRIEF)"
    (2018); see :class:`~gpflow_sparse.bases.GridEigenfunctions` for the functions. ``objective``
    determines the function that is maximized over the hyperparameters, and the prior of
    predictions:

    - "bound": the collapsed variational bound of the whole kernel; the weights are its
      inducing variables with ``Kuu = I``. At most the exact log evidence, and larger with more
      eigenfunctions; variances return to the prior's away from the grid. Not in the paper.
    - "likelihood": the log likelihood of the finite sum alone, as in the paper. Not a bound: it may
      exceed the exact evidence and prefer wrong lengthscales where p is small, and variances
      collapse to zero away from the grid.
    - "corrected": the finite sum plus independent noise of variance ``k(x, x) - |phi(x)|^2``, the
      correction that the paper mentions after eq. (4). Where p is small the noise variance may be
      driven to zero, because the correction replaces it.

    Every evaluation streams all rows, O(N p^2 + p^3) time and O(p^2) memory, gradients included.
    With ``reweighted`` every eigenfunction has its own trainable prior variance, the kernel and
    the mean function are fixed, and the data are read once:

    - "original": weights of the eigenfunctions, eq. (11) of the paper; O(p^3) per evaluation.
    - "rotated": weights of their linear combinations that are orthogonal on the data; O(p). This is
      another family of kernels, which shares only the unit weights with the first.

    Maximizing over so many weights overfits: :meth:`sample_posterior` integrates them out.
    All priors and noise are in the units of Y. ``docs/errata.md`` lists departures from the paper.
    """

    reweighted: str | None = None
    weights: Parameter | None = None
    """Prior variances ``[p]`` of the functions, with ``reweighted``."""
    _statistics: Any = None  # FixedStatistics with `reweighted`

    def __init__(
        self,
        data: Any,
        kernel: Kernel,
        *,
        num_eigenfunctions: int = 1000,
        points_per_dimension: int = 10,
        reweighted: str | None = None,
        objective: str = "bound",
        mean_function: MeanFunction | None = None,
        noise_variance: Any = 1.0,
        grid: Sequence[Any] | None = None,
        bound: str = "standard",
    ) -> None:
        """
        :param data: ``(X [N, D], Y [N, P])``: arrays, memory maps, or a ``tf.data.Dataset``; see
            :class:`BasisGPR`.
        :param kernel: SquaredExponential, or see :func:`gpflow_sparse.kernels.product_of`.
        :param num_eigenfunctions: largest p.
        :param points_per_dimension: largest number of nodes in each column; at percentiles of X.
        :param reweighted: None, "original" or "rotated"; fixes the parameters of the kernel and of
            the mean function (they are set to be not trainable).
        :param objective: "bound", "likelihood" or "corrected", the last without ``reweighted``.
        :param mean_function: added to the prior mean; zero by default.
        :param noise_variance: start of ``model.likelihood.variance``.
        :param grid: nodes of each column instead; see :class:`GridEigenfunctions`.
        :param bound: the bound of :meth:`elbo`: "standard"; or, without ``reweighted``, "log",
            which is tighter: :mod:`gpflow_sparse.inference.residual_bounds`.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other, and for a
            kernel that is not a product, naming the part.
        """
        _require_options(reweighted, objective, bound)
        held = keep_training_data(data, batches=True)
        basis = GridEigenfunctions(
            kernel,
            some_inputs(held),
            num_eigenfunctions,
            points_per_dimension,
            grid=grid,
        )
        self.objective, self.bound = objective, bound
        super().__init__(
            held, kernel, basis, mean_function=mean_function, noise_variance=noise_variance
        )
        self.reweighted, self.weights, self._statistics = reweighted, None, None
        if reweighted is not None:
            self.weights = Parameter(
                np.ones(basis.num_basis),
                transform=gpflow.utilities.positive(),
                dtype=gpflow.default_float(),
            )
            self._statistics = FixedStatistics(
                super()._sums(),
                rotated=reweighted == "rotated",
                fixed=self._fixed(),
                data=self.data,
            )

    @public_method("the objective")
    @check_shapes("return: []")
    def elbo(self) -> tf.Tensor:
        """
        The collapsed bound on the log evidence of the whole kernel, with weights W ``k + phi^T (W -
        I) phi``, whatever ``objective`` is: a scalar, in nats.
        """
        sums, noise = self._sums(), self._noise()
        bound = self._log_density(sums) - self.num_latent_gps * sums.residual / (2.0 * noise)
        return tf.cast(bound, self.dtype)

    @public_method("the objective")
    @check_shapes("return: []")
    def log_marginal_likelihood(self) -> tf.Tensor:
        """
        The log likelihood of the finite sum of functions, with the correction if ``objective`` is
        "corrected": a scalar, in nats.
        """
        if self.objective == "corrected":
            sums, log_noises = self._corrected_sums()
            density = collapsed.log_density(sums, tf.ones([], tf.float64))
            return tf.cast(density - 0.5 * self.num_latent_gps * log_noises, self.dtype)
        return tf.cast(self._log_density(self._sums()), self.dtype)

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The objective chosen by ``objective``."""
        return self.elbo() if self.objective == "bound" else self.log_marginal_likelihood()

    def refresh_basis(self) -> bool:
        """
        Choose the eigenfunctions again for the present kernel; see
        :meth:`GridEigenfunctions.refresh`. With ``reweighted``, if anything has changed, also read
        the data again and start the weights at 1.

        :return: whether the functions, or with ``reweighted`` the fixed parameters, have changed.
        """
        changed = self.basis.refresh()
        if self.weights is None:
            return changed
        changed = changed or not self._statistics.is_current(self._fixed(), self.data)
        if changed:
            self._statistics.update(super()._sums(), self._fixed(), self.data)
            self.weights.assign(np.ones(self.basis.num_basis))
        return changed

    @public_method("the posterior of the weights")
    @check_shapes("return[0]: [m, P]", "return[1]: [P, m, m]")
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """See :meth:`WeightSpaceModel.compute_qu`; O(p^2) for rotated weights."""
        if self.objective == "corrected":
            return self._optimal_q(self._corrected_sums()[0], tf.ones([], tf.float64))
        if self.reweighted != "rotated":
            return super().compute_qu()
        rotation, noise, w = self._statistics.rotation, self._noise(), self._weights()
        D = noise + w * rotation.squares  # [p]
        mean = (tf.sqrt(w) / D)[:, None] * rotation.projections
        factor = tf.linalg.diag(tf.sqrt(noise / D))
        # NaN raises in no factorization here, and a posterior has no likelihood to check
        component_checks.require_finite_result(self, "the posterior of the weights", mean, factor)
        factors = tf.repeat(tf.cast(factor, self.dtype)[None], self.num_latent_gps, 0)
        return tf.cast(mean, self.dtype), factors

    @explain_arguments("sample_posterior(num_samples, method='nuts', num_burnin=200, seed=0)")
    @public_method()
    def sample_posterior(
        self,
        num_samples: int = 180,
        *,
        method: str = "nuts",
        weight_prior: tuple[float, float] = (1.0, 100.0),
        noise_prior: tuple[float, float] | None = None,
        num_burnin: int = 200,
        num_chains: int = 1,
        seed: int = 0,
    ) -> MixturePosterior:
        """
        Type-I inference: weights and noise variance are integrated over, not maximized.

        Priors are log-normal, given by mode and variance; their defaults, and the number of
        samples, are from section 6 of the paper. "nuts" is the No-U-Turn sampler of TensorFlow
        Probability, where the paper has a Langevin sampler of 10,000 steps; "quadrature" is exact
        up to rounding, for rotated weights only, and needs no samples. A gradient takes O(p) for
        rotated weights and O(p^3), or O(N^2 p) if N < p, for original ones. The likelihood is the
        finite sum's; unless ``objective`` is "likelihood", predictions add the residual variance
        of the kernel.

        :param num_samples: number of states kept of each chain.
        :param method: "nuts" or "quadrature".
        :param weight_prior: mode and variance of the prior of every weight.
        :param noise_prior: mode and variance of the prior of the noise variance, in the units of Y;
            None for the current noise variance and 0.04.
        :param num_burnin: steps before the first sample, in which the step size is adapted.
        :param num_chains: chains, all from the mode of the prior.
        :raises ValueError: without ``reweighted``, and for arguments out of range.
        """
        if self.reweighted is None:
            raise ValueError(
                "reweighted must be 'original' or 'rotated' for sample_posterior, which samples "
                "the weights. Build GRIEF with it."
            )
        default = (float(self._noise()), 0.04)
        prior = type_one.Prior(
            _log_normal(weight_prior, "weight_prior"),
            _log_normal(default if noise_prior is None else noise_prior, "noise_prior"),
        )
        residual = self.objective != "likelihood"
        options: dict[str, Any] = {"residual": residual, "mean_function": self.mean_function}
        checks.require_choice(method, "method", ("nuts", "quadrature"))
        rotated = self.reweighted == "rotated"
        if method == "quadrature":
            if not rotated:
                raise ValueError(
                    "method must be 'nuts' for weights on the eigenfunctions: given the noise they "
                    "are dependent. reweighted='rotated' has a quadrature."
                )
            result = quadrature(self._statistics.rotation, prior)
            integrated = RotatedComponents.integrated(self._statistics.rotation, result)
            evidence = result.log_evidence
            return MixturePosterior(self.basis, integrated, log_evidence=evidence, **options)
        checks.require_count(num_chains, "num_chains")
        sums = self._statistics.rotation if rotated else self._statistics.sums
        values, acceptance = sampling.sample(
            type_one.log_posterior(sums, prior),
            *type_one.start_and_scales(prior, sums, num_chains),
            num_samples=num_samples,
            num_burnin=num_burnin,
            seed=seed,
        )
        weights, noise = type_one.weights_and_noise(values)
        make = RotatedComponents.sampled if rotated else WeightedComponents
        components = make(sums, noise, weights)
        return MixturePosterior(self.basis, components, acceptance=acceptance, **options)

    def to_svgp(self, num_data: int | None = None) -> BasisSVGP:
        """
        A :class:`BasisSVGP` at the posterior of this model; see :meth:`BasisGPR.to_svgp`. For
        "bound" its elbo of all the data is the bound.
        """
        return to_svgp(self, num_data, keep_residual=self.objective != "likelihood")

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        if self.reweighted == "rotated" and not np.allclose(self._weights(), 1.0):
            raise ValueError(
                "weights must be 1 for condition_on with reweighted='rotated': they belong to "
                "functions that the old rows define. Make a new GRIEF model of all rows, or take "
                "reweighted='original'."
            )
        super()._add_rows(data)
        if self._statistics is not None:
            rows = self.basis, data, self.mean_function, self.dtype, self._kernel_diagonal
            sums = map(tf.add, self._statistics.sums, row_sums(*rows))
            self._statistics.update(collapsed.RowSums(*sums), self._fixed(), self.data)

    def _sums(self) -> collapsed.RowSums:
        if self.reweighted is None:
            return super()._sums()
        if self.reweighted == "rotated":
            return self._statistics.sums
        return collapsed.reweighted(self._statistics.sums, tf.sqrt(self._weights()))

    def _log_density(self, sums: collapsed.RowSums) -> tf.Tensor:
        if self.reweighted == "rotated":
            return rotated_log_density(self._statistics.rotation, self._noise(), self._weights())
        return collapsed.log_density(sums, self._noise())

    def _corrected_sums(self) -> tuple[collapsed.RowSums, tf.Tensor]:
        """Streamed :func:`gpflow_sparse.inference.collapsed.corrected_row_sums`."""

        def sums(X: tf.Tensor, errors: tf.Tensor, tables: Tensors) -> list[tf.Tensor]:
            A, diagonal = self.basis.features(X, tables), self._kernel_diagonal(X)
            scaled, log_noises = collapsed.corrected_row_sums(A, errors, diagonal, self._noise())
            return [*scaled, log_noises]

        *scaled, log_noises = streamed(sums, self.basis, self.data, self.mean_function, self.dtype)
        return collapsed.RowSums(*scaled), log_noises

    def _prior(self) -> tuple[Kernel, FiniteBasis]:
        basis: FiniteBasis = self.basis
        if self.reweighted is not None:
            V = self._statistics.rotation.V if self.reweighted == "rotated" else None
            basis = ReweightedBasis(basis, self.weights, V)
        if self.objective == "likelihood":
            return Basis(basis), basis
        return Corrected(basis) if isinstance(basis, ReweightedBasis) else self.kernel, basis

    def _fixed(self) -> tuple[tf.Module, ...]:
        """Modules whose parameters the statistics depend on."""
        return self.basis, self.mean_function

    def _weights(self) -> tf.Tensor:
        return tf.cast(self.weights, tf.float64)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        _require_options(self.reweighted, self.objective, self.bound)
        if self.kernel is not self.basis.kernel:
            raise ValueError(
                "kernel must be the one that the eigenfunctions belong to; make a new GRIEF model "
                "for another."
            )
        statistics = self._statistics
        built = None if statistics is None else ("original", "rotated")[statistics.is_rotated]
        if self.reweighted != built:
            raise ValueError(
                f"reweighted must be {built!r}, as the model was built; got {self.reweighted!r}. "
                "Make a new GRIEF model for another."
            )
        if statistics is None:
            return
        require_shape(self.weights, "weights", (self.basis.num_basis,))
        statistics.require_current(self._fixed(), self.data)


def _require_options(reweighted: Any, objective: Any, bound: Any) -> None:
    """:raises ValueError: for unknown options, and for options that exclude each other."""
    checks.require_choice(reweighted, "reweighted", _REWEIGHTED)
    checks.require_choice(objective, "objective", _OBJECTIVES)
    checks.require_choice(bound, "bound", residual_bounds.BOUNDS)
    if bound != "standard" and reweighted is not None:
        raise ValueError(
            f"bound must be 'standard' with reweighted, got {bound!r}, which needs all rows "
            "again for every noise variance."
        )
    if objective == "corrected" and reweighted is not None:
        raise ValueError(
            "objective must be 'bound' or 'likelihood' with reweighted: the correction depends on "
            "the weights at every row, so each evaluation would read all data."
        )


def _log_normal(pair: Any, name: str) -> type_one.LogNormal:
    """:raises ValueError: unless ``pair`` is a mode and a variance, both positive."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name} must be (mode, variance), got {pair!r}.")
    mode, variance = checks.as_array(list(pair), name, tf.float64).tolist()
    return type_one.lognormal_from_mode_variance(mode, variance)
