"""SOLVE-GP on a curve: the comparison of the paper's figure 2, on data made here.

Five inducing points are too few for this curve. Five more help by as much as the belief about them
may move: not at all (SVGP with 5), in the mean only (what ODVGP allows), in mean and covariance
(SOLVE-GP), or jointly with the first five (SVGP with 10).

Shi, Titsias and Mnih (2020, arXiv:1910.10596v5), section 6.1, use Snelson's 100 points and
minibatches. We draw 200 points from a formula and maximize each bound over all of them by L-BFGS,
so the panels differ by the models and not by the noise of an optimizer.

    python examples/solvegp.py --output solvegp.png
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
    """Compare SVGP, a mean-only second set and SOLVE-GP on a curve."""

    num_data: int = option(200, "N, rows.")
    noise: float = option(0.25, "Standard deviation of the noise on y.")
    num_inducing: int = option(5, "M, rows of Z.")
    num_orthogonal: int = option(5, "M2, rows of O.")
    num_steps: int = option(600, "L-BFGS iterations per sparse model, at most.")
    seed: int = option(0, "Seed of the data and of the starting inducing points.")
    output: str | None = option(None, "Figure to write.")


def curve(x: np.ndarray) -> np.ndarray:
    """The function behind the data: two sines, too many bends on [0, 6] for five points."""
    return np.sin(2.5 * x) + 0.6 * np.sin(4.7 * x + 0.5)


def make_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 1] uniform on [0, 6], Y [N, 1] the curve with Gaussian noise."""
    rng = np.random.default_rng(config.seed)
    X = np.sort(rng.uniform(0.0, 6.0, size=(config.num_data, 1)), axis=0)
    return X, curve(X) + config.noise * rng.standard_normal(X.shape)


def build_models(X: np.ndarray, config: Config) -> dict[str, gpflow.models.GPModel]:
    """Four models from the same kernel, the same noise and jointly chosen points."""
    M, M2 = config.num_inducing, config.num_orthogonal
    sets = gs.initialization.split_orthogonal(X, M, M2, seed=config.seed)  # Z and O
    alone = gs.initialization.kmeans(X, M, seed=config.seed)

    def svgp(points: np.ndarray) -> gpflow.models.SVGP:
        return gpflow.models.SVGP(new_kernel(), new_likelihood(), points)

    def solvegp() -> gs.models.SOLVEGP:
        orthogonal = gs.inducing_variables.OrthogonalInducingVariables(*sets)
        return gs.models.SOLVEGP(new_kernel(), new_likelihood(), orthogonal)

    models = {
        "svgp": svgp(alone),
        "mean_only": solvegp(),
        "solvegp": solvegp(),
        "svgp_union": svgp(np.concatenate(sets)),
    }
    # whitened, the identity is the prior's covariance: the second set moves the mean alone
    gpflow.set_trainable(models["mean_only"].q_sqrt[1], False)
    return models


def new_kernel() -> gpflow.kernels.Kernel:
    # from a lengthscale of 1, L-BFGS can stop at a poor SOLVE-GP optimum (seed 0: -87.9, not -78.1)
    return gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=0.5)


def new_likelihood() -> gpflow.likelihoods.Gaussian:
    return gpflow.likelihoods.Gaussian(variance=0.1)


def main(config: Config) -> dict[str, float]:
    """
    Fit the four models and the exact Gaussian process; print one line; draw if asked to.

    :return: bound of each model and the exact log marginal likelihood ("exact"), each maximized
        over the hyperparameters too, in nats.
    """
    X, Y = make_data(config)
    exact = gpflow.models.GPR((X, Y), new_kernel(), noise_variance=0.1)
    maximize(exact, num_steps=1000)
    models = build_models(X, config)
    for model in models.values():
        maximize(model, config.num_steps, (X, Y))
    numbers = {name: float(model.elbo((X, Y))) for name, model in models.items()}
    numbers["exact"] = float(exact.log_marginal_likelihood())
    print_numbers(numbers, ".2f")
    if config.output is not None:
        draw(config, (X, Y), models, exact, numbers)
    return numbers


def draw(
    config: Config,
    data: tuple[np.ndarray, np.ndarray],
    models: dict[str, gpflow.models.GPModel],
    exact: gpflow.models.GPR,
    numbers: dict[str, float],
) -> None:
    """One panel per model, the exact posterior dashed in each."""
    M, M2 = config.num_inducing, config.num_orthogonal
    titles = {
        "svgp": f"SVGP, {M} points",
        "mean_only": f"ODVGP-like (O moves the mean only), {M} + {M2}",
        "solvegp": f"SOLVE-GP, {M} + {M2}",
        "svgp_union": f"SVGP, {M + M2} points",
    }
    figure = new_figure(9.0, 5.6)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for panel, (name, model) in zip(panels.flat, models.items(), strict=True):
        draw_panel(panel, data, model, exact, numbers["exact"])
        panel.set_title(titles[name], fontsize=10, loc="left")
        panel.set_title(
            f"bound {numbers[name]:.1f}".replace("-", "\N{MINUS SIGN}"),
            fontsize=9,
            loc="right",
            color="0.35",
        )
    for panel in panels[1]:
        panel.set_xlabel("x")
    for panel in panels[:, 0]:
        panel.set_ylabel("y")
    legend_below(figure, panels[1, 0])
    save_figure(figure, config.output)


def draw_panel(
    panel: Any,
    data: tuple[np.ndarray, np.ndarray],
    model: gpflow.models.GPModel,
    exact: gpflow.models.GPR,
    evidence: float,
) -> None:
    """Observations, f with three standard deviations to each side, inducing points at the foot."""
    x = np.linspace(-1.5, 7.5, 400)[:, None]
    panel.plot(*data, ".", color="0.5", ms=4, mec="none", label="data")
    draw_band(panel, x, model, 3, "mean and 3 sd of f")
    mean, std = mean_and_std(exact, x)
    title = f"exact GP, evidence {evidence:.1f} nats".replace("-", "\N{MINUS SIGN}")
    for line, label in ((mean, title), (mean - 3 * std, None), (mean + 3 * std, None)):
        panel.plot(x[:, 0], line, color="0.15", lw=0.8, ls=(0, (4, 3)), label=label)
    draw_inducing_points(panel, model.inducing_variable, -3.35)
    panel.set(xlim=(-1.5, 7.5), ylim=(-3.7, 3.4))


if __name__ == "__main__":
    run(main, Config)
