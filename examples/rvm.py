"""A relevance vector machine of 500 functions, trained by steps that see fewer of them.

Noisy values of ``sin(x) / x``, and a kernel function around every input. Each weight has a prior
precision of its own; those of most weights grow without bound, and the few that do not mark the
relevance vectors. A step sees 100 rows and two draws of 240 functions.

Evans and Nair, "Quadruply Stochastic Gaussian Processes" (2020), figure 3. They give neither the
domain, the noise nor the kernel: we take [-10, 10], a standard deviation of 0.1, and a squared
exponential of lengthscale 1.5, which is fixed. Their covariance has ten dense columns, see
``--num-dense-columns``.

    python examples/rvm.py --output rvm.png
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_sparse as gs

LIMIT = 10.0  # inputs are within +- this


@dataclass(frozen=True)
class Config:
    """What a run depends on."""

    num_data: int = 500  # N, rows and centers
    noise: float = 0.1  # standard deviation of the noise on y
    lengthscale: float = 1.5  # of the kernel
    num_dense_columns: int = 0  # of the covariance; 0 for a diagonal
    num_steps: int = 2000
    batch_size: int = 100  # rows per step
    basis_batch_size: int = 240  # functions in each of two draws
    num_support: int = 250  # rows where the mean is kept exactly
    learning_rate: float = 0.01  # at the start; it falls to 0
    seed: int = 0  # of data, batches and draws
    output: Path | None = None  # figure to write


def function(X: np.ndarray) -> np.ndarray:
    """The function behind the data, ``[N, 1]``."""
    return np.sinc(X / np.pi)


def make_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 1] evenly spaced, Y [N, 1] the function with Gaussian noise."""
    rng = np.random.default_rng(config.seed)
    X = np.linspace(-LIMIT, LIMIT, config.num_data)[:, None]
    return X, function(X) + config.noise * rng.normal(size=X.shape)


def build_model(X: np.ndarray, config: Config) -> gs.models.RVM:
    """Kernel fixed, noise trained from its true value."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=config.lengthscale)
    gpflow.set_trainable(kernel, False)
    rows = np.random.default_rng(config.seed).permutation(X)
    return gs.models.RVM(
        X,
        kernel,
        gpflow.likelihoods.Gaussian(config.noise**2),
        num_data=len(X),
        basis_batch_size=config.basis_batch_size,
        covariance="chevron" if config.num_dense_columns else "diag",
        num_dense_columns=config.num_dense_columns,
        support=rows[: config.num_support],
    )


def train(model: gs.models.RVM, data: tuple[np.ndarray, np.ndarray], config: Config) -> float:
    """:return: seconds."""
    tf.random.set_seed(config.seed)  # of the draws of functions
    rate = tf_keras.optimizers.schedules.CosineDecay(config.learning_rate, config.num_steps)
    start = time.perf_counter()
    gs.training.fit(
        model,
        data,
        optimizer=gs.training.SparseAdam(rate),
        num_steps=config.num_steps,
        batch_size=min(config.batch_size, len(data[0])),
        seed=config.seed,
        progress=False,
    )
    return time.perf_counter() - start


def main(config: Config) -> dict[str, float]:
    """
    Train, drop what is not relevant, print one line; draw if asked to.

    :return: ``rmse`` of the mean against the function, ``vectors``, how many are relevant,
        ``noise``, the standard deviation that was found, and ``seconds`` of training; ``pruned``
        is the RMSE of the model without the other functions.
    """
    data = make_data(config)
    model = build_model(data[0], config)
    seconds = train(model, data, config)
    truth, small = function(data[0]), model.prune()
    numbers = {
        "rmse": gs.data.metrics.rmse(truth, model.predict_f(data[0])[0]),
        "vectors": len(model.relevance_vectors()),
        "pruned": gs.data.metrics.rmse(truth, small.predict_f(data[0])[0]),
        "noise": float(np.sqrt(model.likelihood.variance)),
        "seconds": seconds,
    }
    print(
        "rmse={rmse:.3f}  vectors={vectors}  pruned={pruned:.3f}  noise={noise:.3f}  "
        "seconds={seconds:.0f}".format(**numbers)
    )
    if config.output is not None:
        draw(config, data, model)
    return numbers


def draw(config: Config, data: tuple[np.ndarray, np.ndarray], model: gs.models.RVM) -> None:
    """Data, mean, one standard deviation of y to each side, and the relevance vectors."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    X = np.linspace(-1.1 * LIMIT, 1.1 * LIMIT, 400)[:, None]
    mean, variance = (np.asarray(part)[:, 0] for part in model.predict_y(X))
    sd = np.sqrt(variance)
    axes.fill_between(X[:, 0], mean - sd, mean + sd, color="#1f5f99", alpha=0.2, lw=0)
    axes.plot(X, mean, color="#1f5f99", lw=1.6, label="mean and one standard deviation of y")
    axes.plot(X, function(X), "k--", lw=0.9, label="the function")
    axes.plot(*data, "k.", ms=2, alpha=0.6)
    vectors = model.relevance_vectors()
    at = model.predict_f(vectors)[0]
    axes.plot(vectors, at, "o", color="#c4501b", ms=6, label=f"{len(vectors)} relevance vectors")
    axes.set(xlabel="x", ylabel="y")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(config.output, dpi=110)


@click.command(help="A relevance vector machine on a noisy sinc.")
@click.option("--num-data", default=Config.num_data, show_default=True, help="Rows and centers.")
@click.option("--noise", default=Config.noise, show_default=True, help="Noise std of y.")
@click.option("--lengthscale", default=Config.lengthscale, show_default=True, help="Of the kernel.")
@click.option(
    "--num-dense-columns",
    default=Config.num_dense_columns,
    show_default=True,
    help="Of the covariance; 0 for a diagonal.",
)
@click.option("--num-steps", default=Config.num_steps, show_default=True, help="Training steps.")
@click.option("--batch-size", default=Config.batch_size, show_default=True, help="Rows per step.")
@click.option(
    "--basis-batch-size", default=Config.basis_batch_size, show_default=True, help="Functions."
)
@click.option("--num-support", default=Config.num_support, show_default=True, help="Support rows.")
@click.option(
    "--learning-rate", default=Config.learning_rate, show_default=True, help="At the start."
)
@click.option("--seed", default=Config.seed, show_default=True, help="Data, batches, draws.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Figure to write.")
def cli(**options: Any) -> None:
    main(Config(**options))


if __name__ == "__main__":
    cli()
