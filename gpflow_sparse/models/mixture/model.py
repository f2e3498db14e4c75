"""GPMixture: exact Gaussian processes integrated over hyperparameters and kernels."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, get_check_shapes, inherit_check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.models import GPModel
from scipy.special import logsumexp

from gpflow_sparse.initialization.repeated_rows import Rows
from gpflow_sparse.kernels.tables import log_normal, noise_parameter
from gpflow_sparse.models.mixture.component import Component, copy_with_parameters
from gpflow_sparse.models.mixture.posterior import MixturePosterior
from gpflow_sparse.models.mixture.reduction import LeftOut, compared_rows, reduced
from gpflow_sparse.models.mixture.transform import YeoJohnson
from gpflow_sparse.models.regression import RegressionModel
from gpflow_sparse.models.training_data import columns, with_weights
from gpflow_sparse.numerics.threads import threads_for
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

# Entries of the factors of all draws together: 512 MiB of float64.
_MAX_ENTRIES = 2**26
# Effective number of draws below which there is advice.
_FEW = 5.0
# Components with a smaller share are left out of predictions.
_NEGLIGIBLE = 1e-3
TRANSFORMS = ("none", "yeo-johnson")
# Deviation of the logarithm of a noise variance a priori, where its median is given.
_NOISE_DEVIATION = 1.5


class ComponentSummary(NamedTuple):
    """What a component of a mixture is, and how well its draws represent its posterior."""

    kernel: str
    transform: str
    share: float
    """Weight in the mixture."""
    num_draws: int
    effective_number: float
    """Draws of equal weight that would be as precise; far fewer than ``num_draws`` means that the
    Gaussian approximation of the hyperparameters' posterior is poor."""
    laplace_evidence: float
    """Log evidence of the outputs by Laplace's method, in nats; NaN before ``integrate``."""
    log_evidence: float
    """Its importance sampling estimate."""
    parameters: dict[str, np.ndarray]
    """Hyperparameters at their mode, by their paths in the kernel, and the noise variance."""

    @property
    def advice(self) -> str:
        """What to do where few draws carry most of the weight; empty where there are enough."""
        if self.num_draws == 1 or self.effective_number >= _FEW:
            return ""
        return (
            f"{self.effective_number:.1f} of the draws of {self.kernel} carry most of the weight: "
            "their Gaussian approximation is poor. Take more draws, or fix some hyperparameters."
        )


