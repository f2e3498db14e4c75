"""
What the tables of hostile input are made of, and the verdict on each of their cells.

A cell is a clear error of our own (``e``), a finite result equal to that of the cleaned float64
input (``o``), or ``BAD``; ``n`` is a training objective whose graph passed NaN on, which ``fit``
reports; ``-`` a value that TensorFlow or NumPy refuse before our code is called.

A table is a module of this folder with the same names in each, see :class:`Table`.
"""

import contextlib
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple, Protocol

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import functions, kernels

import gpflow_sparse
from gpflow_sparse.training import TrainingError
from tests.hostile.kinds import KINDS, OPTIONS, Kind

N, D = 6, 2
X = np.random.default_rng(1).normal(size=(N, D))
Y = np.sin(X[:, :1]) + 0.1 * X[:, 1:]
two = (X, Y)

PACKAGE = str(Path(gpflow_sparse.__file__).parent)
# Traces of TensorFlow and check_shapes that a user should never see.
RAW = ("Node:", "{{", "Op:", "ShapeMismatchError", "Traceback", "in user code", "tensorflow/")
OWN_IN_GRAPH = re.compile(
    r"[A-Za-z_ ]+ must be finite|must have the same number of rows|Cholesky factorization of [^:]*"
)
ERROR, OK, UNSEEN, NOT_BROUGHT, BAD = "e", "o", "n", "-", "BAD"


class Door(NamedTuple):
    """One argument of one public callable."""

    call: Callable[[Any], Any]
    good: np.ndarray
    """A good value of the argument."""
    role: str
    """One of the roles in ``hostile_kinds``."""
    names: tuple[str, ...]
    """What an error may call the argument."""
    graph: bool = False
    """The value is an argument of a traced function."""
    slow: bool = False
    """Compiles or trains: good values take a second."""
    bring: Callable[[Any], Any] | None = None
    """What brings the value to the door, TensorFlow's or NumPy's; may refuse it."""
    unseen: bool = False
    """A training objective in a graph, which does not look at values: NaN flows on to ``fit``."""


class Argument(NamedTuple):
    """One argument that is not an array."""

    call: Callable[[Any], Any]
    name: str
    fits: Callable[[Any], bool]
    """Which values are right."""
    also: tuple[str, ...] = ()
    """Other names an error may use."""


class Spoil(NamedTuple):
    """Something done to a good model."""

    do: Callable[[Any], None]
    names: tuple[str, ...]
    """What an error may name."""
    values: bool = False
    """Only values of parameters are wrong: training objectives do not look at them in a graph."""
    harmless: bool = False
    """A finite result is right too."""
    of: tuple[str, ...] = ()
    """The models it is done to, all by default."""


class Table(Protocol):
    """A module of this folder: one family of models."""

    DOORS: Mapping[str, Door]
    """Arguments that are arrays."""
    CORE: tuple[str, ...]
    """Of them, those that the tests give arrays with a meaning, which costs a computation."""
    EAGER: tuple[str, ...]
    """Those that the tests give arrays without a meaning."""
    COMPILED: tuple[str, ...]
    """Compiled functions, files and data sets, which the tests give what must be refused."""
    TAKING: tuple[str, ...]
    """Of them, those that the tests give float32."""
    ARGUMENTS: Mapping[str, Argument]
    """Arguments that are not arrays."""
    TOGETHER: Mapping[str, tuple[Callable[[], Any], str]]
    """Calls with arguments that do not go together, each with the one that the error names."""
    BUILDERS: Mapping[str, Callable[[], Any]]
    """Good models to be spoiled."""
    SPOILS: Mapping[str, Spoil]
    SPOILED_DOORS: Mapping[str, Callable[[Any], Any]]
    """Methods of a spoiled model."""

    def spared(self, spoil: Spoil, name: str, door: str) -> bool:
        """Whether a method of the model of that name may work all the same."""


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


def bad(cells: Any) -> list[tuple[Any, ...]]:
    """Names and message of the bad cells."""
    return [(*names, verdict.text) for *names, verdict in cells if verdict.symbol == BAD]


def arrays(table: Table) -> Iterator[tuple[str, str, Verdict]]:
    """``(kind, door, verdict)`` of all kinds of arrays."""
    for kind_name, kind in KINDS.items():
        for door_name, door in table.DOORS.items():
            yield kind_name, door_name, cell(kind, door)


