"""The commands of `gpflow-sparse bench`. Arguments are parsed before TensorFlow is imported."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from gpflow_sparse.bench.papers import PAPER_NAMES
from gpflow_sparse.bench.step_commands import COMMANDS, split_list, whole_numbers
from gpflow_sparse.runs.session import session
from gpflow_sparse.runs.terminal import HomePath, clear_errors, print_table, stopped


@click.group()
def bench() -> None:
    """Measure speed on this machine."""


for _name, _command in COMMANDS.items():
    bench.add_command(_command, _name)


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
@click.option("--minutes", default=75.0, help="Start no row that would end later.")
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

    Each finished row is kept, and the same command resumes after the last one. A row is not started
    if it is expected to end after --minutes, by its time on another split or, for rows that are
    trained by steps, that of its first steps.
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
    """Print the command that resumes the run after Ctrl-C, in training or outside of it."""
    try:
        yield
    except KeyboardInterrupt:
        stopped("stopped; finished rows are kept", sys.argv[1:])
