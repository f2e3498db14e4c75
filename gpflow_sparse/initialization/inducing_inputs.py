"""Starting values of inducing inputs and lengthscales, from arrays and a GPflow kernel.

Inputs X are [N, D]; inducing inputs are distinct rows, since two equal ones make Kuu singular.
Where inputs repeat and their distinct rows are at most as many as inducing inputs are asked for,
every choice consists of all of them, with which a sparse model of these rows is exact.
Arrays are returned as float64; kernels are evaluated in `gpflow.default_float()`, the type the
kernel must have been built in.
"""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.covariances.stationary import centered, unmapped
from gpflow_sparse.initialization.repeated_rows import distinct_rows
from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation import checks, component_checks

Array = np.ndarray

# N=36000, D=8, M=1024, two cores: 30 Lloyd iterations took 1.5 s and ended 4 % below the inertia of
# mini-batches (0.6 s). Batches of 4096 rows took a third of the time of 1024 at N=2e6.
_LLOYD_LIMIT, _LLOYD_ITERATIONS, _BATCH_ROWS = 1e9, 30, 4096
# Differences of at most this fraction of a column's interdecile range are rounding of equal values.
_ROUNDING = 1e-9


def _matrix(value: Any, name: str) -> Array:
    return checks.require_matrix(value, name, tf.float64).numpy()


def _shuffled(seed: int, rows: Array) -> Array:
    return np.random.default_rng(checks.require_seed(seed)).permutation(rows)


def _check_count(name: str, count: int, available: int, what: str) -> None:
    if not 1 <= checks.require_whole(count, name) <= available:
        raise ValueError(
            f"{name}: expected between 1 and {available}, the number of {what}, got {count}. "
            "Ask for fewer inducing inputs or pass more rows."
        )


def _count_from(name: str, count: int, available: int, repeated: bool, what: str) -> int:
    """
    The number of distinct rows to choose: all, where rows repeat and more are asked for.

    :param name: name of ``count`` in the caller, for errors.
    """
    _check_count(name, count, count if repeated else available, what)
    return min(count, available)


def input_scale(kernel: Kernel | None, num_columns: int) -> Array:
    """The lengthscale of every column [D]; ones if the kernel has none or reads only some."""
    if kernel is None:
        return np.ones(num_columns)
    component_checks.require_kernel(kernel, None)
    columns = np.arange(num_columns)
    dims = getattr(kernel, "active_dims", columns)
    if not np.array_equal(columns[dims] if isinstance(dims, slice) else dims, columns):
        return np.ones(num_columns)
    component_checks.require_kernel(kernel, num_columns)
    lengthscales = tf.convert_to_tensor(getattr(kernel, "lengthscales", 1.0))
    name, wanted = "kernel.lengthscales", f"positive: one number or {num_columns}, one per column"
    shapes = ((), (1,), (num_columns,))
    scale = checks.require_positive(lengthscales, name, wanted, shapes, tf.float64)
    return np.broadcast_to(scale, (num_columns,))


def in_units(kernel: Kernel, X: Any) -> Array:
    """Inputs ``[N, D]`` as the kernel maps them, over the lengthscale of every column."""
    kernel, mapped = unmapped(kernel, X)
    return np.asarray(mapped) / input_scale(kernel, mapped.shape[1])


def _distinct_centers(centers: Array, rows: Array) -> Array:
    """Replace repeats among centers [M, D] by the farthest of the distinct rows [N, D]."""
    from scipy.spatial import cKDTree

    kept = np.unique(centers, axis=0)
    if len(kept) == len(centers):
        return centers
    # At most len(kept) rows are at distance 0, so the farthest of the others equal no center.
    farthest = np.argsort(-cKDTree(kept).query(rows)[0], kind="stable")
    return np.concatenate([kept, rows[farthest[: len(centers) - len(kept)]]])