def arguments(
    table: Mapping[str, Argument], kinds: Mapping[str, Any] = OPTIONS
) -> Iterator[tuple[str, str, Verdict]]:
    """A value that fits may be taken or refused; one that does not must be refused."""
    for kind, value in kinds.items():
        for door, argument in table.items():
            verdict = judge(argument.call, value, names=(argument.name, *argument.also))
            if verdict == Verdict(BAD, "accepted") and argument.fits(value):
                verdict = Verdict(OK)
            yield kind, door, verdict


def together(table: Table) -> Iterator[tuple[str, str, Verdict]]:
    """Calls with arguments that do not go together."""
    for name, (call, argument_name) in table.TOGETHER.items():
        with quiet():
            verdict = judge(lambda v, c=call: c(), None, names=(argument_name,))
        yield name, argument_name, verdict


def spoiled(table: Table, kind: str) -> Iterator[tuple[str, str, Verdict]]:
    """One thing done to good models, and what their methods then say."""
    spoil = table.SPOILS[kind]
    for name in spoil.of or table.BUILDERS:
        for door in table.SPOILED_DOORS:
            compiled = door.startswith(("captured", "compiled"))
            # neither a graph nor a step that guards itself raises where numbers are not finite
            unseen = (compiled and "predict" not in door) or door == "sparse_step"
            with quiet():
                m = table.BUILDERS[name]()
                spoil.do(m)
                verdict = judge(
                    table.SPOILED_DOORS[door],
                    m,
                    names=spoil.names,
                    graph=compiled,
                    unseen=spoil.values and unseen,
                )
            harmless = spoil.harmless or table.spared(spoil, name, door)
            if verdict == Verdict(BAD, "accepted") and harmless:
                verdict = Verdict(OK)
            yield kind, f"{name}: {door}", verdict


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hostile data make models that warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def flags(method):
    return {
        f"{full_cov:d}{full_output:d}": lambda v, a=full_cov, b=full_output: method(v, a, b)
        for full_cov in (False, True)
        for full_output in (False, True)
    }


def captured(function):
    return lambda v: tf.function(lambda: function(v), autograph=False)()


def argument(function):
    traced = tf.function(function, autograph=False)
    return lambda v: traced(v if tf.is_tensor(v) else tf.convert_to_tensor(v))


def unmasked(v):
    if isinstance(v, np.ma.MaskedArray):
        raise TypeError("TensorFlow and np.memmap bring the hidden values back")
    return v


def as_argument(v):
    return tf.convert_to_tensor(unmasked(v))


def seeded(function):
    def call(v):
        tf.random.set_seed(1)
        return function(v)

    return call


def on_disk(pair):
    folder = Path(mkdtemp())
    parts = []
    for name, value in zip("XY", pair, strict=True):
        array = np.asarray(value)
        part = np.memmap(folder / name, dtype=array.dtype, mode="w+", shape=array.shape)
        part[...] = array
        parts.append(part)
    return tuple(parts)


def pairs(
    table: Mapping[str, Callable[[Any], Any]], prefix: str = "", names: tuple[str, ...] = ()
) -> Iterator[tuple[str, Door]]:
    """Functions of a pair ``(X, Y)``, of which either part may be hostile."""
    for name, call in table.items():
        by_x, by_y = lambda v, c=call: c((v, Y)), lambda v, c=call: c((X, v))
        yield f"{prefix}{name} | X", Door(by_x, X, "x", ("X", "data", *names))
        yield f"{prefix}{name} | Y", Door(by_y, Y, "y", ("Y", "data"))


def from_sources(
    calls: Mapping[str, Callable[[Any], Any]], *, wide: bool = False, names: tuple[str, ...] = ()
) -> Iterator[tuple[str, Door]]:
    """Functions of rows in files on disk or in a data set, of which either part may be hostile."""
    batch = lambda pair: tf.data.Dataset.from_tensors(tuple(pair))  # noqa: E731
    for source, bring in {"on disk": on_disk, "tf.data": batch}.items():
        for part, pair in {"X": lambda v: (v, Y), "Y": lambda v: (X, v)}.items():
            brought = lambda v, b=bring, p=pair: b(tuple(map(unmasked, p(v))))  # noqa: E731
            role = "wide" if wide and part == "Y" else part.lower()
            found = (part, f"{part} of data", "data", *names)
            options = {"graph": True, "slow": True, "bring": brought}
            for name, call in calls.items():
                held = lambda v, c=call, b=brought: c(b(v))  # noqa: E731
                good = X if part == "X" else Y
                yield f"{name} {source} | {part}", Door(held, good, role, found, **options)


