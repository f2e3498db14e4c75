"""SOLVE-GP with neighbors: a base that all rows share, and neighbors on what it leaves.

A slow trend with fast detail, and two gaps without rows. The base carries the trend into the gaps,
and each row sees four of 250 points for the detail. q is in closed form.

    python examples/residual_neighbors.py --output residual_neighbors.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


@click.command()
@click.option("--num-inducing", default=12, show_default=True, help="Points of the base.")
@click.option("--num-orthogonal", default=250, show_default=True, help="Points of the residual.")
@click.option("--num-neighbors", default=4, show_default=True, help="Of these, seen by a row.")
@click.option("--output", default="residual_neighbors.png", show_default=True, help="Figure.")
def main(num_inducing, num_orthogonal, num_neighbors, output):
    """Fit a base and neighbors to a trend with detail and gaps."""
    rng = np.random.default_rng(0)
    trend = gpflow.kernels.SquaredExponential(lengthscales=1.5)
    kernel = trend + gpflow.kernels.Matern32(variance=0.2, lengthscales=0.1)
    x, X = np.linspace(0.0, 10.0, 1000)[:, None], rng.uniform(0.0, 10.0, size=(1000, 1))
    X = X[((X < 2.5) | (X > 3.5)) & ((X < 6.0) | (X > 7.5))][:, None]
    both = np.concatenate([x, X])
    F = np.linalg.cholesky(kernel(both) + 1e-8 * np.eye(len(both))) @ rng.normal(size=both.shape)
    f, Y = F[:1000], F[1000:] + 0.2 * rng.normal(size=X.shape)

    Z, O = (gs.initialization.kmeans(X, M) for M in (num_inducing, num_orthogonal))
    near = gs.inducing_variables.NeighborInducingPoints(O, num_neighbors)
    sets = gs.inducing_variables.OrthogonalInducingVariables(Z, near)
    noise = gpflow.likelihoods.Gaussian(0.04)
    model = gs.models.ResidualNeighborGP(kernel, noise, sets, num_data=len(X))
    model.count_neighbors(X)
    model.start_from_sites((X, Y))
    for _ in range(5):  # q of each part, given that of the other
        model.update_base((X, Y))
        model.update_posterior((X, Y))

    mean, var = (moment.numpy() for moment in model.predict_f(x))
    covered = gs.data.metrics.coverage(f, mean, var)
    print(f"rmse={gs.data.metrics.rmse(f, mean):.3f} coverage={covered:.3f}")

    figure, panel = plt.subplots(figsize=(9.0, 3.6), layout="constrained")
    panel.plot(X, Y, ".", color="0.75", ms=2)
    low, high = mean - 2 * var**0.5, mean + 2 * var**0.5
    panel.fill_between(x[:, 0], low[:, 0], high[:, 0], alpha=0.3)
    panel.plot(x, mean, label="mean and 2 sd of f")
    panel.plot(x, f, "k", lw=0.6, label="f")
    panel.legend()
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
