"""SOLVE-GP regression: bounds without a q to train, what they lack, and functions to draw.

With Gaussian noise the best q is known, so L-BFGS maximizes the bound over kernel, noise and
inducing points alone. At its end we print all bounds of the same hyperparameters in their order,
from Titsias' bound for Z to the log evidence, and the gap that independent sets cost; then the
model becomes a SOLVE-GP, which can be trained on minibatches, and draws functions. Shi, Titsias and
Mnih (2020, arXiv:1910.10596v5), eqs. (3), (14) and (30).

    python examples/solvegpr.py --output solvegpr.png
"""

from dataclasses import dataclass

import gpflow
import numpy as np

import gpflow_sparse as gs
from _frame import (
    BLUE,
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
    """Fit SOLVE-GP regression to a wave with a gap, and draw functions from it."""

    num_data: int = option(400, "N, rows.")
    noise: float = option(0.3, "Standard deviation of the noise on y.")
    num_inducing: int = option(8, "M, rows of Z.")
    num_orthogonal: int = option(8, "M2, rows of O.")
    num_steps: int = option(100, "L-BFGS iterations, at most.")
    num_draws: int = option(12, "Functions drawn.")
    seed: int = option(0, "Seed of the data, the inducing points and the functions.")
    output: str | None = option(None, "Figure to write.")


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
    for name in ("standard", "coupled", "fully_coupled"):
        model.bound = name
        bounds[name] = float(model.elbo())
        if name == "standard":
            bounds["titsias_all"] = bounds[name] + float(model.structured_gap())
    model.bound = "standard"
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=noise)
    return bounds | {"evidence": float(exact.log_marginal_likelihood())}


def main(config: Config) -> dict[str, float]:
    """
    Fit the model; print one line; draw if asked to.

    :return: the bounds in their order, the ``gap`` of the standard one and, as ``solvegp``, the
        bound of the SOLVE-GP that the model becomes, in nats.
    """
    data = make_data(config)
    model = build_model(data, config)
    maximize(model, config.num_steps)
    solvegp = model.to_solvegp()
    numbers = all_bounds(model)
    numbers |= {"gap": float(model.structured_gap()), "solvegp": float(solvegp.elbo(data))}
    print_numbers(numbers, ".2f")
    if config.output is not None:
        draw(config, data, solvegp)
    return numbers


def draw(config: Config, data: tuple[np.ndarray, np.ndarray], model: gs.models.SOLVEGP) -> None:
    """Functions drawn from the posterior, over its mean and three standard deviations."""
    x = np.linspace(-1.0, 11.0, 600)[:, None]
    functions = model.posterior().sample_functions(config.num_draws, seed=config.seed)
    mean, std = mean_and_std(model, x)
    figure = new_figure(9.0, 4.2)
    panel = figure.subplots()
    panel.plot(*data, ".", color="0.6", ms=3, mec="none", label="data")
    panel.fill_between(
        x[:, 0], mean - 3 * std, mean + 3 * std, color=BLUE, alpha=0.18, lw=0, label="3 sd of f"
    )
    lines = panel.plot(x[:, 0], functions(x)[..., 0].numpy().T, color=BLUE, lw=0.7)
    lines[0].set_label(f"{config.num_draws} functions")
    panel.plot(x[:, 0], mean, color="0.15", lw=1.2, ls=(0, (4, 3)), label="mean of f")
    draw_inducing_points(panel, model.inducing_variable, -3.6)
    panel.set(xlim=(-1.0, 11.0), ylim=(-3.9, 3.5), xlabel="x", ylabel="y")
    legend_below(figure, panel)
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
