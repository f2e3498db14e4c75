"""The benchmarks of speed and memory on the command line. No TensorFlow until one is run."""

import importlib
import inspect
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from gpflow_sparse.bench.steps import Tables, table_of
from gpflow_sparse.runs.methods import IMAGE_METHODS, METHODS
from gpflow_sparse.runs.session import session
from gpflow_sparse.runs.terminal import HomePath, clear_errors, print_table

# Methods for which `bench calls` has a small model.
_TRACED = tuple(method for method in METHODS if method not in IMAGE_METHODS)
_Command = Callable[..., None]

_device = click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
_precision = click.option("--float32/--float64", default=False, help="Precision.")


def _counts(**options: tuple[str, Any]) -> Callable[[_Command], _Command]:
    """Options for positive integers: help, and the default of the benchmark."""

    def decorate(command: _Command) -> _Command:
        for name, (text, shown) in reversed(options.items()):
            flag, kind = f"--{name.replace('_', '-')}", click.IntRange(min=1)
            command = click.option(flag, type=kind, show_default=str(shown), help=text)(command)
        return command

    return decorate


@click.command()
@click.argument(
    "method", type=click.Choice(["solvegp", "odvgp", "softki", "qsgp", "swsgp", "conv"])
)
@_counts(
    num_inducing=("M.", "512; 500 for conv"),
    num_orthogonal=("M2.", "512; 500 for conv"),
    batch_size=("Rows of the batch.", "512; 500 for qsgp, 1024 for softki, 64 for swsgp and conv"),
    input_dim=("D.", "8; 10 for softki"),
    repeats=("Timed rounds.", 20),
    basis_batch_size=("qsgp: functions in each of two draws.", 10_000),
    num_support=("qsgp: support rows.", 500),
)
@click.option(
    "--num-basis",
    show_default="10000,100000,1000000,10000000",
    help="qsgp: numbers of functions, with commas.",
)
@click.option(
    "--num-data", show_default="10000,100000,1000000", help="qsgp: numbers of rows, with commas."
)
@click.option(
    "--output", type=HomePath(file_okay=False), help="qsgp: folder for the tables and a picture."
)
@click.option("--surface", is_flag=True, help="swsgp: inputs near a surface of 3 dimensions.")
@click.option(
    "--memory",
    is_flag=True,
    help="swsgp: only the memory with 10^5 points, 100 neighbors; conv: only that of covariances.",
)
@_precision
@_device
def step(method: str, float32: bool, device: str | None, **options: Any) -> None:
    """Time one step (value and gradient) of METHOD against GPflow's SVGP.

    Where gpytorch is installed, its orthogonally decoupled model is timed too; its second set of
    points serves the mean only. For qsgp: whole steps, against the numbers of functions and of
    rows, and the memory that they take. For softki: both objectives, and GPflow's SGPR too, with
    the batch as its data. For swsgp: whole steps of several sizes, and GPyTorch's nearest-neighbor
    strategy if it is installed. For conv: covariances of images of 28 x 28 pixels with 5 x 5
    patches, against all at once and against GPflow's; whole steps of one layer and their algebra;
    steps of two layers.
    """
    given = {name: value for name, value in options.items() if value not in (None, False)}
    with clear_errors(), session(float32, device):
        from gpflow_sparse.bench import image_variants, step_variants

        benchmarks: dict[str, Callable[..., Tables]] = {
            "solvegp": partial(step_variants.orthogonal, "solvegp"),
            "odvgp": partial(step_variants.orthogonal, "odvgp"),
            "softki": step_variants.softki,
            "qsgp": step_variants.qsgp,
            "swsgp": step_variants.swsgp,
            "conv": image_variants.conv,
        }
        for name, value in given.items():
            takers = [m for m, f in benchmarks.items() if name in inspect.signature(f).parameters]
            if method not in takers:
                flag = name.replace("_", "-")
                raise ValueError(f"--{flag} is for {', '.join(takers)}, not for {method}.")
            if isinstance(value, str):
                given[name] = whole_numbers(value, name)
        _print(benchmarks[method](**given))
        if "output" in given:
            click.echo(f"tables and picture in {given['output']}", err=True)


