"""What the arguments of a model with neighbors may be, and where its q starts."""

import zlib
from collections.abc import Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, MultioutputKernel

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models.held_data import hold
from gpflow_sparse.posteriors import latent_kernels
from gpflow_sparse.posteriors.neighbor_terms import NeighborTerms
from gpflow_sparse.validation import checks, component_checks

_COVARIANCES = ("diag", "dense", "low_rank")
_WEIGHTINGS = ("usage", "paper", "chain")
# Numbers in the neighborhoods of one block of inducing points.
_BLOCK = 2**20
# Neighbors that decide where a variance starts.
_NEAREST = 16
# Rows whose neighbors are counted together.
_ROWS = 1024


def require_inducing(value: Any) -> NeighborInducingPoints:
    """:raises ValueError: for anything else."""
    if not isinstance(value, NeighborInducingPoints):
        raise ValueError(
            "inducing_variable must be gs.inducing_variables.NeighborInducingPoints(Z, "
            f"num_neighbors), got {type(value).__name__}."
        )
    return value


def require_objective(
    covariance: Any, kl_weighting: Any, union: Any, inducing_variable: NeighborInducingPoints
) -> None:
    """:raises ValueError: for unknown options, and those that do not go together."""
    checks.require_choice(covariance, "covariance", _COVARIANCES)
    checks.require_choice(kl_weighting, "kl_weighting", _WEIGHTINGS)
    if covariance == "low_rank" and kl_weighting == "chain":
        raise ValueError(
            "kl_weighting must be 'usage' or 'paper' with covariance='low_rank': log |S| of all "
            "inducing variables is no sum over them, which 'chain' needs."
        )
    if union is None:
        return
    num_inducing = inducing_variable.Z.shape[0]
    if checks.require_count(union, "union") > num_inducing:
        raise ValueError(
            f"union must be from 1 to {num_inducing}, the number of inducing points, got {union}."
        )
    if union <= len(inducing_variable.global_indices):
        raise ValueError(
            f"union must be more than the {len(inducing_variable.global_indices)} global points, "
            f"got {union}."
        )
    if kl_weighting != "usage":
        raise ValueError(
            f"kl_weighting={kl_weighting!r} has no meaning with union={union}: there is one KL, of "
            "the active points. Leave kl_weighting out."
        )


