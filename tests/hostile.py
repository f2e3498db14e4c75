"""Hostile input against every public door: ``python -m tests.hostile`` prints the matrix.

Each cell is a clear error of our own (``e``), a finite result equal to that of the cleaned float64
input (``o``), or ``BAD``; ``n`` is a training objective whose graph passed NaN on, which ``fit``
reports; ``-`` a value TensorFlow or NumPy cannot bring to the door at all.
"""

import contextlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import gpflow_sparse
from gpflow_sparse.training import TrainingError
from tests.hostile_doors import DOORS, Door
from tests.hostile_kinds import KINDS, Kind

PACKAGE = str(Path(gpflow_sparse.__file__).parent)
# Traces of TensorFlow and check_shapes that a user should never see.
RAW = ("Node:", "{{", "Op:", "ShapeMismatchError", "Traceback", "in user code", "tensorflow/")
OWN_IN_GRAPH = re.compile(
    r"[A-Za-z_ ]+ must be finite|must have the same number of rows|Cholesky factorization of [^:]*"
)
ERROR, OK, UNSEEN, NOT_BROUGHT, BAD = "e", "o", "n", "-", "BAD"
DOTS = str.maketrans(dict.fromkeys("[](). ", "."))


class Verdict(NamedTuple):
    """What came of one cell."""

    symbol: str
    text: str = ""
    """The message of an error, or what is bad."""


def judge(
    call: Callable[[Any], Any],
    value: Any,
    clean: Any = None,
    *,
    names: tuple[str, ...],
    graph: bool = False,
    unseen: bool = False,
) -> Verdict:
    """
    :param clean: the float64 value whose result must come out; None where only an error is right.
    :param names: what an error may call the argument.
    :param graph: the value is an argument of a traced function, whose errors come from a graph.
    :param unseen: NaN is allowed to flow on.
    """
    try:
        result = numbers(call(value))
    except Exception as error:
        return judge_error(error, names, graph)
    if not all(np.isfinite(part).all() for part in result):
        return Verdict(UNSEEN) if unseen else Verdict(BAD, "the result is not finite")
    if clean is None:
        return Verdict(BAD, "accepted")
    expected = numbers(call(clean))
    for got, wanted in zip(result, expected, strict=True):
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-6, atol=1e-9):
            return Verdict(BAD, "not the result of the cleaned input")
    return Verdict(OK)


def judge_error(error: Exception, names: tuple[str, ...], graph: bool) -> Verdict:
    text = str(error)
    if graph and isinstance(error, tf.errors.InvalidArgumentError):
        found = OWN_IN_GRAPH.search(text)
        return Verdict(ERROR, found[0].strip()) if found else Verdict(BAD, f"raw graph: {text}")
    what = f"{type(error).__name__}: {text}"
    if not isinstance(error, ValueError | TypeError | TrainingError):
        return Verdict(BAD, f"foreign {what}")
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    if "in user code:" in text:  # AutoGraph quotes the source around our sentence
        text, last = text.rsplit("ValueError: ", 1)[-1], PACKAGE
    if not last.startswith(PACKAGE):
        return Verdict(BAD, f"raised in {'/'.join(Path(last).parts[-2:])}, {what}")
    if any(mark in text for mark in RAW):
        return Verdict(BAD, f"raw {what}")
    if not any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names):
        return Verdict(BAD, f"does not name {' or '.join(names)}: {what}")
    return Verdict(ERROR, text)


def numbers(result: Any) -> list[np.ndarray]:
    """All numbers of a result as float64 arrays; a result without numbers is fine as it is."""
    if isinstance(result, list | tuple):
        return [part for item in result for part in numbers(item)]
    if result is None or not (tf.is_tensor(result) or isinstance(result, np.ndarray | float)):
        return []
    return [np.asarray(result, dtype=np.float64)]


