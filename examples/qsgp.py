"""QSGP: variances of a small dictionary with and without augmentation; then 1e5 functions.

Left: 20 noisy values of ``sin(x) / x`` and a kernel function around each. Mean and covariance are
set in closed form. The mean is that of the exact GP, and a diagonal covariance is close to it at
the data. Beyond them the variance goes to zero, unless each test point adds a function of its own.
Evans and Nair, "Quadruply Stochastic Gaussian Processes" (2020), figure 2; they give neither
domain, noise nor kernel.

Right: 20,000 rows and 1e5 functions in single precision, 100 around inducing points and the others
random Fourier features. A step sees 250 rows and two draws of 2,000 functions; all hyperparameters
are trained.

    python examples/qsgp.py --output qsgp.png
"""

import time
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_sparse as gs
from _frame import BLUE, RED, new_figure, option, print_numbers, run, save_figure

LIMIT = 6.0  # inputs of the first part are within +- this
NUM_TEST = 500  # rows of the second part on which it is scored


@dataclass(frozen=True)
class Config:
    """Variances with and without augmentation; a regression with 1e5 functions."""

    num_small: int = option(20, "Rows and centers on the left.")
    noise: float = option(0.1, "Standard deviation of the noise on y, in both parts.")
    num_data: int = option(20_000, "N, rows on the right.")
    num_columns: int = option(4, "D, input columns on the right.")
    num_inducing: int = option(100, "Functions around inducing points, part of every step.")
    num_features: int = option(99_900, "Random Fourier features, which are sampled.")
    basis_batch_size: int = option(2000, "Features in each of the two draws of a step.")
    batch_size: int = option(250, "Rows per step.")
    num_support: int = option(250, "Rows where the mean is kept exactly.")
    num_steps: int = option(400, "Training steps.")
    learning_rate: float = option(0.1, "Rate of Adagrad for the weights at the start.")
    dense_rate: float = option(0.05, "Rate of Adam for the hyperparameters at the start.")
    seed: int = option(0, "Seed of data, frequencies, batches and draws.")
    output: str | None = option(None, "Figure to write.")


def sinc_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 1] evenly spaced, Y [N, 1] with Gaussian noise."""
    rng = np.random.default_rng(config.seed)
    X = np.linspace(-LIMIT, LIMIT, config.num_small)[:, None]
    return X, np.sinc(X / np.pi) + config.noise * rng.normal(size=X.shape)


def small_models(config: Config) -> dict[str, gpflow.models.GPModel]:
    """The exact GP, and a dictionary with and without augmentation at its best q."""
    X, Y = sinc_data(config)
    kernel, variance = gpflow.kernels.SquaredExponential(), config.noise**2
    models: dict[str, Any] = {"exact": gpflow.models.GPR((X, Y), kernel, noise_variance=variance)}
    K = kernel(X).numpy()
    for name, augmentation in (("plain", None), ("augmented", X)):
        model = gs.models.QSGP(
            gs.bases.KernelDictionary(kernel, X),
            gpflow.likelihoods.Gaussian(variance),
            num_data=len(X),
            basis_batch_size=len(X),
            augmentation=augmentation,
        )
        # where steps lead; with 20 rows there is no need of any
        model.q_mu.assign(np.linalg.solve(K + variance * np.eye(len(X)), Y))
        model.update_covariance(X)
        models[name] = model
    return models


def line() -> np.ndarray:
    """Where the models of the first part are scored and drawn."""
    return np.linspace(-2.0 * LIMIT, 2.0 * LIMIT, 241)[:, None]


def function(X: np.ndarray) -> np.ndarray:
    """The function behind the data of the second part, ``[N, 1]``."""
    return np.sin(1.5 * X[:, :1]) + np.cos(X[:, 1:2]) * np.tanh(X[:, -1:])


def large_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """X [N, D] standard normal, Y [N, 1] with Gaussian noise, in single precision."""
    rng = np.random.default_rng(config.seed)
    X = rng.normal(size=(config.num_data, config.num_columns))
    Y = function(X) + config.noise * rng.normal(size=(len(X), 1))
    return X.astype(np.float32), Y.astype(np.float32)


def build_large(X: np.ndarray, config: Config) -> gs.models.QSGP:
    """To be called, trained and asked with float32 as GPflow's default."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], 2.0))
    Z = X[np.random.default_rng(config.seed).permutation(len(X))[: config.num_inducing]]
    basis = gs.bases.Hybrid(kernel, Z, config.num_features, seed=config.seed)
    return gs.models.QSGP(
        basis,
        gpflow.likelihoods.Gaussian(0.1),
        num_data=len(X),
        basis_batch_size=config.basis_batch_size,
        num_support=config.num_support,
    )


