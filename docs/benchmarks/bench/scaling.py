"""Cost models of training steps: operations per step, and their rates fitted to seconds."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from bench import step_variants as variants
from bench.steps import Row, Step, Tables, time_in_turn

# Rows of a batch, columns, H of SWSGP, support rows of QSGP, and rows that batches are drawn from.
_BATCH, _COLUMNS, _NEIGHBORS, _SUPPORT, _ROWS = 256, 8, 32, 500, 20_000


class Case(NamedTuple):
    """A method whose step is measured at several values of one size."""

    size: str
    """What is varied, in the notation of the documentation."""
    build: Callable[[int], Step]
    operations: Callable[[int], tuple[float, ...]]
    """
    Floating-point operations of a step with its gradient, to leading order: those with the rows of
    the batch, and those on matrices of inducing points alone, if there are any.
    """
    sizes: tuple[int, int, int, int]
    """Three to which the model is fitted, and a larger one at which it is checked."""
    calls: int = 1
    """Steps that are taken, and timed, together."""


def scaling(repeats: int) -> Tables:
    """
    Fit ``seconds = overhead + operations / rate``, with a rate of its own for each kind of
    operations, to steps of three sizes, and check a fourth.

    The fit minimizes squared relative errors, with all terms at least zero. Operations on matrices
    of points alone have another rate because factorizations are slower than products, and because
    TensorFlow's gradient of a Cholesky factor takes several times what is counted. Steps have 256
    rows of 8 columns in float64, but for GRIEF, whose evaluation reads all rows.
    """
    steps, keys, methods = {}, [], cases()
    for name, case in methods.items():
        for size in case.sizes:
            steps[f"{name}, {case.size} = {size}"] = partial(case.build, size)
            keys.append((name, size))
    timed = time_in_turn(steps, repeats)
    seconds = {
        key: row["milliseconds"] / 1e3 / methods[key[0]].calls
        for key, row in zip(keys, timed, strict=True)
    }
    return {"rows": [_check(name, case, seconds) for name, case in methods.items()]}


def _check(name: str, case: Case, seconds: dict[tuple[str, int], float]) -> Row:
    """The rates of a method, and its time at the largest size, predicted and measured."""
    measured = np.array([seconds[name, size] for size in case.sizes])
    terms = np.array([(1.0, *case.operations(size)) for size in case.sizes])
    largest = terms[3]  # columns of equal scale for the solver
    found, _ = nnls(terms[:3] / largest / measured[:3, None], np.ones(3))
    overhead, *rates = [
        float(c / f) if f else float("inf") for c, f in zip(largest, found, strict=True)
    ]
    return {
        "method": name,
        "size": case.size,
        "sizes": ", ".join(map(str, case.sizes)),
        "milliseconds": ", ".join(f"{1e3 * value:.3g}" for value in measured),
        "overhead_ms": 1e3 / overhead,
        "gflops": rates[0] / 1e9,
        "gflops_of_points": rates[1] / 1e9 if len(rates) == 2 else None,
        "predicted_ms": 1e3 * float(found.sum()),
        "predicted_over_measured": float(found.sum() / measured[3]),
    }


def cases() -> dict[str, Case]:
    """The methods, by title."""
    points = variants.made_rows(100_000, _COLUMNS, 1)[0]
    rows, n, H = variants.made_rows(_ROWS, _COLUMNS), _BATCH, _NEIGHBORS
    svgp, solvegp, softki = (partial(_dense, m) for m in ("svgp", "solvegp", "softki"))
    count = variants.step_operations
    return {
        "SVGP of GPflow": Case(
            "M", svgp, partial(_parts, lambda M, n: count((M,), n)), (256, 512, 768, 1024)
        ),
        "SOLVE-GP": Case(
            "M = M2", solvegp, partial(_parts, lambda M, n: count((M, M), n)), (128, 256, 384, 512)
        ),
        "SoftKI": Case("m", softki, partial(_parts, _softki_operations), (256, 512, 768, 1024)),
        "SWSGP, M = 100,000, H = 32": Case(
            "n",
            partial(_swsgp, rows, points),
            lambda size: (3.0 * size * (H**3 / 3 + 4 * H**2),),
            (256, 512, 1024, 2048),
            calls=variants.TOGETHER,
        ),
        "QSGP, m = 100,000": Case(
            "k",
            partial(_qsgp, rows),
            lambda k: (3.0 * 2 * k * (n + _SUPPORT) * (2 * _COLUMNS + 4),),
            (500, 1000, 2000, 3000),
        ),
        "GRIEF, p = 256": Case(
            "N", _grief, lambda N: (3.0 * 2 * N * 256**2,), (10_000, 20_000, 40_000, 80_000)
        ),
    }


def _dense(method: str, size: int) -> Step:
    """A step with sets of so many inducing points: two for SOLVE-GP, otherwise one."""
    sets = variants.made_rows((1 + (method == "solvegp")) * size, _COLUMNS, 1)[0].numpy()
    model = variants.make(method, *(sets[at : at + size] for at in range(0, len(sets), size)))
    return variants.loss_step(model, variants.made_rows(_BATCH, _COLUMNS))


def _swsgp(rows: variants.Data, points: Any, batch_size: int) -> Step:
    sizes = len(points), _NEIGHBORS
    return variants.swsgp_step(*rows, points, sizes=sizes, batch_size=batch_size)


def _qsgp(rows: variants.Data, count: int) -> Step:
    options: dict[str, Any] = {"batch_size": _BATCH, "basis_batch_size": count}
    return variants.qsgp_step(*rows, num_basis=100_000, num_control_rows=_SUPPORT, **options)


def _grief(num_rows: int) -> Step:
    return variants.grief_step(variants.made_rows(num_rows, _COLUMNS), 256)


def _parts(count: Callable[[int, int], float], size: int) -> tuple[float, float]:
    """Operations with rows, and those without."""
    return count(size, _BATCH) - count(size, 0), count(size, 0)


def _softki_operations(m: int, n: int) -> float:
    return 3.0 * (2 * n * n * m + n**3 / 3 + 2 * m * m * n + m**3 / 3)
