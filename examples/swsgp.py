"""SWSGP on a rough surface: 2,000 inducing points, of which each row sees 16.

The surface has more bumps than an SVGP can follow with the points that it can afford in the same
time; how many those are is an option (--num-svgp). SWSGP starts from one pass over the rows, is
trained, and is then given the best q for its hyperparameters. It is asked for averages of the
surface along short walks, whose variance needs joint predictions: rows that are predicted together
share the union of their neighbors. Last it is saved and loaded. Tran, Milios, Michiardi and
Filippone, "Sparse within Sparse Gaussian Processes using Neighbor Information", with other weights
of the KL terms (docs/errata.md, W1).

    python examples/swsgp.py --output swsgp.png
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs
from _frame import (
    BLUE,
    RED,
    mean_and_std,
    new_figure,
    option,
    print_numbers,
    run,
    save_figure,
)

NUM_TEST = 2000
NUM_WALKS = 400
LENGTHS = (1, 2, 4, 8, 16)  # of the walks, in steps

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Config:
    """SWSGP and SVGP on a rough surface; averages from joint predictions."""

    num_data: int = option(20_000, "N, training rows.")
    lengthscale: float = option(0.07, "Lengthscale of the surface, on a square of side 1.")
    noise: float = option(0.3, "Standard deviation of the noise; that of the surface is 1.")
    num_inducing: int = option(2000, "M, inducing points of SWSGP.")
    num_neighbors: int = option(16, "H, neighbors of a row.")
    kl_weighting: str = option("usage", "Weights of the KL terms: usage, paper or chain.")
    num_steps: int = option(2000, "Training steps.")
    batch_size: int = option(128, "Rows per step.")
    num_svgp: int = option(512, "Inducing points of GPflow's SVGP.")
    stride: float = option(0.005, "Length of a step of the walks.")
    seed: int = option(0, "Seed of data, points and batches.")
    output: str | None = option(None, "Figure to write.")


class Surface:
    """A draw of a Matern 3/2 process in two columns, from random features."""

    def __init__(self, config: Config) -> None:
        kernel = gpflow.kernels.Matern32(lengthscales=config.lengthscale)
        self._basis = gs.bases.RandomFourier(kernel, 4000, seed=config.seed)
        self._weights = np.random.default_rng(config.seed).normal(size=(4000, 1))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """``[N, 1]``"""
        blocks = np.array_split(X, 1 + len(X) // 1000)
        return np.concatenate([self._basis(block).numpy() @ self._weights for block in blocks])


def make_data(surface: Surface, config: Config) -> Arrays:
    """X [N, 2] on the unit square; Y [N, 1] the surface with Gaussian noise."""
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(size=(config.num_data, 2))
    return X, surface(X) + config.noise * rng.normal(size=(len(X), 1))


def walks(config: Config, length: int) -> np.ndarray:
    """Straight ones of so many steps, in all directions, ``[NUM_WALKS, length, 2]``."""
    rng = np.random.default_rng(config.seed + 1)
    starts = rng.uniform(0.1, 0.9, size=(NUM_WALKS, 1, 2))
    angles = rng.uniform(0.0, 2.0 * np.pi, size=(NUM_WALKS, 1))
    steps = config.stride * np.arange(length)[:, None]
    return starts + steps * np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def kernel() -> gpflow.kernels.Kernel:
    """Where all models start: lengthscales that are too long."""
    return gpflow.kernels.Matern32(lengthscales=0.2)


def build_swsgp(X: np.ndarray, config: Config) -> gs.models.SWSGP:
    """Points from k-means, of some rows to save time: random rows would nearly coincide here."""
    some = X[: 4 * config.num_inducing]
    Z = gs.initialization.kmeans(some, config.num_inducing, seed=config.seed)
    return gs.models.SWSGP(
        kernel(),
        gpflow.likelihoods.Gaussian(0.1),
        gs.inducing_variables.NeighborInducingPoints(Z, config.num_neighbors),
        kl_weighting=config.kl_weighting,
        num_data=len(X),
    )


def train_swsgp(data: Arrays, config: Config) -> gs.models.SWSGP:
    """Steps from one pass over the rows, and the best q where they have led."""
    model = build_swsgp(data[0], config)
    options = {"batch_size": config.batch_size, "seed": config.seed, "progress": False}
    gs.training.fit(model, data, num_steps=config.num_steps, **options)
    model.update_posterior(data)
    return model


def train_svgp(data: Arrays, seconds: float, config: Config) -> gpflow.models.SVGP:
    """As long as the other, by natural gradients and with points that are learned."""
    end = time.perf_counter() + seconds
    Z = gs.initialization.kmeans(data[0], config.num_svgp, seed=config.seed)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    svgp = gpflow.models.SVGP(kernel(), likelihood, Z, num_data=len(data[0]))
    gs.training.fit(
        svgp,
        data,
        num_steps=100 * config.num_steps,
        batch_size=1024,
        natural_gradients=True,
        callbacks=[lambda state: time.perf_counter() > end],
        seed=config.seed,
        progress=False,
    )
    return svgp


def scores(model: Any, X: np.ndarray, F: np.ndarray) -> dict[str, float]:
    """Of the surface itself, without noise."""
    mean, var = (part.numpy() for part in model.predict_f(X))
    within = np.abs(F - mean) < 1.96 * np.sqrt(var)
    return {
        "rmse": float(np.sqrt(np.mean((F - mean) ** 2))),
        "coverage": float(np.mean(within)),
        "noise": float(np.sqrt(model.likelihood.variance)),
    }


def coverage_of_averages(
    model: gs.models.SWSGP, surface: Surface, config: Config
) -> dict[str, list[float]]:
    """
    How often the average over a walk is within its central 95 % interval, for each length: with
    joint predictions, and with variances added up as if the rows were independent.
    """
    predict = tf.function(model.posterior().predict_f, autograph=False, reduce_retracing=True)
    found: dict[str, list[float]] = {"joint": [], "independent": []}
    for length in LENGTHS:
        X = walks(config, length)
        truth = surface(X.reshape(-1, 2)).reshape(NUM_WALKS, length).mean(axis=1)
        mean, cov = (part.numpy() for part in predict(X, full_cov=True))
        variances = {"joint": cov.mean(axis=(1, 2, 3))}
        variances["independent"] = np.trace(cov[:, 0], axis1=1, axis2=2) / length**2
        error = np.abs(truth - mean.mean(axis=(1, 2)))
        for name, var in variances.items():
            found[name].append(float(np.mean(error < 1.96 * np.sqrt(var))))
    return found


def saved_and_loaded(model: gs.models.SWSGP, X: np.ndarray) -> float:
    """The largest difference that it makes to predictions."""
    with tempfile.TemporaryDirectory() as folder:
        gs.save(model, Path(folder) / "surface.safetensors")
        again = gs.load(Path(folder) / "surface.safetensors")
    return float(np.abs(again.predict_f(X)[0] - model.predict_f(X)[0]).max())


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Train both, print one line, draw if asked to.

    :return: of "swsgp" and "svgp": ``rmse`` of the surface, ``coverage``, the share of its values
        in central 95 % intervals, and ``noise``, the standard deviation found. Of "swsgp" also
        ``seconds``, the choice of points included; of averages over the longest walks ``joint`` and
        ``independent``, see :func:`coverage_of_averages`; ``saved``, what saving and loading
        changes.
    """
    surface = Surface(config)
    data = make_data(surface, config)
    test = np.random.default_rng(config.seed + 2).uniform(size=(NUM_TEST, 2))
    begin = time.perf_counter()
    model = train_swsgp(data, config)
    seconds = time.perf_counter() - begin
    averages = coverage_of_averages(model, surface, config)
    numbers = {"swsgp": scores(model, test, surface(test)) | {"seconds": seconds}}
    numbers["swsgp"] |= {name: shares[-1] for name, shares in averages.items()}
    numbers["swsgp"]["saved"] = saved_and_loaded(model, test)
    svgp = train_svgp(data, seconds, config)
    numbers["svgp"] = scores(svgp, test, surface(test))
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, surface, {"svgp": svgp, "swsgp": model}, averages)
    return numbers