def starting_q(
    model: Any, covariance: str, rank: int, q_mu: Any, q_sqrt: Any
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """
    Means ``[M, L]``, standard deviations ``[M, L]`` or None, factors ``[M, L, .]`` or None.

    :param q_sqrt: as of a posterior; None for the prior if ``covariance`` can express it, else the
        closest diagonal, from the neighbors of each point.
    :raises ValueError: for values of a wrong shape.
    """
    M, L = model.inducing_variable.Z.shape[0], model.num_latent_gps
    dtype = gpflow.default_float()
    mean = np.zeros((M, L)) if q_mu is None else _require_shape(q_mu, (M, L), "q_mu")
    if covariance == "dense":
        shape = (L, M, M)
        sqrt = _prior_factors(model) if q_sqrt is None else _require_shape(q_sqrt, shape, "q_sqrt")
        rows = np.ascontiguousarray(np.swapaxes(np.tril(sqrt), 0, 1))
        return mean.astype(dtype), None, rows.astype(dtype)
    factors = None
    if covariance == "low_rank":
        checks.require_count(rank, "rank")
        # a little, for gradients to tell the columns apart
        factors = 1e-3 * np.random.default_rng(0).normal(size=(M, L, rank))
        if q_sqrt is not None:
            q_sqrt, given = _require_pair(q_sqrt)
            factors = np.swapaxes(_require_shape(given, (L, M, rank), "q_sqrt[1]"), 0, 1)
        factors = factors.astype(dtype)
    own = q_sqrt is not None
    scales = _require_shape(q_sqrt, (M, L), "q_sqrt") if own else closest_scales(model)
    if not (scales > 0.0).all() or not np.square(scales).all():
        raise ValueError("q_sqrt must be positive standard deviations with this covariance.")
    return mean.astype(dtype), scales.astype(dtype), factors


def closest_scales(model: Any) -> np.ndarray:
    """
    Standard deviations ``[M, L]`` of the independent u_j that are closest to the prior in
    ``KL[q || p]``: that of u_j given its neighbors, of which the 16 nearest are taken.
    """
    iv, jitter = model.inducing_variable, model.jitter
    M = iv.Z.shape[0]
    H = min(M, _NEAREST)
    found = np.empty((M, model.num_latent_gps))
    size = max(1, _BLOCK // H**2)
    for kernel, columns in latent_kernels(model.kernel, model.num_latent_gps):
        terms = NeighborTerms(kernel, iv, jitter)
        for start in range(0, M, size):
            drawn = tf.range(start, min(start + size, M))
            around = iv.closest(tf.gather(iv.Z, drawn), kernel, H)
            others = tf.where(around == drawn[:, None], -1, around)
            v = terms.conditional(drawn, others)[1].numpy()
            found[start : start + size, columns] = np.sqrt(v)[:, None]
    return found


def require_whole_chain(model: Any, data: Any) -> None:
    """:raises ValueError: if the objective of these data is drawn anew in every call."""
    if model.kl_weighting != "chain" or model.union is not None:
        return
    num_inducing = model.inducing_variable.Z.shape[0]
    if not isinstance(data, Iterator):
        X, _ = model._require_data(data)
        if X.shape[0] is not None and X.shape[0] >= num_inducing:
            return
    raise ValueError(
        f"kl_weighting='chain' draws its terms in every call from fewer than {num_inducing} rows, "
        "one for each inducing point, which an optimizer that compares values cannot use: take "
        "gs.training.fit, or all rows at once."
    )


def require_natural(model: Any, gamma: Any) -> None:
    """:raises ValueError: for models and step sizes that there is no such step of."""
    if model.covariance != "diag" or model.kl_weighting == "chain" or model.union is not None:
        raise ValueError(
            "natural_step needs covariance='diag', kl_weighting 'usage' or 'paper' and union=None; "
            f"got {model.covariance!r}, {model.kl_weighting!r} and {model.union}."
        )
    number = isinstance(gamma, int | float | np.number) and not isinstance(gamma, bool)
    if not (number and 0.0 < gamma <= 1.0):
        raise ValueError(f"gamma must be above 0 and at most 1, got {gamma!r}.")
    model._require_usage()


def blocks_of_inputs(X: Any, input_dim: int | None, dtype: tf.DType) -> Iterator[tf.Tensor]:
    """
    ``[n, D]`` at a time.

    :raises ValueError: for what is no matrix, has other columns or is not finite.
    """
    if isinstance(X, tf.data.Dataset):
        _require_batches(X)
        for element in X:
            part = element[0] if isinstance(element, tuple) else element
            yield checks.require_inputs(tf.cast(part, dtype), input_dim, dtype, "X")
        return
    if not isinstance(X, np.memmap):
        X = checks.require_inputs(X, input_dim, dtype, "X")
    if len(X.shape) != 2:
        raise ValueError(f"X must be a matrix [N, D], got shape {tuple(X.shape)}.")
    for start in range(0, X.shape[0], _ROWS):
        part = X[start : start + _ROWS]
        yield checks.require_inputs(tf.cast(part, dtype), input_dim, dtype, "X")


def _require_batches(X: tf.data.Dataset) -> None:
    spec = X.element_spec[0] if isinstance(X.element_spec, tuple) else X.element_spec
    numbers = isinstance(spec, tf.TensorSpec) and (spec.dtype.is_floating or spec.dtype.is_integer)
    if not numbers or spec.shape.rank not in (None, 2):
        raise ValueError(
            "X must be a data set of batches [n, D] of numbers, or of pairs (X, Y) of them, got "
            f"{spec}; use data.batch(1024)."
        )
    if is_endless(X):
        raise ValueError(
            "X is a data set without end: leave out repeat(), or call model.update_neighbors(X) "
            "with all training inputs before training."
        )


def require_at_most(rows: int, most: int | None) -> None:
    """:raises ValueError: for more rows than there are."""
    if most is not None and rows > most:
        raise ValueError(
            f"data has more than the {most} rows that num_data counts, perhaps without end: leave "
            "out repeat(), or call model.update_neighbors(X) with all training inputs and choose "
            "another kl_weighting for data that differ in every pass."
        )


def is_endless(data: Any) -> bool:
    """Whether it is a data set that says so; others may be, and not know."""
    endless = tf.data.INFINITE_CARDINALITY
    return isinstance(data, tf.data.Dataset) and int(data.cardinality()) == endless


def blocks_of_data(model: Any, X: Any, Y: Any, rows: int) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """
    ``(X [n, D], Y [n, P])`` at a time, checked.

    :param X: an array or memory map; or a ``tf.data.Dataset`` of both, and then
    :param Y: is None.
    """
    if isinstance(X, tf.data.Dataset):
        if Y is not None:
            raise ValueError("Y must be None where X is a tf.data.Dataset of pairs (X, Y).")
        hold(X, batches=True)
        for block in X.rebatch(rows):
            yield model._require_data(block)
        return
    if not isinstance(X, np.memmap):
        X, Y = model._require_data((X, Y))
    elif not isinstance(Y, np.ndarray) or not Y.ndim or len(X) != len(Y):
        count = len(Y) if isinstance(Y, np.ndarray) and Y.ndim else "none"
        raise ValueError(f"X and Y must have the same number of rows, got {len(X)} and {count}.")
    for start in range(0, len(X), rows):
        yield model._require_data((X[start : start + rows], Y[start : start + rows]))


def neighbor_state(model: Any) -> tuple[Any, ...]:
    """What neighbors depend on: two of these are equal only if all rows see the same points."""
    iv = model.inducing_variable
    kernels = [kernel for kernel, _ in latent_kernels(model.kernel, model.num_latent_gps)]
    metrics = tuple(_fingerprint(iv, kernel) for kernel in kernels)
    return zlib.crc32(iv.Z.numpy().tobytes()), metrics


def _fingerprint(iv: NeighborInducingPoints, kernel: Kernel) -> bytes:
    metric = iv.metric(kernel)
    if metric is not None:
        return metric.numpy().tobytes()
    return b"".join(np.asarray(part).tobytes() for part in kernel.parameters)


def require_own_parts(model: Any) -> None:
    """For parts that were assigned."""
    iv = require_inducing(model.inducing_variable)
    component_checks.require_dtype(iv, "inducing_variable", model.dtype)
    component_checks.require_jitter(model.jitter)
    M, L = int(iv.Z.shape[0]), model.num_latent_gps
    iv.require_sound()
    require_objective(model.covariance, model.kl_weighting, model.union, iv)
    latents = getattr(model.kernel, "num_latent_gps", L)
    if isinstance(model.kernel, MultioutputKernel) and latents != L:
        raise ValueError(
            f"kernel ({type(model.kernel).__name__}) has {latents} latent functions, but the model "
            f"num_latent_gps={L}; make a new model."
        )
    shapes: dict[str, tuple[int | None, ...]] = {
        "q_mu": (M, L),
        "usage": (M, len(latent_kernels(model.kernel, L))),
    }
    if model.covariance != "dense":
        shapes["q_log_scale"] = (M, L)
    if model.covariance != "diag":
        columns = M if model.covariance == "dense" else None
        shapes["q_factor"] = (M, L, columns)
    for name, shape in shapes.items():
        found = getattr(getattr(model, name), "shape", None)
        if found is None or not tf.TensorShape(shape).is_compatible_with(found):
            found = None if found is None else tuple(found)
            raise ValueError(f"{name} must have shape {shape}, got {found}.")


def _prior_factors(model: Any) -> np.ndarray:
    """``[L, M, M]``"""
    iv = model.inducing_variable
    factors = []
    for kernel, columns in latent_kernels(model.kernel, model.num_latent_gps):
        L = NeighborTerms(kernel, iv, model.jitter).prior_factor().numpy()
        factors += [L] * (columns.stop - columns.start)
    return np.stack(factors)


def _require_pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(
            "q_sqrt must be a pair (standard deviations [M, L], factors [L, M, rank]) with "
            f"covariance='low_rank', got {type(value).__name__}."
        )
    return value[0], value[1]


def _require_shape(value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    tensor = checks.as_tensor(value, name)
    checks.require_range(tensor, name)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}.")
    return tensor.numpy()
