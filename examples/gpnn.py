"""Exact Gaussian processes on the nearest rows of each row, beside one on all rows.

A function of one input is seen through noise. ``NearestNeighborGP`` predicts every input from its H
nearest rows alone: its mean is discontinuous where the neighbors change, by little once H is larger
than the number of rows within a lengthscale that the noise leaves informative. The figure has two
values of H along a line, and the distance of mean and variance from those of the exact GP for many.

    python examples/gpnn.py --output gpnn.png
"""

from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np

import gpflow_sparse as gs
from _frame import (
    BLUE,
    GREEN,
    RED,
    draw_band,
    legend_below,
    mean_and_std,
    new_figure,
    option,
    print_numbers,
    run,
    save_figure,
)

LIMIT = 5.0  # inputs are within +- this
SHOWN = (8, 128)  # numbers of neighbors of the two panels to the left


@dataclass(frozen=True)
class Config:
    """GPnn with several numbers of neighbors, and the exact GP."""

    num_data: int = option(2000, "N, rows.")
    noise: float = option(0.4, "Standard deviation of the noise on y.")
    most: int = option(512, "Largest number of neighbors.")
    seed: int = option(0, "Seed of the data.")
    output: str | None = option(None, "Figure to write.")


def function(X: np.ndarray) -> np.ndarray:
    """The function behind the data, ``[N, 1]``."""
    return np.sin(3.0 * X) + 0.5 * np.sin(11.0 * X + 1.0)


def make_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """``X [N, 1]`` and ``Y [N, 1]``."""
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(-LIMIT, LIMIT, size=(config.num_data, 1))
    return X, function(X) + config.noise * rng.standard_normal(X.shape)


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Fit hyperparameters to local subsets, predict with each H; print one line; draw if asked to.

    :return: for the exact GP and for each H ``rmse`` against the function, ``nlpd`` of new rows;
        and for each H ``mean`` and ``std``, root mean squared differences of mean and standard
        deviation of f from those of the exact GP, in its standard deviations.
    """
    X, Y = make_data(config)
    kernel = gpflow.kernels.Matern52(lengthscales=1.0)
    noise = gs.initialization.local_hyperparameters(X, Y, kernel, seed=config.seed)
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=noise)
    x = np.linspace(-LIMIT, LIMIT, 500)[:, None]
    new = x, function(x) + config.noise * np.random.default_rng(1).standard_normal(x.shape)
    models: dict[str, Any] = {"exact": exact}
    H = 4
    while min(config.most, config.num_data) >= H:
        models[str(H)] = gs.models.NearestNeighborGP(
            (X, Y), kernel, num_neighbors=H, noise_variance=noise
        )
        H *= 2
    mean, std = mean_and_std(exact, x)
    numbers = {}
    for name, model in models.items():
        own_mean, own_std = mean_and_std(model, x)
        numbers[name] = {
            "rmse": gs.data.metrics.rmse(function(x), own_mean[:, None]),
            "nlpd": -float(np.mean(model.predict_log_density(new))),
        }
        if name != "exact":
            numbers[name]["mean"] = float(np.sqrt(np.mean(((own_mean - mean) / std) ** 2)))
            numbers[name]["std"] = float(np.sqrt(np.mean((own_std / std - 1.0) ** 2)))
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, models, numbers, (X, Y))
    return numbers


def draw(
    config: Config, models: dict[str, Any], numbers: dict[str, dict[str, float]], data: Any
) -> None:
    """Two values of H on a part of the line, and the distance from the exact GP."""
    figure = new_figure(11.0, 3.6)
    panels = figure.subplots(1, 3)
    x = np.linspace(-1.5, 1.5, 400)[:, None]
    exact = mean_and_std(models["exact"], x)[0]
    near = np.abs(data[0][:, 0]) < 1.5
    for panel, H in zip(panels[:2], SHOWN, strict=True):
        panel.plot(*(part[near, 0] for part in data), ".", color="0.75", ms=2, label="rows")
        draw_band(panel, x, models[str(H)], 2, "GPnn, two standard deviations of f")
        panel.plot(x[:, 0], exact, color=RED, lw=1.0, ls="--", label="exact GP")
        panel.set_title(f"H = {H}", fontsize=10, loc="left")
    names = [name for name in models if name != "exact"]
    for key, color in (("mean", BLUE), ("std", GREEN)):
        values = [numbers[name][key] for name in names]
        panels[2].loglog([int(name) for name in names], values, "o-", color=color, label=key)
    panels[2].set_xlabel("H")
    panels[2].set_title("distance from the exact GP", fontsize=10, loc="left")
    panels[2].legend(frameon=False, fontsize=9)
    legend_below(figure, panels[0])
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
