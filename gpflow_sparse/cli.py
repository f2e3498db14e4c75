"""The command line. Arguments are parsed before TensorFlow is imported."""

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gpflow_sparse._version import __version__
from gpflow_sparse.experiments.config import (
    INITIALIZATIONS,
    KERNELS,
    METHODS,
    SCHEDULES,
    RunConfig,
    memory_estimate,
    read_record,
)

_DEFAULTS = RunConfig()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="gpflow-sparse")
def main() -> None:
    """Gaussian processes that outgrow SVGP: train, evaluate, measure."""


def _field(*names: str, **options: Any) -> Callable[[Any], Any]:
    """An option for the field of `RunConfig` whose name is the first long flag's."""
    field = names[0].split("/")[0].removeprefix("--").replace("-", "_")
    return click.option(*names, default=getattr(_DEFAULTS, field), **options)


@main.command()
@_field("--data", help="Data set by name (see `datasets`), or a csv, npz or parquet file.")
@_field("--target", help="Column of the file to predict.")
@_field("--task", type=click.Choice(["regression", "classification"]), help="For a file.")
@_field("--split", help="Which train/test split.")
@_field("--method", type=click.Choice(list(METHODS)), help="See `methods`.")
@_field("--num-inducing", help="M, points of the base set.")
@_field("--num-orthogonal", help="M2, points of the orthogonal set.")
@_field("--kernel", type=click.Choice(KERNELS), help="Covariance function.")
@_field("--ard/--no-ard", help="One lengthscale per input column, or one for all.")
@_field("--whiten/--no-whiten", help="Parametrize q relative to the prior.")
@_field("--initialization", type=click.Choice(INITIALIZATIONS), help="Where points start.")
@_field("--num-subset", help="Rows of the exact GP that gives starting hyperparameters.")
@_field("--num-steps", help="Training steps.")
@_field("--batch-size", help="Rows per step.")
@_field("--learning-rate", help="Peak rate of Adam.")
@_field("--schedule", type=click.Choice(SCHEDULES), help="Decay to zero over the run, or constant.")
@_field("--natural-gradients", help="Step size on q; 0 leaves q to Adam.")
@_field("--baseline/--no-baseline", help="Train GPflow's SVGP with the same M beside it.")
@_field("--float32/--float64", help="Precision.")
@_field("--seed", help="Seed of everything.")
@click.option("--output", type=click.Path(path_type=Path), help="Folder of results.")
@click.option("--plot/--no-plot", default=True, help="Draw predictions against truth.")
@click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
def fit(output: Path | None, plot: bool, device: str | None, **fields: Any) -> None:
    """Train a model, score it on test rows beside GPflow's SVGP, and keep the results.

    Without options: SOLVE-GP on a simulated robot arm.
    """
    with _clear_errors(), _session(fields["float32"], device):
        config = RunConfig(**fields)
        import numpy as np

        from gpflow_sparse.experiments import runs
        from gpflow_sparse.experiments.plots import plot_predictions

        dataset = runs.load_data(config)
        if not _chosen("num_inducing", "num_orthogonal"):
            config = config.shrunk_to(len(np.unique(dataset.train[0], axis=0)))
        _announce(config, dataset)
        trained = [runs.train(config, dataset)]
        if config.baseline and config.method != "svgp":
            trained.append(runs.train(config.as_baseline(), dataset))
        record = runs.summary(config, dataset, trained)
        stem = f"{dataset.name}-{config.method}-{config.seed}"
        folder = Path("gpflow-sparse-runs") / stem if output is None else output
        runs.save_run(folder, record, trained[0].model)
        if plot:
            _, Y = runs.original_units(dataset, dataset.test)
            plot_predictions(folder / "predictions.png", Y, trained, dataset.target_name)
        _print_results(record["results"], dataset.num_classes)
        click.echo(f"results in {folder}", err=True)
        click.echo(json.dumps(record))


