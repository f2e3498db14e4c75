"""SoftKI: regression with soft kernel interpolation between learned points."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian

from gpflow_sparse.bases import SoftInterpolation
from gpflow_sparse.inducing_variables import BasisFeatures
from gpflow_sparse.inference import collapsed
from gpflow_sparse.inference.rotation import best_noise, rotate
from gpflow_sparse.kernels import Basis, WithMissingVariance
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.models.conditioning import condition_blocks
from gpflow_sparse.models.regression import noise_parameter, noise_variance
from gpflow_sparse.models.snapshot import FittedWeights
from gpflow_sparse.models.softki import batch_evidence
from gpflow_sparse.models.training_data import (
    TrainingData,
    columns,
    keep_training_data,
    row_sums,
)
from gpflow_sparse.numerics import random_draws
from gpflow_sparse.posteriors.basis import BasisPosterior
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

_OBJECTIVES = ("exact", "pseudo")
_NUM_PROBES = 10  # of "pseudo"


class SoftKI(VariationalModel):
    r"""
    Gaussian process regression with the kernel ``W K W^T``: softmax weights between m learned
    points. Camano and Huang, "High-Dimensional Gaussian Process Regression with Soft Kernel
    Interpolation"; see :class:`~gpflow_sparse.bases.SoftInterpolation` for weights and temperature.

    Two steps, as in the paper's algorithm 1. Points, temperature, kernel and noise are trained on
    minibatches, by ``training.fit`` or any optimizer; then :meth:`fit_posterior` reads all rows
    once, for the exact posterior of the weights, and the model predicts. It refuses to predict
    before that, and after a parameter has changed.

    ``objective`` chooses the gradient of the log density of a batch:

    - "exact": the exact gradient, accurate in float32; the default.
    - "pseudo": the paper's Hutchinson pseudo-loss, eqs. (19) to (23) with the sign and the scale
      that make it unbiased, for comparison: its gradient is noisy.

    **Minibatches.** The sum of ``log p(y_b)`` over batches is a composite likelihood: it drops the
    dependence between batches, so that it is not ``log p(y)`` and its gradient is biased.
    :class:`~gpflow_sparse.models.BasisSVGP` over ``model.basis`` has a bound with unbiased
    estimates, for any likelihood.

    Time O(b m (D + m) + m^3) for a step on b rows; predictions O(m (D + m)) per row.
    """

    sums_over_rows = False
    """The evidence of a batch is not a sum over rows: `training.fit` does not divide batches."""

    def __init__(
        self,
        kernel: Kernel,
        Z: Any,
        *,
        noise_variance: Any = 1e-3,
        temperature: Any = 0.3,
        tied: bool | None = None,
        objective: str = "exact",
        mean_function: MeanFunction | None = None,
        num_latent_gps: int = 1,
        num_data: int | None = None,
        held_out: float = 0.1,
    ) -> None:
        """
        :param kernel: any kernel of GPflow with one output.
        :param Z: interpolation points ``[m, D]``; ``model.basis.Z`` is trained.
        :param noise_variance: start of ``model.likelihood.variance``, which is trained unless
            ``gpflow.set_trainable(model.likelihood.variance, False)``. The paper fixes it at the
            default, with which variances are far too small; see ``refit_noise``.
        :param temperature: start of ``model.basis.temperature``, see
            :class:`~gpflow_sparse.bases.SoftInterpolation`; the paper starts it at 1, which is
            worse on its sets.
        :param tied: whether it is in units of lengthscales, as the paper's is not; None if the
            kernel has lengthscales.
        :param objective: "exact" or "pseudo".
        :param mean_function: added to the prior mean; zero by default.
        :param num_latent_gps: P, number of outputs, which share all parameters.
        :param num_data: N, the number of training rows; None means that every batch is all of them.
        :param held_out: the fraction of the rows, of arrays in memory, that ``training.fit`` holds
            out, so that :meth:`fit_posterior` can estimate the noise variance from them: the
            estimate from training rows is too small. 0 trains on all rows.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other.
        """
        checks.require_choice(objective, "objective", _OBJECTIVES)
        _require_fraction(held_out)
        tied = hasattr(kernel, "lengthscales") if tied is None else tied
        self.basis = SoftInterpolation(kernel, Z, temperature=temperature, tied=tied)
        self.objective, self.held_out = objective, held_out
        self._kept_back: tuple[np.ndarray, int] | None = None  # rows that `training.fit` held out
        super().__init__(
            Basis(self.basis),
            Gaussian(component_checks.require_noise(noise_variance)),
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            num_data=num_data,
        )
        self.weights = FittedWeights(self.basis.num_basis, self.num_latent_gps, self.dtype)
        self._require_parts(self.input_dim)

    @public_method("the objective")
    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    def elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        ``log p(Y)`` of the given rows, times ``num_data / batch``: exactly the log evidence if they
        are all the data; the documentation of the class explains minibatches.

        :param data: ``(X [N, D], Y [N, P])``.
        :return: scalar, in nats.
        :raises ValueError: for data that do not fit the model, eagerly and when tracing.
        """
        X, Y = data
        W, K = self.basis.weights(X), self.basis.covariance()  # [n, m], [m, m]
        mean = component_checks.require_mean(self.mean_function(X), Y, self.mean_function)
        noise = noise_variance(self.likelihood, self.dtype)
        value = batch_evidence.log_density(W, K, Y - mean, noise, self._draw_probes(X))
        return self._weight(X, self.dtype) * value

    def keep_back(self, data: Any, seed: int) -> Any:
        """
        The rows to train on: all but the fraction ``held_out``, which is drawn at random.

        `training.fit` calls it, since learned points overfit the rows that they are trained on.

        :param data: ``(X, Y)``. Data sets and arrays on disk are returned as they are.
        """
        self._kept_back = None
        on_disk = isinstance(data, tuple | list) and any(isinstance(p, np.memmap) for p in data)
        if self.held_out == 0.0 or on_disk or isinstance(data, tf.data.Dataset):
            return data
        X, Y = self._require_data(data)
        order = np.random.default_rng(seed).permutation(len(X))
        kept, rest = np.split(order, [int(self.held_out * len(X))])
        if not len(kept):
            return data
        self._kept_back = np.sort(kept), len(X)
        return tuple(tf.gather(part, np.sort(rest)) for part in (X, Y))

    @public_method("the log density")
    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    def held_out_density(self, data: tuple[Any, Any]) -> tf.Tensor:
        """
        Mean log density of the rows that the last `training.fit` held out, given all others, which
        are then the rows of the posterior. O(N m (D + m) + m^3).

        :param data: ``(X [N, D], Y [N, P])``, all rows that `training.fit` was given.
        :return: scalar, in nats.
        :raises ValueError: if no rows of these data were held out.
        """
        X, Y = data
        if self._kept_back is None or self._kept_back[1] != len(X):
            raise ValueError(
                "data must be all rows of the last training.fit, which must have held some out; "
                f"got {len(X)} rows."
            )
        kept = self._kept_back[0]
        rest = np.setdiff1d(np.arange(len(X)), kept)
        self.fit_posterior((tf.gather(X, rest), tf.gather(Y, rest)), refit_noise=False)
        return tf.reduce_mean(self.predict_log_density((tf.gather(X, kept), tf.gather(Y, kept))))

    def fit_posterior(self, data: Any, *, refit_noise: bool | None = None) -> None:
        """
        Compute the exact posterior of the weights from all rows, for the present parameters.

        One pass, in O(N m (D + m) + m^3) time and O(m^2) memory for any N. Where the paper solves
        by a QR decomposition, eq. (26), this sums ``B^T B`` of the whitened features in float64,
        whatever their type, and factorizes ``I + B^T B / noise``: for 4,096 rows and 512 points 16
        to 18 ms, where a QR of them takes 160 ms in float32 and 290 ms in float64.

        :param data: ``(X [N, D], Y [N, P])``, arrays or memory maps; or a ``tf.data.Dataset`` of
            batches ``(X, Y)``.
        :param refit_noise: whether to set ``likelihood.variance`` first, to the value with the
            highest evidence of all rows for the other parameters: one more eigendecomposition,
            O(m^3). If X and Y are the data of the last `training.fit`, in the same order, the
            evidence of the held-out rows is used instead, unless its value is smaller: on the
            default data of the command line the 95 % intervals then hold 94 % of test rows, 85 %
            with the noise from all rows. None, the default, sets the variance if it is trainable;
            False does not change it, as in the paper.
        :raises ValueError: for data that do not fit the model.
        """
        if refit_noise is None:
            refit_noise = noise_parameter(self.likelihood).trainable
        checks.require_flag(refit_noise, "refit_noise")
        rows = self._require_rows(data)
        component_checks.validate_components(self)
        with component_checks.explain_failures(self):
            sums = row_sums(self.basis, rows, self.mean_function, self.dtype)
            if refit_noise:
                self._refit_noise(sums, data)
            noise = noise_variance(self.likelihood, tf.float64)
            (mean,), (factor,) = collapsed.optimal_q(sums, noise, [self.basis.num_basis])
        component_checks.require_finite_result(self, "the posterior of the weights", mean, factor)
        self.weights.update(mean, factor, self._fitted_parts())

    def _make_posterior(self, **options: Any) -> BasisPosterior:
        """:raises ValueError: before :meth:`fit_posterior`, and after a change of any parameter."""
        q_mu, q_sqrt = self.weights.read(self._fitted_parts())
        factors = tf.repeat(q_sqrt[None], self.num_latent_gps, axis=0)
        return BasisPosterior(self.kernel, BasisFeatures(self.basis), q_mu, factors, **options)

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        q_mu, q_sqrt = self.weights.read(self._fitted_parts())
        q_sqrt = tf.repeat(q_sqrt[None], self.num_latent_gps, axis=0)
        ((change, factor),) = condition_blocks(self, data, [q_sqrt])
        self.weights.update(q_mu + change, factor[0], self._fitted_parts())
        self._count_rows(data)

    @property
    def input_dim(self) -> int | None:
        return self.basis.input_dim

    @property
    def dtype(self) -> tf.DType:
        return self.basis.dtype

    @property
    def jitter(self) -> float | None:
        """Jitter of the basis, see :attr:`gpflow_sparse.bases.SoftInterpolation.jitter`."""
        return self.basis.jitter

    @jitter.setter
    def jitter(self, value: float | None) -> None:
        self.basis.jitter = value

    def _draw_probes(self, X: tf.Tensor) -> tf.Tensor | None:
        """Random signs ``[n, 10]``, new at every call; None for "exact"."""
        if self.objective == "exact":
            return None
        return random_draws.rademacher([tf.shape(X)[0], _NUM_PROBES], X.dtype)

    def _refit_noise(self, sums: collapsed.RowSums, data: Any) -> None:
        """
        Set the noise variance to the larger of the optima of all rows and of held-out rows, which
        are known where X has as many rows as in training.
        """
        parts = [sums]
        if self._kept_back is not None and isinstance(data, tuple | list):
            kept, num_rows = self._kept_back
            if len(data[0]) == num_rows:
                held_out = self._require_rows([np.asarray(part)[kept] for part in data])
                parts.append(row_sums(self.basis, held_out, self.mean_function, self.dtype))
        parameter = noise_parameter(self.likelihood)
        lowest = gpflow.config.default_likelihood_positive_minimum()  # bound of the parameter
        value = max(best_noise(rotate(part), 1.001 * lowest) for part in parts)
        scale = self.likelihood.variance is None
        parameter.assign(tf.fill(parameter.shape, value**0.5 if scale else value))

    def _fitted_parts(self) -> tuple[tf.Module, ...]:
        """Modules that the posterior of the weights depends on."""
        return self.basis, self.likelihood, self.mean_function

    def evidence(self, data: Any) -> tf.Tensor:
        """
        Log evidence of all rows, float64 in nats; the objective of batches is a different bound.

        :param data: ``(X [N, D], Y [N, P])``.
        """
        sums = row_sums(self.basis, data, self.mean_function, self.dtype)
        return collapsed.log_density(sums, noise_variance(self.likelihood, tf.float64))

    def validate_loaded(self) -> None:
        super().validate_loaded()
        num_points, outputs = int(self.basis.Z.shape[0]), int(self.num_latent_gps)
        self.weights.validate_values(num_points, outputs, self.dtype)

    def _require_rows(self, data: Any) -> TrainingData:
        self._require_parts(self.input_dim, self.dtype)
        copy = not (isinstance(data, tuple | list) and _are_sound_arrays(data, self.dtype))
        data = keep_training_data(data, batches=True, copy=copy, dtype=self.dtype)
        found, expected = columns(data), (self.input_dim, self.num_latent_gps)
        if found != expected:
            raise ValueError(
                f"X and Y must have {expected[0]} and {expected[1]} column(s), as the points Z and "
                f"num_latent_gps have; got {found[0]} and {found[1]}."
            )
        return data

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        noise_parameter(self.likelihood)
        component_checks.require_kernel(self.basis.kernel, self.input_dim)
        if (
            not isinstance(self.kernel, Basis | WithMissingVariance)
            or self.kernel.basis is not self.basis
        ):
            raise ValueError(
                "kernel must be the one of this model's basis; make a new SoftKI for another."
            )
        checks.require_choice(self.objective, "objective", _OBJECTIVES)
        _require_fraction(self.held_out)
        _require_kept_back(self._kept_back)


