"""Hostile files and records at the command line, each with the verdict on it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from gpflow_sparse.tables.cli.main import main

N = 60


def table(change: Callable[[np.ndarray], None] | None = None, rows: int = N) -> np.ndarray:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=(rows, 2)), np.zeros(rows)])
    values[:, 2] = 3.0 + np.sin(values[:, 0]) + 0.1 * rng.normal(size=rows)
    if change is not None:
        change(values)
    return values


def csv(values: np.ndarray, header: str = "a,b,y") -> bytes:
    rows = (",".join(f"{v!r}" for v in row.tolist()) for row in values)
    return "\n".join([header, *rows, ""]).encode()


def cells(**spoiled: object) -> Callable[[np.ndarray], None]:
    """A change of columns: ``a=0.0`` sets all of a column, ``y4=nan`` one cell."""

    def change(values: np.ndarray) -> None:
        for name, value in spoiled.items():
            rows = slice(None) if len(name) == 1 else int(name[1:])
            values[rows, "aby".index(name[0])] = value

    return change


def scaled(values: np.ndarray) -> None:
    values *= [1e-12, 1e12, 1.0]


def repeated(values: np.ndarray) -> None:
    values[:] = values[np.arange(N) % 5]


def text(values: np.ndarray, cell: str) -> bytes:
    return csv(values).replace(csv(values).split(b"\n")[3].split(b",")[0], cell.encode(), 1)


# Content of the file by kind; a str stands for a path that is given as it is.
FILES: dict[str, bytes | str] = {
    "good": csv(table()),
    "text cell": text(table(), "north"),
    "missing cell": text(table(), ""),
    "NaN": csv(table(cells(b7=np.nan))),
    "inf": csv(table(cells(a7=np.inf))),
    "-inf in y": csv(table(cells(y7=-np.inf))),
    "1e300": csv(table(cells(a7=1e300))),
    "1e300 in y": csv(table(cells(y7=1e300))),
    "subnormal": csv(table(cells(a7=1e-320))),
    "constant column": csv(table(cells(b=2.0))),
    "constant target": csv(table(cells(y=2.0))),
    "duplicate rows": csv(table(repeated)),
    "mixed scales": csv(table(scaled)),
    "one row": csv(table(rows=1)),
    "two rows": csv(table(rows=2)),
    "header only": b"a,b,y\n",
    "empty": b"",
    "blank lines": b"\n\n\n",
    "ragged": csv(table()) + b"1,2\n",
    "repeated name": csv(table(), "a,a,y"),
    "unnamed column": csv(table(), "a,,y"),
    "other names": csv(table(), "c,d,e"),
    "one column": b"y\n1\n2\n3\n",
    "utf-16": csv(table()).decode().encode("utf-16"),
    "binary": bytes(range(256)) * 8,
    "zip": b"PK\x03\x04" + bytes(100),
    "unclosed quote": csv(table()) + b'"1,2,3\n',
    "decimal commas": csv(table()).replace(b",", b";").replace(b".", b","),
    "no such file": "nothing.csv",
    "folder": ".",
    "other suffix": "good.xlsx",
    "no file name": "",
}
FEW = "--num-inducing 6 --num-steps 3 --num-subset 30"
MANY = "--num-inducing 500 --num-orthogonal 500 --num-steps 1"
END = "--no-plot --target y --output {run}"
DOORS = {
    name: line.split()
    for name, line in {
        "fit": f"fit --method solvegp --num-orthogonal 4 {FEW} {END}",
        "fit classes": f"fit --method solvegp --num-orthogonal 4 --task classification {FEW} {END}",
        "fit swsgp": f"fit --method swsgp --num-neighbors 4 {FEW} {END}",
        "fit M > N": f"fit --method solvegp {MANY} {END}",
        "evaluate": "evaluate --model model",
        "predict": "predict --model model",
    }.items()
}


DEEP = "[" * 100_000 + "]" * 100_000


def set_field(path: str, value: object) -> Callable[[dict], None]:
    """A change of a record: the value at a path, which is deleted if it becomes ``...``."""

    def change(record: dict) -> None:
        *keys, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        for key in keys:
            record = record[key]
        record[last] = value
        if value is ...:
            del record[last]

    return change


# Fields of run.json, what they become, and a part of the message that must come.
FIELDS: list[tuple[str, object, str]] = [
    ("source", ..., "source must be present"),
    ("source", None, "source must be an object, got None"),
    ("source.path", "x", "is damaged"),
    ("finished", "<b>", "finished must be true or false, got '<b>'"),
    ("method", ["<b>"], "method must be text, got ['<b>']"),
    ("checksum", 1, "checksum must be text, got 1"),
]
# Changes of run.json, or its whole text, and a part of the message that must come.
RECORDS: dict[str, tuple[Callable[[dict], None] | str, str]] = {
    "empty": ("", "damaged"),
    "deep": (DEEP, "nested too deeply"),
    "deep field": ('{"source": ' + DEEP + "}", "nested too deeply"),
    "list": ("[]", "it must hold an object, got []"),
    "long integer": ('{"source": ' + "9" * 5000 + "}", "damaged"),
} | {f"{path} {value!r}": (set_field(path, value), message) for path, value, message in FIELDS}


def records() -> Iterator[tuple[str, str, str, str]]:
    """
    ``(kind, command, verdict, message)`` for damaged or forged records of the run that
    :func:`matrix` left in the current folder.
    """
    runner = CliRunner()
    path = Path("model/run.json")
    good = path.read_text()
    commands = {"evaluate": [*DOORS["evaluate"], "--data", "good.csv"]}
    for kind, (change, _) in RECORDS.items():
        if isinstance(change, str):
            path.write_text(change)
        else:
            record = json.loads(good)
            change(record)
            path.write_text(json.dumps(record))
        for command, arguments in commands.items():
            result = runner.invoke(main, arguments)
            yield kind, command, verdict(result), result.stderr.split("Error: ")[-1].strip()
    path.write_text(good)


def verdict(result) -> str:
    """ "e", "ok", or what is wrong."""
    if result.exit_code == 0:
        output = result.stdout.lower()
        if "nan" in output or "inf" in output.replace('"inf', "").replace("_inf", ""):
            return f"not finite: {result.stdout[-200:]}"
        return "ok"
    clean = isinstance(result.exception, SystemExit) and result.exit_code in (1, 2)
    words = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    bad = any(mark in result.stderr for mark in ("Traceback", "{{", "Node:", "[Op:"))
    return "e" if clean and len(words) == 1 and not bad else f"{result.exception!r}"


def matrix(kinds: dict[str, bytes | str] = FILES) -> Iterator[tuple[str, str, str, str]]:
    """``(kind, door, verdict, message)``; works in the current folder."""
    runner = CliRunner()
    Path("good.csv").write_bytes(FILES["good"])  # type: ignore[arg-type]
    trained = runner.invoke(main, [*DOORS["fit"][:-1], "model", "--data", "good.csv"])
    assert trained.exit_code == 0, trained.stderr
    for number, (kind, content) in enumerate(kinds.items()):
        name = content if isinstance(content, str) else f"file{number}.csv"
        if isinstance(content, bytes):
            Path(name).write_bytes(content)
        for i, (door, arguments) in enumerate(DOORS.items()):
            given = [a.format(run=f"run{number}-{i}") for a in arguments]
            result = runner.invoke(main, [*given, "--data", name])
            message = result.stderr.split("Error: ")[-1].strip() if result.exit_code else ""
            yield kind, door, verdict(result), message
