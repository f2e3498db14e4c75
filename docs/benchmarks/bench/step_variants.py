"""Training steps and predictions of each method and of other libraries' models, timed."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from bench import peers
from bench.figures import new_figure
from bench.papers.tables import grid
from bench.steps import Step, Tables, Variants, measure_memory, table_of, time_in_turn
from gpflow_sparse.bases import GridEigenfunctions, RandomFourier
from gpflow_sparse.bases.grid_eigenfunctions import top_products
from gpflow_sparse.bases.product import percentile_grid
from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import GRIEF, QSGP, SWSGP, BasisGPR
from gpflow_sparse.persistence import files
from gpflow_sparse.tables.methods.registry import RECIPES, read_options, recipe_of
from gpflow_sparse.training import SparseAdagrad, SparseAdam, adam
from gpflow_sparse.training.feed import Prefetch, data_guard, open_feed

Data = tuple[tf.Tensor, tf.Tensor]

# N, and m of QSGP, in benchmarks where they do not vary.
_NUM_DATA = _NUM_BASIS = 100_000
# M and H of SWSGP, those with dense covariance, and M of the SVGP for comparison.
_NEIGHBORS = tuple((M, H) for H in (100, 16) for M in (1000, 100_000, 1_000_000))
_DENSE, _SVGP = (1024, 4), 1024
# Points up to which GPyTorch's model is timed: its neighbors are searched for minutes beyond.
_MAX_OF_PEER = 10_000
# Rows that SWSGP's batches are drawn from, and dimensions of the surface near which they are.
_NEIGHBOR_DATA, _SURFACE = 5000, 3
# Steps of SWSGP that are taken one after the other, since neighbors are found a step early.
TOGETHER = 5
# Columns and nodes per column of GRIEF's searches; rows of the smaller of its two models.
_SEARCHES, _FEW_ROWS = ((33, 10), (100, 100)), 10_000


def orthogonal(
    method: str,
    num_inducing: int,
    num_orthogonal: int,
    batch_size: int,
    input_dim: int,
    repeats: int,
) -> Tables:
    """
    Value and gradient of SOLVE-GP or ODVGP on one batch.

    Beside it: GPflow's SVGP with all M + M2 points in one set; the same SVGP on this package's
    factorization, which separates the effects of method and implementation; a matrix product, whose
    rate (``gflops``, from counted operations) is the most to be reached; and GPyTorch's
    decoupled strategy; and the bound "log". Whitened, all parameters trainable; ODVGP takes all
    columns of its penalty.
    """
    M, M2, total = num_inducing, num_orthogonal, num_inducing + num_orthogonal
    data, points = made_rows(batch_size, input_dim), made_rows(total, input_dim, 1)[0].numpy()
    Z, O = points[:M], points[M:]
    svgp, decoupled = f"GPflow SVGP({total})", f"GPyTorch decoupled({M}+{M2}), mean only"

    own = f"{RECIPES[method].title}({M}+{M2})"

    def with_bound(bound: str) -> Callable[[], Step]:
        return lambda: loss_step(make(method, Z, O, bound=bound), data)

    steps: Variants = {
        own: with_bound("standard"),
        svgp: lambda: loss_step(make("svgp", points), data),
        f"SVGP({total}) on our factorization": lambda: loss_step(make("solvegp", points), data),
        f"matrix product({total})": partial(matrix_product, total),
        f"{own}, log": with_bound("log"),
        decoupled: partial(peers.decoupled_step, Z, O, data, num_data=_NUM_DATA),
    }
    rows = time_in_turn(steps, repeats, svgp)
    first, union = (step_operations(sizes, batch_size) for sizes in ((M, M2), (total,)))
    counts = [first if method == "solvegp" else None, union, union, 2.0 * total**3]
    for row, count in zip(rows, counts, strict=False):
        row["gflops"] = count and count / row["milliseconds"] / 1e6
    return {"rows": rows}


solvegp, odvgp = partial(orthogonal, "solvegp"), partial(orthogonal, "odvgp")


def step_operations(sizes: tuple[int, ...], batch_size: int) -> float:
    """
    Floating-point operations of one whitened value and gradient, to leading order.

    Three times the forward pass, since the gradient of a product is two products. Forward, for SVGP
    with M points and n rows: M^3 / 3 for the factor and 3 M^2 n for the batch. For SOLVE-GP, with
    n rows and the symmetry of ``A^T A`` used,
    ``M^3 / 3 + M^2 M2 + M M2^2 + M2^3 / 3 + (3 M^2 + 2 M M2 + 3 M2^2) n``,
    which is ``8 M^3 / 3 + 8 M^2 n`` at M2 = M. A product of ``[m, k]`` and ``[k, n]`` counts
    2 m k n operations, a triangular solve m^2 n, the factors of q as if they were full.

    :param sizes: ``(M,)`` for SVGP, ``(M, M2)`` for SOLVE-GP.
    """
    M, M2 = (*sizes, 0)[:2]
    prior = M**3 / 3 + M**2 * M2 + M * M2**2 + M2**3 / 3
    return 3.0 * (prior + (3 * M**2 + 2 * M * M2 + 3 * M2**2) * batch_size)


def softki(num_inducing: int, batch_size: int, input_dim: int, repeats: int) -> Tables:
    """
    Value and gradient of SoftKI on one batch: its exact objective, and its pseudo-loss with ten
    probes, drawn in every step. Beside it GPflow's SGPR whose data are the batch, and its SVGP.
    All parameters are trainable, the temperature, which is tied, among them.
    """
    data, Z = made_rows(batch_size, input_dim), made_rows(num_inducing, input_dim, 1)[0].numpy()
    own, sgpr = f"SoftKI({num_inducing})", f"GPflow SGPR({num_inducing})"
    steps = {
        own: lambda: loss_step(make("softki", Z, objective="exact"), data),
        f"{own}, pseudo-loss": lambda: loss_step(make("softki", Z, objective="pseudo"), data),
        sgpr: lambda: loss_step(gpflow.models.SGPR(data, kernel_of(Z), Z, noise_variance=0.1)),
        f"GPflow SVGP({num_inducing})": lambda: loss_step(make("svgp", Z), data),
    }
    return {"rows": time_in_turn(steps, repeats, sgpr)}


def softki_posterior(num_rows: int, num_inducing: int, input_dim: int) -> Tables:
    """Memory of fitting the posterior of SoftKI; ``held`` is the memory of the rows themselves."""
    data = partial(made_rows, num_rows, input_dim)
    found = measure_memory("posterior", data, partial(_fit, num_inducing=num_inducing), 1)
    held = _megabytes(num_rows * (input_dim + 1))
    return {"memory": [found | {"num_rows": num_rows, "num_inducing": num_inducing, "held": held}]}


def _fit(X: tf.Tensor, Y: tf.Tensor, *, num_inducing: int) -> Step:
    model = make("softki", X[:num_inducing].numpy())
    return lambda: model.fit_posterior((X, Y), refit_noise=False)


def qsgp(
    num_basis: Sequence[int],
    num_data: Sequence[int],
    batch_size: int,
    basis_batch_size: int,
    num_control_rows: int,
    input_dim: int,
    num_inducing: int,
    repeats: int,
    output: Path | None,
) -> Tables:
    """
    Whole training steps of QSGP (batch, draws, gradient, update) against m, at N = 100,000, and
    against N, at m = 100,000; and the memory of ten steps for each m, of which ``held`` are the
    weights and the optimizer's memory of them.

    Random Fourier features, "diag", "anchored", Adagrad; hyperparameters fixed, and once more
    learned. For scale GPflow's SVGP on as many rows, all its parameters by Adam.

    :param output: folder of the tables, ``step-qsgp.md``, and of a picture, ``step-qsgp.png``.
    """
    draws: dict[str, Any] = {
        "basis_batch_size": basis_batch_size,
        "num_control_rows": num_control_rows,
    }
    step = partial(qsgp_step, batch_size=batch_size, **draws)
    rows = {N: made_rows(N, input_dim) for N in {*num_data, _NUM_DATA}}
    data = rows[_NUM_DATA]
    pairs = [*((m, _NUM_DATA) for m in num_basis), *((_NUM_BASIS, N) for N in num_data)]
    sizes: dict[str, tuple[int | None, int]] = {f"QSGP, m = {m}, N = {N}": (m, N) for m, N in pairs}
    steps = {t: partial(step, *rows[N], num_basis=m) for t, (m, N) in sizes.items()}
    steps["QSGP, learned"] = partial(step, *data, num_basis=_NUM_BASIS, learned=True)
    model, svgp = make("svgp", data[0][:num_inducing].numpy()), f"GPflow SVGP({num_inducing})"
    steps[svgp] = partial(adam_step, model, data, batch_size)
    times = time_in_turn(steps, repeats, svgp)
    sizes |= {"QSGP, learned": (_NUM_BASIS, _NUM_DATA), svgp: (None, _NUM_DATA)}
    for row in times:
        row["num_basis"], row["num_data"] = sizes[row["title"]]
    memory, prepare = [], partial(made_rows, _NUM_DATA, input_dim)
    for m in num_basis:
        found = measure_memory(f"QSGP, m = {m}", prepare, partial(step, num_basis=m), 10)
        memory.append(found | {"num_basis": m, "held": _megabytes(4 * m)})
    tables = {"rows": times, "memory": memory}
    if output is not None:
        _write_qsgp(output, tables)
    return tables


def qsgp_step(
    X: tf.Tensor,
    Y: tf.Tensor,
    *,
    num_basis: int,
    batch_size: int,
    basis_batch_size: int,
    num_control_rows: int,
    learned: bool = False,
) -> Step:
    """A compiled step on a random batch of these rows."""
    kernel, likelihood = kernel_of(X), gpflow.likelihoods.Gaussian(0.1)
    gpflow.utilities.set_trainable(kernel, learned)
    gpflow.utilities.set_trainable(likelihood, learned)
    support, k = (X[:num_control_rows], Y[:num_control_rows]), min(basis_batch_size, num_basis)
    basis = RandomFourier(kernel, num_basis)
    model = QSGP(basis, likelihood, num_data=len(X), basis_batch_size=k, support=support[0])
    optimizer = SparseAdagrad(0.1)
    model.prepare_step(0, lambda: support)
    optimizer.build(model.row_variables, model.dense_variables)
    return compiled(lambda: model.sparse_step(random_rows((X, Y), batch_size), optimizer))


def _write_qsgp(folder: Path, tables: Tables) -> None:
    figure = new_figure(9.0, 3.6)
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(grid(*table_of(rows)) for rows in tables.values())
    files.write_text(folder / "step-qsgp.md", text + "\n")
    axes: Any = figure.subplots(1, 2, sharey=True)
    *own, _, svgp = tables["rows"]  # without the row of learned hyperparameters
    fixed = {"num_basis": _NUM_BASIS, "num_data": _NUM_DATA}
    for axis, (size, other) in zip(axes, itertools.permutations(fixed), strict=True):
        shown = [row for row in own if row[other] == fixed[other]]
        points = sorted((row[size], row["milliseconds"]) for row in shown)
        axis.plot(*zip(*points, strict=True), "o-", label="QSGP")
        axis.axhline(svgp["milliseconds"], color="0.5", ls="--", label=svgp["title"])
        axis.set(xscale="log", xlabel=f"{size}, at {other} = {fixed[other]}")
    axes[0].set_ylim(0.0, 1.1 * max(row["milliseconds"] for row in [*own, svgp]))
    axes[0].set_ylabel("ms per step")
    axes[0].legend()
    figure.savefig(folder / "step-qsgp.png", dpi=130)


def swsgp(batch_size: int, input_dim: int, repeats: int, surface: bool, memory: bool) -> Tables:
    """
    Whole training steps of SWSGP (batch, neighbors, gradient, update) for several M and H.

    Fixed points, the default weighting, everything else trained by SparseAdam. The neighbors of all
    rows are found before, as `training.fit` does, and GPyTorch; or they are searched in a thread,
    for a step while the one before it is taken, and are all waited for. Beside it GPflow's SVGP,
    whitened with a dense covariance, all its parameters by Adam; and, where GPyTorch is installed,
    its ``NNVariationalStrategy`` with the same M and H, up to 10,000 points.

    :param surface: inputs near a surface of 3 dimensions, not normal in all columns.
    :param memory: measure, instead, the memory of 20 steps with the most points and neighbors;
        ``held`` are the points, means, scales, and the optimizer's memory of both.
    """
    most = max(_SVGP, _DENSE[0], *(M for M, _ in _NEIGHBORS))
    prepare = partial(_rows_and_points, most, input_dim, surface)
    if memory:
        sizes = most, max(H for _, H in _NEIGHBORS)
        step = partial(swsgp_step, sizes=sizes, batch_size=batch_size)
        found = measure_memory("SWSGP({}, H = {})".format(*sizes), prepare, step, 20 // TOGETHER)
        return {"memory": [found | {"held": _megabytes(most * (input_dim + 8))}]}
    X, Y, Z = prepare()
    own = partial(swsgp_step, X, Y, Z, batch_size=batch_size)
    steps = {"SWSGP({}, H = {})".format(*sizes): partial(own, sizes=sizes) for sizes in _NEIGHBORS}
    searched = partial(own, sizes=_NEIGHBORS[-1], num_remembered=0)
    steps["SWSGP, searched in every step({}, H = {})".format(*_NEIGHBORS[-1])] = searched
    dense = partial(own, sizes=_DENSE, covariance="dense")
    steps["SWSGP, dense({}, H = {})".format(*_DENSE)] = dense
    model, svgp = make("svgp", Z[:_SVGP].numpy()), f"GPflow SVGP({_SVGP})"
    steps[svgp] = partial(_together, partial(adam_step, model, (X, Y), batch_size))
    _, targets = made_rows(most, input_dim, 1, surface)
    for M, H in (sizes for sizes in _NEIGHBORS if sizes[0] <= _MAX_OF_PEER):
        peer = partial(peers.neighbor_step, (Z[:M], targets[:M]), H, batch_size)
        steps[f"GPyTorch nearest neighbors({M}, H = {H})"] = partial(_together, peer)
    return {"rows": time_in_turn(steps, repeats, svgp, calls=TOGETHER)}


def swsgp_step(
    X: tf.Tensor,
    Y: tf.Tensor,
    Z: tf.Tensor,
    *,
    sizes: tuple[int, int],
    batch_size: int,
    covariance: str = "diag",
    num_remembered: int | None = None,
) -> Step:
    """Several steps on batches of these rows, as `training.fit` takes them; sizes are M and H."""
    M, H = sizes
    points = NeighborInducingPoints(Z[:M].numpy(), H, num_remembered=num_remembered)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    q: dict[str, Any] = {}
    if covariance == "diag":  # the default takes a search for every point
        q = {"q_mu": np.zeros([M, 1]), "q_sqrt": np.full([M, 1], 0.1)}
    options = {"covariance": covariance, "num_data": len(X), **q}
    model = SWSGP(kernel_of(Z), likelihood, points, **options)
    model.count_neighbors(X)
    optimizer = SparseAdam()
    optimizer.build(model.row_variables, model.dense_variables)
    feed = open_feed((X, Y), batch_size, 0, data_guard(model))
    prefetch, numbers = Prefetch.of(model, feed), itertools.count()
    step = tf.function(lambda *at: model.sparse_step(feed.lookup(*at), optimizer), autograph=False)

    def run() -> Any:
        for number in itertools.islice(numbers, TOGETHER):
            if prefetch is not None:
                prefetch.begin(number + 1)
            found = step(*feed.at(number))
        if prefetch is not None:
            prefetch.wait()
        return found

    return run


def _rows_and_points(most: int, input_dim: int, surface: bool) -> tuple[tf.Tensor, ...]:
    """``X, Y`` that batches are drawn from, and Z."""
    rows = made_rows(_NEIGHBOR_DATA, input_dim, surface=surface)
    return *rows, made_rows(most, input_dim, 1, surface)[0]


def _together(build: Callable[[], Step]) -> Step:
    step = build()
    return lambda: [step() for _ in range(TOGETHER)][-1]


def grief(num_rows: int, input_dim: int, num_basis: int, repeats: int) -> Tables:
    """
    Costs of GP-GRIEF. Timed once: the pass over the rows for the sums, whose operations are counted
    as ``2 N p^2`` though half are done, since the product is symmetric; and making a model with
    rotated weights, with tracing. Timed in turn: its log likelihood and gradient beside those of a
    model of 10,000 rows, the search for the eigenfunctions, and a matrix product of size 2048.
    """
    data, few = made_rows(num_rows, input_dim), made_rows(_FEW_ROWS, input_dim)
    models = [_rotated(few, num_basis)]
    once: Variants = {
        "pass over the rows": partial(_sums, *data, num_basis=num_basis),
        "making a model": lambda: lambda: models.append(_rotated(data, num_basis)),
    }
    short = f"likelihood and gradient, N = {_FEW_ROWS}"
    steps: Variants = {
        f"likelihood and gradient, N = {num_rows}": lambda: loss_step(models[1]),
        short: lambda: loss_step(models[0]),
    }
    rows = time_in_turn(once, 1, untimed=0) + time_in_turn(steps, repeats, short)
    name = "search, {} columns of {} nodes".format
    others = {name(*sizes): partial(_search, *sizes, num_basis) for sizes in _SEARCHES}
    others["matrix product(2048)"] = partial(matrix_product, 2048)
    rows += time_in_turn(others, repeats)
    rows[0]["gflops"] = 2.0 * num_rows * num_basis**2 / rows[0]["milliseconds"] / 1e6
    rows[-1]["gflops"] = 2.0 * 2048**3 / rows[-1]["milliseconds"] / 1e6
    prepare = partial(made_rows, num_rows, input_dim)
    memory = measure_memory("pass over the rows", prepare, partial(_sums, num_basis=num_basis), 1)
    return {"rows": rows, "memory": [memory]}


def _sums(X: tf.Tensor, Y: tf.Tensor, *, num_basis: int) -> Step:
    basis = GridEigenfunctions(kernel_of(X, 2.0), X, num_basis)
    return compiled(BasisGPR((X, Y), basis).compute_qu)


def _rotated(data: Data, num_basis: int) -> GRIEF:
    fixed: dict[str, Any] = {"reweighted": "rotated", "objective": "likelihood"}
    return GRIEF(data, kernel_of(data[0], 2.0), num_eigenfunctions=num_basis, **fixed)


def grief_step(data: Data, num_basis: int) -> Step:
    """The bound and its gradient for a model that holds these rows."""
    return loss_step(GRIEF(data, kernel_of(data[0], 2.0), num_eigenfunctions=num_basis))


def _search(num_columns: int, num_nodes: int, count: int) -> Step:
    """The search of :meth:`GridEigenfunctions.refresh` alone, for given spectra."""
    rng, spectra = np.random.default_rng(0), []
    for _ in range(num_columns):
        u = percentile_grid(rng.normal(size=1000), num_nodes)
        lam = np.linalg.eigvalsh(np.exp(-0.5 * (u[:, None] - u) ** 2 / num_columns))[::-1]
        kept = lam > num_nodes * np.finfo(float).eps * lam[0]
        spectra.append(np.where(kept, np.log(np.where(kept, lam, 1.0)), -np.inf))
    return lambda: top_products(spectra, count)


def made_rows(num_rows: int, input_dim: int, seed: int = 0, surface: bool = False) -> Data:
    """
    Normal inputs ``[N, D]``, and outputs ``[N, 1]``, a sine wave with noise.

    :param surface: bend three normal columns into all, with a little noise; the surface does not
        depend on the seed.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, input_dim))
    if surface:
        bend = np.random.default_rng(0).normal(size=(_SURFACE, input_dim))
        X = np.sin(rng.normal(size=(num_rows, _SURFACE)) @ bend) + 0.01 * X
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))
    return tf.constant(X, gpflow.default_float()), tf.constant(Y, gpflow.default_float())