def _are_sound_arrays(data: tuple[Any, ...] | list[Any], dtype: tf.DType) -> bool:
    """
    Whether all are NumPy arrays, which can be read in blocks without a copy.

    :raises ValueError: for values that are not finite or too large; values in a file are checked
        when it is read.
    """
    for name, part in zip("XY", data, strict=False):
        if not isinstance(part, np.ndarray) or isinstance(part, np.ma.MaskedArray):
            return False  # the mask would be lost
        in_memory = part.dtype.kind in "fiu" and part.size and not isinstance(part, np.memmap)
        if in_memory and not max(part.max(), -part.min()) < dtype.max**0.5 / 1e3:
            checks.as_tensor(part, name, dtype)  # raises, naming the entries
    return True


def _require_fraction(value: Any) -> None:
    if not (checks.is_number(value) and 0.0 <= value < 1.0):
        raise ValueError(f"held_out must be a fraction from 0 to below 1, got {value!r}.")


def _require_kept_back(value: Any) -> None:
    """:raises ValueError: unless it is None or the rows that ``keep_back`` has held out."""
    if value is None:
        return
    kept: Any
    kept, num_rows = value if isinstance(value, tuple) and len(value) == 2 else (None, None)
    sound = isinstance(kept, np.ndarray) and kept.ndim == 1 and kept.dtype.kind == "i"
    sound = sound and type(num_rows) is int and kept.size > 0 and len(np.unique(kept)) == kept.size
    if not (sound and kept.min() >= 0 and kept.max() < num_rows):
        raise ValueError(
            "model._kept_back must be None or distinct row numbers and a count of rows above them"
        )
