"""A time series with dates: a kernel of known cycles, and a forecast of half a year.

Three years of a daily measurement with a slow change, a cycle of a year and one of the moon, of
which four days in ten are missing: data and model of the tutorial on time series.

    python examples/dates.py --output dates.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from gpflow.kernels import Matern52, Periodic, SquaredExponential

import gpflow_sparse as gs


@click.command()
@click.option("--num-days", default=1280, show_default=True, help="Days, the forecast included.")
@click.option("--num-forecast", default=184, show_default=True, help="Days of the forecast.")
@click.option("--output", default="dates.png", show_default=True, help="Figure to write.")
def main(num_days, num_forecast, output):
    """Forecast a time series with dates."""
    rng = np.random.default_rng(0)
    day = np.arange(num_days)
    signal = 5 + 1.5 * np.sin(day / 260) + 2 * np.cos(2 * np.pi * day / 365.2425)
    level = signal + np.sin(2 * np.pi * day / 29.53) + rng.normal(0, 0.4, num_days)
    table = pd.DataFrame({"date": pd.date_range("2020-01-01", periods=num_days)})
    future = day >= num_days - num_forecast
    past = ~future & (rng.uniform(size=num_days) < 0.6)

    # columns are standardized: 0 is the day, 1 and 2 are the sine and cosine of the year
    unit = day[past].std()
    change = Matern52(lengthscales=365 / unit, active_dims=[0])
    moon = Periodic(SquaredExponential(active_dims=[0]), period=29.53 / unit)
    gpflow.set_trainable(moon.period, False)
    kernel = change + SquaredExponential(active_dims=[1, 2]) + moon
    model = gs.estimators.SparseGPRegressor(method="exact", kernel=kernel, random_state=0)
    model.fit(table[past], level[past])

    mean, (low, high) = model.predict(table[future]), model.predict_interval(table[future]).T
    error = gs.data.metrics.rmse(level[future], mean)
    covered = np.mean((low <= level[future]) & (level[future] <= high))
    print(f"rmse={error:.3f} coverage={covered:.3f}")

    figure, panel = plt.subplots(figsize=(8.4, 3.4), layout="constrained")
    panel.plot(table["date"][past], level[past], ".", color="0.5", ms=3, label="measured")
    panel.plot(table["date"][future], level[future], "C3.", ms=3, label="not yet known")
    low, high = model.predict_interval(table).T
    panel.fill_between(table["date"], low, high, alpha=0.25, label="95 % band")
    panel.plot(table["date"], model.predict(table), lw=1.2, label="mean")
    panel.legend(ncols=4)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
