"""ODVGP between SVGP and SOLVE-GP: what more points for the mean do, and what they leave.

Kernel, noise and Z are the same in all three models and stay fixed, so that the models differ by
the points of O alone: none (SVGP), O for the mean (ODVGP), O for mean and covariance (SOLVE-GP).
With Gaussian noise the best means of ODVGP and SOLVE-GP are then the same, that of SVGP on all
points, and the best covariance of ODVGP is that of SVGP on Z: the mean improves, the variance does
not. Shi, Titsias and Mnih (2020, arXiv:1910.10596v5), section 5 and figure 2(b).

    python examples/odvgp.py --output odvgp.png
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import gpflow
import numpy as np

import gpflow_sparse as gs


@dataclass(frozen=True)
class Config:
    """What a run depends on."""

    num_data: int = 200  # N, rows
    noise: float = 0.25  # standard deviation of the noise on y
    lengthscale: float = 0.5  # of the squared exponential; its variance is 1
    num_inducing: int = 6  # M, rows of Z
    num_orthogonal: int = 12  # M2, rows of O
    num_steps: int = 150  # L-BFGS iterations per model, at most
    seed: int = 0  # of the data and of the inducing points
    output: Path | None = None  # figure to write


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
        gpflow.optimizers.Scipy().minimize(
            model.training_loss_closure((X, Y)),
            model.trainable_variables,
            options={"maxiter": config.num_steps},
        )
        mean, std = mean_and_std(model, X)
        numbers[name] = {
            "bound": float(model.elbo((X, Y))),
            "rmse": gs.data.metrics.rmse(curve(X), mean[:, None]),
            "sd": float(std.mean()),
        }
    print("  ".join(f"{name}: {describe(found)}" for name, found in numbers.items()))
    if config.output is not None:
        draw(config, (X, Y), models, numbers)
    return numbers


def describe(found: dict[str, float]) -> str:
    """The numbers of one model, for the line and the titles."""
    return f"bound={found['bound']:.2f} rmse={found['rmse']:.3f} sd={found['sd']:.3f}"


def mean_and_std(model: gpflow.models.GPModel, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and standard deviation of f, each [N]."""
    mean, var = (moment.numpy()[:, 0] for moment in model.predict_f(x))
    return mean, np.sqrt(var)


def draw(
    config: Config,
    data: tuple[np.ndarray, np.ndarray],
    models: dict[str, gpflow.models.GPModel],
    numbers: dict[str, dict[str, float]],
) -> None:
    """One panel per model, the curve behind the data in each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    M, M2 = config.num_inducing, config.num_orthogonal
    titles = {
        "svgp": f"SVGP, {M}",
        "odvgp": f"ODVGP, {M} + {M2}",
        "solvegp": f"SOLVE-GP, {M} + {M2}",
    }
    figure = Figure(figsize=(11.0, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    for panel, (name, model) in zip(panels, models.items(), strict=True):
        draw_panel(panel, data, model)
        panel.set_title(titles[name], fontsize=10, loc="left")
        found = f"rmse {numbers[name]['rmse']:.3f}, sd {numbers[name]['sd']:.3f}"
        panel.set_title(found, fontsize=9, loc="right", color="0.35")
        panel.set_xlabel("x")
    panels[0].set_ylabel("y")
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9
    )
    figure.savefig(config.output, dpi=110)


def draw_panel(
    panel: Any, data: tuple[np.ndarray, np.ndarray], model: gpflow.models.GPModel
) -> None:
    """Observations, f with three standard deviations to each side, inducing points at the foot."""
    blue, x = "#1f5f99", np.linspace(0.0, 6.0, 400)[:, None]
    panel.plot(*data, ".", color="0.6", ms=3, mec="none", label="data")
    mean, std = mean_and_std(model, x)
    panel.fill_between(x[:, 0], mean - 3 * std, mean + 3 * std, color=blue, alpha=0.28, lw=0)
    panel.plot(x[:, 0], mean, color=blue, lw=1.8, label="mean and 3 sd of f")
    panel.plot(x[:, 0], curve(x[:, 0]), color="0.15", lw=0.8, ls=(0, (4, 3)), label="the curve")
    sets = getattr(model.inducing_variable, "sets", (model.inducing_variable,))
    styles = (("+", "Z", "black", 1.6), ("^", "O", "#c4501b", 0.8))
    for points, (marker, label, color, width) in zip(sets, styles, strict=False):
        Z = points.Z.numpy()[:, 0]
        panel.plot(
            Z, np.full(len(Z), -3.35), marker, color=color, ms=7, mew=width, ls="", label=label
        )
    panel.set(xlim=(0.0, 6.0), ylim=(-3.7, 3.4))
    panel.spines[["top", "right"]].set_visible(False)


@click.command(help="Compare SVGP, ODVGP and SOLVE-GP on a curve, all but q fixed.")
@click.option("--num-data", default=Config.num_data, show_default=True, help="Rows N.")
@click.option("--noise", default=Config.noise, show_default=True, help="Noise std of y.")
@click.option("--lengthscale", default=Config.lengthscale, show_default=True, help="Of the kernel.")
@click.option("--num-inducing", default=Config.num_inducing, show_default=True, help="Rows of Z.")
@click.option(
    "--num-orthogonal", default=Config.num_orthogonal, show_default=True, help="Rows of O."
)
@click.option("--num-steps", default=Config.num_steps, show_default=True, help="L-BFGS iterations.")
@click.option("--seed", default=Config.seed, show_default=True, help="Data and starting points.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Figure to write.")
def cli(**options: Any) -> None:
    main(Config(**options))


if __name__ == "__main__":
    cli()
