"""The command line; TensorFlow is imported after the arguments have been parsed."""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from gpflow_sparse._version import __version__
from gpflow_sparse.persistence import read_header
from gpflow_sparse.tables.cli import workers
from gpflow_sparse.tables.cli.config import INDEX, MODEL, PAGE, RUN_OPTIONS, RunConfig
from gpflow_sparse.tables.cli.options import MethodCommand, command_options, is_chosen
from gpflow_sparse.tables.cli.session import session
from gpflow_sparse.tables.cli.terminal import (
    HomePath,
    HomeText,
    cell,
    clear_errors,
    phase,
    print_results,
    print_table,
    progress_of_rows,
    resumed,
    stopped,
    write_csv,
)
from gpflow_sparse.tables.methods.registry import RECIPES


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="gpflow-sparse")
def main() -> None:
    """Gaussian processes beyond the limits of SVGP: train, predict, evaluate."""


_model = click.option(
    "--model",
    "path",
    type=HomePath(),
    required=True,
    help="A run folder of `fit`, or a file written by gpflow_sparse.save.",
)
_chunk_size = click.option(
    "--chunk-size",
    type=click.IntRange(min=1),
    default=4096,
    help="Rows per call; bounds the memory.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, too.")
_device = click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')


@main.command(cls=MethodCommand, context_settings={"max_content_width": 100})
@command_options(RunConfig, RUN_OPTIONS, data=HomeText())
@click.option("--output", type=HomePath(), help="Folder of results.")
@click.option("--resume", is_flag=True, help="Resume an interrupted run in that folder.")
@click.option("--plot/--no-plot", default=True, help="Write a report.")
@click.option(
    "--workers",
    "num_workers",
    type=click.IntRange(min=1),
    default=1,
    help="Processes on this machine that share each batch.",
)
@click.option("--devices", help='TensorFlow devices that share each batch, such as "gpu:0,gpu:1".')
@_device
@_as_json
def fit(
    output: Path | None,
    resume: bool,
    plot: bool,
    num_workers: int,
    device: str | None,
    devices: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Choose a method, train its model, score it on test rows, and keep the results.

    Tables may hold text, dates and missing cells. With --method nothing is chosen, and GPflow's
    SVGP is trained beside the model. Ctrl-C keeps the best model so far; the same command with
    --resume continues. Where TF_CONFIG names several workers, this process is one of them.
    """
    if num_workers > 1 and not workers.is_worker():
        with clear_errors():
            workers.require_divisible(_config_of(dict(fields)).recipe, among_workers=True)
        sys.exit(workers.run_command(num_workers))
    with clear_errors(), session(fields["float32"], device, devices=devices) as strategy:
        config = _config_of(fields)
        from gpflow_sparse.tables.cli import outputs, training

        config, dataset = _load(config)
        stem = f"{dataset.name}-{config.method}-{config.recipe.seed}"
        folder = Path("gpflow-sparse-runs") / stem if output is None else output
        if strategy is not None:
            workers.require_divisible(config.recipe, among_workers=workers.is_worker())
        if not workers.is_chief():
            training.train_beside_chief(config, dataset, folder, resume=resume, strategy=strategy)
            workers.leave()
        plot = plot and _can_plot(folder)
        with outputs.locked(folder), _kept_after_ctrl_c(folder):
            outputs.prepare_folder(folder, config, resume=resume)
            _announce(config, dataset)
            options = {"resume": resume, "strategy": strategy}
            trained, record = training.run(config, dataset, folder, **options)
            print_results(record["results"], len(dataset.test[0]))
            _print_layers(trained[0].model, dataset)
            if plot:
                phase("drawing the report")
                _write_run_report(folder, dataset, trained[0])
            click.echo(f"model and scores are in {folder}", err=True)
            if as_json:
                click.echo(json.dumps(record))
        if workers.is_worker():
            training.end_together(strategy)
            workers.leave()


@main.command()
@_model
@_chunk_size
@_device
@click.option(
    "--data", type=HomeText(), required=True, help="A table of inputs, in any format of fit."
)
@click.option("--output", type=HomePath(), help="csv file; default the terminal.")
def predict(
    path: Path, chunk_size: int, device: str | None, data: str, output: Path | None
) -> None:
    """Predict new rows with a trained model, in original units, as csv."""
    with clear_errors(), _model_session(path, device):
        from gpflow_sparse.tables.cli import outputs, stored

        if output is not None:
            outputs.require_table(output, path, Path(data))
        model = stored.open_model(path)
        X, _ = stored.read_table_of(model, data)
        shown = output is not None or not sys.stdout.isatty()
        with progress_of_rows(len(X), enabled=shown) as advance:
            write_csv(output, stored.predict_parts(model, X, chunk_size, advance))
        if any(cell(label) != label for label in model.labels):
            click.echo(
                "labels that begin with =, +, - or @ have an apostrophe in front, so that "
                "spreadsheets do not take them for formulas",
                err=True,
            )
        if output is not None:
            click.echo(f"{len(X)} predictions in {output}", err=True)


@main.command()
@_model
@_chunk_size
@_device
@_as_json
@click.option(
    "--data", type=HomeText(), help="A file with the columns of training; default the test rows."
)
@click.option("--target", help="Column of the file to compare with; default as in training.")
@click.option("--report", type=HomePath(), help="Folder for a page on the model.")
def evaluate(
    path: Path,
    chunk_size: int,
    device: str | None,
    as_json: bool,
    data: str | None,
    target: str | None,
    report: Path | None,
) -> None:
    """Score a trained model on its test rows, or on the rows of a file."""
    with clear_errors(), _model_session(path, device):
        from gpflow_sparse.tables.cli import outputs, stored
        from gpflow_sparse.tables.fitting.evaluation import evaluate as score
        from gpflow_sparse.tables.report import require_report

        model = stored.open_model(path)
        if report is not None:
            outputs.require_folder(report)
            require_report(report / INDEX)
        X, Y, weights = stored.read_pairs(model, data, target)
        phase(f"scoring {len(Y)} rows")
        rows = model.standardizer, X, Y, model.num_classes
        metrics, predictions = score(model.predictor, *rows, chunk_size, weights)
        if report is not None:
            phase("writing the report")
            _write_report(report / INDEX, model, data, (X, Y), (metrics, predictions))
        result = {"title": model.title, **metrics}
        print_results([result], len(Y))
        if as_json:
            click.echo(json.dumps(result))


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


@main.command(hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Say where the benchmarks are."""
    command = shlex.join(("python", "docs/benchmarks/run.py", *arguments))
    raise click.ClickException(f"benchmarks are not installed; in a checkout: {command}")


def _load(config: RunConfig) -> tuple[RunConfig, Any]:
    """The run, with fewer inducing points for a short table unless they are given, and its data."""
    from gpflow_sparse.tables.cli import rows
    from gpflow_sparse.tables.methods.rows import sized

    phase(f"reading {config.data}")
    dataset = rows.load_data(config)
    chosen = filter(is_chosen, config.recipe.own_options())
    return config.with_recipe(sized(config.recipe, dataset.train[0], chosen)), dataset


def _can_plot(folder: Path) -> bool:
    """
    Whether a report can be drawn; says why not.

    :raises ValueError: if the page in the folder is no report.
    """
    from gpflow_sparse.tables.report import require_report

    try:
        require_report(folder / PAGE)
    except ValueError as error:
        if "matplotlib" not in str(error):
            raise
        click.echo(f"no report: {error}", err=True)
        return False
    return True


def _config_of(fields: dict[str, Any]) -> RunConfig:
    """The defaults of the method, with the options that the user gave."""
    method = fields.pop("method")
    chosen = {name: value for name, value in fields.items() if is_chosen(name)}
    return RunConfig.of_method(method, **chosen)


@contextlib.contextmanager
def _model_session(path: Path, device: str | None) -> Iterator[None]:
    """A TensorFlow session with the precision and the jitter of a saved model."""
    header = read_header(path / MODEL if os.path.isdir(path) else path)
    with session(header["float"] == "float32", device, header["jitter"]):
        yield


@contextlib.contextmanager
def _kept_after_ctrl_c(folder: Path) -> Iterator[None]:
    """After Ctrl-C outside of the training loop: print what is kept, and how to continue."""
    from gpflow_sparse.tables.cli import outputs
    from gpflow_sparse.training import TrainingInterrupted

    try:
        yield
    except TrainingInterrupted:
        raise
    except KeyboardInterrupt:
        what, is_complete = outputs.left_in(folder)
        if is_complete:
            report = [
                "gpflow-sparse",
                "evaluate",
                "--model",
                str(folder),
                "--report",
                str(folder / "report"),
            ]
            stopped(what, report)
        resumed(what)


def _write_run_report(folder: Path, dataset: Any, trained: Any) -> None:
    """Write the report on a finished run, or say why there is none: the run itself is complete."""
    from gpflow_sparse.tables.cli import rows, stored

    try:
        pair = rows.original_units(dataset, dataset.test)
        scored = trained.metrics, trained.predictions
        _write_report(folder / PAGE, stored.open_model(folder), None, pair, scored)
    except ValueError as error:
        click.echo(f"no report is written: {error}", err=True)


def _write_report(path: Path, model: Any, data: str | None, pair: Any, scored: Any) -> None:
    """Write the report on rows of a file, or on the test rows of a run, and say where it is."""
    import numpy as np

    from gpflow_sparse.tables.cli import stored
    from gpflow_sparse.tables.report import write_report

    X, Y = pair
    frame, is_encoded = stored.frame_of(model, data, X)
    known = model.record or {"results": [{}]}
    rows = "test rows, which were not trained on"
    record = {
        "rows": rows if data is None else f"rows of {Path(data).name}",
        **known["results"][0],
        "versions": known.get("versions", {}),
    }
    write_report(
        path,
        stored.estimator_of(model, is_encoded=is_encoded),
        frame,
        np.array(model.labels)[Y[:, 0].astype(int)] if model.num_classes else Y,
        title=f"{model.target_name or 'y'} by {model.title}",
        record=record,
        scored=scored,
    )
    click.echo(f"the report is {path}", err=True)


def _print_layers(model: Any, dataset: Any) -> None:
    """Print signal and noise of the hidden layers of a deep model, which has no report."""
    if hasattr(model, "layers"):
        from gpflow_sparse.diagnosis.layers import describe, signal_to_noise_on_sample

        for entry in signal_to_noise_on_sample(model, dataset.train[0]):
            click.echo(describe(entry), err=True)


def _announce(config: RunConfig, dataset: Any) -> None:
    """Print the size of the data and an estimate of the memory before training."""
    in_memory, input_dim = dataset.train[0].shape
    latents = dataset.num_classes if (dataset.num_classes or 0) > 2 else 1
    memory = ""
    if not config.recipe.is_choice:
        size = 4 if config.float32 else 8
        need = size * config.recipe.num_elements(in_memory, input_dim, latents)
        memory = f"; about {need / 2**20:.0f} MB beyond TensorFlow"
    click.echo(
        f"{dataset.name}: {dataset.num_train} training and {len(dataset.test[0])} test rows, "
        f"{input_dim} inputs{memory}",
        err=True,
    )
    for note in (*dataset.notes, *(dataset.table.notes if dataset.table else ())):
        click.echo(f"  {note}", err=True)


if __name__ == "__main__":
    main()
