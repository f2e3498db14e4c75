"""The command line over the estimators; TensorFlow is imported after the arguments are parsed."""

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import click

from gpflow_sparse._version import __version__
from gpflow_sparse.tables.cli.options import (
    MethodCommand,
    chosen_options,
    chosen_reading,
    is_chosen,
    reading_options,
)
from gpflow_sparse.tables.cli.session import model_session, session
from gpflow_sparse.tables.cli.terminal import (
    DataName,
    HomePath,
    SplitName,
    clear_errors,
    phase,
    print_table,
    progress_of_rows,
    write_csv,
)
from gpflow_sparse.tables.methods.registry import AUTO, RECIPES

_MINUTES = 5.0  # of the automatic choice


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="gpflow-sparse")
def main() -> None:
    """Gaussian processes beyond the limits of SVGP: train, predict, evaluate."""


_model = click.option(
    "--model",
    "path",
    type=HomePath(),
    required=True,
    help="A run folder of `fit`, or a file of an estimator written by gpflow_sparse.save.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, too.")
_device = click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')


@main.command(cls=MethodCommand, context_settings={"max_content_width": 100})
@click.option(
    "--data",
    type=DataName(),
    default="robot_arm",
    help="A csv, npz, parquet or feather file, or the name of a data set (see `datasets`).",
)
@click.option("--target", help="Column of the file to predict; default the last.")
@reading_options
@click.option(
    "--drop-bad-targets", is_flag=True, help="Leave out rows whose target is not a number."
)
@click.option(
    "--row-weights",
    help="Column of the file with weights of rows, not an input: in training a row of weight "
    "2 counts as two equal rows, and one of weight 0 is left out; scores count rows so too.",
)
@click.option(
    "--task",
    type=click.Choice(["regression", "classification"]),
    help="Default regression for numbers, classification for text; a named data set has its own.",
)
@click.option(
    "--split",
    type=SplitName(),
    default="auto",
    help="Which tenth of a file tests the model, and what kind of rows compare methods before: "
    "random rows, also by the number of a random split; time, the last rows by the first column "
    "that is a date; auto, time where rows of other times predict worse than random rows.",
)
@click.option(
    "--split-by",
    help="Column of the file, not an input, with groups such as patients: a group is trained "
    "on or tested on as a whole, so that scores are about new groups.",
)
@click.option("--exclude", multiple=True, help="Column that is not an input; may be repeated.")
@click.option(
    "--transform",
    type=click.Choice(["auto", "none", "log", "logit", "yeo-johnson"]),
    default="auto",
    help="Transform of the target before the training; densities, intervals and predictions are of "
    "the target itself. The automatic choice tries them on held-out rows of a skewed target; for "
    "other methods auto is none.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.0, min_open=True),
    help=f"Time from the start of the command to the end of the training, in place of a number of "
    f"steps; default {_MINUTES:g} without --method.",
)
@click.option("--float32/--float64", help="Precision.")
@click.option("--output", type=HomePath(), help="Folder of results.")
@click.option("--resume", is_flag=True, help="Go on with the training steps kept in that folder.")
@click.option("--plot/--no-plot", default=True, help="Write a page with pictures.")
@_device
@_as_json
def fit(**given: Any) -> None:
    """Choose a method, train its model, score it on test rows, and keep the results.

    Tables may hold text, dates and missing cells. Ctrl-C keeps the best model so far.
    """
    begin = time.perf_counter()
    with clear_errors(), session(given["float32"], given["device"]):
        from gpflow_sparse.tables.cli import runs
        from gpflow_sparse.tables.cli.rows import Source

        given["reading"] = chosen_reading()
        names = [field.name for field in dataclasses.fields(Source)]
        options = chosen_options(given["method"])
        if given["transform"] != "auto":
            options["transform"] = given["transform"]
        minutes = given["minutes"]
        if minutes is not None and not math.isfinite(minutes):
            raise ValueError(f"minutes must be a finite number, got {minutes}.")
        if minutes is not None and is_chosen("num_steps"):
            raise ValueError("minutes is a time in place of num_steps: leave one of them out.")
        if minutes is None and given["method"] == AUTO and not is_chosen("num_steps"):
            minutes = _MINUTES
        run = runs.Run(
            Source(**{name: given[name] for name in names}), given["method"], options, minutes
        )
        record = runs.fit(run, given["output"], begin, resume=given["resume"], plot=given["plot"])
        if given["as_json"]:
            click.echo(json.dumps(record))


@main.command()
@_model
@_device
@click.option(
    "--data", type=HomePath(), required=True, help="A table of inputs, in any format of fit."
)
@reading_options
@click.option("--output", type=HomePath(), help="csv file; default the terminal.")
@click.option(
    "--id", "identifier", help="Column that names the rows in the output; default their numbers."
)
def predict(
    path: Path,
    device: str | None,
    data: Path,
    output: Path | None,
    identifier: str | None,
    **_: Any,
) -> None:
    """Predict new rows with a trained model, in original units, as csv."""
    with clear_errors(), model_session(path, device):
        from gpflow_sparse.tables.cli import folders, runs

        if output is not None:
            folders.require_table(output, runs.model_file(path), data)
        estimator = runs.load(path)
        reading = chosen_reading(estimator.reading)
        frame, labels = runs.read_inputs(estimator, data, reading, identifier)
        with progress_of_rows(len(frame), enabled=output is not None) as advance:
            write_csv(output, runs.predictions(estimator, frame, labels, advance))
        if output is not None:
            click.echo(f"{len(frame)} predictions in {output}", err=True)


@main.command()
@_model
@_device
@_as_json
@click.option(
    "--data", type=HomePath(), help="A file with the columns of training; default the test rows."
)
@reading_options
@click.option("--target", help="Column of the file to compare with; default as in training.")
@click.option("--report", type=HomePath(), help="Folder for a page on the model.")
def evaluate(
    path: Path,
    device: str | None,
    as_json: bool,
    data: Path | None,
    target: str | None,
    report: Path | None,
    **_: Any,
) -> None:
    """Score a trained model on its test rows, or on the rows of a file."""
    with clear_errors(), model_session(path, device):
        from gpflow_sparse.tables.cli import runs

        if target is not None and data is None:
            raise ValueError("target is for the rows of --data; leave it out.")
        if report is not None:
            runs.require_report(report / "index.html")
        estimator = runs.load(path)
        reading = chosen_reading(estimator.reading)
        rows, kind = runs.rows_to_score(path, estimator, data, target, reading)
        phase(f"scoring {len(rows.y)} rows")
        scored = runs.score_rows(estimator, *rows)
        if report is not None:
            record = {"method": estimator.method_, "rows": kind}
            page = runs.write_page(report / "index.html", estimator, scored, record)
            click.echo(f"the report is {page}", err=True)
        runs.print_scores(estimator, scored, kind)
        if as_json:
            found = {"scores": scored.scores, "standard_errors": scored.errors}
            click.echo(json.dumps(found | {"kind_of_rows": kind}))


@main.command()
def datasets() -> None:
    """List the data sets known by name."""
    from gpflow_sparse.data import list_datasets

    rows = [
        (info.name, str(info.num_data), str(info.input_dim), info.task, info.source)
        for info in list_datasets()
    ]
    print_table(("name", "rows", "columns", "task", "source"), rows)


@main.command()
def methods() -> None:
    """List the methods that `fit` can train."""
    print_table(("method", "name", "idea"), [(key, m.title, m.idea) for key, m in RECIPES.items()])


if __name__ == "__main__":
    main()
