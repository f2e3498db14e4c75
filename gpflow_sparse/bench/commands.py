"""The commands of `gpflow-sparse bench`. Arguments are parsed before TensorFlow is imported."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from gpflow_sparse.bench import step_commands
from gpflow_sparse.bench.papers import PAPER_NAMES
from gpflow_sparse.bench.step_commands import split_list, whole_numbers
from gpflow_sparse.runs.methods import IMAGE_METHODS, METHODS
from gpflow_sparse.runs.session import session
from gpflow_sparse.runs.terminal import HomePath, clear_errors, print_table, stopped

# Methods of which `bench calls` has a small model.
_TRACED = tuple(method for method in METHODS if method not in IMAGE_METHODS)


@click.group()
def bench() -> None:
    """Measure speed on this machine."""


@bench.command()
@click.argument("method", type=click.Choice(step_commands.CHOICES))
@click.option("--num-inducing", default=512, show_default="512; 500 for conv", help="M.")
@click.option("--num-orthogonal", default=512, show_default="512; 500 for conv", help="M2.")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    show_default="512; 500 for qsgp, 1024 for softki, 64 for swsgp and conv",
    help="Rows of the batch.",
)
@click.option("--input-dim", type=click.IntRange(min=1), show_default="8; 10 for softki", help="D.")
@click.option("--repeats", default=20, help="Timed rounds.")
@click.option(
    "--num-basis",
    default="10000,100000,1000000,10000000",
    help="qsgp: numbers of functions, with commas.",
)
@click.option(
    "--num-data", default="10000,100000,1000000", help="qsgp: numbers of rows, with commas."
)
@click.option("--basis-batch-size", default=10_000, help="qsgp: functions in each of two draws.")
@click.option("--num-support", default=500, help="qsgp: support rows.")
@click.option(
    "--output",
    type=HomePath(file_okay=False),
    help="qsgp: folder for the table and a picture.",
)
@click.option("--surface", is_flag=True, help="swsgp: inputs near a surface of 3 dimensions.")
@click.option(
    "--memory",
    is_flag=True,
    help="swsgp: only what 10^5 points, 100 neighbors take; conv: only what covariances take.",
)
@click.option("--float32/--float64", default=False, help="Precision.")
@click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
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
    with clear_errors(), session(float32, device):
        step_commands.run(method, float32, options)


@bench.command()
@click.argument("method", type=click.Choice(["softki"]))
@click.option("--num-rows", type=click.IntRange(min=1), default=1_000_000, help="N.")
@click.option("--num-inducing", type=click.IntRange(min=1), default=512, help="m.")
@click.option("--input-dim", type=click.IntRange(min=1), default=10, help="D.")
@click.option("--float32/--float64", default=False, help="Precision.")
def posterior(method: str, num_rows: int, **sizes: Any) -> None:
    """Time the fit of METHOD's posterior to made rows, and the memory that it takes."""
    from gpflow_sparse.bench.softki_memory import posterior_cost

    with clear_errors():
        cost = dataclasses.asdict(posterior_cost(num_rows, **sizes))
        print_table(("what", "value"), [(name, f"{value:.4g}") for name, value in cost.items()])
        click.echo(json.dumps(cost))


@bench.command()
@click.argument("method", type=click.Choice(["swsgp"]))
@click.option("--num-inducing", type=click.IntRange(min=1), default=1024, help="M.")
@click.option("--num-neighbors", type=click.IntRange(min=1), default=4, help="H.")
@click.option("--num-rows", type=click.IntRange(min=1), default=1000, help="Rows of a call.")
@click.option("--input-dim", type=click.IntRange(min=1), default=8, help="D.")
@click.option("--repeats", type=click.IntRange(min=1), default=20, help="Timed rounds.")
@click.option("--float32/--float64", default=False, help="Precision.")
@click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
def predict(method: str, float32: bool, device: str | None, **sizes: int) -> None:
    """Time a cached prediction of METHOD against GPflow's SVGP with as many points."""
    with clear_errors(), session(float32, device):
        from gpflow_sparse.bench.swsgp_predictions import prediction_times

        rows = prediction_times(**sizes)
        table = [(row.title, f"{row.microseconds:.2f}", f"{row.ratio:.3f}") for row in rows]
        print_table(("model", "microseconds a row", "ratio to GPflow"), table)
        click.echo(json.dumps({"rows": [dataclasses.asdict(row) for row in rows]}))


