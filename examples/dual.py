"""Exact GP regression without an N x N matrix: block Gauss-Seidel on the weights of all rows.

Left: the relative residual of the linear system after each pass over the rows, of which a part of
the right-hand sides are draws that give variances and functions. Blocks of neighboring rows, drawn
anew in each pass, against blocks of random rows. Hyperparameters are fitted to local subsets.

Right: 300 rows with a hole, the mean, two standard deviations from 64 draws, and some of the draws;
dashed the exact standard deviations of GPflow's GPR.

    python examples/dual.py --output dual.png
"""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np

import gpflow_sparse as gs
from _frame import BLUE, RED, mean_and_std, new_figure, option, print_numbers, run, save_figure

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Config:
    """Exact regression by dual blocks, and its draws."""

    num_data: int = option(4000, "N, training rows on the left.")
    num_columns: int = option(4, "D, input columns on the left.")
    block_size: int = option(200, "Rows in a block.")
    num_passes: int = option(20, "Passes on the left.")
    num_paths: int = option(64, "Draws for variances.")
    num_draws: int = option(8, "Draws in the figure.")
    seed: int = option(0, "Seed of data, blocks and draws.")
    output: str | None = option(None, "Figure to write.")


def make_data(config: Config) -> tuple[Arrays, Arrays]:
    """Training and test rows of a sum of waves, with noise on the training rows."""
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(size=(config.num_data + 1000, config.num_columns))
    waves = rng.normal(scale=4.0, size=(config.num_columns, 20))
    Y = np.cos(X @ waves + rng.uniform(0.0, 6.3, size=20)).sum(axis=1, keepdims=True)
    Y /= Y.std()
    noisy = Y[1000:] + 0.1 * rng.normal(size=(config.num_data, 1))
    return (X[1000:], noisy), (X[:1000], Y[:1000])


def make_hole(config: Config) -> Arrays:
    """Rows of one column, none of them between 4 and 6."""
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(0.0, 8.0, size=(300, 1))
    X = np.where(X < 4.0, X, X + 2.0)
    return X, np.sin(1.5 * X) + 0.4 * np.cos(4.0 * X) + 0.2 * rng.normal(size=X.shape)


def solve(config: Config, model: gs.models.DualGPR, partition: str) -> tuple[float, ...]:
    """Solve from the start, and return the relative residuals."""
    options = gs.models.DualOptions(
        block_size=config.block_size,
        partition=partition,
        max_passes=config.num_passes,
        tolerance=1e-6,
        seed=config.seed,
    )
    history: list[tuple[float, ...]] = [()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # after all passes the residual may be above the tolerance
        model.solve(options, callback=lambda state: history.append(state.history))
    return history[-1]


def main(config: Config) -> dict[str, Any]:
    """
    Solve with both partitions; print one line; draw if asked to.

    :return: for each partition ``passes`` to a relative residual of 1e-2, ``seconds`` of a pass and
        the test ``rmse``.
    """
    (X, Y), (Xnew, Ynew) = make_data(config)
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(config.num_columns))
    noise = gs.initialization.local_hyperparameters(X, Y, kernel, seed=config.seed)
    histories, numbers = {}, {}
    for partition in ("neighbors", "random"):
        model = gs.models.DualGPR(
            (X, Y), kernel, noise_variance=noise, num_paths=config.num_paths, seed=config.seed
        )
        start = time.perf_counter()
        history = histories[partition] = solve(config, model, partition)
        numbers[partition] = {
            "passes": 1 + int(np.argmax(np.append(history, 0.0) <= 1e-2)),
            "seconds": (time.perf_counter() - start) / len(history),
            "rmse": gs.data.metrics.rmse(Ynew, model.predict_f(Xnew)[0]),
        }
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, histories)
    return numbers


def draw(config: Config, histories: dict[str, tuple[float, ...]]) -> None:
    """Residuals to the left, data and draws to the right."""
    figure = new_figure(9.6, 3.8)
    left, right = figure.subplots(1, 2)
    for (name, history), color in zip(histories.items(), (BLUE, RED), strict=True):
        left.semilogy(np.arange(1, len(history) + 1), history, "o-", ms=3, color=color, label=name)
    left.set(xlabel="passes", ylabel="relative residual")
    left.legend(frameon=False, fontsize=9)
    data = make_hole(config)
    exact = gpflow.models.GPR(data, gpflow.kernels.Matern52(), noise_variance=0.04)
    gpflow.optimizers.Scipy().minimize(exact.training_loss, exact.trainable_variables)
    noise = exact.likelihood.variance.numpy()
    model = gs.models.DualGPR(
        data, exact.kernel, noise_variance=noise, num_paths=config.num_paths, seed=config.seed
    )
    model.solve()
    x = np.linspace(-0.5, 10.5, 400)[:, None]
    mean, std = mean_and_std(model, x)
    functions = model.posterior().sample_functions(config.num_draws, seed=config.seed)
    right.plot(*data, ".", color="0.6", ms=3, mec="none")
    right.fill_between(x[:, 0], mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.18, lw=0)
    right.plot(x[:, 0], functions(x)[..., 0].numpy().T, color=BLUE, lw=0.7)
    mean, std = mean_and_std(exact, x)
    for side in (-2.0, 2.0):
        right.plot(x[:, 0], mean + side * std, color="0.15", lw=1.0, ls=(0, (4, 3)))
    right.set(xlabel="x", ylabel="y")
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
