"""Standardization to zero mean and unit variance, and predictions in original units."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from scipy import stats

from gpflow_sparse.numerics import yeo_johnson
from gpflow_sparse.validation import checks

TRANSFORMS = ("none", "log", "logit", "yeo-johnson")
# Least standard deviation of outputs: its square, times variances down to 1e-12, is above 0.
_MIN_SCALE = 1e-148
# Probabilities on each side of the median, and normal score of the largest, for moments of
# transformed outputs.
_NUM_SIDE, _REACH = 40, {"float64": 7.0, "float32": 5.0}
_MAD = 1.4826  # a Gaussian's standard deviation, in median absolute deviations
_TIE = 1e-9  # rounding of sums of weights, relative to all


class Standardizer(tf.Module):
    """Column-wise shift and scale of inputs and, for regression, outputs.

    The statistics are non-trainable float64 variables, so that a checkpoint of this module, or of
    a module that owns it, keeps them. Methods take and return NumPy arrays.

    :param x_mean: subtracted from the inputs [D].
    :param x_scale: the inputs are divided by it [D], positive.
    :param y_mean: subtracted from the outputs [P]; None leaves outputs (class labels) untouched.
    :param y_scale: the outputs are divided by it [P], positive; None exactly when `y_mean` is.
    :param y_transform: "none"; "log" takes the logarithm of the outputs before their mean is
        subtracted, "logit" that of y / (1 - y), for outputs between 0 and 1; "yeo-johnson"
        transforms the outputs after the division: Yeo and Johnson, "A new family of power
        transformations to improve normality or symmetry", Biometrika 87 (2000).
    :param y_power: powers of "yeo-johnson" from 0 to 2 [P]; 1 changes nothing.
    :raises ValueError: if only one of `y_mean` and `y_scale` is given, a mean and its scale differ
        in length, or transform and powers do not go together.
    """

    # of files that were written before there were transforms
    y_transform = "none"
    y_power: tf.Variable | None = None

    def __init__(
        self,
        x_mean: np.ndarray,
        x_scale: np.ndarray,
        y_mean: np.ndarray | None = None,
        y_scale: np.ndarray | None = None,
        y_transform: str = "none",
        y_power: np.ndarray | None = None,
    ) -> None:
        super().__init__(name="standardizer")
        if (y_mean is None) != (y_scale is None):
            raise ValueError("y_mean and y_scale must be given together, got only one of them")
        self.x_mean, self.x_scale = _statistics(x_mean, x_scale, "x")
        self.y_mean = self.y_scale = None
        if y_mean is not None and y_scale is not None:
            self.y_mean, self.y_scale = _statistics(y_mean, y_scale, "y")
        self._set_transform(y_transform, y_power)

    def _set_transform(self, y_transform: str, y_power: np.ndarray | None) -> None:
        if y_transform not in TRANSFORMS or (y_transform != "none" and self.y_mean is None):
            raise ValueError(
                f"y_transform must be one of {', '.join(TRANSFORMS)}, and none for labels; got "
                f"{y_transform!r}"
            )
        self.y_transform = y_transform
        if (y_power is None) == (y_transform == "yeo-johnson"):
            raise ValueError("y_power must be given for yeo-johnson, and for nothing else")
        if y_power is not None:
            power = checks.as_array(y_power, "y_power", tf.float64)
            low, high = yeo_johnson.POWERS
            if (
                self.y_mean is None
                or power.shape != self.y_mean.shape
                or not np.all((low <= power) & (power <= high))
            ):
                raise ValueError(f"y_power must be from 0 to 2 for each output, got {power}")
            self.y_power = tf.Variable(power, trainable=False, name="y_power")

    @classmethod
    def fit(
        cls,
        X: np.ndarray,
        Y: np.ndarray | None = None,
        *,
        num_channels: int | None = None,
        transform: str = "none",
        row_weights: np.ndarray | None = None,
        robust: bool = False,
    ) -> "Standardizer":
        """Take means and standard deviations from training rows.

        A constant column has scale 1: it is only centered.

        :param X: training inputs [N,D].
        :param Y: training outputs [N,P]; None for classification, whose labels stay untouched.
        :param num_channels: C, if rows are images with channels last: one mean and one scale for
            all pixels of a channel, so that equal patches at different places of an image stay
            equal; None for a mean and a scale of each column.
        :param transform: transform of the outputs, see the class; the powers of "yeo-johnson"
            maximize the likelihood of a Gaussian.
        :param row_weights: weights of the rows [N], positive; None for 1.
        :param robust: outputs have their median for mean, and for scale 1.4826 times their median
            absolute deviation, the standard deviation of a Gaussian, so that outliers do not set
            the units; but mean and standard deviation where half of the outputs are equal.
        :raises ValueError: for wrong shapes, no rows, NaN, or infinity, outputs that have no
            logarithm, or outputs so small that their variance is not a number above 0.
        """
        X = _matrix(X, "X", "D")
        checks.require_range(tf.constant(X), "X")
        columns = X.shape[1]
        channels = columns
        if num_channels is not None:
            channels = checks.require_count(num_channels, "num_channels")
        if columns % channels:
            raise ValueError(
                f"num_channels must divide the {columns} columns of X, got {num_channels}; pass "
                "images row by row with channels last"
            )
        per_row = columns // channels
        weights = None if row_weights is None else np.repeat(row_weights, per_row)
        shared = _mean_and_scale(X.reshape(-1, channels), weights)
        mean, scale = (np.tile(values, per_row) for values in shared)
        if Y is None:
            return cls(mean, scale)
        Y = _matrix(Y, "Y", "P")
        checks.require_range(tf.constant(Y), "Y")
        _check_same_rows(X, Y)
        _require_spread(Y)
        Y = _unbounded(Y, transform)
        y_mean, y_scale = (robust_mean_and_scale if robust else _mean_and_scale)(Y, row_weights)
        power = None
        if transform == "yeo-johnson":
            columns_of_y = ((Y - y_mean) / y_scale).T
            power = np.array([yeo_johnson.best_power(z, row_weights) for z in columns_of_y])
        return cls(mean, scale, y_mean, y_scale, transform, power)

    def transform_inputs(self, X: np.ndarray) -> np.ndarray:
        """Standardize inputs.

        :param X: inputs in original units [N,D].
        :raises ValueError: for a D other than at fitting, NaN, or infinity.
        """
        X = _matrix(X, "X", "D", len(self.x_mean.numpy()))
        return (X - self.x_mean.numpy()) / self.x_scale.numpy()

    def transform_outputs(self, Y: np.ndarray) -> np.ndarray:
        """Standardize outputs; class labels (fitted with `Y=None`) are returned as they are.

        :param Y: outputs in original units [N,P].
        :raises ValueError: for a P other than at fitting, NaN, infinity, or no logarithm.
        """
        Y, mean, scale = self._outputs(Y)
        Y = _unbounded(Y, self.y_transform)
        Z = (Y - mean) / scale
        return (
            Z if self.y_power is None else yeo_johnson.forward(tf.constant(Z), self.y_power).numpy()
        )

    def transform(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Standardize inputs [N,D] and outputs [N,P] of the same rows.

        :raises ValueError: for wrong shapes, NaN, or infinity.
        """
        X, Y = self.transform_inputs(X), self.transform_outputs(Y)
        _check_same_rows(X, Y)
        return X, Y

    def inverse_outputs(self, Y: np.ndarray) -> np.ndarray:
        """Bring standardized outputs [N,P] back to original units.

        :raises ValueError: for a P other than at fitting, NaN, or infinity.
        """
        return self.to_original_units(tf.constant(self._outputs(Y)[0])).numpy()

    def to_original_units(self, Z: tf.Tensor) -> tf.Tensor:
        """Standardized outputs [..., P] in original units, in graphs too."""
        if self.y_mean is None or self.y_scale is None:
            return Z
        if self.y_power is not None:
            Z = yeo_johnson.inverse(Z, self.y_power)
        Y = self.y_mean + self.y_scale * Z
        inverse = {"log": tf.exp, "logit": tf.sigmoid}.get(self.y_transform, tf.identity)
        return inverse(Y)

    def to_original_moments(
        self, mean: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [N,P] in original units of Gaussians, in graphs too.

        For transformed outputs, by :meth:`to_original_summary`.
        """
        if self.y_mean is None or self.y_scale is None:
            return mean, variance
        if self.y_transform == "none":
            return self.y_mean + self.y_scale * mean, self.y_scale**2 * variance
        return self.to_original_summary(
            lambda levels: mean + tf.sqrt(variance) * stats.norm.ppf(levels)[:, None, None]
        )[1:]

    def to_original_summary(
        self, quantiles: Callable[[np.ndarray], tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        Medians, means and variances [N,P] in original units of any distributions of standardized
        outputs, in graphs too.

        Moments are integrals over the quantile function, by the trapezoidal rule in the normal
        score of the probability, up to 7 standard deviations (5 in float32, which has no
        probability nearer to 1). A heavy tail beyond them is cut off.

        :param quantiles: from probabilities [L] to quantiles of standardized outputs [L,N,P].
        """
        reach = _REACH[np.dtype(gpflow.default_float()).name]
        z = np.linspace(-reach, reach, 2 * _NUM_SIDE + 1)
        weights = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
        Z = tf.cast(quantiles(stats.norm.cdf(z)), tf.float64)  # [L, N, P]
        Y, weights = self.to_original_units(Z), tf.constant(weights)[:, None, None]
        mean = tf.reduce_sum(weights * Y, axis=0)
        return Y[_NUM_SIDE], mean, tf.reduce_sum(weights * (Y - mean) ** 2, axis=0)

    def log_jacobian(self, Y: np.ndarray) -> np.ndarray:
        """Log density in original units less the log density in standardized units [N].

        :param Y: outputs in original units [N,P].
        """
        Y, mean, scale = self._outputs(Y)
        if self.y_mean is None:
            return np.zeros(len(Y))
        slope = -np.log(scale) * np.ones_like(Y)
        if self.y_transform == "log":
            slope -= np.log(Y)
        if self.y_transform == "logit":
            slope -= np.log(Y) + np.log1p(-Y)
        if self.y_power is not None:
            Z = (Y - mean) / scale
            slope += yeo_johnson.log_derivative(tf.constant(Z), self.y_power).numpy()
        return slope.sum(axis=1)

    def inverse_mean_variance(
        self, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bring means and variances of Gaussians of standardized outputs to original units.

        :param mean: standardized means [N,P].
        :param variance: marginal variances of standardized outputs [N,P].
        :return: means in the units of the outputs and variances in their squares, each [N,P].
        :raises ValueError: for a P other than at fitting, unequal shapes, NaN, or infinity.
        """
        mean = self._outputs(mean)[0]
        variance = _matrix(variance, "variance", "P")
        if variance.shape != mean.shape:
            raise ValueError(
                f"variance must have the shape of mean, {mean.shape}, got {variance.shape}; "
                "pass marginal variances, not a full covariance"
            )
        moments = self.to_original_moments(tf.constant(mean), tf.constant(variance))
        return moments[0].numpy(), moments[1].numpy()

    def _outputs(self, Y: np.ndarray) -> tuple[np.ndarray, Any, Any]:
        """Outputs [N,P] after their checks, and their mean and scale [P]; 0 and 1 for labels."""
        if self.y_mean is None or self.y_scale is None:
            return _matrix(Y, "Y", "P"), 0.0, 1.0
        mean, scale = self.y_mean.numpy(), self.y_scale.numpy()
        return _matrix(Y, "Y", "P", len(mean)), mean, scale

    @property
    def log_density_offset(self) -> float:
        """:meth:`log_jacobian` of outputs without a transform: minus the sum of the logarithms of
        `y_scale` over the P outputs (0 for labels)."""
        return 0.0 if self.y_scale is None else float(-np.sum(np.log(self.y_scale.numpy())))

    def predict_y(
        self, model: Any, X: np.ndarray, batch_size: int = 4096
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict observations in original units with a model of standardized data.

        :param model: a GPflow model trained on standardized data, see :meth:`transform`.
        :param X: inputs in original units [N,D].
        :param batch_size: the number of rows per call of the model, which bounds the memory.
        :return: means [N,P] and variances [N,P] in original units, noise included; for
            transformed outputs, moments under a Gaussian with the moments the model predicts.
        :raises ValueError: for wrong inputs or a batch size below 1.
        """
        parts = _in_batches(model, "predict_y", batch_size, self.transform_inputs(X))
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return self.inverse_mean_variance(mean, variance)

    def predict_log_density(
        self, model: Any, X: np.ndarray, Y: np.ndarray, batch_size: int = 4096
    ) -> np.ndarray:
        """Log predictive densities in original units with a model of standardized data.

        :param model: a GPflow model trained on standardized data, see :meth:`transform`.
        :param X: inputs in original units [N,D].
        :param Y: observed outputs in original units [N,P].
        :param batch_size: the number of rows per call of the model, which bounds the memory.
        :return: log densities in nats [N], summed over outputs.
        :raises ValueError: for wrong data or a batch size below 1.
        """
        parts = _in_batches(model, "predict_log_density", batch_size, *self.transform(X, Y))
        return np.concatenate(parts).astype(np.float64) + self.log_jacobian(Y)


def _statistics(mean: np.ndarray, scale: np.ndarray, name: str) -> tuple[tf.Variable, tf.Variable]:
    values = {f"{name}_mean": mean, f"{name}_scale": scale}
    for key, value in values.items():
        values[key] = value = checks.as_array(value, key, tf.float64)
        if value.ndim != 1 or value.size == 0 or not np.isfinite(value).all():
            raise ValueError(f"{key} must be a finite vector, got shape {value.shape}: {value}")
    if (smallest := values[f"{name}_scale"].min()) <= 0:
        raise ValueError(f"{name}_scale must be positive, its smallest value is {smallest:g}")
    sizes = [len(value) for value in values.values()]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{name}_mean and {name}_scale must have the same length, got {sizes[0]} and {sizes[1]}"
        )
    shift, factor = (tf.Variable(v, trainable=False, name=key) for key, v in values.items())
    return shift, factor


def _unbounded(Y: np.ndarray, transform: str) -> np.ndarray:
    """Outputs after "log" or "logit"; as they are for other transforms."""
    if transform == "log" and not (Y > 0.0).all():
        raise ValueError(
            f"Y must be positive for the transform log, its smallest value is {Y.min():g}; take "
            "yeo-johnson"
        )
    if transform == "logit" and not ((Y > 0.0) & (Y < 1.0)).all():
        raise ValueError(
            f"Y must be between 0 and 1 for the transform logit, got values from {Y.min():g} to "
            f"{Y.max():g}; take none"
        )
    if transform == "logit":
        return np.log(Y) - np.log1p(-Y)
    return np.log(Y) if transform == "log" else Y


def _mean_and_scale(
    values: np.ndarray, row_weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    # Rounding can give a constant column a tiny standard deviation, which would blow it up.
    constant = values.min(axis=0) == values.max(axis=0)
    mean = np.average(values, axis=0, weights=row_weights)
    scale = np.average(np.square(values - mean), axis=0, weights=row_weights) ** 0.5
    lost = ~constant & ~((scale > _MIN_SCALE) & (scale < np.inf))  # squares are 0 or infinite
    if lost.any():
        size = np.abs(values[:, lost] - mean[lost]).max(axis=0)
        scale[lost] = size * ((values[:, lost] - mean[lost]) / size).std(axis=0)
    return np.where(constant, values[0], mean), np.where(constant | (scale == 0), 1.0, scale)


def robust_mean_and_scale(
    values: np.ndarray, row_weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """
    Median and scale of each column [P], see :meth:`Standardizer.fit`.

    :param values: [N,P].
    :param row_weights: [N]; None for 1.
    """
    center = _median(values, row_weights)
    scale = _MAD * _median(np.abs(values - center), row_weights)
    usable = scale > _MIN_SCALE
    mean, deviation = _mean_and_scale(values, row_weights)
    return np.where(usable, center, mean), np.where(usable, scale, deviation)


def _median(values: np.ndarray, row_weights: np.ndarray | None) -> np.ndarray:
    """The middle value of each column, or the average of both, counting rows by their weights."""
    weights = np.ones(len(values)) if row_weights is None else row_weights
    order = np.argsort(values, axis=0)
    shares = np.cumsum(weights[order], axis=0) / weights.sum()  # [N, P]
    ordered = np.take_along_axis(values, order, axis=0)
    middle = [np.argmax(shares >= 0.5 - _TIE, axis=0), np.argmax(shares > 0.5 + _TIE, axis=0)]
    return np.take_along_axis(ordered, np.stack(middle), axis=0).mean(axis=0)


def _require_spread(Y: np.ndarray) -> None:
    """Refuse outputs that vary by so little that predicted variances would be 0."""
    scale = _mean_and_scale(Y)[1]
    small = np.flatnonzero(scale < _MIN_SCALE)
    if small.size:
        raise ValueError(
            f"Y must have standard deviations above {_MIN_SCALE:.0e}, or its squares are 0 in "
            f"float64; column {small[0]} has {scale[small[0]]:.3g}. Take another unit: "
            "multiply it."
        )


def _matrix(values: np.ndarray, name: str, columns: str, width: int | None = None) -> np.ndarray:
    values = checks.as_array(values, name, tf.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"{name} must have shape [N,{columns}] with at least one row and column, got "
            f"{values.shape}; reshape a single column with {name}[:, None]"
        )
    if width is not None and values.shape[1] != width:
        raise ValueError(
            f"{name} must have {width} columns as at fitting, got {values.shape[1]}; "
            "pass the same columns in the same order"
        )
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = np.argwhere(bad)[0].tolist()
        raise ValueError(
            f"{name} must be finite, got {values[row, column]} in column {column} (first in row "
            f"{row}; {bad.sum()} such entries in columns {np.flatnonzero(bad.any(0)).tolist()}); "
            "drop or fill those rows"
        )
    return values


def _check_same_rows(X: np.ndarray, Y: np.ndarray) -> None:
    if len(X) != len(Y):
        raise ValueError(f"X and Y must have the same number of rows, got {len(X)} and {len(Y)}")


def _in_batches(model: Any, method: str, batch_size: int, *arrays: np.ndarray) -> list[Any]:
    """Results of a method of a model for each batch of rows of ``X``, or of ``X, Y``."""
    if checks.require_whole(batch_size, "batch_size") < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size!r}")
    if not callable(getattr(model, method, None)):
        raise ValueError(f"model must be a GPflow model with {method}, got {type(model).__name__}")
    parts = []
    for start in range(0, len(arrays[0]), batch_size):
        rows = slice(start, start + batch_size)
        batch = tuple(tf.constant(a[rows], gpflow.default_float()) for a in arrays)
        parts.append(getattr(model, method)(batch if len(batch) > 1 else batch[0]))
    return parts
