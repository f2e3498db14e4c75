"""ODVGP between SVGP and SOLVE-GP: what more points for the mean do, and what they leave.

Kernel, noise and Z are the same in all three models and stay fixed, so that the models differ by
the points of O alone: none (SVGP), O for the mean (ODVGP), O for mean and covariance (SOLVE-GP).
With Gaussian noise the best means of ODVGP and SOLVE-GP are then the same, that of SVGP on all
points, and the best covariance of ODVGP is that of SVGP on Z: the mean improves, the variance does
not. Shi, Titsias and Mnih (2020, arXiv:1910.10596v5), section 5 and figure 2(b).

    python examples/odvgp.py --output odvgp.png
"""

from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np

import gpflow_sparse as gs
from _frame import (
    draw_band,
    draw_inducing_points,
    legend_below,
    maximize,
    mean_and_std,
    new_figure,
    option,
    print_numbers,
    run,
    save_figure,
)


@dataclass(frozen=True)
class Config:
    """Compare SVGP, ODVGP and SOLVE-GP on a curve, all but q fixed."""

    num_data: int = option(200, "N, rows.")
    noise: float = option(0.25, "Standard deviation of the noise on y.")
    lengthscale: float = option(0.5, "Lengthscale of the kernel; its variance is 1.")
    num_inducing: int = option(6, "M, rows of Z.")
    num_orthogonal: int = option(12, "M2, rows of O.")
    num_steps: int = option(150, "L-BFGS iterations per model, at most.")
    seed: int = option(0, "Seed of the data and of the inducing points.")
    output: str | None = option(None, "Figure to write.")


def curve(x: np.ndarray) -> np.ndarray:
    """The function behind the data."""
    return np.sin(2.5 * x) + 0.6 * np.sin(4.7 * x + 0.5)


def make_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 1] uniform on [0, 6], Y [N, 1] the curve with Gaussian noise."""
    rng = np.random.default_rng(config.seed)
    X = np.sort(rng.uniform(0.0, 6.0, size=(config.num_data, 1)), axis=0)
    return X, curve(X) + config.noise * rng.standard_normal(X.shape)


def build_models(X: np.ndarray, config: Config) -> dict[str, gpflow.models.GPModel]:
    """Three models whose q alone is trainable, on the same Z."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=config.lengthscale)
    likelihood = gpflow.likelihoods.Gaussian(config.noise**2)
    Z = gs.initialization.kmeans(X, config.num_inducing, seed=config.seed)
    O = gs.initialization.greedy_orthogonal(X, Z, config.num_orthogonal, kernel, seed=config.seed)
    sets = gs.inducing_variables.OrthogonalInducingVariables(Z, O)
    models = {
        "svgp": gpflow.models.SVGP(kernel, likelihood, Z),
        "odvgp": gs.models.ODVGP(kernel, likelihood, sets),
        "solvegp": gs.models.SOLVEGP(kernel, likelihood, sets),
    }
    for model in models.values():
        for part in (model.kernel, model.likelihood, model.inducing_variable):
            gpflow.set_trainable(part, False)
    return models


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Fit q of the three models; print one line; draw if asked to.

    :return: for each model its ``bound`` in nats, the ``rmse`` of its mean against the curve, and
        its mean standard deviation ``sd`` of f, both at the inputs of the data.
    """
    X, Y = make_data(config)
    models = build_models(X, config)
    numbers = {}
    for name, model in models.items():
        maximize(model, config.num_steps, (X, Y))
        mean, std = mean_and_std(model, X)
        numbers[name] = {
            "bound": float(model.elbo((X, Y))),
            "rmse": gs.data.metrics.rmse(curve(X), mean[:, None]),
            "sd": float(std.mean()),
        }
    print_numbers(numbers, ".3f")
    if config.output is not None:
        draw(config, (X, Y), models, numbers)
    return numbers


def draw(
    config: Config,
    data: tuple[np.ndarray, np.ndarray],
    models: dict[str, gpflow.models.GPModel],
    numbers: dict[str, dict[str, float]],
) -> None:
    """One panel per model, the curve behind the data in each."""
    M, M2 = config.num_inducing, config.num_orthogonal
    titles = {
        "svgp": f"SVGP, {M}",
        "odvgp": f"ODVGP, {M} + {M2}",
        "solvegp": f"SOLVE-GP, {M} + {M2}",
    }
    figure = new_figure(11.0, 3.8)
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    for panel, (name, model) in zip(panels, models.items(), strict=True):
        draw_panel(panel, data, model)
        panel.set_title(titles[name], fontsize=10, loc="left")
        found = f"rmse {numbers[name]['rmse']:.3f}, sd {numbers[name]['sd']:.3f}"
        panel.set_title(found, fontsize=9, loc="right", color="0.35")
        panel.set_xlabel("x")
    panels[0].set_ylabel("y")
    legend_below(figure, panels[-1])
    save_figure(figure, config.output)


def draw_panel(
    panel: Any, data: tuple[np.ndarray, np.ndarray], model: gpflow.models.GPModel
) -> None:
    """Observations, f with three standard deviations to each side, inducing points at the foot."""
    x = np.linspace(0.0, 6.0, 400)[:, None]
    panel.plot(*data, ".", color="0.6", ms=3, mec="none", label="data")
    draw_band(panel, x, model, 3, "mean and 3 sd of f")
    panel.plot(x, curve(x), color="0.15", lw=0.8, ls=(0, (4, 3)), label="the curve")
    draw_inducing_points(panel, model.inducing_variable, -3.35)
    panel.set(xlim=(0.0, 6.0), ylim=(-3.7, 3.4))


if __name__ == "__main__":
    run(main, Config)