def cell(kind: Kind, door: Door) -> Verdict:
    """One kind of array at one door."""
    try:
        value = kind.make(door.good)
    except Exception:  # this kind cannot be made of a value of this rank
        return Verdict(NOT_BROUGHT)
    if door.bring is not None:
        try:
            door.bring(value)
        except Exception as error:  # TensorFlow or NumPy refuse it before our door sees it
            return Verdict(NOT_BROUGHT, type(error).__name__)
    meant = door.role in kind.roles
    clean = kind.clean(kind.make(door.good)) if meant else None
    if door.role == "exact" and meant and clean.shape != door.good.shape:
        clean = None
    if meant and door.graph:
        with contextlib.suppress(ValueError):  # TensorFlow has no long double
            # a graph converts by itself, not through NumPy
            clean = np.float64(tf.convert_to_tensor(value))
    unseen = door.unseen and kind.values
    options = {"names": door.names, "graph": door.graph, "unseen": unseen}
    return judge(door.call, value, clean, **options)


def arrays(doors: dict[str, Door] = DOORS) -> Iterator[tuple[str, str, Verdict]]:
    """``(kind, door, verdict)`` of the whole table of arrays."""
    for kind_name, kind in KINDS.items():
        for door_name, door in doors.items():
            yield kind_name, door_name, cell(kind, door)


def report(title: str, cells: list[tuple[str, str, Verdict]]) -> int:
    """
    Print one matrix, its legend, its messages and its bad cells.

    :return: the number of bad cells.
    """
    rows, columns = dict.fromkeys(c[0] for c in cells), dict.fromkeys(c[1] for c in cells)
    table = {(row, column): verdict for row, column, verdict in cells}
    width = max(map(len, rows))
    print(f"\n== {title}: {len(rows)} kinds at {len(columns)} doors")
    for i, column in enumerate(columns):
        print(f"  {i:2d} {column}")
    print(" " * width, *(f"{i:2d}" for i in range(len(columns))))
    for row in rows:
        symbols = (table.get((row, column), Verdict(" ")).symbol for column in columns)
        print(f"{row:{width}}", *(f"{'B!' if s == BAD else s:>2}" for s in symbols))
    counts = {s: sum(v.symbol == s for *_, v in cells) for s in (ERROR, OK, UNSEEN, "-", BAD)}
    print("counts:", ", ".join(f"{name} {count}" for name, count in counts.items()))
    print("messages:")
    for text in sorted({re.sub(r"\d+", "#", v.text) for *_, v in cells if v.symbol == ERROR}):
        print(f"  {text[:240]}")
    for row, column, verdict in cells:
        if verdict.symbol == BAD:
            print(f"BAD {row} at {column}: {verdict.text[:400]}")
    return counts[BAD]


def main() -> int:
    from tests import hostile_bases, hostile_deep, hostile_softki, hostile_sparse, hostile_swsgp
    from tests.hostile_arguments import TRAINING, arguments
    from tests.hostile_labels import labels
    from tests.hostile_models import spoiled

    tables = {
        "arrays": arrays(),
        "other arguments": arguments(),
        "arguments of training": arguments(TRAINING),
        "likelihoods": labels(),
        "spoiled models": spoiled(),
        "arrays, for bases": arrays(hostile_bases.DOORS),
        "other arguments, for bases": arguments(hostile_bases.ARGUMENTS),
        "spoiled models over bases": hostile_bases.spoiled(),
        "arrays, for sub-sampled models": arrays(hostile_sparse.DOORS),
        "other arguments, for sub-sampled models": arguments(hostile_sparse.ARGUMENTS),
        "arguments of sub-sampled models together": hostile_sparse.together(),
        "spoiled sub-sampled models": hostile_sparse.spoiled(),
        "arrays, for soft interpolation": arrays(hostile_softki.DOORS),
        "other arguments, for soft interpolation": arguments(hostile_softki.ARGUMENTS),
        "arguments of soft interpolation together": hostile_softki.together(),
        "spoiled soft interpolation": hostile_softki.spoiled(),
        "arrays, for models with neighbors": arrays(hostile_swsgp.DOORS),
        "other arguments, for models with neighbors": arguments(hostile_swsgp.ARGUMENTS),
        "arguments of models with neighbors together": hostile_swsgp.together(),
        "spoiled models with neighbors": hostile_swsgp.spoiled(),
        "arrays, for deep models": arrays(hostile_deep.DOORS),
        "other arguments, for deep models": arguments(hostile_deep.ARGUMENTS),
        "arguments of deep models together": hostile_deep.together(),
        "spoiled deep models": hostile_deep.spoiled(),
    }
    bad = sum(report(title, list(table)) for title, table in tables.items())
    print(f"\n{bad} bad cell(s)")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
