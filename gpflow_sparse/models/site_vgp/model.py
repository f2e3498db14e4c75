"""SiteVGP: a variational Gaussian process at all training rows, for few rows and any likelihood."""

import functools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import InternalDataTrainingLossMixin

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inference.calibration import Calibration, has_classes, log_probabilities
from gpflow_sparse.inference.gaussian_sites import (
    Limits,
    Sites,
    cavities,
    converge,
    prior_sites,
    site_pass,
    weighted_sum,
)
from gpflow_sparse.inference.laplace import find_mode
from gpflow_sparse.inference.shrinkage import best_temperature
from gpflow_sparse.initialization.row_observations import (
    likelihood_of_starts,
    row_observations,
    row_posteriors,
)
from gpflow_sparse.models.base import SparseGPModel, compiled, require_shape
from gpflow_sparse.models.site_vgp.fitting import SiteBound
from gpflow_sparse.models.site_vgp.posterior import SiteVGPPosterior
from gpflow_sparse.models.training_data import (
    columns,
    keep_training_data,
    with_rows,
    with_weights,
)
from gpflow_sparse.numerics.searches import warn_without_time
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

# Changes of means of f in a step, in their standard deviations, below which sites have converged:
# the smallest; while hyperparameters are fitted, where each evaluation starts from the last sites;
# after.
_LEAST, _ROUGH, _CLOSE = 0.0, 1e-2, 1e-5
_MAX_PASSES = 200