def train(model: gs.models.QSGP, data: tuple[np.ndarray, np.ndarray], config: Config) -> float:
    """:return: seconds."""
    decay = tf_keras.optimizers.schedules.CosineDecay
    tf.random.set_seed(config.seed)  # of the draws of functions
    start = time.perf_counter()
    gs.training.fit(
        model,
        data,
        optimizer=gs.training.SparseAdagrad(
            decay(config.learning_rate, config.num_steps),
            dense=gs.training.adam(config.dense_rate, decay_steps=config.num_steps),
        ),
        num_steps=config.num_steps,
        batch_size=config.batch_size,
        seed=config.seed,
        progress=False,
    )
    # the best covariance, from rows that stand for all
    model.update_covariance(data[0][: 10 * config.num_inducing])
    return time.perf_counter() - start


def run_large(config: Config) -> tuple[dict[str, float], tuple[np.ndarray, ...]]:
    """
    Train the second model.

    :return: its numbers; and where it was asked along the first column, with the answers.
    """
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        data = large_data(config)
        model = build_large(data[0], config)
        seconds = train(model, data, config)
        Xnew = np.random.default_rng(config.seed + 1).normal(size=(NUM_TEST, config.num_columns))
        mean, variance = model.predict_f(Xnew.astype(np.float32))
        error = function(Xnew) - mean.numpy()
        cut = np.zeros((201, config.num_columns))
        cut[:, 0] = np.linspace(-3.0, 3.0, len(cut))
        found = (part.numpy() for part in model.predict_f(cut.astype(np.float32)))
        numbers = {
            "rmse": float(np.sqrt(np.mean(error**2))),
            "coverage": float(np.mean(np.abs(error) < 1.96 * np.sqrt(variance))),
            "noise": float(np.sqrt(model.likelihood.variance)),
            "seconds": seconds,
        }
        return numbers, (cut, *found)


def main(config: Config) -> dict[str, float]:
    """
    Both parts; print one line; draw if asked to.

    :return: ``mean``, the largest difference of the dictionary's mean from that of the exact GP;
        ``..._far``, standard deviations of f twice as far out as the data; then of the second part
        ``rmse`` of the mean against the function, the share of its values in the central 95 %
        interval of f, the standard deviation of the noise that was found, and seconds.
    """
    models = small_models(config)
    answers = {name: [p.numpy() for p in model.predict_f(line())] for name, model in models.items()}
    gap = np.abs(answers["plain"][0] - answers["exact"][0]).max()
    numbers = {"mean": float(gap)}
    numbers |= {f"{name}_far": float(np.sqrt(v[-1, 0])) for name, (_, v) in answers.items()}
    large, cut = run_large(config)
    numbers |= large
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, answers, cut)
    return numbers


def draw(config: Config, answers: dict[str, Any], cut: tuple[np.ndarray, ...]) -> None:
    """Bands are two standard deviations of f to each side."""
    figure = new_figure(11.0, 3.9)
    left, right = figure.subplots(1, 2)
    styles = {
        "exact": ("exact GP", "black", "--"),
        "augmented": ("QSGP, augmented", BLUE, "-"),
        "plain": ("QSGP", RED, "-"),
    }
    x = line()[:, 0]
    left.plot(x, answers["exact"][0], color="0.5", lw=1.2)
    for name, (label, color, style) in styles.items():
        mean, sd = answers[name][0][:, 0], np.sqrt(answers[name][1][:, 0])
        left.plot(x, mean + 2.0 * sd, style, color=color, lw=1.2, label=label)
        left.plot(x, mean - 2.0 * sd, style, color=color, lw=1.2)
    left.plot(*sinc_data(config), "kx", ms=4)
    left.set_title("20 rows, 20 functions", fontsize=10, loc="left")
    left.legend(frameon=False, fontsize=9, loc="lower center", ncols=3)
    left.set(xlabel="x", ylim=(-3.0, 2.6))
    X, mean, variance = cut
    sd = np.sqrt(variance[:, 0])
    right.fill_between(
        X[:, 0], mean[:, 0] - 2.0 * sd, mean[:, 0] + 2.0 * sd, color=BLUE, alpha=0.2, lw=0
    )
    right.plot(X[:, 0], mean, color=BLUE, lw=1.4, label="QSGP")
    right.plot(X[:, 0], function(X), "k--", lw=0.9, label="the function")
    count = config.num_inducing + config.num_features
    right.set_title(f"{config.num_data:,} rows, {count:,} functions", fontsize=10, loc="left")
    right.legend(frameon=False, fontsize=9)
    right.set(xlabel="$x_1$, all others zero")
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
