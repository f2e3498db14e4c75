"""One function, two finite bases, two kinds of observations.

A function of two inputs is seen through noise (regression) or by its sign alone (classification).
Both times f is a weighted sum of basis functions: eigenfunctions of the kernel on a grid, or random
Fourier features of it. ``BasisGPR`` has the exact posterior of the weights for Gaussian noise,
trains the kernel by the exact evidence of the finite sum and streams its data; ``BasisSVGP`` takes
any likelihood and minibatches. Any basis goes into any of the two.

    python examples/basis.py --output basis.png
"""

from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np

import gpflow_sparse as gs
from _frame import (
    draw_surface,
    maximize,
    new_figure,
    option,
    print_numbers,
    run,
    save_figure,
    square,
)

LIMIT = 2.0  # inputs are within +- this
SIDE = 40  # points per side of the grid where models are scored
TITLES = {"grid": "eigenfunctions on a grid", "fourier": "random Fourier features"}


@dataclass(frozen=True)
class Config:
    """Regression and classification with two finite bases."""

    num_data: int = option(2000, "N, rows.")
    noise: float = option(0.3, "Standard deviation of the noise on y.")
    num_basis: int = option(100, "Functions in each basis, even.")
    num_steps: int = option(300, "Minibatch steps; L-BFGS has a tenth of that number.")
    batch_size: int = option(200, "Rows per step.")
    seed: int = option(0, "Seed of data, frequencies and batches.")
    output: str | None = option(None, "Figure to write.")


def function(X: np.ndarray) -> np.ndarray:
    """The function behind the data, ``[N, 1]``."""
    return np.sin(2.0 * X[:, :1]) + np.cos(3.0 * X[:, 1:] + X[:, :1])


def make_data(config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X [N, 2], Y [N, 1] with Gaussian noise, and labels [N, 1], 1 where that Y is positive."""
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(-LIMIT, LIMIT, size=(config.num_data, 2))
    Y = function(X) + config.noise * rng.standard_normal((len(X), 1))
    return X, Y, (Y > 0.0).astype(float)


def build_basis(name: str, X: np.ndarray, config: Config) -> gs.bases.FiniteBasis:
    """Around a kernel of its own, which is trained through it."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])
    if name == "grid":
        return gs.bases.GridEigenfunctions(kernel, X, config.num_basis, points_per_dimension=15)
    return gs.bases.RandomFourier(kernel, config.num_basis, seed=config.seed)


def fit_regression(basis: gs.bases.FiniteBasis, data: Any, config: Config) -> gs.models.BasisGPR:
    """Kernel and noise by the exact evidence, the choice of functions as it was made."""
    model = gs.models.BasisGPR(data, basis, noise_variance=0.1)
    maximize(model, max(1, config.num_steps // 10))
    return model


def fit_classes(basis: gs.bases.FiniteBasis, data: Any, config: Config) -> gs.models.BasisSVGP:
    """Kernel and q by minibatches, natural gradients for q."""
    model = gs.models.BasisSVGP(basis, gpflow.likelihoods.Bernoulli(), num_data=len(data[0]))
    gs.training.fit(
        model,
        data,
        num_steps=config.num_steps,
        batch_size=min(config.batch_size, len(data[0])),
        natural_gradients=True,
        progress=False,
        seed=config.seed,
    )
    return model


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Fit both models with both bases; print one line; draw if asked to.

    :return: for each basis the ``evidence`` of the regression and the ``elbo`` of the
        classification per row, in nats; the ``rmse`` of the regression against the function, and
        the ``error`` rate of the sign of the function.
    """
    X, Y, labels = make_data(config)
    test, numbers, surfaces = square(LIMIT, SIDE), {}, {}
    for name in TITLES:
        regression = fit_regression(build_basis(name, X, config), (X, Y), config)
        classes = fit_classes(build_basis(name, X, config), (X, labels), config)
        mean = regression.predict_f(test)[0].numpy()
        probability = classes.predict_y(test)[0].numpy()
        numbers[name] = {
            "evidence": float(regression.log_marginal_likelihood()) / len(X),
            "rmse": gs.data.metrics.rmse(function(test), mean),
            "elbo": float(classes.elbo((X, labels))) / len(X),
            "error": float(np.mean((probability > 0.5) != (function(test) > 0.0))),
        }
        surfaces[name] = (mean, probability)
    print_numbers(numbers, ".3f")
    if config.output is not None:
        draw(config, surfaces, numbers)
    return numbers


def draw(
    config: Config,
    surfaces: dict[str, tuple[np.ndarray, np.ndarray]],
    numbers: dict[str, dict[str, float]],
) -> None:
    """The mean of the regression above the probability of class 1, the sign's boundary in both."""
    figure = new_figure(8.6, 7.4)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    x = np.linspace(-LIMIT, LIMIT, SIDE)
    truth = function(square(LIMIT, SIDE)).reshape(SIDE, SIDE)
    limits = ((-2.0, 2.0), (0.0, 1.0))
    for column, (name, title) in enumerate(TITLES.items()):
        scores = (f"rmse {numbers[name]['rmse']:.3f}", f"error {numbers[name]['error']:.3f}")
        for row, values in enumerate(surfaces[name]):
            panel = panels[row, column]
            image = draw_surface(panel, values, LIMIT, *limits[row])
            panel.contour(x, x, truth, levels=[0.0], colors="black", linewidths=0.9)
            panel.set_title(title if row == 0 else "", fontsize=10, loc="left")
            panel.set_title(scores[row], fontsize=9, loc="right", color="0.35")
            if column == 1:
                label = ("mean of f", "probability of class 1")[row]
                figure.colorbar(image, ax=panels[row], label=label, shrink=0.8)
    save_figure(figure, config.output, *panels.flat)


if __name__ == "__main__":
    run(main, Config)
