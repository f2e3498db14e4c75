"""Memory and time of training on tables that are read from files, against the number of rows."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf

from bench.steps import Row, Step, Tables, measure_memory
from gpflow_sparse import data, models, training
from gpflow_sparse.data import Shards, robot_arm
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables

_FILE_ROWS = 250_000
Train = Callable[[Shards], Any]


def large(
    num_data: Sequence[int],
    num_inducing: int,
    batch_size: int,
    input_dim: int,
    folder: Path | None = None,
) -> Tables:
    """
    Folders of Parquet files of so many rows, made for it and removed in the end: their conversion;
    one pass by minibatches of SOLVE-GP and of SoftKI, whose posterior of the weights takes another
    pass; and one evaluation of GRIEF's bound with its gradient, which reads all rows three times.

    Each in a process of its own. ``peak`` is the largest resident memory, in units of 2^20 bytes,
    above that of the process with TensorFlow imported; ``ratio`` that over the first one. Seconds
    of the others are those after the conversion, tracing included.

    :param num_data: numbers of rows, increasing.
    :param num_inducing: M points, in SOLVE-GP M2 of as many too, and functions of GRIEF.
    :param folder: folder for the files, which may hold complete ones of an interrupted run.
    """
    place = Path(tempfile.mkdtemp()) if folder is None else folder
    sizes = [(place / f"rows-{count}", count) for count in num_data]
    rows: list[Row] = []
    try:
        for made, count in sizes:
            make_folder(made, count, input_dim)
            for row in _measured(made, num_inducing, batch_size):
                same = [r for r in rows if r["title"] == row["title"]]
                row["ratio"] = row["peak"] / (same or [row])[0]["peak"]
                rows.append(row)
                click.echo(str(row), err=True)
    finally:
        for made, _ in sizes:
            shutil.rmtree(made, ignore_errors=True)
        if folder is None:
            place.rmdir()
    return {"rows": rows}


def _measured(folder: Path, num_inducing: int, batch_size: int) -> Iterator[Row]:
    options: dict[str, Any] = {"num_inducing": num_inducing, "batch_size": batch_size}
    works: dict[str, Train] = {
        "conversion": repr,
        "SOLVE-GP": partial(train_solvegp, **options),
        "SoftKI": partial(train_softki, **options),
        "GRIEF": partial(evaluate_grief, **options),
    }
    for title, train in works.items():
        build = partial(_build, train=train)
        found = measure_memory(title, partial(_prepared, folder), build, 1)
        num_rows = open_folder(folder).num_rows
        yield found | {"num_rows": num_rows, "rows per second": num_rows / found["seconds"]}


def make_folder(folder: Path, num_rows: int, input_dim: int) -> None:
    """Rows of robot arms in Parquet files, the output last; complete files are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, num_rows, _FILE_ROWS):
        path = folder / f"part-{start // _FILE_ROWS:05d}.parquet"
        if not path.is_file():
            count = min(_FILE_ROWS, num_rows - start)
            made = np.hstack(robot_arm(count, input_dim, seed=start // _FILE_ROWS))
            partial_file = path.with_suffix(".partial")
            pd.DataFrame(made).rename(columns="c{}".format).to_parquet(partial_file)
            partial_file.rename(path)


def open_folder(folder: Path) -> Shards:
    """The rows of :func:`make_folder`."""
    return data.open_shards(folder)


def train_solvegp(shards: Shards, num_inducing: int, batch_size: int) -> None:
    """One pass in minibatches, with natural gradients."""
    Z, O = np.split(_some_rows(shards, 2 * num_inducing), 2)
    sets = OrthogonalInducingVariables(Z, O)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    model = models.SOLVEGP(_kernel(Z), likelihood, sets, num_data=shards.num_rows)
    options: dict[str, Any] = {"batch_size": batch_size, "num_epochs": 1}
    training.fit(model, shards.data, natural_gradients=True, progress=False, **options)


def train_softki(shards: Shards, num_inducing: int, batch_size: int) -> None:
    """One pass in minibatches, and one for the posterior of the weights."""
    Z = _some_rows(shards, num_inducing)
    model = models.SoftKI(_kernel(Z), Z, noise_variance=0.1, num_data=shards.num_rows)
    training.fit(model, shards.data, batch_size=batch_size, num_epochs=1, progress=False)
    model.fit_posterior(shards.data)


def evaluate_grief(shards: Shards, num_inducing: int, batch_size: int) -> None:
    """The bound and its gradient, once."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(shards.X.shape[1], 5.0))
    model = models.GRIEF(
        shards.data,
        kernel,
        num_eigenfunctions=num_inducing,
        points_per_dimension=5,
        noise_variance=0.1,
    )

    @tf.function(autograph=False)
    def evaluate() -> tuple[tf.Tensor, Any]:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return loss, tape.gradient(loss, model.trainable_variables)

    evaluate()


def _prepared(folder: Path) -> tuple[Path]:
    return (folder,)


def _build(folder: Path, *, train: Train) -> Step:
    return lambda: train(open_folder(folder))


def _kernel(Z: np.ndarray) -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(lengthscales=np.full(Z.shape[1], 2.0))


def _some_rows(shards: Shards, count: int) -> np.ndarray:
    """Inputs of random rows."""
    return shards.hold_out(count)[1][0]