def traced(call: Callable[[Any], Any], part: str = "Xnew", **options: Any) -> Door:
    """An argument of a compiled function: inputs for prediction, or X or Y of a pair."""
    good, role = (Y, "y") if part == "Y" else (X, "x" if part == "X" else "alone")
    options = {"graph": True, "slow": True, "bring": as_argument, **options}
    return Door(argument(call), good, role, (part,), **options)


# ------------------------------------------------------------------ which values are right
def count(v):
    return isinstance(v, int | np.integer) and not isinstance(v, bool) and 1 <= v < 2**63


def count_or_none(v):
    return v is None or count(v)


def num_data(v):  # a tensor or variable is not looked at, so that it can be set later
    return count_or_none(v) or tf.is_tensor(v)


def seed(v):
    return isinstance(v, int | np.integer) and not isinstance(v, bool) and 0 <= v < 2**32


def flag(v):
    return isinstance(v, bool | np.bool_)


def never(v):
    return False


def none(v):
    return v is None


def index(v):
    return isinstance(v, int | np.integer) and not isinstance(v, bool) and v >= 0


def amount(v):
    return positive(v) or (isinstance(v, int | float) and v == 0)


def below_one(v):
    return amount(v) and not isinstance(v, bool) and v < 1.0


def chosen(v):
    """Indices, where there are at least three functions."""
    return v is None or str(v) == "[2]" or v == ()


def positive(v):
    return isinstance(v, int | float | np.number) and 0.0 < v < np.inf


def noise(v):
    number = np.asarray(v) if not isinstance(v, str | bytes | dict | set) else np.array("")
    return (
        number.dtype.kind in "fiub"
        and number.size == 1
        and bool(number.item() > 1e-6)
        and bool(np.isfinite(number.item()))
    )


def given(v):
    """None stands for a default."""
    return "none" if v is None else v


CHECKS = {
    check.__name__: check
    for check in (count, count_or_none, num_data, seed, flag, never, none, index, positive, noise)
} | {
    "some": lambda v: count(v) and v < 10**6,
    "even": lambda v: count(v) and v < 10**6 and v % 2 == 0,
    "many": lambda v: count(v) or (type(v) is int and v == 10**30),
    "latents": lambda v: v is None or (count(v) and v < 10**9),
    "seed_or_none": lambda v: v is None or seed(v),
    "flag_or_none": lambda v: v is None or flag(v),
    "no": lambda v: flag(v) and not v,
    "zero": lambda v: isinstance(v, int | float | np.bool_) and v == 0,
    "variance": lambda v: noise(v) and np.ndim(v) == 0,
    "variance_or_none": lambda v: v is None or (noise(v) and np.ndim(v) == 0),
}


def takes(
    title: str, call: Callable[..., Any], also: tuple[str, ...] = (), **checks: Any
) -> dict[str, Argument]:
    """
    Arguments of one callable: ``flag="compile tied"`` names those of a check, ``seed=f`` gives the
    check of one.
    """
    rows = [
        (name, CHECKS[key] if isinstance(names, str) else names)
        for key, names in checks.items()
        for name in (names.split() if isinstance(names, str) else [key])
    ]
    return {
        f"{title} {name}": Argument(lambda v, n=name: call(**{n: v}), name, fits, also)
        for name, fits in rows
    }


# ------------------------------------------------------------------ how models are spoiled
def reach(m: Any, path: str) -> Any:
    """The part at a path such as ``kernel.kernels[0]``."""
    for step in re.findall(r"\w+", path):
        m = m[int(step)] if step.isdigit() else getattr(m, step)
    return m


def swap(path: str, value: Any, names: tuple[str, ...], **options: Any) -> Spoil:
    """Another part at that path; a callable makes it."""

    def do(m: Any) -> None:
        owner, _, attribute = path.rpartition(".")
        setattr(reach(m, owner), attribute, value() if callable(value) else value)

    return Spoil(do, names, **options)


def swaps(
    path: str, names: tuple[str, ...], values: Mapping[str, Any], **options: Any
) -> dict[str, Spoil]:
    """Several other parts at one path, each with the name of its row."""
    return {row: swap(path, value, names, **options) for row, value in values.items()}


def drift(path: str, value: float, names: tuple[str, ...], **options: Any) -> Spoil:
    """An unconstrained variable assigned, as a training step does."""

    def do(m: Any) -> None:
        variable = reach(m, path).unconstrained_variable
        variable.assign(tf.fill(variable.shape, tf.cast(value, variable.dtype)))

    return Spoil(do, names, **options)


def float32_kernel() -> kernels.Kernel:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        return kernels.Matern52()


def nan_mean(m: Any) -> None:
    m.mean_function = functions.Constant([0.0])
    m.mean_function.c.unconstrained_variable.assign([np.nan])