def draw(
    config: Config, surface: Surface, models: dict[str, Any], averages: dict[str, list[float]]
) -> None:
    """Bands are two standard deviations of f to each side."""
    figure = new_figure(11.0, 4.0)
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1.0))
    x = np.linspace(0.0, 1.0, 401)
    cut = np.stack([x, np.full_like(x, 0.5)], axis=1)
    labels = {
        "svgp": (f"GPflow SVGP, {config.num_svgp} points", RED),
        "swsgp": (f"SWSGP, {config.num_inducing}, {config.num_neighbors} neighbors", BLUE),
    }
    for name, (label, color) in labels.items():
        mean, sd = mean_and_std(models[name], cut)
        left.plot(x, mean, color=color, lw=1.4, label=label)
        left.fill_between(x, mean - 2.0 * sd, mean + 2.0 * sd, color=color, alpha=0.25, lw=0.0)
    left.plot(x, surface(cut)[:, 0], color="black", lw=0.9, ls="--", label="surface")
    left.set(xlabel="first column; the second is 0.5", ylabel="f", xlim=(0.0, 1.0))
    right.axhline(0.95, color="0.8", lw=1.0)
    styles = {"joint": ("joint", BLUE, "o-"), "independent": ("variances alone", "0.4", "s--")}
    for name, (label, color, style) in styles.items():
        right.plot(LENGTHS, averages[name], style, color=color, lw=1.4, ms=4, label=label)
    right.set(xlabel="points averaged along a walk", ylabel="within the 95 % interval")
    right.set(xscale="log", xticks=LENGTHS, xticklabels=LENGTHS, ylim=(0.0, 1.02))
    right.minorticks_off()
    for panel in (left, right):
        panel.legend(frameon=False, fontsize=9)
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