class GPMixture(RegressionModel):
    """
    Exact Gaussian process regression averaged over hyperparameters and over kernels.

    Every component is a kernel with prior distributions of its hyperparameters, a noise variance,
    and perhaps a transform of the outputs. :meth:`integrate` finds the mode of the logarithms of
    its hyperparameters, approximates their posterior by a Gaussian (Laplace's method), draws from
    it, and weighs the draws by importance sampling. Predictions are averages over all draws of all
    components. Intervals so include that hyperparameters and kernel are not known, which one mode
    ignores.

    The share of a component is proportional to its prior share times ``evidence^evidence_power``.
    Bayes' rule has the power 1, which takes every kernel but the true one for wrong, and soon all
    but one. A power of 0.1 leaves shares nearly equal among kernels whose log evidences differ by
    some nats, and leaves out a kernel that is worse by a hundred. On small tables powers from 0.02
    to 1 lowered the NLPD by 0.09 to 0.12 from that of equal shares.

    Before :meth:`integrate` every component has one draw, the present values of its parameters; a
    mixture of one kernel is then ``gpflow.models.GPR``. Training by an optimizer moves these
    values, and each component by itself.

    Integration costs, for each component, some 30 to 150 evaluations of O(N^3) and as many
    factorizations as draws; a prediction O(N^2) for each of the K draws. Memory is K factors
    ``[N, N]``.

    References: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), section
    5.2; Lalchand and Rasmussen, "Approximate Inference for Fully Bayesian Gaussian Process
    Regression" (2019), who sample instead. The Gaussian is moreover wide in directions that the
    likelihood does not determine: eigenvalues of the Hessian are at least 0.3 of the prior's.
    """

    def __init__(
        self,
        data: tuple[Any, Any],
        kernels: Sequence[Kernel],
        *,
        noise_variance: Any = None,
        transforms: Sequence[str] | None = None,
        shares: Sequence[float] | None = None,
        evidence_power: float = 0.1,
        mean_function: MeanFunction | None = None,
        num_draws: int = 32,
        num_kept: int = 32,
        seed: int = 0,
        row_weights: Any = None,
        known_variance: Any = None,
    ) -> None:
        """
        :param data: ``(X [N, D], Y [N, P])``, arrays, which are copied; best standardized. Rows
            that are equal in X and Y are evidence for little noise.
        :param kernels: one for each component, single-output, without parameters in common;
            :func:`gpflow_sparse.kernels.table_kernel` makes such kernels. :meth:`integrate` needs a
            prior for every trainable parameter.
        :param noise_variance: median of the log-normal prior of each component's noise variance,
            and its start; None for 0.1 of the variance of standardized outputs.
        :param transforms: "none" or "yeo-johnson" for each component; None for "none".
        :param shares: positive prior weights of the components; None for equal ones.
        :param evidence_power: from 0, for shares that stay as they are, to 1.
        :param mean_function: added to the prior mean; zero by default. It is not integrated, and
            acts on the transformed outputs.
        :param num_draws: draws of the hyperparameters of each component, at most: factors of all
            draws take 512 MiB at most.
        :param num_kept: draws of all components together that predictions average, at most. They
            are those that with new weights predict nearly what all draws predict: see
            :mod:`gpflow_sparse.models.mixture.reduction`.
        :param seed: of the draws.
        :param row_weights: positive ``[N]``, by which noise variances are divided; divided by
            their mean where it is above 1, see :mod:`gpflow_sparse.initialization.repeated_rows`;
            None for 1.
        :param known_variance: of the noise of each row, at least 0 ``[N]``, to which the noise
            variance of each component is added; None for 0. Not with weights or transforms.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other.
        """
        kernels = _require_kernels(kernels)
        noises = [_noise(noise_variance) for _ in kernels]
        super().__init__(
            data, kernels[0], mean_function=mean_function, noise_variance=noises[0].numpy()
        )
        if not all(isinstance(part, tf.Tensor) for part in self.data):
            raise ValueError(
                "data must be arrays (X [N, D], Y [N, P]) for GPMixture, got variables; make a new "
                "model where rows change."
            )
        self.likelihood.variance = noises[0]
        names = _require_transforms(transforms, len(kernels))
        self.row_weights = checks.require_row_weights(row_weights, self.data[0])
        self.known_variance = checks.require_known_variance(known_variance, self.data[0])
        if known_variance is not None and (row_weights is not None or set(names) != {"none"}):
            raise ValueError("known_variance must be None for rows of weights, and for transforms.")
        fitted = None
        if "yeo-johnson" in names:
            fitted = YeoJohnson.fit(self.data[1].numpy(), self.row_weights)
        self.components = [
            Component(kernel, noise, None if name == "none" else fitted)
            for kernel, noise, name in zip(kernels, noises, names, strict=True)
        ]
        self.prior_shares = _require_shares(shares, len(kernels))
        self.shares = self.prior_shares
        self.evidence_power = _require_power(evidence_power)
        self.num_draws = checks.require_count(num_draws, "num_draws")
        self.num_kept = checks.require_count(num_kept, "num_kept")
        self.seed = checks.require_seed(seed)
        self._require_parts(self.input_dim)

    __deepcopy__ = copy_with_parameters

    def integrate(
        self, *, seconds: float | None = None, report: Callable[[str], Any] = lambda line: None
    ) -> "GPMixture":
        """
        Integrate every component over its hyperparameters, from the present values.

        Components that are not begun in the time, whose share is below a thousandth, or without a
        draw that is kept, are removed.

        :param seconds: time after which no component is begun; None for all.
        :param report: called with a line of progress.
        :return: the model itself.
        :raises ValueError: for a trainable parameter without a prior, data on which the density of
            the hyperparameters is not finite, and inside ``tf.function``.
        """
        if not tf.executing_eagerly():
            raise ValueError("integrate must be called outside of tf.function.")
        component_checks.validate_components(self)
        self._require_priors()
        begin = time.perf_counter()
        most = max(1, int(_MAX_ENTRIES / len(self.components) / len(self.data[0]) ** 2))
        num_draws = min(self.num_draws, most)
        longest, left_out = 0.0, list[LeftOut | None]()
        with component_checks.explain_failures(self), threads_for(len(self.data[0])):
            for number, component in enumerate(self.components):
                start = time.perf_counter()
                if number and seconds is not None and start - begin + longest > seconds:
                    break
                log_slope = float(component.log_slope(self.data[1], self.row_weights))
                found = None
                if component.parameters:
                    rows = self._rows(component)
                    found = component.integrate(rows, log_slope, num_draws, self.seed + number)
                    found = found._replace(mean=found.mean + self._mean_of_compared(rows))
                left_out.append(found)
                longest = max(longest, spent := time.perf_counter() - start)
                report(f"component {number + 1} of {len(self.components)}: {spent:.1f} s")
        self._share_by_evidence(list(self.components)[: len(left_out)], left_out)
        return self

    def _mean_of_compared(self, rows: Rows) -> np.ndarray:
        """The prior mean of the rows by which draws are compared."""
        return np.asarray(self.mean_function(rows.X))[compared_rows(len(rows.X))]

    def _share_by_evidence(
        self, components: list[Component], left_out: list[LeftOut | None]
    ) -> None:
        """
        Shares of these components. Components with negligible shares are removed, and draws too,
        where there are too many.
        """
        prior = self.prior_shares[: len(components)]
        logs = np.log(prior)
        if all(component.log_evidence is not None for component in components):
            logs += self.evidence_power * np.array([c.log_evidence for c in components])
        shares = np.exp(logs - logsumexp(logs))
        kept = np.flatnonzero(shares > _NEGLIGIBLE)
        if all(left_out[number] is not None for number in kept):
            parts = [(components[number], shares[number], left_out[number]) for number in kept]
            shares[kept] = self._keep_few(parts)
            kept = kept[shares[kept] > 0.0]
        self.components = [components[number] for number in kept]
        first = self.components[0]  # the model's own kernel and noise
        self.kernel, self.likelihood.variance = first.kernel, first.noise_variance
        self.prior_shares = prior[kept] / prior[kept].sum()
        self.shares = shares[kept] / shares[kept].sum()

    def _keep_few(self, parts: Sequence[tuple[Component, float, Any]]) -> np.ndarray:
        """
        Keep draws that predict nearly what all draws predict, where there are too many.

        :param parts: components, their shares, and predictions by their draws.
        :return: the shares of the components with the draws that are left.
        """
        logs = [component.log_weights + np.log(share) for component, share, _ in parts]
        if sum(map(len, logs)) <= self.num_kept:
            return np.array([share for _, share, _ in parts])
        weights = reduced(np.concatenate(logs), [found for *_, found in parts], self.num_kept)
        each = np.split(weights, np.cumsum([len(own) for own in logs])[:-1])
        for (component, *_), own in zip(parts, each, strict=True):
            if own.any():
                component.keep(own)
        return np.array([own.sum() for own in each])

    def require_one_gaussian(self) -> None:
        """:raises ValueError: where predictions are mixtures, which no factors calibrate."""
        alone = len(self.components) == 1 and self.components[0].transform is None
        draws = self.components[0].draws
        if not alone or (draws is not None and len(draws) > 1):
            raise ValueError(
                "model must predict one Gaussian for every row to be calibrated, but a GPMixture "
                "averages several; its intervals include what is not known of its hyperparameters."
            )

    def describe(self) -> list[ComponentSummary]:
        """The components, with the evidence and the quality of their draws."""
        return [
            ComponentSummary(
                _words_for(component.kernel),
                "none" if component.transform is None else "yeo-johnson",
                float(share),
                1 if component.draws is None else len(component.draws),
                component.effective_number or 1.0,
                _or_nan(component.laplace_evidence),
                _or_nan(component.log_evidence),
                _values_of(component),
            )
            for component, share in zip(self.components, self.shares, strict=True)
        ]

    @property
    def log_evidence(self) -> float:
        """The log evidence of the outputs, integrated over the hyperparameters; in nats."""
        each = np.array([_or_nan(component.log_evidence) for component in self.components])
        return float(logsumexp(each, b=self.prior_shares))

    @public_method("the log evidence")
    @check_shapes("return: []")
    def elbo(self) -> tf.Tensor:
        """
        The log evidence of the mixture of all components at the present values of their
        hyperparameters, exact: a scalar, in nats.
        """
        each = tf.stack(self._log_likelihoods())
        return tf.reduce_logsumexp(each + tf.cast(np.log(self.shares), each.dtype))

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """
        The sum of the log marginal likelihoods of all components, so that an optimizer trains each
        as if it were alone.
        """
        return tf.add_n(self._log_likelihoods())

    @public_method(prediction=True)
    @get_check_shapes(GPModel.predict_f_samples)
    def predict_f_samples(
        self,
        Xnew: tf.Tensor,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """
        Draws of f at ``Xnew [..., N, D]``, each given one draw of the hyperparameters.

        :param num_samples: S; None for one draw without the leading axis.
        :param full_cov: draws that are joint over all inputs; time O(N^3) for each.
        :return: ``[..., S, N, P]``, or ``[..., N, P]``.
        """
        if full_output_cov:
            raise ValueError("full_output_cov must be False: outputs are independent given f.")
        rows = tf.reshape(Xnew, [-1, Xnew.shape[-1]])
        drawn = self.posterior(None).samples(None, rows, num_samples or 1, full_cov=full_cov)
        shape = tf.concat([tf.shape(drawn)[:1], tf.shape(Xnew)[:-1], tf.shape(drawn)[2:]], axis=0)
        drawn = tf.reshape(drawn, shape)  # [S, ..., N, P]
        if num_samples is None:
            return drawn[0]
        rank = len(Xnew.shape)
        return tf.transpose(drawn, [*range(1, rank - 1), 0, rank - 1, rank])

    @public_method("the quantiles", prediction=True)
    @check_shapes("Xnew: [batch..., N, D]", "return: [L, batch..., N, P]")
    def predict_quantiles(self, Xnew: tf.Tensor, levels: Sequence[float]) -> tf.Tensor:
        """
        Quantiles of new observations at ``Xnew [..., N, D]``.

        :param levels: probabilities ``[L]`` between 0 and 1.
        :return: ``[L, ..., N, P]``.
        """
        return self.posterior(None).predict_quantiles(Xnew, levels)

    @public_method("the distribution function", prediction=True)
    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: [N, P]")
    def predict_distribution(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        The probability of a new observation at ``X [N, D]`` below ``Y [N, P]``: the probability
        integral transform, ``[N, P]``.
        """
        return self.posterior(None).predict_distribution(data)

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        """The draws of the hyperparameters, their weights and the transforms stay as they are."""
        super()._add_rows(data)
        self.row_weights = with_weights(self.row_weights, len(data[0]))

    def _log_likelihoods(self) -> list[tf.Tensor]:
        return [
            component.log_likelihood(self._rows(component))
            + component.log_slope(self.data[1], self.row_weights)
            for component in self.components
        ]

    def _make_posterior(self, **options: Any) -> MixturePosterior:
        rows = [self._rows(component) for component in self.components]
        return MixturePosterior(self.components, rows, np.log(self.shares), **options)

    def _rows(self, component: Component) -> Rows:
        """Distinct rows, with the means of the transformed outputs less the prior mean."""
        X, Y = self.data
        rows = component.rows(X, Y, self.row_weights, self.known_variance)
        mean = self.mean_function(rows.X)
        return rows._replace(
            Y=rows.Y - component_checks.require_mean(mean, rows.Y, self.mean_function)
        )

    def _require_priors(self) -> None:
        """:raises ValueError: for a trainable parameter without a prior."""
        for number, component in enumerate(self.components):
            for path, parameter in _named(component).items():
                if parameter.trainable and parameter.prior is None:
                    raise ValueError(
                        f"kernels[{number}]{path} must have a prior to be integrated; set one, or "
                        "gpflow.set_trainable(parameter, False) to keep its value."
                    )

    @property
    def input_dim(self) -> int | None:
        return columns(self.data)[0]

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        if self.kernel is not self.components[0].kernel:
            raise ValueError(
                "kernel is the kernel of the first component, and stays it; make a new GPMixture."
            )
        for number, component in enumerate(self.components):
            component_checks.require_single(component.kernel, num_columns, f"kernels[{number}]")
            size = sum(int(np.prod(p.shape)) for p in component.parameters)
            if component.draws is not None and component.draws.shape[1] != size:
                raise ValueError(
                    f"kernels[{number}] must have the {component.draws.shape[1]} trainable values "
                    f"that were integrated, got {size}; call integrate() again."
                )


def _named(component: Component) -> dict[str, gpflow.Parameter]:
    """Parameters of a component by their paths in its kernel."""
    found = gpflow.utilities.parameter_dict(component.kernel)
    return {**found, ".noise_variance": component.noise_variance}


def _values_of(component: Component) -> dict[str, np.ndarray]:
    return {path[1:]: p.numpy() for path, p in _named(component).items() if p.trainable}


def _words_for(kernel: Kernel) -> str:
    """Names of a kernel and of its terms: "Matern32 + MainEffects + Linear"."""
    parts = kernel.kernels if isinstance(kernel, gpflow.kernels.Sum) else [kernel]
    return " + ".join(type(part).__name__ for part in parts)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _noise(variance: Any) -> gpflow.Parameter:
    """The noise variance of a component, with its prior."""
    if variance is None:
        return noise_parameter()
    return log_normal(float(component_checks.require_noise(variance)), _NOISE_DEVIATION)


def _require_kernels(kernels: Any) -> list[Kernel]:
    """:raises ValueError: for an empty list, and for kernels that share parameters."""
    found = list(kernels) if isinstance(kernels, Sequence) else []
    if not found or not all(isinstance(kernel, Kernel) for kernel in found):
        raise ValueError(
            "kernels must be a list of kernels of GPflow, such as "
            f"[gpflow_sparse.kernels.table_kernel(gpflow.kernels.Matern32, D)]; got {kernels!r}."
        )
    own = [{id(p) for p in kernel.parameters} for kernel in found]
    if len(set().union(*own)) != sum(map(len, own)):
        raise ValueError("kernels must not share parameters; make each of its own.")
    return found


def _require_transforms(names: Any, number: int) -> list[str]:
    """:raises ValueError: unless there is a known transform for each component."""
    if names is None:
        return ["none"] * number
    if isinstance(names, str) or len(names) != number:
        raise ValueError(f"transforms must be a list of {number} names, got {names!r}.")
    for name in names:
        checks.require_choice(name, "transforms", TRANSFORMS)
    return list(names)


def _require_shares(shares: Any, number: int) -> np.ndarray:
    """Shares that sum to 1. :raises ValueError: unless there is one for each component."""
    given = np.ones(number) if shares is None else checks.as_array(shares, "shares", tf.float64)
    if given.shape != (number,) or not np.all((given > 0.0) & np.isfinite(given)):
        raise ValueError(f"shares must be {number} positive numbers, got {shares!r}.")
    return given / given.sum()


def _require_power(value: Any) -> float:
    """:raises ValueError: unless it is from 0 to 1."""
    if not (checks.is_number(value) and 0.0 <= value <= 1.0):
        raise ValueError(f"evidence_power must be from 0 to 1, got {value!r}.")
    return float(value)