@main.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", help="A file with the columns of the training data; default the test rows.")
@click.option("--device", help='TensorFlow device, such as "cpu:0" or "gpu:0".')
def evaluate(run: Path, data: str | None, device: str | None) -> None:
    """Score the model of an earlier RUN folder on its test rows or on other rows."""
    with _clear_errors():
        config, _ = read_record(run)
        with _session(config.float32, device):
            from gpflow_sparse.experiments import runs
            from gpflow_sparse.experiments.evaluation import evaluate as score

            _, record, model = runs.load_run(run)
            X, Y = runs.rows_to_score(config, record, data)
            metrics, _ = score(model, model.standardizer, X, Y, record["dataset"]["num_classes"])
            result = {"title": runs.title(config), **metrics}
            _print_results([result], record["dataset"]["num_classes"])
            click.echo(json.dumps(result))


@main.command()
def datasets() -> None:
    """List the data sets known by name."""
    from gpflow_sparse.data import list_datasets

    rows = [
        (info.name, str(info.num_data), str(info.input_dim), info.task, info.source)
        for info in list_datasets()
    ]
    _print_table(("name", "rows", "columns", "task", "source"), rows)


@main.command()
def methods() -> None:
    """List the methods that `fit` can train."""
    _print_table(("method", "name", "idea"), [(key, *texts) for key, texts in METHODS.items()])


@main.group()
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
    """Time one step (value and gradient) of METHOD against GPflow's SVGP."""
    with _clear_errors(), _session(float32, device):
        from gpflow_sparse.experiments.steps import bench_step

        rows, rate = bench_step(method, **sizes)
        table = [(r.title, f"{r.milliseconds:.1f}", f"{r.ratio:.3f}") for r in rows]
        _print_table(("model", "ms per step", "ratio to GPflow"), table)
        click.echo(f"matmul rate {rate:.0f} GFLOP/s", err=True)
        click.echo(
            json.dumps({"rows": [dataclasses.asdict(r) for r in rows], "matmul_gflops": rate})
        )


def _chosen(*names: str) -> bool:
    """Whether the user gave any of these options."""
    context = click.get_current_context()
    return any(context.get_parameter_source(n) is not ParameterSource.DEFAULT for n in names)


def _announce(config: RunConfig, dataset: Any) -> None:
    """Say what is about to happen, and what memory it will take, before it does."""
    num_data, input_dim = dataset.train[0].shape
    latents = dataset.num_classes if (dataset.num_classes or 0) > 2 else 1
    need = memory_estimate(config, num_data, input_dim, latents)
    click.echo(
        f"{dataset.name}: {num_data} training and {len(dataset.test[0])} test rows, "
        f"{input_dim} inputs; about {need / 2**20:.0f} MB beyond TensorFlow",
        err=True,
    )


def _print_results(results: list[dict[str, Any]], num_classes: int | None) -> None:
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
    rows = [(r["title"], *(f"{r[name]:.4g}" for name in shown)) for r in results]
    _print_table(("model", *(names[name] for name in shown)), rows)


def _print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console = Console()
    # a pipe has no width: let the table have what it needs
    width = None if console.is_terminal else 160
    Console(width=width, highlight=False).print(table)


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    """A user's mistake becomes one line and exit status 1; anything else keeps its traceback."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        raise click.ClickException(str(error)) from error
    except RuntimeError as error:
        if type(error).__name__ != "TrainingError":
            raise
        raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def _session(float32: bool, device: str | None) -> Iterator[None]:
    """TensorFlow, imported quietly, with the precision and on the device asked for."""
    with _quiet_import():
        import gpflow
        import numpy as np
        import tensorflow as tf
    precision = gpflow.config.Config(float=np.float32 if float32 else np.float64)
    if float32:
        # on recent GPUs TensorFloat-32 would round products to 10 bits
        tf.config.experimental.enable_tensor_float_32_execution(False)
    placement = tf.device(_known_device(device)) if device else contextlib.nullcontext()
    with gpflow.config.as_context(precision), placement:
        yield


def _known_device(device: str) -> str:
    import tensorflow as tf

    names = [d.name.removeprefix("/physical_device:") for d in tf.config.list_physical_devices()]
    wanted = device.upper().lstrip("/")
    if wanted not in names and f"{wanted}:0" not in names:
        raise ValueError(f"device {device!r} is not here; this machine has {', '.join(names)}.")
    return f"/{wanted}"


@contextlib.contextmanager
def _quiet_import() -> Iterator[None]:
    """Hide what TensorFlow's start-up writes to standard error; show it if the import fails."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        except BaseException:
            captured.seek(0)
            os.write(saved, captured.read())
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)


if __name__ == "__main__":
    main()
