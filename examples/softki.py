"""SoftKI in 100 columns, beside SVGP with as many points; and what the temperature does.

Left: simulated robot arms of several sizes. Test errors with temperatures that are kept as they
are, in units of the standardized inputs, and with one that is tied to the lengthscales and learned,
after a short training each.

Right: a function of 100 columns that three directions, none of them a column, decide. A grid of two
points to a column would have 2^100 of them; SoftKI interpolates between 256 learned ones. The share
of test rows within central intervals, against what it should be. The points have been trained on
most of the rows, for which the model is too sure of itself; the noise variance is therefore
re-fitted on rows that it has not seen, before the posterior takes all.

    python examples/softki.py --output softki.png
"""

import time
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np

import gpflow_sparse as gs
from _frame import (
    BLUE,
    GREEN,
    RED,
    new_figure,
    option,
    print_numbers,
    run,
    save_figure,
)

NUM_TEST = 1000
START = 0.3  # of a temperature that is tied, in lengthscales
LEVELS = np.linspace(0.05, 0.95, 19)  # of the intervals to the right

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Config:
    """SoftKI and SVGP in 100 columns; test errors against the temperature."""

    num_data: int = option(9000, "N, training rows.")
    num_held_out: int = option(1000, "Rows of them that are held out for the noise.")
    num_columns: int = option(100, "D, input columns on the right.")
    num_inducing: int = option(256, "Interpolation or inducing points.")
    batch_size: int = option(512, "Rows per step.")
    num_steps: int = option(800, "Training steps on the right.")
    links: tuple[int, ...] = option(
        (2, 10, 100), "Joints of the arms on the left; may be repeated."
    )
    temperatures: tuple[float, ...] = option(
        (0.03, 0.1, 0.3, 1.0, 3.0), "Temperatures on the left; may be repeated."
    )
    num_short: int = option(100, "Training steps on the left.")
    learning_rate: float = option(0.02, "Rate of Adam at the start; it falls to 0.")
    seed: int = option(0, "Seed of data, points and batches.")
    output: str | None = option(None, "Figure to write.")


def standardize(X: np.ndarray, Y: np.ndarray) -> tuple[Arrays, Arrays]:
    """Training and test rows, which are the last ones, in single precision."""
    X, Y = (
        ((part - part[:-NUM_TEST].mean(axis=0)) / part[:-NUM_TEST].std(axis=0)).astype(np.float32)
        for part in (X, Y)
    )
    return (X[:-NUM_TEST], Y[:-NUM_TEST]), (X[-NUM_TEST:], Y[-NUM_TEST:])


def arm(num_links: int, config: Config) -> tuple[Arrays, Arrays]:
    """X [N, num_links] angles of joints, Y [N, 1] distance of the tip from a fixed point."""
    rows = gs.data.robot_arm(config.num_data + NUM_TEST, num_links, seed=config.seed)
    return standardize(*rows)


def directions(config: Config) -> tuple[Arrays, Arrays]:
    """X [N, D] standard normal; Y [N, 1] depends on three projections of it, with noise."""
    rng = np.random.default_rng(config.seed)
    X = rng.normal(size=(config.num_data + NUM_TEST, config.num_columns))
    a, b, c = (X @ np.linalg.qr(rng.normal(size=(config.num_columns, 3)))[0]).T[:, :, None]
    Y = np.sin(1.5 * a) + b * np.cos(c) + 0.1 * rng.normal(size=(len(X), 1))
    return standardize(X, Y)


def start(X: np.ndarray, config: Config) -> Arrays:
    """Lengthscales [D] and points [m, D] that all models start from."""
    scales = gs.initialization.median_lengthscales(X, seed=config.seed)
    Z = gs.initialization.kmeans(X, config.num_inducing, seed=config.seed)
    return scales, Z.astype(X.dtype)


def build(
    where: Arrays, num_data: int, temperature: float = START, tied: bool = True
) -> gs.models.SoftKI:
    """The temperature is learned if it is tied, and else kept."""
    scales, Z = where
    model = gs.models.SoftKI(
        gpflow.kernels.Matern32(lengthscales=scales),
        Z,
        noise_variance=0.1,
        temperature=temperature,
        tied=tied,
        num_data=num_data,
        held_out=0.0,  # rows are held out below
    )
    gpflow.set_trainable(model.basis.temperature, tied)
    return model


def train(model: Any, data: Arrays, num_steps: int, config: Config, **options: Any) -> float:
    """:return: seconds."""
    begin = time.perf_counter()
    gs.training.fit(
        model,
        data,
        optimizer=gs.training.adam(config.learning_rate, decay_steps=num_steps),
        num_steps=num_steps,
        batch_size=config.batch_size,
        seed=config.seed,
        progress=False,
        **options,
    )
    return time.perf_counter() - begin