def kmeans(X: Array, M: int, kernel: Kernel | None = None, *, seed: int = 0) -> Array:
    """
    K-means centers, in units of the kernel's lengthscales when it has them.

    Lloyd's iterations from a k-means++ start, O(N M D) each, while N M D is at most 1e9;
    mini-batches above. N=36000, D=8, M=1024 takes 2 s on two cores.

    :param X: inputs [N, D]; a repeated row counts as often as it occurs.
    :param M: number of centers, at most the number of rows of X. Where rows repeat and at most M
        are distinct, all of these are returned.
    :param kernel: its `lengthscales` (one, or one per column) scale the columns; without a kernel,
        or when it reads only some of the columns, they are not scaled.
    :param seed: equal seeds give equal centers.
    :return: distinct centers Z [M, D].
    :raises ValueError: X is not a finite matrix, or has fewer than M rows, none of them twice.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans

    X = _matrix(X, "X")
    scale, seed = input_scale(kernel, X.shape[1]), checks.require_seed(seed)
    # Distinct rows with weights, so that a start never draws the same point twice.
    rows, weights = np.unique(X, axis=0, return_counts=True)
    repeated = len(rows) < len(X)
    if _count_from("M", M, len(rows), repeated, "rows of X") == len(rows) and repeated:
        return rows
    rows = rows / scale
    if rows.size * M <= _LLOYD_LIMIT:
        model = KMeans(M, n_init=1, max_iter=_LLOYD_ITERATIONS, random_state=seed)
    else:
        model = MiniBatchKMeans(M, n_init=1, batch_size=_BATCH_ROWS, random_state=seed)
    model.fit(rows, sample_weight=weights.astype(np.float64))
    centers = _weighted_means(rows, weights, model.labels_, model.cluster_centers_)
    return _distinct_centers(centers, rows) * scale


def _weighted_means(rows: Array, weights: Array, labels: Array, centers: Array) -> Array:
    """
    One more Lloyd update of ``centers [M, D]``, with sums in the order of the rows.

    scikit-learn sums over threads in the order in which they finish, so that its centers differ in
    the last bits from call to call.
    """
    totals = np.bincount(labels, weights, minlength=len(centers))  # [M]
    sums = [np.bincount(labels, weights * column, minlength=len(centers)) for column in rows.T]
    occupied = totals > 0.0
    means = np.stack(sums, axis=1) / np.where(occupied, totals, 1.0)[:, None]
    return np.where(occupied[:, None], means, centers)


def random_subset(X: Array, M: int, kernel: Kernel | None = None, *, seed: int = 0) -> Array:
    """
    Distinct rows of X drawn at random without replacement.

    :param M: as in :func:`kmeans`.
    :param kernel: not used; for the same signature as the other choices of Z.
    :param seed: equal seeds give equal rows.
    :return: Z [M, D], in random order.
    :raises ValueError: X is not a finite matrix, or has fewer than M rows, none of them twice.
    """
    X = _matrix(X, "X")
    rows = distinct_rows(_shuffled(seed, X))
    return rows[: _count_from("M", M, len(rows), len(rows) < len(X), "rows of X")]


def _distinct_beside(X: Array, Z: Array) -> tuple[Array, bool]:
    """X, or where its rows repeat its distinct rows that are not in Z; and whether they repeat."""
    rows = distinct_rows(X)
    if len(rows) == len(X):
        return X, False
    return distinct_rows(np.concatenate([Z, rows]))[len(distinct_rows(Z)) :], True


def _pivoted_cholesky(
    name: str, X: Array, Z: Array, count: int, kernel: Kernel, seed: int, max_candidates: int
) -> Array:
    """
    Factorize k([Z; X], [Z; X]) with pivots taken from Z first, then `count` pivots from X.

    :param name: name of `count` in the caller, for errors.
    :param Z: inputs to condition on [M, D]; may have no rows. Rows without remaining variance are
        skipped, so that no jitter is needed.
    :return: the pivots among the distinct rows of X, in the order of choice; then, where rows
        repeat and all distinct rows outside of Z are asked for, rows without remaining variance.
    """
    most = checks.require_count(max_candidates, "max_candidates")
    rows, repeated = _distinct_beside(X, Z)
    X, repeated = _shuffled(seed, rows)[:most], repeated and len(rows) <= most
    count = _count_from(name, count, len(X), repeated, "candidate rows (at most max_candidates)")
    component_checks.require_kernel(kernel, X.shape[1])
    points, dtype = np.concatenate([Z, X]), gpflow.default_float()
    inputs: Array = centered(kernel, points).numpy().astype(dtype)
    residual = np.array(kernel(inputs, full_cov=False), dtype=np.float64)
    _require_finite(residual, kernel)
    # GPflow's squared distances lose about |x|^2 rounding errors for x in lengthscales from their
    # mean: 1e4 of them covers inputs up to 100 lengthscales from it.
    tolerance = 1e4 * float(np.finfo(dtype).eps) * float(residual.max())
    factor, rank = np.empty((len(Z) + count, len(points))), 0
    given = np.arange(len(points)) < len(Z)
    for allowed, wanted in ((given, len(Z)), (~given, count)):
        pivots: list[int] = []
        while len(pivots) < wanted:
            pivot = int(np.argmax(np.where(allowed, residual, -np.inf)))
            if residual[pivot] <= tolerance:
                break
            covariance = np.array(kernel(inputs[pivot : pivot + 1], inputs), dtype=np.float64)[0]
            _require_finite(covariance, kernel)
            covariance -= factor[:rank, pivot] @ factor[:rank]
            factor[rank] = covariance / np.sqrt(residual[pivot])
            residual -= factor[rank] ** 2
            # Exactly 0, or a rough kernel's rounding (1e-7 for Matern12) lets a repeat be picked.
            residual[np.all(points == points[pivot], axis=1)] = 0.0
            pivots.append(pivot)
            rank += 1
    if repeated and count == len(X):
        pivots += sorted({*range(len(Z), len(points))} - {*pivots})
    if len(pivots) < count:
        raise ValueError(
            f"{name}: expected at most {len(pivots)}, after which no candidate has variance left, "
            f"got {count}. Ask for fewer, shorten the kernel's lengthscales or choose by kmeans."
        )
    return points[pivots]


def _require_finite(covariance: Array, kernel: Kernel) -> None:
    if not np.isfinite(covariance).all():
        component_checks.validate_components(kernel, failed=True)
        raise ValueError("kernel: expected finite covariances, got NaN or infinity. Standardize X.")


def greedy_variance(
    X: Array, M: int, kernel: Kernel, *, seed: int = 0, max_candidates: int = 20_000
) -> Array:
    """
    Rows of X chosen one by one where the variance conditioned on earlier rows is largest.

    This pivoted Cholesky of k(X, X), which is not formed, costs O(N M^2) time and O(N M) memory.

    :param M: number of rows to choose. Where rows repeat and at most M are distinct, all of these
        are returned, rows without remaining variance last.
    :param kernel: the kernel k, with its hyperparameters.
    :param seed: seed of the choice and order of candidates; ties, such as the first choice of a
        stationary kernel, are broken by that order.
    :param max_candidates: largest number of candidates, random rows of a larger X.
    :return: Z [M, D], distinct rows in the order of choice.
    :raises ValueError: X is not a finite matrix, or fewer than M candidates have variance left.
    """
    X = _matrix(X, "X")
    return _pivoted_cholesky("M", X, X[:0], M, kernel, seed, max_candidates)


def greedy_orthogonal(
    X: Array, Z: Array, M2: int, kernel: Kernel, *, seed: int = 0, max_candidates: int = 20_000
) -> Array:
    """
    Rows of X chosen as by :func:`greedy_variance`, at the cost of M + M2, after a given Z.

    :param Z: the inducing inputs already chosen [M, D], not necessarily rows of X.
    :param M2: number of rows to choose. Where rows repeat and at most M2 distinct ones are not in
        Z, all of these are returned; there may be none.
    :return: O [M2, D], distinct rows in the order of choice, none of them a row of Z.
    :raises ValueError: as :func:`greedy_variance`, or if X and Z differ in their columns.
    """
    X, Z = _matrix(X, "X"), _matrix(Z, "Z")
    if X.shape[1] != Z.shape[1]:
        raise ValueError(
            f"Z: expected {X.shape[1]} columns as in X, got {Z.shape[1]}. Pass both in one space."
        )
    return _pivoted_cholesky("M2", X, Z, M2, kernel, seed, max_candidates)


def split_orthogonal(
    X: Array,
    M: int,
    *num_orthogonal: int,
    kernel: Kernel | None = None,
    method: str = "kmeans",
    seed: int = 0,
) -> tuple[Array, ...]:
    """
    Choose Z and the orthogonal sets O together, then split the choice.

    One joint choice keeps the sets apart: an O within 1e-3 lengthscales of a Z has almost no
    variance left given Z, so C_vv is nearly singular and the pair adds noise instead of resolution.

    Where rows repeat and the sizes add up to no less than the distinct rows, these are split: Z has
    up to M of them, and the last sets have fewer than asked for, or none, which
    ``OrthogonalInducingVariables`` ignores. Z alone is exact for these rows if it has them all.

    :param M: size of Z.
    :param num_orthogonal: sizes of the orthogonal sets.
    :param kernel: the kernel, for its lengthscales ("kmeans") or covariances ("greedy").
    :param method: "kmeans" or "random", split at random, or "greedy", in order: Z gets the first M.
    :param seed: seed of the choice and of the split.
    :return: Z [M, D], then one array [M2, D] per orthogonal set.
    :raises ValueError: unknown method, "greedy" without a kernel, or sizes that do not fit X.
    """
    X = _matrix(X, "X")
    sizes = tuple(checks.require_whole(size, "M, num_orthogonal") for size in (M, *num_orthogonal))
    few = sum(sizes) > len(X) and len(distinct_rows(X)) == len(X)
    if min(sizes) < 1 or few:
        expected = f"sizes of at least 1 that add up to at most the {len(X)} rows of X"
        raise ValueError(f"M, num_orthogonal: expected {expected}, got {sizes}. Ask for fewer.")
    choices: dict[str, Any] = {"kmeans": kmeans, "random": random_subset, "greedy": greedy_variance}
    known = isinstance(method, str) and method in choices
    if not known or (method == "greedy" and kernel is None):
        raise ValueError(
            'method: expected "kmeans", "random", or "greedy" with a kernel, got '
            f"{method!r} with kernel {kernel!r}. Pass one of these."
        )
    joint = choices[method](X, sum(sizes), kernel, seed=seed)
    if method != "greedy":
        joint = _shuffled(seed, joint)
    return tuple(np.split(joint, np.cumsum(sizes)[:-1]))


def median_lengthscales(X: Array, *, max_rows: int = 2000, seed: int = 0) -> Array:
    """
    Lengthscales at which a typical pair of rows is about one unit apart, in O(D max_rows^2).

    Each is the column's median absolute difference (its standard deviation if that is 0 but for
    rounding, as in columns with few values; at least the largest deviation / 6.7e4, / 29 in
    float32) times sqrt(D), as squares add up; 1 for a constant column.

    :param max_rows: largest number of rows whose pairs are used, drawn at random from a larger X.
    :param seed: seed of that draw.
    :return: positive lengthscales [D].
    :raises ValueError: X is not a finite matrix.
    """
    from scipy.spatial.distance import pdist

    X = _matrix(X, "X")
    rows = _shuffled(seed, X)[: checks.require_count(max_rows, "max_rows")]
    lengthscales = np.ones(X.shape[1])
    radius = linalg.largest_radius(tf.as_dtype(gpflow.default_float()))
    for column in np.flatnonzero(np.ptp(X, axis=0) > 0.0):
        distances = pdist(rows[:, column : column + 1]) if len(rows) > 1 else np.zeros(1)
        values = X[:, column] - np.mean(X[:, column])
        typical = np.median(distances)
        if typical <= _ROUNDING * np.ptp(np.quantile(values, [0.1, 0.9])):
            typical = np.std(values)
        typical = max(typical, np.abs(values).max() / radius)
        lengthscales[column] = typical * np.sqrt(X.shape[1])
    return lengthscales
