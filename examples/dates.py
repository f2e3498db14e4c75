"""A forecast of half a year with bands: a kernel of one's own beside the default one.

Three years of a made-up daily measurement with a slow change, a cycle of a year and one of the
moon, of which four days in ten are missing; data and model of the tutorial on time series.

    python examples/dates.py --output dates.png
"""

from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import pandas as pd
from gpflow.kernels import Matern52, Periodic, SquaredExponential

from _frame import BLUE, RED, legend_below, new_figure, option, print_numbers, run, save_figure
from gpflow_sparse.estimators import SparseGPRegressor, TableEncoder

MOON = 29.53
YEAR = 365.2425


@dataclass(frozen=True)
class Config:
    """Forecast a time series with dates by two kernels."""

    num_days: int = option(1280, "Days with a value, those of the forecast included.")
    num_forecast: int = option(184, "Days of the forecast.")
    noise: float = option(0.4, "Standard deviation of the noise.")
    seed: int = option(0, "Seed of the noise and of the missing days.")
    output: str | None = option(None, "Figure to write.")


def make_data(config: Config) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Dates [N], values [N], and which days [N] are measured and before the forecast."""
    rng = np.random.default_rng(config.seed)
    day = np.arange(config.num_days)
    signal = 5 + 1.5 * np.sin(day / 260) + 2 * np.cos(2 * np.pi * day / YEAR)
    signal = signal + np.sin(2 * np.pi * day / MOON)
    level = signal + rng.normal(0, config.noise, len(day))
    past = day < config.num_days - config.num_forecast
    past &= rng.uniform(size=len(day)) < 0.6
    return pd.DataFrame({"date": pd.date_range("2020-01-01", periods=len(day))}), level, past


def own_kernel(table: pd.DataFrame) -> gpflow.kernels.Kernel:
    """A slow change, a year and a moon, for the standardized columns that encode the dates."""
    encoder = TableEncoder().fit(table)
    days = encoder.transform(table)[:, 0].std()  # one unit of column 0
    change = Matern52(lengthscales=YEAR / days, active_dims=[0])
    moon = Periodic(SquaredExponential(active_dims=[0]), period=MOON / days)
    gpflow.set_trainable(moon.period, False)
    return change + SquaredExponential(active_dims=[1, 2]) + moon


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Fit both kernels; print root mean squared error and 95 % coverage of the forecasts; draw.

    :return: "error" and "coverage" of the kernels "own" and "default".
    """
    table, level, past = make_data(config)
    future = table.index >= config.num_days - config.num_forecast
    kernels = {"own": own_kernel(table[past]), "default": None}
    models, numbers = {}, {}
    for name, kernel in kernels.items():
        model = SparseGPRegressor(method="exact", kernel=kernel, random_state=0)
        models[name] = model.fit(table[past], level[past])
        low, high = model.predict_interval(table[future]).T
        mean, observed = model.predict(table[future]), level[future]
        numbers[name] = {
            "error": float(np.sqrt(np.mean((mean - observed) ** 2))),
            "coverage": float(np.mean((low <= observed) & (observed <= high))),
        }
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, table, level, past, models)
    return numbers


def draw(
    config: Config,
    table: pd.DataFrame,
    level: np.ndarray,
    past: np.ndarray,
    models: dict[str, SparseGPRegressor],
) -> None:
    """The last year of measurements, and the forecasts with their 95 % bands, a panel each."""
    begin = config.num_days - config.num_forecast
    shown = table.index >= max(0, begin - 365)
    titles = {"own": "slow change + year + moon", "default": "default kernel"}
    figure = new_figure(8.4, 3.0)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for panel, (name, model) in zip(panels, models.items(), strict=True):
        draw_panel(panel, table[shown], model)
        for rows, color, label in (
            (shown & past, "0.35", "measured"),
            (table.index >= begin, RED, "not yet known"),
        ):
            panel.plot(
                table["date"][rows], level[rows], ".", color=color, ms=3, mec="none", label=label
            )
        panel.axvline(table["date"][begin], color="0.5", lw=0.8, ls=":")
        panel.set_title(titles[name], fontsize=10, loc="left")
        panel.tick_params(axis="x", labelrotation=30, labelsize=8)
    legend_below(figure, panels[0])
    save_figure(figure, config.output)


def draw_panel(panel: Any, table: pd.DataFrame, model: SparseGPRegressor) -> None:
    """Mean and central 95 % interval of new observations."""
    low, high = model.predict_interval(table).T
    panel.fill_between(table["date"], low, high, color=BLUE, alpha=0.22, lw=0, label="95 % band")
    panel.plot(table["date"], model.predict(table), color=BLUE, lw=1.4, label="mean")


if __name__ == "__main__":
    run(main, Config)
