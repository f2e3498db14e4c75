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

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_sparse as gs
from _frame import BLUE, RED, new_figure, option, print_numbers, run, save_figure

LIMIT = 10.0  # inputs are within +- this


@dataclass(frozen=True)
class Config:
    """A relevance vector machine on a noisy sinc."""

    num_data: int = option(500, "N, rows and centers.")
    noise: float = option(0.1, "Standard deviation of the noise on y.")
    lengthscale: float = option(1.5, "Lengthscale of the kernel.")
    num_dense_columns: int = option(0, "Dense columns of the covariance; 0 for a diagonal.")
    num_steps: int = option(2000, "Training steps.")
    batch_size: int = option(100, "Rows per step.")
    basis_batch_size: int = option(240, "Functions in each of the two draws of a step.")
    num_support: int = option(250, "Rows where the mean is kept exactly.")
    learning_rate: float = option(0.01, "Rate of Adagrad at the start; it falls to 0.")
    seed: int = option(0, "Seed of data, batches and draws.")
    output: str | None = option(None, "Figure to write.")


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
    model.refine(data)
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
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, data, model)
    return numbers


def draw(config: Config, data: tuple[np.ndarray, np.ndarray], model: gs.models.RVM) -> None:
    """Data, mean, one standard deviation of y to each side, and the relevance vectors."""
    figure = new_figure(8.6, 3.9)
    axes = figure.subplots()
    X = np.linspace(-1.1 * LIMIT, 1.1 * LIMIT, 400)[:, None]
    mean, variance = (np.asarray(part)[:, 0] for part in model.predict_y(X))
    sd = np.sqrt(variance)
    axes.fill_between(X[:, 0], mean - sd, mean + sd, color=BLUE, alpha=0.2, lw=0)
    axes.plot(X, mean, color=BLUE, lw=1.6, label="mean and one standard deviation of y")
    axes.plot(X, function(X), "k--", lw=0.9, label="the function")
    axes.plot(*data, "k.", ms=2, alpha=0.6)
    vectors = model.relevance_vectors()
    at = model.predict_f(vectors)[0]
    axes.plot(vectors, at, "o", color=RED, ms=6, label=f"{len(vectors)} relevance vectors")
    axes.set(xlabel="x", ylabel="y")
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
