"""The bound of a model, and the bounds and evidence that enclose it, all in nats."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.models import ExternalDataTrainingLossMixin, GPModel

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.diagnosis.inducing import Notes, Projection, UnavailableError, batches
from gpflow_sparse.diagnosis.parameters import constant_noise, input_kernel
from gpflow_sparse.inference import collapsed
from gpflow_sparse.inference.chevron import MAX_DENSE
from gpflow_sparse.kernels import Convolutional
from gpflow_sparse.models import QSGP, VariationalModel
from gpflow_sparse.models.regression import RegressionModel
from gpflow_sparse.numerics import linalg

_BOUNDS = ("elbo", "collapsed", "exact", "upper", "factorization_gap")
# Most rows for which the exact Gaussian process is computed, in O(N^3) time.
MAX_EXACT_ROWS = 2000
# Most patches in all images, since a convolutional kernel is evaluated for all pairs of them.
MAX_EXACT_PATCHES = 20_000


def bounds(
    model: GPModel,
    X: tf.Tensor,
    Y: tf.Tensor,
    errors: tf.Tensor | None,
    projection: Projection | None,
    notes: Notes,
) -> dict[str, Any]:
    """
    The entry ``bound`` of :func:`gpflow_sparse.diagnostics`.

    :param errors: ``Y - m(X) [N, P]``, as in ``projection``; None if not available.
    """
    entry: dict[str, Any] = dict.fromkeys(_BOUNDS)
    num_rows, trained_on = int(X.shape[0]), getattr(model, "num_data", None)
    if trained_on is not None and int(np.asarray(trained_on)) != num_rows:
        notes["bound"] = f"data has {num_rows} rows, but the model's num_data is {trained_on}."
        return without_bounds(num_rows)
    noise = constant_noise(model.likelihood)
    variance = None if noise is None else tf.constant(noise, tf.float64)
    sums, sizes = None, None
    if errors is not None and projection is not None:
        sums, sizes = projection.sums, projection.sizes
    computed: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "elbo": (full_elbo, (model, X, Y)),
        "collapsed": (collapsed.collapsed_bound, (sums, variance)),
        "upper": (upper_bound, (sums, variance)),
        "factorization_gap": (collapsed.factorization_gap, (sums, variance, sizes)),
    }
    means, covariances = getattr(model, "variational_shapes", ((), ()))
    if len(covariances) < len(means):  # a set has the covariance of the prior
        del computed["factorization_gap"]
        notes["bound.factorization_gap"] = (
            "the best bound with the prior's covariance of the orthogonal set is not computed."
        )
    # several kernels have no common evidence; the note is with the inducing points
    if getattr(model, "reweighted", None) is not None:
        notes["bound.exact"] = "the kernel with weights is not model.kernel."
    elif not isinstance(model.kernel, MultioutputKernel):
        computed["exact"] = exact_evidence, (model.kernel, X, errors, noise)
    for name, (compute, arguments) in computed.items():
        value = notes.attempt(f"bound.{name}", compute, *arguments)
        entry[name] = None if value is None else float(value)
    return {**entry, **_gaps(entry, num_rows)}


def without_bounds(num_rows: int) -> dict[str, Any]:
    """The entry ``bound`` of rows for which nothing of it is computed: all values are None."""
    entry: dict[str, Any] = dict.fromkeys(_BOUNDS)
    return {**entry, **_gaps(entry, num_rows)}


def _gaps(entry: dict[str, Any], num_rows: int) -> dict[str, Any]:
    """Differences of the bounds in ``entry``, and values per row; None where a bound is None."""
    best = "upper" if entry["exact"] is None else "exact"
    known = {name: np.nan if value is None else value for name, value in entry.items()}
    gaps = {
        "training_gap": known["collapsed"] - known["factorization_gap"] - known["elbo"],
        "inducing_gap": known[best] - known["collapsed"],
    }
    found = gaps | {
        f"{name}_per_row": (known | gaps)[name] / num_rows
        for name in ("elbo", "factorization_gap", "training_gap", "inducing_gap")
    }
    entries = {name: None if np.isnan(value) else value for name, value in found.items()}
    return entries | {"inducing_gap_from": None if np.isnan(gaps["inducing_gap"]) else best}


def full_elbo(model: Any, X: tf.Tensor, Y: tf.Tensor) -> float:
    """
    The objective of the model on all rows, batch by batch, with the KL counted once.

    :raises UnavailableError: if the model has no bound for given data.
    """
    if isinstance(model, RegressionModel):
        if isinstance(model.data, tf.data.Dataset):
            raise UnavailableError(
                "the model reads its rows from a dataset, which cannot be compared with data."
            )
        if not all(np.array_equal(a, b) for a, b in zip(model.data, (X, Y), strict=True)):
            raise UnavailableError("data are not the rows that the model holds.")
        if not model.has_bound:
            raise UnavailableError("its objective is not a bound on the evidence.")
        return float(model.elbo())
    if not (isinstance(model, ExternalDataTrainingLossMixin) and hasattr(model, "elbo")):
        raise UnavailableError(f"{type(model).__name__} has no elbo(data).")
    num_rows = X.shape[0]
    if hasattr(model, "evidence"):
        return float(model.evidence((X, Y)))
    own = (VariationalModel.elbo, QSGP.elbo, gpflow.models.SVGP.elbo)
    if type(model).elbo not in own:
        if getattr(model, "num_data", None) is None:  # then a batch would count as all the data
            return float(model.elbo((X, Y)))
        parts = [(rows, model.elbo((X[rows], Y[rows]))) for rows in batches(num_rows)]
        return sum(float(part) * (r.stop - r.start) for r, part in parts) / num_rows
    if getattr(model, "num_determinant", 0) > MAX_DENSE:
        raise UnavailableError(f"it needs a determinant over more than {MAX_DENSE} functions.")
    total = sum(
        _batch_elbo(model, X[rows], Y[rows], (rows.stop - rows.start) / num_rows)
        for rows in batches(num_rows)
    )
    if not np.isfinite(total):
        raise UnavailableError("it is not finite: the model's own factorization failed.")
    return total


def _batch_elbo(model: Any, X: tf.Tensor, Y: tf.Tensor, share: float) -> float:
    """Expected log likelihood of the rows minus their share of the KL, which may depend on X."""
    if isinstance(model, VariationalModel):
        posterior = model.posterior("nocache")
        kl = posterior.prior_kl(X)  # whole, where terms estimates it
        total = model._sum_over_rows((X, Y), posterior.terms(X))
        return float(tf.cast(total, tf.float64)) - share * float(kl)
    (mean, var), kl = model.predict_f(X), model.prior_kl()
    expectations = model.likelihood.variational_expectations(X, mean, var, Y)
    return float(tf.reduce_sum(tf.cast(expectations, tf.float64))) - share * float(kl)


def prior_errors(model: Any, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """The errors ``Y - m(X) [N, P]`` of the prior mean, for a Gaussian likelihood of one noise."""
    if constant_noise(model.likelihood) is None:
        raise UnavailableError("it needs a Gaussian likelihood with one noise variance.")
    if input_kernel(model) is None:
        raise UnavailableError("f of several layers is not a Gaussian process.")
    return tf.cast(Y - model.mean_function(X), tf.float64)


def upper_bound(sums: collapsed.RowSums, noise: tf.Tensor) -> tf.Tensor:
    """
    An upper bound on the log evidence from the same inducing inputs.

    ``|Kff + noise I|`` is at least ``|Qff + noise I|``, and ``Kff <= Qff + t I`` because the
    largest eigenvalue of the residual is at most its trace t. Titsias, "Variational inference for
    Gaussian and diffusion processes" (2014); GPflow has it as ``SGPR.upper_bound``.
    """
    return collapsed.log_density(sums, noise, noise + sums.residual)


def exact_evidence(kernel: Kernel, X: tf.Tensor, errors: tf.Tensor, noise: float) -> float:
    """
    Log evidence of the exact Gaussian process with the same kernel, noise and mean; O(N^3).

    :raises UnavailableError: for more than :data:`MAX_EXACT_ROWS` rows, and for images of more than
        :data:`MAX_EXACT_PATCHES` patches.
    """
    num_rows, num_outputs = errors.shape
    if num_rows > MAX_EXACT_ROWS:
        raise UnavailableError(f"{num_rows} rows are more than {MAX_EXACT_ROWS}.")
    patches = num_rows * (kernel.grid.num_patches if isinstance(kernel, Convolutional) else 0)
    if patches > MAX_EXACT_PATCHES:
        raise UnavailableError(f"{patches} patches are more than {MAX_EXACT_PATCHES}.")
    K = covariance(kernel, X, dtype=tf.float64)
    L = linalg.cholesky(linalg.add_jitter(K, tf.constant(noise, tf.float64)), "Kff + noise I")
    squares = tf.reduce_sum(tf.square(linalg.solve_triangular(L, errors)))
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)))
    constant = num_rows * np.log(2.0 * np.pi) + log_det
    return float(-0.5 * (num_outputs * constant + squares))
