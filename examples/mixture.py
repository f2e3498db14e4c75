"""GPMixture: few rows, with hyperparameters and kernels averaged rather than chosen.

python examples/mixture.py --output mixture.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


def draw(num_rows, rng):
    """Noisy values of a curve without its middle."""
    X = rng.uniform(0.0, 1.0, size=(num_rows, 1))
    X = np.where(X < 0.5, X - 1.8, X + 0.4)
    return X, np.sin(3.0 * X) + 0.4 * X + 0.15 * rng.normal(size=X.shape)


@click.command()
@click.option("--num-data", default=40, show_default=True, help="Rows.")
@click.option("--output", default="mixture.png", show_default=True, help="Figure to write.")
def main(num_data, output):
    """Average four kernels, and compare with the mode of one."""
    rng = np.random.default_rng(0)
    (X, Y), (Xnew, Ynew) = draw(num_data, rng), draw(1000, rng)

    profiles = [gpflow.kernels.Matern32, gpflow.kernels.Matern52, gpflow.kernels.Matern12]
    kernels = [gs.kernels.table_kernel(profile, 1) for profile in profiles]
    model = gs.models.GPMixture((X, Y), kernels).integrate()
    low, high = model.predict_quantiles(Xnew, [0.025, 0.975])
    nlpd = -np.mean(model.predict_log_density((Xnew, Ynew)))
    coverage = np.mean((low < Ynew) & (Ynew < high))
    effective = [summary.effective_number for summary in model.describe()]
    print(f"nlpd={nlpd:.3f} coverage={coverage:.3f} effective_draws={min(effective):.0f}")

    line = np.linspace(-2.2, 1.8, 300)[:, None]
    ends = model.predict_quantiles(line, [0.025, 0.5, 0.975])[..., 0]
    draws = model.posterior().sample_functions(5, seed=1)(line)[..., 0]
    figure, panel = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    panel.fill_between(line[:, 0], ends[0], ends[2], alpha=0.25, label="95 % of observations")
    panel.plot(line, ends[1], label="median")
    panel.plot(line, np.transpose(draws), color="gray", lw=0.6)
    panel.plot(X, Y, "k.", label="rows")
    panel.set(xlabel="x", ylabel="y", ylim=(-3.0, 3.0))
    panel.legend(fontsize=8, ncols=3)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
