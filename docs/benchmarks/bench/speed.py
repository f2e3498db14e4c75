"""Speed and memory of every method in one table, beside GPflow's and GPyTorch's models."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import click
import gpflow
import numpy as np

from bench import image_variants
from bench import step_variants as variants
from bench.first_steps import first_steps
from bench.prediction_speed import predictions
from bench.steps import Row, Step, Tables, measure_memory, time_in_turn
from gpflow_sparse import models
from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.numerics import linalg

_COLUMNS = 8


class Sizes(NamedTuple):
    """Sizes of all measurements."""

    num_inducing: int = 512
    """M of the models that are compared with GPflow's of the same size; half of SVGP's."""
    batch_size: int = 512
    num_held: int = 10_000
    """Rows of models that hold their data."""
    num_basis: tuple[int, ...] = (10_000, 1_000_000)
    num_data: tuple[int, ...] = (100_000,)
    """Rows from which QSGP's batches are drawn."""
    num_drawn: int = 10_000
    num_patches: int = 500
    num_images: int = 64
    num_predicted: int = 1000
    memory_calls: int = 3


SIZES = Sizes()


def all_methods(quick: bool) -> Tables:
    """
    Steps of every method, the time before the first step, predictions and peak memory.

    A ratio is to the row of GPflow's model with the same work, which is timed in turn with it in
    one process.

    :param quick: fewer repetitions: a third of the time.
    """
    repeats = 7 if quick else 20
    rows: list[Row] = []
    for part, measure in _groups():
        begin = time.perf_counter()
        found = [{"part": part} | row for row in measure(repeats)]
        taken = time.perf_counter() - begin
        click.echo(f"{part}: {', '.join(row['title'] for row in found)}: {taken:.0f} s", err=True)
        rows += found
    return {"rows": [*rows, *_quotients(rows)]}


def _quotients(rows: list[Row]) -> Iterable[Row]:
    """Ratios of steps of this package: with more points over few, and SOLVE-GP over SVGP."""
    times = {row["title"]: row["milliseconds"] for row in rows if "milliseconds" in row}
    pairs = [
        (f"SWSGP({M}, H = {H})", f"SWSGP(1000, H = {H})")
        for H in (100, 16)
        for M in (100_000, 1_000_000)
    ]
    n, outside = SIZES.num_patches, "outside Kuf and Kdiag"
    pairs.append(
        (f"SOLVE-GP({n}+{n}), {outside}", f"SVGP({2 * n}) on our factorization, {outside}")
    )
    for first, second in pairs:
        if first in times and second in times:
            title, ratio = f"{first} over {second}", times[first] / times[second]
            yield {"part": "step", "title": title, "ratio": ratio}


def _steps(method: Callable[..., Tables], *sizes: Any) -> Callable[[int], Iterable[Row]]:
    """The rows of a benchmark of :mod:`step_variants`, with these sizes before the repetitions."""
    return lambda repeats: method(*sizes, repeats=repeats)["rows"]


