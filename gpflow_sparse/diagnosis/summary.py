"""The function `diagnostics`: all entries, and reasons for missing entries."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import MultioutputKernel
from gpflow.models import GPModel

from gpflow_sparse.diagnosis import evidence
from gpflow_sparse.diagnosis.advice import advice
from gpflow_sparse.diagnosis.calibration import calibration, predict_rows, regional, split_regions
from gpflow_sparse.diagnosis.inducing import (
    Notes,
    conditioning,
    nystrom_of,
    project_rows,
)
from gpflow_sparse.diagnosis.layers import signal_to_noise_on_sample
from gpflow_sparse.diagnosis.parameters import column_lengthscales, hyperparameters, input_kernel
from gpflow_sparse.models.base import SparseGPModel
from gpflow_sparse.validation import checks


def diagnostics(
    model: GPModel, data: tuple[Any, Any] | None = None, *, held_out: bool = False
) -> dict[str, Any]:
    """
    Diagnostics of a trained model as plain numbers, lists and strings; ``docs/diagnostics.md``
    explains how to read them.

    Made for the models of this package and GPflow's SVGP. Entries that cannot be computed for a
    model, a likelihood or a number of rows are None, and ``notes`` has the reason. Lengths, means
    and variances are in the units of the model: standardized, if its data were standardized.

    - ``bound``: all in nats, for all N rows. ``elbo`` is the model's, ``collapsed`` the ELBO of the
      optimal q for the same inducing inputs and hyperparameters, ``exact`` the log evidence of the
      exact Gaussian process with these hyperparameters (up to 2000 rows), ``upper`` Titsias's upper
      bound on it; ``elbo <= collapsed <= exact <= upper``. ``factorization_gap`` is the difference
      between collapsed and the bound of the best q with independent inducing sets (0 for one set),
      ``training_gap`` the difference between this bound and elbo. ``inducing_gap`` is
      ``inducing_gap_from`` ("exact" or "upper") minus collapsed. Elbo and gaps also come
      ``_per_row``. None unless ``data`` has the model's ``num_data`` rows.
    - ``residual_variance``: ``overall``, and ``regions``, at most 8, by k-means, with ``rows``;
      ``unexplained``, the mean fraction of the prior variance not explained by inducing points;
      ``rmse``, ``mean_squared_z`` (squared errors over predicted variance, 1 if calibrated) and
      ``coverage_95`` for Gaussian likelihoods; ``error_rate`` for classes; ``center``, the mean
      row.
    - ``condition_numbers``: ``condition`` of every factored matrix, jitter included; the ``jitter``
      and ``relative_jitter``, as a fraction of the mean prior variance; ``smallest_distance``
      between two inducing inputs, in lengthscales.
    - ``calibration``: for Gaussian likelihoods mean, variance and Kolmogorov-Smirnov distance of
      the probability integral transform (1/2, 1/12 and 0 if calibrated) and the observed
      ``coverage`` of nominal levels; for classes ``error_rate``, ``mean_confidence`` and ``ece``.
    - ``hyperparameters``: per input column ``lengthscale``, ``standard_deviation``, their ``ratio``
      and ``effect``, the mean squared change of f over one standard deviation as a fraction of the
      variance of Y (of 1 for likelihoods other than Gaussian); noise variance, its lower bound, and
      its fraction of the variance of Y; distance to the nearest row (median, in lengthscales) and
      the fraction of a row's prior variance that the value there explains; ``flags``.
    - ``layers``: for each hidden layer of a deep model ``signal``, the variance of its mean over
      rows, ``noise``, its own variance, both averaged over its outputs, and ``ratio``, signal over
      noise; the same of its ``channels``, averaged over patches; ``input_fraction``, the share of
      the signal that comes from its mean function. From at most 500 rows.
    - ``advice``: sentences; each follows from a number above by a threshold it states or that
      ``docs/diagnostics.md`` lists.

    Time O(N M^2 + M^3), M counting all inducing points, and O(N^3) up to 2000 rows; memory
    O(M^2 + N D).

    :param model: trained; not changed.
    :param data: ``(X [N, D], Y [N, P])``. Training rows for all entries about the bound; held-out
        rows for unbiased ``calibration``. None for the rows that a regression model holds.
    :param held_out: whether the rows were not trained on: bounds are then None, and take no time.
    :raises ValueError: for data that do not fit the model, an object that is no GPflow model, or
        parameters that are not finite.
    """
    notes = Notes()
    X, Y = _require(model, getattr(model, "data", None) if data is None else data)
    nystrom = notes.attempt("inducing points", nystrom_of, model)
    errors = projection = None
    if not held_out:
        errors = notes.attempt("bound.collapsed, exact, upper", evidence.prior_errors, model, X, Y)
    if nystrom is not None:
        without = tf.zeros([X.shape[0], 0], tf.float64)
        projection = project_rows(nystrom, X, without if errors is None else errors)
    kernel, columns = input_kernel(model), X.shape[1]
    if column_lengthscales(kernel, columns) is None:
        kind = type(model if kernel is None else kernel).__name__
        notes["lengthscales"] = f"{kind} is not one stationary kernel: no lengthscales per column."
    if held_out:
        notes["bound"] = "bounds are about the rows of training."
        bound = evidence.without_bounds(int(X.shape[0]))
    else:
        bound = evidence.bounds(model, X, Y, errors, projection, notes)
    predictions = notes.attempt("calibration", predict_rows, model, X, Y)
    unexplained = None if projection is None else projection.unexplained
    entries: dict[str, Any] = {
        "num_rows": int(X.shape[0]),
        "bound": bound,
        "condition_numbers": notes.attempt("condition_numbers", conditioning, nystrom, columns),
        "hyperparameters": hyperparameters(model, X, Y),
        "layers": notes.attempt("layers", signal_to_noise_on_sample, model, X),
        "residual_variance": regional(X, split_regions(kernel, X), unexplained, predictions),
        "calibration": None if predictions is None else calibration(predictions),
    }
    return {**entries, "advice": advice(entries), "notes": dict(notes)}


def _require(model: Any, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
    if not isinstance(model, GPModel):
        raise ValueError(f"model must be a gpflow.models.GPModel, got {type(model).__name__}.")
    values = gpflow.utilities.read_values(model)
    broken = [name.lstrip(".") for name, value in values.items() if not np.isfinite(value).all()]
    if broken:
        raise ValueError(f"model has parameters that are not finite: {', '.join(broken)}.")
    if isinstance(data, tf.data.Dataset):
        raise ValueError(
            "data must be a tuple (X [N, D], Y [N, P]), got a tf.data.Dataset: pass some rows "
            "as arrays."
        )
    ours = isinstance(model, SparseGPModel)
    inducing = getattr(model, "inducing_variable", None)
    points = inducing.Z.shape[1] if isinstance(inducing, InducingPoints) else None
    several = isinstance(model.kernel, MultioutputKernel)  # its latents are not its outputs
    return checks.require_data(
        data,
        input_dim=model.input_dim if ours else points,
        likelihood=model.likelihood,
        num_latent_gps=None if several else model.num_latent_gps,
        dtype=model.dtype if ours else gpflow.default_float(),
    )
