"""SOLVE-GP regression: bounds without a q to train, what they lack, and functions to draw.

With Gaussian noise the best q is known, so L-BFGS maximizes the bound over kernel, noise and
inducing points alone. At its end we print all bounds of the same hyperparameters in their order,
from Titsias' bound for Z to the log evidence, and the gap that independent sets cost; then the
model becomes a SOLVE-GP, which can be trained on minibatches, and draws functions. Shi, Titsias and
Mnih (2020, arXiv:1910.10596v5), eqs. (3), (14) and (30).

    python examples/solvegpr.py --output solvegpr.png
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

    num_data: int = 400  # N, rows
    noise: float = 0.3  # standard deviation of the noise on y
    num_inducing: int = 8  # M, rows of Z
    num_orthogonal: int = 8  # M2, rows of O
    num_steps: int = 100  # L-BFGS iterations, at most
    num_draws: int = 12  # functions
    seed: int = 0  # of the data, the inducing points and the functions
    output: Path | None = None  # figure to write


def make_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 1] on [0, 4] and [6, 10], with nothing between; Y [N, 1] a wave with Gaussian noise."""
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(0.0, 8.0, size=(config.num_data, 1))
    X = np.sort(np.where(X < 4.0, X, X + 2.0), axis=0)
    Y = np.sin(2.0 * X) + 0.5 * np.cos(4.3 * X) + config.noise * rng.standard_normal(X.shape)
    return X, Y


def build_model(data: tuple[np.ndarray, np.ndarray], config: Config) -> gs.models.SOLVEGPR:
    """The model at its start, with the bound that is streamed over the rows."""
    Z, O = gs.initialization.split_orthogonal(
        data[0], config.num_inducing, config.num_orthogonal, seed=config.seed
    )
    return gs.models.SOLVEGPR(
        data,
        gpflow.kernels.Matern52(),
        gs.inducing_variables.OrthogonalInducingVariables(Z, O),
        noise_variance=0.1,
    )


def all_bounds(model: gs.models.SOLVEGPR) -> dict[str, float]:
    """Bounds of the log evidence at the model's hyperparameters, the lowest first, in nats."""
    X, Y = model.data
    kernel, noise = model.kernel, model.likelihood.variance.numpy()
    Z = model.inducing_variable.sets[0].Z.numpy()
    bounds = {
        "titsias_Z": float(gpflow.models.SGPR((X, Y), kernel, Z, noise_variance=noise).elbo())
    }
    for name in ("structured", "coupled", "tighter"):
        model.bound = name
        bounds[name] = float(model.elbo())
        if name == "structured":
            bounds["titsias_all"] = bounds[name] + float(model.structured_gap())
    model.bound = "structured"
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=noise)
    return bounds | {"evidence": float(exact.log_marginal_likelihood())}


def main(config: Config) -> dict[str, float]:
    """
    Fit the model; print one line; draw if asked to.

    :return: the bounds in their order, the ``gap`` of the structured one and, as ``solvegp``, the
        bound of the SOLVE-GP that the model becomes, in nats.
    """
    data = make_data(config)
    model = build_model(data, config)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(),
        model.trainable_variables,
        options={"maxiter": config.num_steps},
    )
    solvegp = model.to_solvegp()
    numbers = all_bounds(model)
    numbers |= {"gap": float(model.structured_gap()), "solvegp": float(solvegp.elbo(data))}
    print("  ".join(f"{name}={value:.2f}" for name, value in numbers.items()))
    if config.output is not None:
        draw(config, data, solvegp)
    return numbers


def draw(config: Config, data: tuple[np.ndarray, np.ndarray], model: gs.models.SOLVEGP) -> None:
    """Functions drawn from the posterior, over its mean and three standard deviations."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    blue, x = "#1f5f99", np.linspace(-1.0, 11.0, 600)[:, None]
    functions = model.posterior().sample_functions(config.num_draws, seed=config.seed)
    mean, var = (moment.numpy()[:, 0] for moment in model.predict_f(x))
    std = np.sqrt(var)
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    panel.plot(*data, ".", color="0.6", ms=3, mec="none", label="data")
    panel.fill_between(
        x[:, 0], mean - 3 * std, mean + 3 * std, color=blue, alpha=0.18, lw=0, label="3 sd of f"
    )
    lines = panel.plot(x[:, 0], functions(x)[..., 0].numpy().T, color=blue, lw=0.7)
    lines[0].set_label(f"{config.num_draws} functions")
    panel.plot(x[:, 0], mean, color="0.15", lw=1.2, ls=(0, (4, 3)), label="mean of f")
    for points, marker, label, color in zip(
        model.inducing_variable.sets, "+^", "ZO", ("black", "#c4501b"), strict=True
    ):
        Z = points.Z.numpy()[:, 0]
        panel.plot(Z, np.full(len(Z), -3.6), marker, color=color, ms=7, ls="", label=label)
    panel.set(xlim=(-1.0, 11.0), ylim=(-3.9, 3.5), xlabel="x", ylabel="y")
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    figure.savefig(config.output, dpi=110)


@click.command(help="Fit SOLVE-GP regression to a wave with a gap, and draw functions from it.")
@click.option("--num-data", default=Config.num_data, show_default=True, help="Rows N.")
@click.option("--noise", default=Config.noise, show_default=True, help="Noise std of y.")
@click.option("--num-inducing", default=Config.num_inducing, show_default=True, help="Rows of Z.")
@click.option(
    "--num-orthogonal", default=Config.num_orthogonal, show_default=True, help="Rows of O."
)
@click.option("--num-steps", default=Config.num_steps, show_default=True, help="L-BFGS iterations.")
@click.option("--num-draws", default=Config.num_draws, show_default=True, help="Functions drawn.")
@click.option("--seed", default=Config.seed, show_default=True, help="Data, points and functions.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Figure to write.")
def cli(**options: Any) -> None:
    main(Config(**options))


if __name__ == "__main__":
    cli()