def _convolutional_steps(repeats: int) -> list[Row]:
    """Steps of one layer, a few: each takes half a second."""
    patches = dict[str, int](num_inducing=SIZES.num_patches, num_orthogonal=SIZES.num_patches)
    images = image_variants.Images(SIZES.num_images, **patches)
    return image_variants.layer_steps(images, max(3, repeats // 3))


def _mixed_steps(repeats: int) -> list[Row]:
    """Value and gradient of SOLVE-GP in float64, and in mixed precision."""
    M, n = SIZES.num_inducing, 2 * SIZES.batch_size

    def step(is_mixed: bool) -> Step:
        with linalg.mixed_precision(is_mixed):  # the step is traced here
            return _step_of("solvegp", (M, M), *variants.made_rows(n, _COLUMNS))

    full = f"SOLVE-GP({M}+{M}), {n} rows"
    steps = {full: partial(step, False), f"{full}, mixed": partial(step, True)}
    return time_in_turn(steps, repeats, full)


def _held_steps(repeats: int) -> list[Row]:
    """Bound and gradient of models that hold their data, beside GPflow's SGPR."""
    data = variants.made_rows(SIZES.num_held, _COLUMNS)
    Z = variants.made_rows(SIZES.num_inducing, _COLUMNS, 1)[0].numpy()
    M, (first, second) = len(Z), np.split(Z, 2)
    kernel, noise = partial(variants.kernel_of, Z), dict[str, Any](noise_variance=0.1)
    sgpr, rows = f"GPflow SGPR({M})", f", N = {SIZES.num_held}"

    def solvegpr() -> Any:
        sets = OrthogonalInducingVariables(first, second)
        return models.SOLVEGPR(data, kernel(), sets, **noise)

    built: dict[str, Callable[[], Any]] = {
        f"{sgpr}{rows}": lambda: gpflow.models.SGPR(data, kernel(), Z, **noise),
        f"SOLVEGPR({M // 2}+{M // 2}){rows}": solvegpr,
        f"BasisGPR({M}){rows}": lambda: models.BasisGPR(data, RandomFourier(kernel(), M), **noise),
        f"GRIEF({M}){rows}": lambda: models.GRIEF(data, kernel(), num_eigenfunctions=M, **noise),
    }
    steps = {title: partial(_loss_step, build) for title, build in built.items()}
    return time_in_turn(steps, repeats, f"{sgpr}{rows}")


def _loss_step(build: Callable[[], Any]) -> Step:
    return variants.loss_step(build())


def _predictions(repeats: int) -> Iterable[Row]:
    tables = predictions(SIZES.num_inducing, SIZES.num_predicted, _COLUMNS, repeats)
    return [*tables["rows"], *tables["images"]]


def _memory(repeats: int) -> Iterable[Row]:
    """Peak of a new process by some steps, and its ratio to that of GPflow's SVGP."""
    M, n = SIZES.num_inducing, SIZES.batch_size
    own = dict[str, Any](num_basis=SIZES.num_basis[-1], basis_batch_size=SIZES.num_drawn)
    builders: dict[str, Callable[..., Step]] = {
        f"GPflow SVGP({2 * M})": partial(_step_of, "svgp", (2 * M,)),
        f"SOLVE-GP({M}+{M})": partial(_step_of, "solvegp", (M, M)),
        f"SoftKI({M})": partial(_step_of, "softki", (M,)),
        f"QSGP, m = {SIZES.num_basis[-1]}": partial(
            variants.qsgp_step, batch_size=n, num_control_rows=n, **own
        ),
    }
    prepare = partial(variants.made_rows, n, _COLUMNS)
    rows = [
        measure_memory(title, prepare, build, SIZES.memory_calls)
        for title, build in builders.items()
    ]
    rows = [{"title": row["title"], "peak_mb": row["peak"]} for row in rows]
    return [row | {"ratio": row["peak_mb"] / rows[0]["peak_mb"]} for row in rows]


def _step_of(method: str, sizes: tuple[int, ...], X: Any, Y: Any) -> Step:
    """Value and gradient of a model with sets of these sizes, on these rows."""
    points = variants.made_rows(sum(sizes), _COLUMNS, 1)[0].numpy()
    sets = np.split(points, np.cumsum(sizes)[:-1])
    return variants.loss_step(variants.make(method, *sets), (X, Y))


def _groups() -> list[tuple[str, Callable[[int], Iterable[Row]]]]:
    """What is measured one after the other, each by the part of the table that it belongs to."""
    M, n, drawn = SIZES.num_inducing, SIZES.batch_size, SIZES.num_drawn
    qsgp: list[Any] = [SIZES.num_basis, SIZES.num_data, n, drawn, n, _COLUMNS, M]
    return [
        ("first step", lambda repeats: first_steps(max(1, repeats // 3))),
        ("step", _steps(variants.solvegp, M, M, n, _COLUMNS)),
        ("step", _steps(variants.odvgp, M, M, n, _COLUMNS)),
        ("step", _mixed_steps),
        ("step", _steps(variants.softki, M, 2 * n, _COLUMNS)),
        ("step", _steps(partial(variants.qsgp, output=None), *qsgp)),
        ("step", _held_steps),
        ("step", _steps(partial(variants.swsgp, surface=False, memory=False), 64, _COLUMNS)),
        ("step", _convolutional_steps),
        ("prediction", _predictions),
        ("memory", _memory),
    ]
