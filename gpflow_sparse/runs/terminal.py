"""Paths, tables, csv files and error messages of the command line."""

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from gpflow_sparse.persistence import files


class HomePath(click.Path):
    """A path option in which "~" is the home folder, even if the shell does not expand it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """:raises click.BadParameter: for the home folder of an unknown user."""
        try:
            return super().convert(files.as_path(value), param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class HomeText(HomePath):
    """The name of a data set, or a path as in :class:`HomePath`, as text."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """:raises click.BadParameter: for the home folder of an unknown user."""
        return str(super().convert(value, param, ctx)) if value.startswith("~") else value


def print_results(results: list[dict[str, Any]], num_classes: int | None) -> None:
    """Print a table of models and their metrics; a failed baseline has no metrics."""
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
    """Print a table as wide as the terminal, or 160 characters wide in a pipe."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=None, pad_edge=False)
    for row in rows:
        # in Text square brackets are not markup
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    width = None if console.is_terminal else 160
    Console(width=width, highlight=False).print(table)


def write_csv(output: Path | None, table: Any) -> None:
    """Write a data frame, with floats as their shortest exact text, to a file or the terminal."""
    text = table.to_csv(index=False, lineterminator="\n")
    if output is None:
        click.echo(text, nl=False)
    else:
        files.write_text(output, text)


def printable(text: str) -> str:
    """The text with its control characters escaped, except line ends."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Print expected errors in one line and exit with status 1; others keep their traceback."""
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
    """Print the state after Ctrl-C and the command that resumes the run; exit with status 130."""
    command = shlex.join(["gpflow-sparse", *arguments])
    click.echo(f"{what}; go on with\n\n    {command}\n", err=True)
    sys.exit(130)
