"""The commands of ``run.py``. Arguments are parsed before TensorFlow is imported."""

import contextlib
import functools
import importlib
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import tomllib

from bench.papers import PAPER_NAMES
from bench.steps import Tables, table_of
from gpflow_sparse.tables.cli.session import session
from gpflow_sparse.tables.cli.terminal import HomePath, clear_errors, print_table
from gpflow_sparse.tables.methods.registry import RECIPES

_PROGRAM = ("python", "docs/benchmarks/run.py")
# Methods for which `calls` has a small model, of regression; an exact GP is GPflow's alone.
_TRACED = tuple(
    name
    for name, kind in RECIPES.items()
    if name not in ("exact", "dirichlet_gpnn") and not kind.takes_images
)
_Methods = Mapping[str, Mapping[str, Any]]
"""By method: ``function``, and the options of a benchmark with their defaults."""

_TABLE = tomllib.loads(Path(__file__).with_name("benchmarks.toml").read_text(encoding="utf-8"))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
def bench() -> None:
    """Measure speed and memory on this machine, and run the papers' tables again."""


_device = click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
_record = click.option(
    "--record",
    type=HomePath(file_okay=False),
    help="Folder of speed.jsonl, to which the tables are added, and of its page, speed.md.",
)


def _benchmark(text: str, methods: _Methods, option_texts: Mapping[str, str]) -> Callable[..., Any]:
    """
    The function of a command, with its options, that runs a benchmark and prints its tables.

    :param methods: choices of the argument METHOD; "none" for a command without it.
    """

    def run(
        float32: bool,
        device: str | None,
        record: Path | None,
        method: str = "none",
        **options: Any,
    ) -> None:
        given = {name: value for name, value in options.items() if value not in (None, False)}
        with clear_errors(_PROGRAM), session(float32, device):
            for name, value in given.items():
                if name not in methods[method]:
                    takers = ", ".join(m for m in methods if name in methods[m])
                    raise ValueError(f"{_flag(name)} is for {takers}, not for {method}.")
                if isinstance(value, str):
                    given[name] = _whole_numbers(value, name)
            missing = {name: None for name, v in methods[method].items() if isinstance(v, str)}
            sizes = {**methods[method], **missing, **given}
            module, function = methods[method]["function"].split(".")
            del sizes["function"]
            measure = getattr(importlib.import_module(f"{__package__}.{module}"), function)
            tables = measure(**sizes)
            _print(tables)
            if "output" in given:
                click.echo(f"tables and picture in {given['output']}", err=True)
            if record is not None:
                from bench import speed_page

                speed_page.add(record, _spoken(options | {"float32": float32}, method), tables)

    run.__doc__ = text
    names = dict.fromkeys(name for sizes in methods.values() for name in sizes)
    options = [_option(name, methods, option_texts[name]) for name in names if name != "function"]
    if "none" not in methods:
        options.append(click.argument("method", type=click.Choice(list(methods))))
    precision = click.option("--float32/--float64", default=False, help="Precision.")
    shared = [_device, _record, precision]
    return functools.reduce(lambda f, add: add(f), [*shared, *reversed(options)], run)


def _spoken(options: Mapping[str, Any], method: str) -> str:
    """The command that is running, with its options, as it is typed after the script's name."""
    words = [str(click.get_current_context().info_name)] + [method] * (method != "none")
    for name, value in options.items():
        if value not in (None, False):
            words += [_flag(name)] if value is True else [_flag(name), str(value)]
    return " ".join(words)


