"""Paths, tables, csv files and error messages of the command line."""

import contextlib
import re
import shlex
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from gpflow_sparse.persistence import files

_STOPPED = 130  # exit status after Ctrl-C
_TICK = 5.0  # seconds between two lines of the time left
# First characters of formulas in spreadsheets, and texts that are numbers all the same.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


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


class DataName(HomePath):
    """The name of a data set, or a file as in :class:`HomePath` by its absolute path, as text."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """:raises click.BadParameter: for the home folder of an unknown user."""
        is_file = Path(value).suffix or value.startswith("~")
        return str(super().convert(value, param, ctx).absolute()) if is_file else value


class SplitName(click.ParamType):
    """The name of a kind of split, or the number of a random one."""

    name = "auto|random|time|number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """:raises click.BadParameter: for another text, or a negative number."""
        if str(value) not in ("auto", "random", "time") and not str(value).isdecimal():
            self.fail(f"{value!r} is neither auto, random, time nor a whole number.", param, ctx)
        return int(value) if str(value).isdecimal() else value


def phase(what: str) -> None:
    """Print progress to standard error."""
    click.echo(f"{what} ...", err=True)


@contextlib.contextmanager
def time_left(end: float | None) -> Iterator[None]:
    """
    Print the time left to standard error every five seconds.

    :param end: value of ``time.perf_counter`` at which the time is over; None without a limit.
    """
    is_over = threading.Event()

    def tick() -> None:
        while end is not None and not is_over.wait(_TICK):
            click.echo(f"  {max(0.0, end - time.perf_counter()):.0f} s left", err=True)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


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


@contextlib.contextmanager
def progress_of_rows(num_rows: int, *, enabled: bool) -> Iterator[Callable[[int], None]]:
    """
    A bar that shows rows done and time left, if standard error is a terminal; the value is a
    function of the number of rows that are done in addition.
    """
    hidden = not (enabled and sys.stderr.isatty())
    with click.progressbar(
        length=num_rows, label="predict", show_pos=True, file=sys.stderr, hidden=hidden
    ) as bar:
        yield bar.update


def write_csv(output: Path | None, tables: Iterable[Any]) -> None:
    """
    Write data frames with the same columns one below the other, with floats as their shortest
    exact text, to a file or the terminal.

    Texts that a spreadsheet would take for formulas begin with an apostrophe, see :func:`cell`.
    """
    texts = (_csv_text(table, header=i == 0) for i, table in enumerate(tables))
    if output is None:
        for text in texts:
            click.echo(text, nl=False)
    else:
        files.write_parts(output, (text.encode() for text in texts))


def cell(text: Any) -> Any:
    """
    A text as a cell of a csv file: after an apostrophe if a spreadsheet would take it for a
    formula; numbers stay numbers.
    """
    if not isinstance(text, str) or not text.startswith(_FORMULA) or _NUMBER.fullmatch(text):
        return text
    return f"'{text}"


def _csv_text(table: Any, *, header: bool) -> str:
    """The text of pandas' ``to_csv`` with texts that are not formulas."""
    table = table.rename(columns=cell)
    for name in table.columns[[kind.kind not in "fiub" for kind in table.dtypes]]:
        table[name] = table[name].map(cell)
    return table.to_csv(index=False, header=header, lineterminator="\n")  # type: ignore[no-any-return]


def printable(text: str) -> str:
    """The text with its control characters escaped, except line ends."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """
    Print warnings of this package as sentences without a path, and none of other packages.

    All are as usual where Python was started with options for warnings.
    """
    if sys.warnoptions:
        yield
        return

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if _is_ours() and not issubclass(category, DeprecationWarning):
            click.echo(printable(f"warning: {message}"), err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _is_ours() -> bool:
    """Whether the code that warns is in this package, whatever place it names."""
    frame = sys._getframe(2)  # of the function that is called by `warnings`
    while frame.f_back is not None and frame.f_globals.get("__name__") == "warnings":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).startswith("gpflow_sparse.")


@contextlib.contextmanager
def clear_errors(program: Sequence[str] = ("gpflow-sparse",)) -> Iterator[None]:
    """
    Print expected errors in one line and exit with status 1; others keep their traceback. Warnings
    are printed by :func:`plain_warnings`.

    :param program: the words before the arguments of a command.
    """
    try:
        with plain_warnings():
            yield
    except (ValueError, OSError) as error:
        raise click.ClickException(printable(str(error))) from error
    except RuntimeError as error:
        if type(error).__name__ != "TrainingError":
            raise
        raise click.ClickException(printable(str(error))) from error
    except KeyboardInterrupt:
        command = shlex.join([*program, *sys.argv[1:]])
        click.echo(
            f"stopped, and nothing was written; begin again with\n\n    {command}\n", err=True
        )
        sys.exit(_STOPPED)


@contextlib.contextmanager
def trained_model_kept(folder: Path) -> Iterator[None]:
    """Say after Ctrl-C that the model is in its folder without scores; exit with status 130."""
    try:
        yield
    except KeyboardInterrupt:
        command = shlex.join(["gpflow-sparse", "evaluate", "--model", str(folder)])
        click.echo(
            f"stopped: the trained model is kept in {folder}, without its scores; score it with"
            f"\n\n    {command}\n",
            err=True,
        )
        sys.exit(_STOPPED)


def stopped_training(*, can_resume: bool) -> NoReturn:
    """Say that Ctrl-C has ended the training, and how to go on; exit with status 130."""
    words = "stopped: the model is kept as it was"
    if can_resume:
        arguments = [a for a in sys.argv[1:] if a != "--resume"]
        words += f"; continue with\n\n    {shlex.join(['gpflow-sparse', *arguments, '--resume'])}\n"
    click.echo(words, err=True)
    sys.exit(_STOPPED)
