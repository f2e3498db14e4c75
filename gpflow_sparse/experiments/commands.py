"""The commands of `gpflow-sparse bench`. Arguments are parsed before TensorFlow is imported."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from gpflow_sparse.experiments.config import METHODS
from gpflow_sparse.experiments.papers import PAPERS
from gpflow_sparse.session import session
from gpflow_sparse.terminal import clear_errors, print_table, stopped


@click.group()
def bench() -> None:
    """Measure speed on this machine."""


@bench.command()
@click.argument("method", type=click.Choice([key for key in METHODS if key != "svgp"]))
@click.option("--num-inducing", default=512, help="M.")
@click.option("--num-orthogonal", default=512, help="M2.")
@click.option("--batch-size", default=512, help="Rows of the batch.")
@click.option("--input-dim", default=8, help="D.")
@click.option("--repeats", default=20, help="Timed rounds.")
@click.option("--float32/--float64", default=False, help="Precision.")
@click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
def step(method: str, float32: bool, device: str | None, **sizes: int) -> None:
    """Time one step (value and gradient) of METHOD against GPflow's SVGP.

    Where gpytorch is installed, its orthogonally decoupled model is timed too; its second set of
    points serves the mean only.
    """
    with clear_errors(), session(float32, device):
        from gpflow_sparse.experiments.steps import bench_step

        rows, rate = bench_step(method, **sizes)
        table = [
            (
                row.title,
                f"{row.milliseconds:.1f}",
                f"{row.ratio:.3f}",
                "" if row.fraction is None else f"{row.fraction:.2f}",
            )
            for row in rows
        ]
        print_table(("model", "ms per step", "ratio to GPflow", "of the matmul rate"), table)
        click.echo(f"matmul rate {rate:.0f} GFLOP/s", err=True)
        click.echo(
            json.dumps({"rows": [dataclasses.asdict(r) for r in rows], "matmul_gflops": rate})
        )


@bench.command()
@click.option("--num-rows", default=1_000_000, help="N.")
@click.option("--input-dim", default=8, help="D.")
@click.option("--num-basis", default=1000, help="p.")
@click.option("--repeats", default=200, help="Timed rounds.")
@click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
def grief(device: str | None, **sizes: int) -> None:
    """Time GP-GRIEF: the search, a pass over the rows, and the likelihood after it."""
    with clear_errors(), session(False, device):
        from gpflow_sparse.experiments.grief_costs import grief_costs

        costs = dataclasses.asdict(grief_costs(**sizes))
        rows = [(f"search {name}", f"{s:.4g}") for name, s in costs.pop("searches").items()]
        rows += [(name.replace("_", " "), f"{value:.4g}") for name, value in costs.items()]
        print_table(("what", "value"), rows)
        click.echo(json.dumps(dict(rows)))


@bench.command()
@click.argument("name", type=click.Choice(list(PAPERS)))
@click.option(
    "--size",
    type=click.Choice(["small", "full"]),
    default="small",
    help="Rows for a small machine, or those of the paper.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    show_default="2000; at full size 100 epochs",
    help="Training steps of every row, for solvegp.",
)
@click.option("--minutes", default=75.0, help="Begin nothing that would end later.")
@click.option("--datasets", default="", show_default="all", help="Which data sets, with commas.")
@click.option("--rows", default="", show_default="all", help="Which rows, with commas.")
@click.option("--splits", default="", show_default="all", help="Which splits, with commas.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
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
    """Run the table of the paper NAME again, and write it beside the published numbers.

    Each finished row is kept; the same command goes on where it stopped. What is expected to end
    after --minutes, from what its like took (for solvegp, from its first steps), is not begun.
    """
    with clear_errors(), _same_command_goes_on(), session(False, device):
        from gpflow_sparse.experiments.papers.runner import run_paper
        from gpflow_sparse.experiments.papers.spec import PaperRun

        folder = Path(f"benchmarks-{name}") if output is None else output
        chosen = (_split(datasets), _split(rows), _whole_numbers(splits))
        run = PaperRun(PAPERS[name], size, folder, steps, *chosen)
        records = run_paper(run, minutes)
        done = [record for record in records if record["status"] == "done"]
        print_table(*run.paper.summary(done))
        click.echo(f"results in {folder / run.stem}.md and .jsonl", err=True)
        click.echo(json.dumps({"done": len(done), "failed": len(records) - len(done)}))


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _whole_numbers(text: str) -> tuple[int, ...]:
    if not all(part.isdecimal() for part in _split(text)):
        raise ValueError(f"splits must be numbers such as 0,1,2; got {text!r}.")
    return tuple(int(part) for part in _split(text))


@contextlib.contextmanager
def _same_command_goes_on() -> Iterator[None]:
    """Ctrl-C, in training or outside of it, says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        stopped("stopped; finished rows are kept", sys.argv[1:])