def _option(name: str, methods: _Methods, text: str) -> Callable[..., Any]:
    """A positive integer, several with commas, a flag or a folder, as its defaults are."""
    defaults = {method: sizes[name] for method, sizes in methods.items() if name in sizes}
    first = next(iter(defaults.values()))
    if first is False:
        return click.option(_flag(name), is_flag=True, help=text)
    if name in ("output", "folder"):
        return click.option(_flag(name), type=HomePath(file_okay=False), help=text)
    kind = str if isinstance(first, list) else click.IntRange(min=1)
    shown = [",".join(map(str, v)) if isinstance(v, list) else str(v) for v in defaults.values()]
    pairs = zip(shown, defaults, strict=True)
    others = [f"{value} for {method}" for value, method in pairs if value != shown[0]]
    return click.option(
        _flag(name), type=kind, show_default="; ".join([shown[0], *others]), help=text
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


for _name, _table in _TABLE["commands"].items():
    _texts = _TABLE["options"] | _table.get("options", {})
    bench.command(_name)(_benchmark(_table["help"], _table["methods"], _texts))


@bench.command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...", type=click.Choice(_TRACED))
@click.option("--list", "listed", is_flag=True, help="Print every function, indented by depth.")
def calls(methods: Sequence[str], listed: bool) -> None:
    """Count files and functions that a prediction of METHOD runs.

    The second eager predict_f of a small model; all methods where none is given. Functions are
    those of this package, for svgp those of GPflow, without comprehensions and lambdas.
    """
    with clear_errors(_PROGRAM), session(False, None):
        from bench.calls import prediction_calls

        found = {method: prediction_calls(method) for method in methods or _TRACED}
        for made in found.values() if listed else ():
            click.echo("\n".join(made.listing()))
        _print({"calls": [{"method": method} | made.counts for method, made in found.items()]})


def _part_of_table(minutes: float) -> Callable[..., Any]:
    """Options of a command that runs a part of a table within a number of minutes."""
    options = (
        click.option("--minutes", default=minutes, help="Start no row that would end later."),
        click.option("--datasets", default="", show_default="all", help="Which, with commas."),
        click.option("--rows", default="", show_default="all", help="Which rows, with commas."),
    )
    return lambda command: functools.reduce(lambda f, add: add(f), reversed(options), command)


@bench.command()
@click.argument("name", type=click.Choice(PAPER_NAMES))
@click.option(
    "--size",
    type=click.Choice(["quick", "small", "full"]),
    default="small",
    help="Rows for a small machine, or those of the paper.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    show_default="of each row, see its page; 2000 for solvegp, at full size 100 epochs",
    help="Training steps of every row, but for grief, which has no steps.",
)
@_part_of_table(minutes=75.0)
@click.option("--splits", default="", show_default="all", help="Which splits, with commas.")
@click.option(
    "--output",
    type=HomePath(file_okay=False),
    show_default="benchmarks-NAME",
    help="Folder of results.",
)
@_device
def paper(
    name: str,
    size: str,
    steps: int | None,
    minutes: float,
    datasets: str,
    rows: str,
    splits: str,
    output: Path | None,
    device: str | None,
) -> None:
    """Run the table of the paper NAME again, and write it beside the published results.

    Each finished row is kept, and the same command resumes after the last one. A row is not started
    if it is expected to end after --minutes, by its time on another split or, for rows that are
    trained by steps, that of its first steps.
    """
    with clear_errors(_PROGRAM), _same_command_goes_on(), session(False, device):
        from bench.papers.spec import PaperRun, load_paper

        folder = Path(f"benchmarks-{name}") if output is None else output
        chosen = (_split_list(datasets), _split_list(rows), _whole_numbers(splits, "splits"))
        _run_paper(PaperRun(load_paper(name), size, folder, steps, *chosen), minutes)


@bench.command()
@click.option(
    "--size",
    type=click.Choice(["quick", "small", "full"]),
    default="full",
    help="quick: 15 seconds each, on five sets; small: 1 minute; full: 5 minutes, three splits.",
)
@_part_of_table(minutes=600.0)
@click.option(
    "--output",
    type=HomePath(file_okay=False),
    default=Path("benchmarks-evidence"),
    help="Folder of results.",
)
def evidence(size: str, minutes: float, datasets: str, rows: str, output: Path) -> None:
    """Compare all methods with other libraries, boosted trees and linear models at equal time.

    Before anything is trained, the libraries must agree at fixed hyperparameters. Each task has a
    process of its own, whose memory is measured; finished ones are kept, and the same command
    resumes. The page is written again after each.
    """
    with clear_errors(_PROGRAM), _same_command_goes_on(), session(False, None):
        from bench.papers.spec import PaperRun, load_paper

        chosen = (None, _split_list(datasets), _split_list(rows))
        _run_paper(PaperRun(load_paper("evidence"), size, output, *chosen), minutes)


@bench.command()
@click.option(
    "--data",
    type=click.Choice(["digits", "mnist", "cifar10_20k"]),
    default="digits",
    help="Which images.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.0, min_open=True),
    show_default="0.5 for digits, 5 for mnist, 10 for cifar10_20k",
    help="Time of training of each row.",
)
@click.option("--splits", default="", show_default="all", help="Which splits, with commas.")
@click.option(
    "--output",
    type=HomePath(file_okay=False),
    default=Path("benchmarks-images"),
    help="Folder of results.",
)
@_device
def images(data: str, minutes: float | None, splits: str, output: Path, device: str | None) -> None:
    """Compare the calibration of convolutional GPs with that of a small network, at equal time.

    Accuracy, NLPD, ECE and Brier score, accuracy where the least certain images are left out, and
    entropies of rotated images and of images of other data. Finished rows are kept, and the same
    command resumes after the last one; all data sets have one page.
    """
    with clear_errors(_PROGRAM), _same_command_goes_on(), session(False, device):
        from bench.papers.spec import PaperRun, load_paper, with_minutes

        paper = load_paper("images")
        if minutes is not None:
            paper = with_minutes(paper, data, minutes)
        _run_paper(
            PaperRun(
                paper, "small", output, datasets=(data,), splits=_whole_numbers(splits, "splits")
            ),
            math.inf,
        )


def _of_tables(name: str) -> Callable[..., Any]:
    """A command with the options of the benchmarks of small tables."""

    def with_options(function: Callable[..., Any]) -> Any:
        for part, what in (("splits", "splits"), ("rows", "rows"), ("datasets", "tables")):
            function = click.option(
                f"--{part}", default="", show_default="all", help=f"Which {what}, with commas."
            )(function)
        output = click.option(
            "--output",
            type=HomePath(file_okay=False),
            default=Path(f"benchmarks-{name}"),
            help="Folder of results.",
        )
        return bench.command(name)(output(function))

    return with_options


@_of_tables("small-tables")
def small_tables(datasets: str, rows: str, splits: str, output: Path) -> None:
    """Compare the automatic choice with other models on all splits of twelve small tables.

    Finished rows are kept, and the same command resumes after the last one.
    """
    from bench import small_tables

    _run_tables(small_tables, datasets, rows, splits, output)


@_of_tables("class-tables")
def class_tables(datasets: str, rows: str, splits: str, output: Path) -> None:
    """Compare the probabilities of the automatic choice with other classifiers on twelve tables.

    Finished rows are kept, and the same command resumes after the last one.
    """
    from bench import class_tables

    _run_tables(class_tables, datasets, rows, splits, output)


@_of_tables("mixed-tables")
def mixed_tables(datasets: str, rows: str, splits: str, output: Path) -> None:
    """Compare the automatic choice with boosted trees on tables with categories.

    Finished rows are kept, and the same command resumes after the last one.
    """
    from bench import mixed_tables

    _run_tables(mixed_tables, datasets, rows, splits, output)


@_of_tables("mixed-classes")
def mixed_classes(datasets: str, rows: str, splits: str, output: Path) -> None:
    """Compare the automatic choice with other classifiers on tables with categories.

    Finished rows are kept, and the same command resumes after the last one.
    """
    from bench import mixed_classes

    _run_tables(mixed_classes, datasets, rows, splits, output)


def _run_tables(module: Any, datasets: str, rows: str, splits: str, output: Path) -> None:
    with clear_errors(_PROGRAM), _same_command_goes_on(), session(False, None):
        chosen = _split_list(datasets), _split_list(rows), _whole_numbers(splits, "splits")
        module.run(output, *chosen)
        click.echo(f"results in {output}", err=True)


def _run_paper(run: Any, minutes: float) -> None:
    """Run tasks of a ``PaperRun`` within so many minutes, and print the table."""
    from bench.papers import harness, tables

    records = harness.run_paper(run, minutes)
    done = [record for record in records if record["status"] == "done"]
    print_table(*tables.summary(run, done))
    click.echo(f"results in {run.folder / run.stem}.md and .jsonl", err=True)
    click.echo(json.dumps({"done": len(done), "failed": len(records) - len(done)}))


@contextlib.contextmanager
def _same_command_goes_on() -> Iterator[None]:
    """Print the command that resumes the run after Ctrl-C, in training or outside of it."""
    try:
        yield
    except KeyboardInterrupt:
        command = shlex.join([*_PROGRAM, *sys.argv[1:]])
        click.echo(f"stopped; finished rows are kept; continue with\n\n    {command}\n", err=True)
        sys.exit(130)


def _print(tables: Tables) -> None:
    """Print every table, and all of them as one line of JSON."""
    for rows in tables.values():
        print_table(*table_of(rows))
    click.echo(json.dumps(tables))


def _split_list(text: str) -> tuple[str, ...]:
    """The parts of a text between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _whole_numbers(text: str, name: str) -> tuple[int, ...]:
    """:raises ValueError: for a list with anything but whole numbers."""
    if not all(part.isdecimal() for part in _split_list(text)):
        raise ValueError(f"{name} must be numbers such as 0,1,2; got {text!r}.")
    return tuple(int(part) for part in _split_list(text))
