"""The part of the prior that the inducing sets of a model explain, by one factorization."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_jitter
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingPatches, InducingPoints
from gpflow.kernels import Kernel, MultioutputKernel
from scipy.spatial import cKDTree

from gpflow_sparse.diagnosis.parameters import column_lengthscales
from gpflow_sparse.inducing_variables import (
    Kuv,
    LocatedPatches,
    OrthogonalInducingVariables,
    Patches,
)
from gpflow_sparse.inference import collapsed
from gpflow_sparse.models.base import SparseGPModel
from gpflow_sparse.numerics import linalg
from gpflow_sparse.numerics.block_elimination import block_cholesky, block_solve

_SINGLE_OUTPUT = (InducingPoints, InducingPatches, Patches, LocatedPatches)
# Rows of a batch, which bound the memory besides O(M^2).
BATCH_ROWS = 4096


class UnavailableError(Exception):
    """An entry that cannot be computed for this model or these data; the message says why."""


class Notes(dict[str, str]):
    """Reasons why entries are None, by the name of the entry."""

    def attempt(self, name: str, compute: Callable[..., Any], *arguments: Any) -> Any:
        """``compute(*arguments)``; None if one of them is None, or with a note if it fails."""
        if any(argument is None for argument in arguments):
            return None  # the note is with the missing argument
        try:
            return compute(*arguments)
        except (UnavailableError, linalg.FactorizationError) as error:
            self[name] = str(error)
            return None


class Nystrom(NamedTuple):
    """The inducing sets of a model with the factor of their joint prior covariance."""

    kernel: Kernel
    sets: tuple[Any, ...]
    """One set, or the base set and the orthogonal sets."""
    L: list[list[tf.Tensor]]
    """Lower factor of the covariance of the union, blocks ``L[i][j]``, ``j <= i``."""
    jitter: float
    """Jitter that the model adds to the diagonal."""


class Projection(NamedTuple):
    """Projection of all rows onto the inducing sets, in float64."""

    sums: collapsed.RowSums
    """Sums over the projected rows and the errors ``Y - m(X)``."""
    unexplained: np.ndarray
    """Unexplained fraction of the prior variance of every row, ``[N]``, at least 0."""
    sizes: list[int]
    """Number of inducing variables of each set."""


def nystrom_of(model: Any) -> Nystrom:
    """
    Factor the covariance of all inducing variables, with the model's own jitter; time O(M^3).

    :raises UnavailableError: for a model without inducing variables, or with inter-domain ones.
    :raises FactorizationError: see :func:`gpflow_sparse.numerics.linalg.cholesky`.
    """
    kernel, inducing = getattr(model, "kernel", None), getattr(model, "inducing_variable", None)
    sets = inducing.sets if isinstance(inducing, OrthogonalInducingVariables) else (inducing,)
    if not all(isinstance(s, _SINGLE_OUTPUT) for s in sets):
        raise UnavailableError(f"{type(model).__name__} has no inducing points of one function.")
    if not isinstance(kernel, Kernel) or isinstance(kernel, MultioutputKernel):
        raise UnavailableError(f"it needs one single-output kernel, not {type(kernel).__name__}.")
    diagonal = [Kuu(s, kernel, jitter=0.0) for s in sets]
    if isinstance(inducing, OrthogonalInducingVariables) or isinstance(model, SparseGPModel):
        scale = tf.concat([tf.linalg.diag_part(K) for K in diagonal], axis=0)
        amount = linalg.jitter(scale, getattr(model, "jitter", None))
    else:
        amount = tf.constant(default_jitter(), diagonal[0].dtype)  # as GPflow's models do
    K = [
        [*(Kuv(s, t, kernel) for t in sets[:i]), linalg.add_jitter(diagonal[i], amount)]
        for i, s in enumerate(sets)
    ]
    return Nystrom(kernel, tuple(sets), block_cholesky(K, _matrix_names(len(sets))), float(amount))


def _matrix_names(num_sets: int) -> list[str]:
    """``Kuu``, then the residual covariance of each orthogonal set."""
    return ["Kuu", *(f"Cvv (orthogonal set {i})" for i in range(1, num_sets))]


def batches(num_rows: int) -> Iterator[slice]:
    """Slices of :data:`BATCH_ROWS` rows."""
    return (slice(i, min(i + BATCH_ROWS, num_rows)) for i in range(0, num_rows, BATCH_ROWS))


def project_rows(nystrom: Nystrom, X: tf.Tensor, errors: tf.Tensor) -> Projection:
    """
    Project all rows in one pass; time O(N M^2), memory O(M^2 + N) and one batch.

    :param X: ``[N, D]``.
    :param errors: ``Y - m(X) [N, P]``; P may be 0.
    """
    sums: list[tf.Tensor] = []
    unexplained = []
    for rows in batches(X.shape[0]):
        columns = [Kuf(s, nystrom.kernel, X[rows]) for s in nystrom.sets]
        projected = tf.concat(block_solve(nystrom.L, columns), axis=0)
        A = tf.cast(projected, tf.float64)  # L^-1 Kuf [M, n], M counting the union
        prior = tf.cast(nystrom.kernel(X[rows], full_cov=False), tf.float64)
        new = collapsed.row_sums(A, tf.cast(errors[rows], tf.float64), prior)
        sums = [a + b for a, b in zip(sums, new, strict=True)] if sums else [*new]
        residual = np.maximum(prior - tf.reduce_sum(tf.square(A), axis=0), 0.0)
        # a kernel such as Linear has no prior variance at some rows
        unexplained.append(residual / np.where(prior > 0.0, prior, 1.0))
    sizes = [int(row[-1].shape[-1]) for row in nystrom.L]
    return Projection(collapsed.RowSums(*sums), np.concatenate(unexplained), sizes)


def conditioning(nystrom: Nystrom, num_columns: int) -> dict[str, Any]:
    """The entry ``condition_numbers`` of :func:`gpflow_sparse.diagnostics`; time O(M^3)."""
    matrices = []
    for name, row in zip(_matrix_names(len(nystrom.sets)), nystrom.L, strict=True):
        # cond(L L^T) = cond(L)^2 is accurate where the condition of the matrix itself is not
        values = np.linalg.svd(tf.cast(row[-1], tf.float64).numpy(), compute_uv=False)
        matrices.append(
            {"name": name, "size": len(values), "condition": float((values[0] / values[-1]) ** 2)}
        )
    blocks = [Kuu(s, nystrom.kernel, jitter=0.0) for s in nystrom.sets]
    scale = np.mean([np.mean(tf.linalg.diag_part(K)) for K in blocks])
    return {
        "matrices": matrices,
        "jitter": nystrom.jitter,
        "relative_jitter": float(nystrom.jitter / scale),
        "smallest_distance": _smallest_distance(nystrom, num_columns),
    }


def _smallest_distance(nystrom: Nystrom, num_columns: int) -> float | None:
    """Smallest distance between two inducing inputs in lengthscales, or None without such."""
    scales = column_lengthscales(nystrom.kernel, num_columns)
    if scales is None or not all(type(s) is InducingPoints for s in nystrom.sets):
        return None
    Z = np.concatenate([s.Z.numpy() for s in nystrom.sets]) / scales
    if len(Z) < 2:
        return None
    return float(np.asarray(cKDTree(Z).query(Z, k=2)[0])[:, 1].min())