class SiteVGP(SparseGPModel, InternalDataTrainingLossMixin):
    """
    Variational inference with a Gaussian q(f) at all N training rows, for any log-concave
    likelihood of GPflow's, such as Bernoulli, Poisson, or several classes.

    q has the covariance ``(K^-1 + diag(lambda))^-1`` of the best Gaussian, so that it is stored as
    one Gaussian site, a precision and a linear term, for each row and latent function
    (Opper and Archambeau, "The Variational Gaussian Approximation Revisited", 2009). Unlike
    GPflow's VGP it is not trained by an optimizer: :meth:`fit_sites` updates the sites in closed
    form, by natural-gradient steps (Khan and Lin, "Conjugate-Computation Variational
    Inference", 2017), some ten to fifty. With Gaussian noise one step gives
    ``gpflow.models.GPR``. :meth:`fit_hyperparameters` maximizes the bound at the best sites, and
    there its gradient needs no derivative of the sites.

    Latent functions are independent, with one kernel in common. With several, as for classes, q is
    independent between them.

    A pass takes O(P N^3) time, a prediction O(P N^2) a row, and memory is some 4 P N^2 numbers: for
    at most some 2,000 rows. Before :meth:`fit_sites` q is the prior.
    """

    def __init__(
        self,
        data: tuple[Any, Any],
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        row_weights: Any = None,
    ) -> None:
        """
        :param data: ``(X [N, D], Y [N, P])``, arrays, which are copied; for classes labels
            ``Y [N, 1]``.
        :param kernel: one output, shared by all latent functions.
        :param likelihood: log-concave in f: with others :meth:`fit_sites` may not converge.
        :param mean_function: added to the prior mean; zero by default.
        :param num_latent_gps: None for the number that the likelihood needs, or else one for each
            output in Y.
        :param row_weights: positive ``[N]``, factors of the expected log densities of the rows,
            divided by their mean where it is above 1; None for 1.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other.
        """
        missing = getattr(likelihood, "takes_missing", False)
        held = keep_training_data(data, batches=False, missing=missing)
        if num_latent_gps is None:
            needed, each = (
                getattr(likelihood, name, None) for name in ("latent_dim", "columns_per_output")
            )
            num_latent_gps = columns(held)[1] // (each or 1) if needed is None else int(needed)
        super().__init__(
            kernel, likelihood, mean_function=mean_function, num_latent_gps=num_latent_gps
        )
        if not all(isinstance(part, tf.Tensor) for part in held):
            raise ValueError(
                "data must be arrays (X [N, D], Y [N, P]) for SiteVGP, got variables; make a new "
                "model where rows change."
            )
        component_checks.require_single(kernel, int(held[0].shape[1]))
        self.data = checks.require_data(
            held,
            likelihood=self.likelihood,
            num_latent_gps=num_latent_gps,
            dtype=gpflow.default_float(),
        )
        self.row_weights = checks.require_row_weights(row_weights, self.data[0])
        self._set_sites(prior_sites(self.kernel(self.data[0], full_cov=False), num_latent_gps))
        self._require_parts(self.input_dim)

    @public_method("the elbo")
    @check_shapes("return: []")
    def elbo(self) -> tf.Tensor:
        """
        The evidence lower bound at the present sites, a scalar in nats: ``sum_n E_q[log p(y_n |
        f_n)] - KL[q || p]``. It is a bound for any sites, and largest after :meth:`fit_sites`.
        """
        mean, var, kl = self.posterior(None).training_moments()
        X, Y = self.data
        each = self.likelihood.variational_expectations(X, mean, var, Y)
        return weighted_sum(each, self.row_weights) - kl

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The :meth:`elbo`."""
        return self.elbo()

    def training_loss(self) -> tf.Tensor:
        """Minus the :meth:`elbo` at the present sites, minus the log prior density."""
        return self._training_loss()

    def training_loss_closure(self, *, compile: bool = True) -> Callable[[], tf.Tensor]:
        """
        A function without arguments that returns the training loss, for GPflow's optimizers, which
        move hyperparameters at fixed sites; :meth:`fit_hyperparameters` is much faster.

        :param compile: wrap the loss in ``tf.function``.
        """
        checks.require_flag(compile, "compile")
        component_checks.validate_components(self)
        return compiled(self.training_loss, compile)

    def fit_sites(self, *, max_passes: int = _MAX_PASSES) -> bool:
        """
        Find the best sites for the present hyperparameters, from the present sites.

        :param max_passes: most steps of natural gradients, one factorization each.
        :return: whether they have converged: the last step changed means of f by less than 1e-9 of
            their standard deviations, 1e-4 in float32. There is a warning if not.
        :raises ValueError: for parameters with which the bound is not finite, and inside
            ``tf.function``.
        """
        checks.require_count(max_passes, "max_passes")
        _require_eager("fit_sites")
        component_checks.validate_components(self)
        X, Y = self.data
        run = site_pass(self.likelihood, X, Y, self.row_weights)
        mean = tf.cast(self.prior_mean(), tf.float64)
        K, sites = tf.cast(covariance(self.kernel, X), tf.float64), self.sites()
        limits, first = Limits(_LEAST, max_passes, self.dtype), self.first_sites()
        evaluate = functools.partial(run, K, mean)
        found = converge(evaluate, first, evaluate(first), limits)
        if first is not sites and not found[2]:
            other = converge(evaluate, sites, evaluate(sites), limits)
            found = found if found[1].bound > other[1].bound else other
        self._keep(found[0], found[2], float(found[1].bound))
        return found[2]

    def fit_hyperparameters(
        self, *, max_iterations: int = 100, seconds: float | None = None
    ) -> float:
        """
        Find the mode of the logarithms of all trainable parameters of kernel, likelihood and mean
        function under the bound and their priors, by L-BFGS from the present values; and the best
        sites there. Parameters without a prior have a flat one.

        Some 10 to 40 evaluations of a few passes each.

        :param max_iterations: of L-BFGS.
        :param seconds: time after which no evaluation begins; None for any.
        :return: the bound.
        :raises ValueError: as :meth:`fit_sites`.
        """
        checks.require_count(max_iterations, "max_iterations")
        _require_eager("fit_hyperparameters")
        component_checks.validate_components(self)
        end = math.inf if seconds is None else time.perf_counter() + seconds
        bound = SiteBound(self, Limits(_ROUGH, _MAX_PASSES, self.dtype))
        mode = np.zeros(0)
        if bound.parameters.parameters:
            start = bound.parameters.get()
            mode = find_mode(bound, start, max_iterations=max_iterations, until=end)
            if time.perf_counter() > end:
                warn_without_time("hyperparameters", start, mode)
        bound.limits = bound.limits._replace(tolerance=_CLOSE)
        found = float(bound.best_sites(mode).bound)
        self._keep(bound.sites, bound.converged, found)
        return found

    @public_method()
    @check_shapes("return[0]: [N, P]", "return[1]: [N, P]")
    def leave_one_out_f(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and variance of the latent functions at each training row from all other rows,
        ``[N, P]`` each, in closed form: the site of the row is removed, and the others stay as they
        are. With Gaussian noise this is exact. A row of weight w above 1 is one of w equal rows.
        """
        mean, var, _ = self.posterior(None).training_moments()
        sites = Sites(self.site_precision, self.site_linear)
        return cavities(sites, mean, var)

    def fit_temperature(self) -> Calibration:
        """
        Find one temperature of the predicted probabilities of classes by leave-one-out densities of
        the training labels, see :meth:`leave_one_out_f`, and keep it as ``model.calibration``: with
        the prior, and the shrinking towards 1, of :func:`gpflow_sparse.calibrate`, which replaces
        it.

        :raises ValueError: for another likelihood than of classes.
        """
        if not has_classes(self.likelihood):
            raise ValueError(
                "likelihood must predict classes, such as Bernoulli, to have a temperature; got "
                f"{type(self.likelihood).__name__}."
            )
        X, Y = self.data
        labels = Y.numpy()[:, 0].astype(np.int64)
        mean, _ = self.likelihood.predict_mean_and_var(X, *self.leave_one_out_f())
        log_P = log_probabilities(self.likelihood, mean).numpy().astype(np.float64)
        weights = None if self.row_weights is None else self.row_weights.numpy()
        self.calibration = Calibration(temperature=best_temperature(log_P, labels, weights)[0])
        return self.calibration

    def prior_mean(self) -> tf.Tensor:
        """The mean function at the training rows, ``[N, P]``."""
        X, P = self.data[0], self.num_latent_gps
        zeros = tf.zeros([X.shape[0], P], X.dtype)
        mean = component_checks.require_mean(self.mean_function(X), zeros, self.mean_function)
        return zeros + mean

    def sites(self) -> Sites:
        """The present sites, float64 ``[N, P]`` each."""
        parts = self.site_precision, self.site_linear
        return Sites(*(tf.cast(tf.convert_to_tensor(part), tf.float64) for part in parts))

    def first_sites(self) -> Sites:
        """
        The present sites. While q is the prior, for counts, positive outputs and noise with heavy
        tails, the sites of the posteriors given single rows: from the prior, steps are short.
        """
        sites, likelihood = self.sites(), likelihood_of_starts(self.likelihood)
        if likelihood is None or np.any(sites.linear.numpy()):
            return sites
        X, Y = self.data
        mean, var = self.prior_mean(), self.kernel(X, full_cov=False)[:, None]
        m, v = row_posteriors(likelihood, X, Y, mean, tf.zeros_like(mean) + var)
        targets, precisions = row_observations(likelihood, X, Y, m, v)
        if self.row_weights is not None:
            precisions = precisions * self.row_weights.numpy()[:, None]
        linear = tf.cast(precisions * (m + targets), tf.float64)
        return Sites(tf.maximum(tf.cast(precisions, tf.float64), sites.precision), linear)

    @property
    def input_dim(self) -> int | None:
        return columns(self.data)[0]

    @property
    def dtype(self) -> tf.DType:
        return self.data[0].dtype  # type: ignore[no-any-return]

    def _set_sites(self, sites: Sites) -> None:
        """Make parameters of these sites."""
        positive = gpflow.utilities.positive()
        self.site_precision = gpflow.Parameter(sites.precision, transform=positive, trainable=False)
        self.site_linear = gpflow.Parameter(sites.linear, trainable=False)

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        """All sites are fitted again, from the old ones and, at new rows, from the prior."""
        start = prior_sites(self.kernel(data[0], full_cov=False), self.num_latent_gps)
        pairs = zip((self.site_precision, self.site_linear), start, strict=True)
        self._set_sites(Sites(*(tf.concat(pair, axis=0) for pair in pairs)))
        self.data = with_rows(self.data, data)
        self.row_weights = with_weights(self.row_weights, len(data[0]))
        self.fit_sites()

    def _make_posterior(self, **options: Any) -> SiteVGPPosterior:
        sites = lambda: (self.site_precision, self.site_linear)  # noqa: E731
        return SiteVGPPosterior(self.kernel, self.data[0], sites, **options)

    def _keep(self, sites: Sites, converged: bool, bound: float) -> None:
        """:raises ValueError: for a bound that is not finite."""
        if not np.isfinite(bound):
            component_checks.validate_components(self, failed=True)
            raise ValueError(
                "the bound of SiteVGP is not finite at the present parameters; standardize X, or "
                "assign other values to kernel and likelihood."
            )
        self._assign(sites)
        if not converged:
            warnings.warn(
                "the sites of SiteVGP have not converged; call fit_sites again, or take a "
                "likelihood that is log-concave in f.",
                stacklevel=3,
            )

    def _assign(self, sites: Sites) -> None:
        self.site_precision.assign(tf.cast(sites.precision, self.dtype))
        self.site_linear.assign(tf.cast(sites.linear, self.dtype))

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        component_checks.require_single(self.kernel, num_columns)
        shape = (self.data[0].shape[0], self.num_latent_gps)
        for name in ("site_precision", "site_linear"):
            require_shape(getattr(self, name), name, shape)
        checks.require_row_weights(self.row_weights, self.data[0])


def _require_eager(method: str) -> None:
    if not tf.executing_eagerly():
        raise ValueError(f"{method} must be called outside of tf.function.")
