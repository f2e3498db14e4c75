"""A deep GP on a curve of three steps: one layer against two.

A stationary kernel has one lengthscale for the whole line: short enough for the steps, it bends
where the curve is flat, and too long for them, it overshoots. A deep GP first maps the line to
hidden values, which are far apart on both sides of a step and close together between steps, and
puts a stationary GP on these. The last layer of both models has two orthogonal sets of inducing
points; the hidden layer starts at the identity. Salimbeni and Deisenroth, "Doubly Stochastic
Variational Inference for Deep Gaussian Processes" (2017, arXiv:1705.08933).

    python examples/deep.py --output deep.png
"""

from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs
from _frame import (
    draw_band,
    legend_below,
    mean_and_std,
    new_figure,
    option,
    print_numbers,
    run,
    save_figure,
)

LIMIT = 3.0  # inputs are within +- this
NUM_TEST = 1000
TITLES = {"shallow": "SOLVE-GP, one layer", "deep": "deep GP, two layers"}


@dataclass(frozen=True)
class Config:
    """One layer and two on a curve of three steps."""

    num_data: int = option(120, "N, rows.")
    noise: float = option(0.05, "Standard deviation of the noise on y.")
    num_inducing: int = option(15, "M, points of the base set of each layer.")
    num_orthogonal: int = option(15, "M2, points of the orthogonal set of the last layer.")
    num_samples: int = option(2, "Draws of the hidden values for each row of a step.")
    num_steps: int = option(1000, "Training steps on all rows.")
    learning_rate: float = option(0.02, "Rate of Adam at the start; it falls to 0.")
    seed: int = option(0, "Seed of data, inducing points and draws.")
    output: str | None = option(None, "Figure to write.")


def curve(x: np.ndarray) -> np.ndarray:
    """The function behind the data: three levels."""
    return np.select([x < -1.0, x < 0.3], [0.0, 1.0], -0.5)


def make_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 1] uniform, Y [N, 1] the curve with Gaussian noise."""
    rng = np.random.default_rng(config.seed)
    X = np.sort(rng.uniform(-LIMIT, LIMIT, size=(config.num_data, 1)), axis=0)
    return X, curve(X) + config.noise * rng.standard_normal(X.shape)


def build_models(X: np.ndarray, config: Config) -> dict[str, Any]:
    """The last layer alone, and behind a hidden layer that starts near the identity."""
    return {
        name: gs.models.deep(
            X,
            gpflow.likelihoods.Gaussian(0.1),
            num_inducing=config.num_inducing,
            num_orthogonal=[*[0] * (num_layers - 1), config.num_orthogonal],
            num_layers=num_layers,
            kernel=gpflow.kernels.SquaredExponential(),
            num_samples=config.num_samples,
            num_prediction_samples=100,
            seed=config.seed,
        )
        for num_layers, name in enumerate(TITLES, 1)
    }


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Train both models; print one line; draw if asked to.

    :return: of "shallow" and "deep" on new rows: ``rmse`` of the mean against the curve, ``nlpd``
        of noisy values, and ``noise``, the standard deviation that was found.
    """
    data = make_data(config)
    test = np.linspace(-LIMIT, LIMIT, NUM_TEST)[:, None]
    rng = np.random.default_rng(config.seed + 1)
    noisy = curve(test) + config.noise * rng.standard_normal(test.shape)
    tf.random.set_seed(config.seed)  # of the draws of hidden values
    models, numbers = build_models(data[0], config), {}
    for name, model in models.items():
        gs.training.fit(
            model,
            data,
            optimizer=gs.training.adam(config.learning_rate, decay_steps=config.num_steps),
            num_steps=config.num_steps,
            batch_size=len(data[0]),
            seed=config.seed,
            progress=False,
        )
        numbers[name] = {
            "rmse": gs.data.metrics.rmse(curve(test)[:, 0], mean_and_std(model, test)[0]),
            "nlpd": -float(np.mean(model.predict_log_density((test, noisy)))),
            "noise": float(np.sqrt(model.likelihood.variance)),
        }
    print_numbers(numbers, ".3f")
    if config.output is not None:
        draw(config, data, models, numbers)
    return numbers


def draw(
    config: Config,
    data: tuple[np.ndarray, np.ndarray],
    models: dict[str, Any],
    numbers: dict[str, dict[str, float]],
) -> None:
    """Both models over the data, and the hidden values of the deep one."""
    x = np.linspace(-LIMIT, LIMIT, 600)[:, None]
    figure = new_figure(11.0, 3.8)
    *panels, right = figure.subplots(1, 3)
    for panel, (name, model) in zip(panels, models.items(), strict=True):
        panel.plot(*data, ".", color="0.6", ms=3, mec="none", label="data")
        draw_band(panel, x, model, 2, "mean and 2 sd of f")
        panel.plot(x, curve(x), color="0.15", lw=0.8, ls=(0, (4, 3)), label="the curve")
        panel.set_title(TITLES[name], fontsize=10, loc="left")
        score = f"rmse {numbers[name]['rmse']:.3f}, nlpd {numbers[name]['nlpd']:.2f}"
        panel.set_title(score, fontsize=9, loc="right", color="0.35")
        panel.set(xlabel="x", ylim=(-0.95, 1.45))
    hidden = models["deep"].layers[0]
    alone = gs.models.SOLVEGP(
        hidden.kernel,
        gpflow.likelihoods.Gaussian(),
        hidden.inducing_variable,
        mean_function=hidden.mean_function,
        q_mu=hidden.q_mu,
        q_sqrt=hidden.q_sqrt,
    )
    draw_band(right, x, alone, 2, None)
    right.plot(x, x, color="0.15", lw=0.8, ls=":")
    right.set_title("hidden values, and the identity", fontsize=10, loc="left")
    right.set_xlabel("x")
    legend_below(figure, panels[0])
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
