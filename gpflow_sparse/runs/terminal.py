"""What a person reads: results on a terminal or in a csv file, and mistakes in one line."""

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from gpflow_sparse.persistence import files


class HomePath(click.Path):
    """A path option in which "~" is the home folder, also where a shell does not expand it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """:raises click.BadParameter: for the home folder of an unknown user."""
        return super().convert(_expanded(value, self, param, ctx), param, ctx)


class HomeText(click.ParamType):
    """The name of a data set, or a path as in :class:`HomePath`, as text."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """:raises click.BadParameter: for the home folder of an unknown user."""
        return str(_expanded(value, self, param, ctx)) if value.startswith("~") else value


def _expanded(
    value: Any,
    kind: click.ParamType,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> Path:
    try:
        return files.as_path(value)
    except ValueError as error:
        kind.fail(str(error), param, ctx)


def print_results(results: list[dict[str, Any]], num_classes: int | None) -> None:
    """A table of models and their metrics; those of a baseline that failed are not there."""
    names = {
        "rmse": "RMSE",
        "error_rate": "error rate",
        "nlpd": "NLPD",
        "crps": "CRPS",
        "coverage": "95 % coverage",
        "brier": "Brier",
        "ece": "ECE",
        "elbo": "ELBO",
        "seconds": "seconds",
    }
    shown = [name for name in names if name in results[0]]
    rows = [
        (r["title"], *(f"{r[name]:.4g}" if name in r else "failed" for name in shown))
        for r in results
    ]
    print_table(("model", *(names[name] for name in shown)), rows)


def print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """A table as wide as the terminal, or as wide as it needs in a pipe."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=None, pad_edge=False)
    for row in rows:
        # as Text, in which square brackets are no markup
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    width = None if console.is_terminal else 160
    Console(width=width, highlight=False).print(table)


def write_csv(output: Path | None, names: Sequence[str], values: Any) -> None:
    """Rows of numbers under a header, in a file or on standard output."""
    # repr, the shortest text that gives the number back; integers without a point
    rows = (",".join(repr(float(v)).removesuffix(".0") for v in row) for row in values)
    lines = [",".join(names), *rows]
    if output is None:
        click.echo("\n".join(lines))
    else:
        files.write_text(output, "\n".join(lines) + "\n")


def printable(text: str) -> str:
    """The text with escape sequences for what a terminal would obey; line ends stay."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """A user's mistake becomes one line and exit status 1; anything else keeps its traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise click.ClickException(printable(str(error))) from error
    except RuntimeError as error:
        if type(error).__name__ != "TrainingError":
            raise
        raise click.ClickException(printable(str(error))) from error
    except KeyboardInterrupt as error:
        if type(error).__name__ != "TrainingInterrupted":
            raise
        arguments = [a for a in sys.argv[1:] if a != "--resume"]
        done = str(error).split(";")[0]
        stopped(done, [*arguments, "--resume"])


def stopped(what: str, arguments: Sequence[str]) -> NoReturn:
    """After Ctrl-C: say what was done and which command goes on, and exit as interrupted."""
    command = shlex.join(["gpflow-sparse", *arguments])
    click.echo(f"{what}; go on with\n\n    {command}\n", err=True)
    sys.exit(130)