@bench.command()
@click.argument("method", type=click.Choice(["qsgp"]))
@click.option("--num-basis", default=10_000, help="m.")
@click.option("--basis-batch-size", default=1000, help="Functions in each of two draws.")
@click.option("--batch-size", default=500, help="Rows of the batch.")
@click.option("--num-support", default=500, help="Support rows.")
@click.option("--num-rows", type=click.IntRange(min=1), show_default="all", help="N, at most.")
@click.option("--repeats", default=20, help="Steps measured of each estimator.")
@click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
def variance(method: str, num_rows: int | None, device: str | None, **sizes: int) -> None:
    """Compare the gradient estimators of METHOD with the exact gradient.

    On kin40k where GPFLOW_SPARSE_DATA has it, else on generated rows. The exact optimum is solved
    for first: minutes at full size.
    """
    with clear_errors(), session(False, device):
        from gpflow_sparse.bench import qsgp_variance

        name, X, Y = qsgp_variance.benchmark_rows()
        errors = qsgp_variance.gradient_errors(
            X[:num_rows], Y[:num_rows], qsgp_variance.VarianceSizes(**sizes)
        )
        click.echo(f"{name}, {len(X[:num_rows])} rows", err=True)
        print_table(*qsgp_variance.error_table(errors))
        record = {"data": name, "rows": [dataclasses.asdict(error) for error in errors]}
        click.echo(json.dumps(record))


@bench.command()
@click.option("--num-rows", default=1_000_000, help="N.")
@click.option("--input-dim", default=8, help="D.")
@click.option("--num-basis", default=1000, help="p.")
@click.option("--repeats", default=200, help="Timed rounds.")
@click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
def grief(device: str | None, **sizes: int) -> None:
    """Time GP-GRIEF: the search, a pass over the rows, and the likelihood after it."""
    with clear_errors(), session(False, device):
        from gpflow_sparse.bench.grief_costs import grief_costs

        costs = dataclasses.asdict(grief_costs(**sizes))
        rows = [(f"search {name}", f"{s:.4g}") for name, s in costs.pop("searches").items()]
        rows += [(name.replace("_", " "), f"{value:.4g}") for name, value in costs.items()]
        print_table(("what", "value"), rows)
        click.echo(json.dumps(dict(rows)))


@bench.command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...", type=click.Choice(_TRACED))
@click.option("--list", "listed", is_flag=True, help="Print every function, indented by depth.")
def calls(methods: tuple[str, ...], listed: bool) -> None:
    """Count files and functions that a prediction of METHOD runs.

    The second eager predict_f of a small model; all methods where none is given. Functions are
    those of this package, for svgp those of GPflow, without comprehensions and lambdas.
    """
    with clear_errors(), session(False, None):
        from gpflow_sparse.bench.calls import prediction_calls

        found = {method: prediction_calls(method) for method in methods or _TRACED}
        for made in found.values() if listed else ():
            click.echo("\n".join(made.listing()))
        counts = {m: (c.num_files, len(c.functions), c.depth) for m, c in found.items()}
        header = ("method", "files", "functions", "depth")
        print_table(header, [(m, *map(str, values)) for m, values in counts.items()])
        click.echo(json.dumps([dict(zip(header, (m, *c), strict=True)) for m, c in counts.items()]))


@bench.command()
@click.argument("name", type=click.Choice(PAPER_NAMES))
@click.option(
    "--size",
    type=click.Choice(["small", "full"]),
    default="small",
    help="Rows for a small machine, or those of the paper.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    show_default="of each row, see its page; 2000 for solvegp, at full size 100 epochs",
    help="Training steps of every row, but for grief, which has no steps.",
)
@click.option("--minutes", default=75.0, help="Begin nothing that would end later.")
@click.option("--datasets", default="", show_default="all", help="Which data sets, with commas.")
@click.option("--rows", default="", show_default="all", help="Which rows, with commas.")
@click.option("--splits", default="", show_default="all", help="Which splits, with commas.")
@click.option(
    "--output",
    type=HomePath(file_okay=False),
    show_default="benchmarks-NAME",
    help="Folder of results.",
)
@click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
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

    Each finished row is kept, and the same command goes on where it stopped. A row is not begun if
    it is expected to end after --minutes. What the same row took on another split tells, or, where
    rows are trained by steps, its first ones.
    """
    with clear_errors(), _same_command_goes_on(), session(False, device):
        from gpflow_sparse.bench.papers import harness, tables
        from gpflow_sparse.bench.papers.spec import PaperRun, load_paper

        folder = Path(f"benchmarks-{name}") if output is None else output
        chosen = (split_list(datasets), split_list(rows), whole_numbers(splits))
        run = PaperRun(load_paper(name), size, folder, steps, *chosen)
        records = harness.run_paper(run, minutes)
        done = [record for record in records if record["status"] == "done"]
        print_table(*tables.summary(run, done))
        click.echo(f"results in {folder / run.stem}.md and .jsonl", err=True)
        click.echo(json.dumps({"done": len(done), "failed": len(records) - len(done)}))


@contextlib.contextmanager
def _same_command_goes_on() -> Iterator[None]:
    """Ctrl-C, in training or outside of it, says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        stopped("stopped; finished rows are kept", sys.argv[1:])