def errors_by_temperature(num_links: int, config: Config) -> tuple[list[float], float, float]:
    """
    :return: test RMSE with each temperature that is kept; with the one that is tied and learned;
        and what that is at the end, in units of the inputs.
    """
    data, (X, Y) = arm(num_links, config)
    where = start(data[0], config)

    def error(*options: Any) -> tuple[float, gs.models.SoftKI]:
        model = build(where, len(data[0]), *options)
        train(model, data, config.num_short, config)
        model.fit_posterior(data, refit_noise=True)
        return gs.data.metrics.rmse(Y, model.predict_f(X)[0].numpy()), model

    kept = [error(temperature, False)[0] for temperature in config.temperatures]
    learned, model = error()
    scales = model.basis.kernel.lengthscales.numpy()
    return kept, learned, float(model.basis.temperature.numpy() * np.exp(np.mean(np.log(scales))))


def scores(model: Any, test: Arrays) -> tuple[dict[str, float], np.ndarray]:
    """:return: RMSE, NLPD and coverage of 95 %; and the coverage at all levels."""
    answers = [part.numpy().astype(float) for part in model.predict_y(test[0])]
    Y, metrics = test[1].astype(float), gs.data.metrics
    found = {
        "rmse": metrics.rmse(Y, answers[0]),
        "nlpd": metrics.nlpd(Y, *answers),
        "coverage": metrics.coverage(Y, *answers),
    }
    return found, metrics.coverage_curve(Y, *answers, LEVELS)


def compare(config: Config) -> dict[str, tuple[dict[str, float], np.ndarray]]:
    """Scores of SoftKI, its noise from its own rows and from others, and of GPflow's SVGP."""
    (X, Y), test = directions(config)
    seen = slice(len(X) - config.num_held_out)
    others = slice(seen.stop, None)
    scales, Z = start(X[seen], config)
    model, results = build((scales, Z), seen.stop), {}
    seconds = train(model, (X[seen], Y[seen]), config.num_steps, config)
    model.fit_posterior((X[seen], Y[seen]), refit_noise=True)
    results["own"] = scores(model, test)
    model.fit_posterior((X[others], Y[others]), refit_noise=True)  # for the noise alone
    model.fit_posterior((X, Y), refit_noise=False)
    results["softki"] = scores(model, test)
    results["softki"][0]["seconds"] = seconds
    kernel, likelihood = gpflow.kernels.Matern32(1.0, scales), gpflow.likelihoods.Gaussian(0.1)
    svgp = gpflow.models.SVGP(kernel, likelihood, Z, num_data=len(X))
    seconds = train(svgp, (X, Y), config.num_steps, config, natural_gradients=True)
    results["svgp"] = scores(svgp, test)
    results["svgp"][0]["seconds"] = seconds
    return results


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Both parts; print one line; draw if asked to.

    :return: of "own" (SoftKI, noise re-fitted on the rows that have trained it), "softki" (on
        others) and "svgp": ``rmse`` and ``nlpd`` of standardized outputs, ``coverage``, the share
        of test rows in central 95 % intervals, and ``seconds`` of training.
    """
    # with this jitter GPflow's models can be factorized in single precision, too
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        results = compare(config)
        errors = {links: errors_by_temperature(links, config) for links in config.links}
    numbers = {name: found for name, (found, _) in results.items()}
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, errors, results)
    return numbers


def draw(
    config: Config,
    errors: dict[int, tuple[list[float], float, float]],
    results: dict[str, tuple[dict[str, float], np.ndarray]],
) -> None:
    figure = new_figure(10.0, 4.2)
    left, right = figure.subplots(1, 2)
    colors = (BLUE, RED, GREEN, "0.4")
    for color, (links, (kept, learned, temperature)) in zip(colors, errors.items(), strict=False):
        label = f"{links} columns"
        left.plot(config.temperatures, kept, "o-", color=color, lw=1.4, ms=4, label=label)
        left.plot(temperature, learned, "*", color=color, ms=13)
    left.plot([], [], "k*", ms=10, ls="", label="tied and learned")
    left.set(xscale="log", yscale="log", xlabel="temperature", ylabel="test RMSE, standardized")
    left.set_title(f"robot arms, {config.num_short} steps", fontsize=10, loc="left")
    styles = {
        "own": ("SoftKI, noise from its own rows", colors[1], "--"),
        "softki": ("SoftKI, noise from other rows", colors[0], "-"),
        "svgp": ("GPflow SVGP", "0.4", "-"),
    }
    right.plot([0.0, 1.0], [0.0, 1.0], color="0.8", lw=1.0)
    for name, (label, color, style) in styles.items():
        found, shares = results[name]
        label = f"{label}: RMSE {found['rmse']:.2f}"
        right.plot(LEVELS, shares, style, color=color, lw=1.6, label=label)
    right.set(xlabel="central interval", ylabel="share of test rows within")
    title = f"{config.num_columns} columns, {config.num_steps} steps"
    right.set_title(title, fontsize=10, loc="left")
    for panel in (left, right):
        panel.legend(frameon=False, fontsize=9)
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
