"""A slow trend and fast detail in one column: a base process, neighbors, and both.

Few points that all rows share follow the trend, and know nothing of the detail. Neighbors follow
the detail where there are rows, and forget the trend in gaps between them, which are longer than
the distance to any neighbor. Neighbors on the residual of the base do both. All three have the
kernel that the data were drawn from, and q in closed form.

    python examples/residual_neighbors.py --output residual_neighbors.png
"""

from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np

import gpflow_sparse as gs
from _frame import draw_band, legend_below, new_figure, option, print_numbers, run, save_figure

GAPS = ((2.5, 3.5), (6.0, 7.5))  # where there are no rows
ROUNDS = 5  # of closed forms of both parts of q


@dataclass(frozen=True)
class Config:
    """SVGP, SWSGP, and neighbors on the residual of SVGP, on a trend with detail."""

    num_data: int = option(1000, "N, rows.")
    noise: float = option(0.2, "Standard deviation of the noise on y.")
    num_inducing: int = option(12, "M, points of the base.")
    num_orthogonal: int = option(250, "M2, points of which each row sees some.")
    num_neighbors: int = option(4, "H, points that a row sees.")
    seed: int = option(0, "Seed of the function and of the rows.")
    output: str | None = option(None, "Figure to write.")


def new_kernel() -> gpflow.kernels.Kernel:
    trend = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=1.5)
    return trend + gpflow.kernels.Matern32(variance=0.2, lengthscales=0.1)


def make_data(config: Config) -> tuple[np.ndarray, ...]:
    """Rows ``X, Y [N, 1]`` outside of the gaps, and ``x, f(x) [n, 1]`` on all of [0, 10]."""
    rng = np.random.default_rng(config.seed)
    x = np.linspace(0.0, 10.0, 1000)[:, None]
    X = rng.uniform(0.0, 10.0, size=(config.num_data, 1))
    inside = np.zeros(len(X), bool)
    for low, high in GAPS:
        inside |= (X[:, 0] > low) & (X[:, 0] < high)
    X = X[~inside]
    both = np.concatenate([X, x])
    K = new_kernel()(both).numpy() + 1e-8 * np.eye(len(both))
    f = np.linalg.cholesky(K) @ rng.normal(size=(len(both), 1))
    Y = f[: len(X)] + config.noise * rng.normal(size=X.shape)
    return X, Y, x, f[len(X) :]


def build_models(X: np.ndarray, Y: np.ndarray, config: Config) -> dict[str, Any]:
    """The base alone, neighbors alone, and both, with q in closed form."""
    Z = gs.initialization.kmeans(X, config.num_inducing, seed=config.seed)
    O = gs.initialization.kmeans(X, config.num_orthogonal, seed=config.seed)
    near = gs.inducing_variables.NeighborInducingPoints(O, config.num_neighbors)
    both = gs.inducing_variables.OrthogonalInducingVariables(Z, near)
    noise = config.noise**2
    likelihood, options = gpflow.likelihoods.Gaussian(noise), {"num_data": len(X)}
    models = {
        "base": gpflow.models.SGPR((X, Y), new_kernel(), Z, noise_variance=noise),
        "neighbors": gs.models.SWSGP(new_kernel(), likelihood, near, **options),
        "both": gs.models.ResidualNeighborGP(new_kernel(), likelihood, both, **options),
    }
    for name in ("neighbors", "both"):
        models[name].update_neighbors(X)
        models[name].start_from_sites((X, Y))
        for _ in range(ROUNDS):
            if name == "both":
                models[name].update_base((X, Y))
            models[name].update_posterior((X, Y))
    return models


def scores(model: Any, x: np.ndarray, f: np.ndarray, noise: float) -> dict[str, float]:
    """Root mean squared error of f, and negative log density of new observations of it."""
    mean, var = (np.asarray(moment) for moment in model.predict_f(x))
    total, squares = var + noise**2, np.square(f - mean)
    # the expectation over the noise
    nlpd = 0.5 * np.log(2 * np.pi * total) + (squares + noise**2) / (2 * total)
    return {"rmse": float(np.sqrt(squares.mean())), "nlpd": float(nlpd.mean())}


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Compute the three posteriors and that of the exact Gaussian process; print one line; draw if
    asked to.

    :return: of "base", "neighbors", "both" and "exact": ``rmse`` of f on [0, 10], gaps included,
        and ``nlpd`` of new observations.
    """
    X, Y, x, f = make_data(config)
    models = build_models(X, Y, config)
    exact = gpflow.models.GPR((X, Y), new_kernel(), noise_variance=config.noise**2)
    numbers = {
        name: scores(model, x, f, config.noise)
        for name, model in (models | {"exact": exact}).items()
    }
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, (X, Y, x, f), models, numbers)
    return numbers


def draw(
    config: Config,
    data: tuple[np.ndarray, ...],
    models: dict[str, Any],
    numbers: dict[str, dict[str, float]],
) -> None:
    """One panel for each model: rows, f, and two standard deviations of it."""
    titles = {
        "base": f"SVGP, {config.num_inducing} points",
        "neighbors": f"SWSGP, {config.num_neighbors} of {config.num_orthogonal} points",
        "both": "neighbors on the residual of SVGP",
    }
    X, Y, x, f = data
    figure = new_figure(9.0, 7.5)
    panels = figure.subplots(3, 1, sharex=True, sharey=True)
    for panel, (name, model) in zip(panels, models.items(), strict=True):
        panel.plot(X, Y, ".", color="0.7", ms=2, mec="none", label="rows")
        draw_band(panel, x, model, 2, "mean and 2 sd of f")
        panel.plot(x, f, color="0.15", lw=0.7, label="f")
        panel.set_title(titles[name], fontsize=10, loc="left")
        found = f"RMSE {numbers[name]['rmse']:.3f}, NLPD {numbers[name]['nlpd']:.3f}"
        panel.set_title(found.replace("-", "\N{MINUS SIGN}"), fontsize=9, loc="right", color="0.35")
        panel.set_ylabel("y")
    panels[-1].set_xlabel("x")
    legend_below(figure, panels[-1])
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