@click.command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...", type=click.Choice(_TRACED))
@click.option("--list", "listed", is_flag=True, help="Print every function, indented by depth.")
def calls(methods: Sequence[str], listed: bool) -> None:
    """Count files and functions that a prediction of METHOD runs.

    The second eager predict_f of a small model; all methods where none is given. Functions are
    those of this package, for svgp those of GPflow, without comprehensions and lambdas.
    """
    with clear_errors(), session(False, None):
        from gpflow_sparse.bench.calls import prediction_calls

        found = {method: prediction_calls(method) for method in methods or _TRACED}
        for made in found.values() if listed else ():
            click.echo("\n".join(made.listing()))
        _print({"calls": [{"method": method} | made.counts for method, made in found.items()]})


def _measures(benchmark: str, text: str, *methods: str, **counts: tuple[str, Any]) -> click.Command:
    """
    A command that runs a benchmark and prints its tables.

    :param benchmark: module in this folder and name of the function, joined by a point.
    :param text: help.
    :param methods: choices of the argument METHOD; none for a command without it.
    """

    def run(float32: bool, device: str | None, method: str = "", **sizes: int | None) -> None:
        with clear_errors(), session(float32, device):
            module, name = benchmark.split(".")
            function = getattr(importlib.import_module(f"gpflow_sparse.bench.{module}"), name)
            _print(function(**{n: value for n, value in sizes.items() if value is not None}))

    command = _counts(**counts)(_precision(_device(run)))
    if methods:
        command = click.argument("method", type=click.Choice(methods))(command)
    return click.command(help=text)(command)


COMMANDS: dict[str, click.Command] = {
    "step": step,
    "calls": calls,
    "posterior": _measures(
        "step_variants.softki_posterior",
        "Time the fit of METHOD's posterior to made rows, and the memory that it takes.",
        "softki",
        num_rows=("N.", 1_000_000),
        num_inducing=("m.", 512),
        input_dim=("D.", 10),
    ),
    "predict": _measures(
        "step_variants.swsgp_predictions",
        "Time a cached prediction of METHOD against GPflow's SVGP with as many points.",
        "swsgp",
        num_inducing=("M.", 1024),
        num_neighbors=("H.", 4),
        num_rows=("Rows of a call.", 1000),
        input_dim=("D.", 8),
        repeats=("Timed rounds.", 20),
    ),
    "variance": _measures(
        "qsgp_variance.gradient_errors",
        "Compare the gradient estimators of METHOD with the exact gradient.\n\nOn kin40k where "
        "GPFLOW_SPARSE_DATA has it, else on generated rows. The exact optimum is solved for first: "
        "minutes at full size.",
        "qsgp",
        num_basis=("m.", 10_000),
        basis_batch_size=("Functions in each of two draws.", 1000),
        batch_size=("Rows of the batch.", 500),
        num_support=("Support rows.", 500),
        num_rows=("N, at most.", "all"),
        repeats=("Steps measured of each estimator.", 20),
    ),
    "grief": _measures(
        "step_variants.grief",
        "Time GP-GRIEF: the search, a pass over the rows, and the likelihood after it.",
        num_rows=("N.", 1_000_000),
        input_dim=("D.", 8),
        num_basis=("p.", 1000),
        repeats=("Timed rounds.", 200),
    ),
}


def _print(tables: Tables) -> None:
    """Print every table, and all of them as one line of JSON."""
    for rows in tables.values():
        print_table(*table_of(rows))
    click.echo(json.dumps(tables))


def split_list(text: str) -> tuple[str, ...]:
    """The parts of a text between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def whole_numbers(text: str, name: str = "splits") -> tuple[int, ...]:
    """:raises ValueError: for a list with anything but whole numbers."""
    if not all(part.isdecimal() for part in split_list(text)):
        raise ValueError(f"{name} must be numbers such as 0,1,2; got {text!r}.")
    return tuple(int(part) for part in split_list(text))