def random_rows(rows: Data, size: int) -> Data:
    """So many of the rows ``(X, Y)``, with repetition."""
    chosen = tf.random.uniform([size], maxval=len(rows[0]), dtype=tf.int32)
    return tf.gather(rows[0], chosen), tf.gather(rows[1], chosen)


def loss_step(model: gpflow.models.GPModel, *data: Data) -> Step:
    """The loss and its gradient in all trainable variables; no data for a model that holds them."""
    return compiled(lambda: _value_and_gradient(model, *data))


def adam_step(model: gpflow.models.SVGP, rows: Data, batch_size: int) -> Step:
    """A training step on a random batch: value, gradient, and Adam on all parameters."""
    optimizer, variables = adam(), model.trainable_variables
    optimizer.build(variables)

    def step() -> tf.Tensor:
        loss, gradients = _value_and_gradient(model, random_rows(rows, batch_size))
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return compiled(step)


def _value_and_gradient(model: gpflow.models.GPModel, *data: Data) -> tuple[tf.Tensor, Any]:
    variables = model.trainable_variables
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        loss = model.training_loss(*data)
    return loss, tape.gradient(loss, variables)


def compiled(step: Step) -> Step:
    """A compiled step, traced here: TensorFlow warns of many functions that are traced in calls."""
    function = tf.function(step, autograph=False)
    # the function keeps the variables of the step alive
    return partial(lambda _, traced: traced(), function, function.get_concrete_function())


def make(method: str, *points: np.ndarray, **options: Any) -> Any:
    """A model with these inducing points; ``options`` are further arguments of its class."""
    recipe = recipe_of(method, **read_options(method, {"num_columns": 0}))
    parts = (points[0], points[0]), kernel_of(points[0]), gpflow.likelihoods.Gaussian(0.1)
    return recipe.build(*parts, sets=points, **{"num_data": _NUM_DATA, **options})


def kernel_of(X: Any, lengthscale: float = 1.0) -> gpflow.kernels.Kernel:
    """One lengthscale per column, in units of the norm of a normal input."""
    scales = np.full(X.shape[1], lengthscale * X.shape[1] ** 0.5)
    return gpflow.kernels.SquaredExponential(lengthscales=scales)


def matrix_product(size: int) -> Step:
    """Product of two square matrices, whose rate is an upper limit for the other steps."""
    A = tf.constant(np.random.default_rng(0).normal(size=(size, size)), gpflow.default_float())
    return compiled(lambda: tf.linalg.matmul(A, A))


def _megabytes(count: float) -> float:
    """Memory of ``count`` floats, in units of 2^20 bytes."""
    return count * np.dtype(gpflow.default_float()).itemsize / 2**20
