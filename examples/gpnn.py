"""GPnn: an exact GP on the nearest rows of each row that is predicted.

Hyperparameters come from small subsets of neighboring rows; nothing else is trained.

    python examples/gpnn.py --output gpnn.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


def curve(x):
    return np.sin(3.0 * x) + 0.5 * np.sin(11.0 * x + 1.0)


@click.command()
@click.option("--num-data", default=20_000, show_default=True, help="Rows.")
@click.option("--num-neighbors", default=128, show_default=True, help="Rows for a prediction.")
@click.option("--output", default="gpnn.png", show_default=True, help="Figure to write.")
def main(num_data, num_neighbors, output):
    """Predict a curve from the nearest of its noisy values."""
    rng = np.random.default_rng(0)
    X, Xnew = rng.uniform(-50.0, 50.0, size=(num_data, 1)), rng.uniform(-50.0, 50.0, size=(1000, 1))
    Y, Ynew = (curve(rows) + 0.4 * rng.normal(size=rows.shape) for rows in (X, Xnew))

    kernel = gpflow.kernels.Matern52()
    noise = gs.initialization.local_hyperparameters(X, Y, kernel)  # sets those of the kernel
    model = gs.models.NearestNeighborGP(
        (X, Y), kernel, num_neighbors=num_neighbors, noise_variance=noise
    )
    error = gs.data.metrics.rmse(curve(Xnew), model.predict_f(Xnew)[0])
    covered = gs.data.metrics.coverage(Ynew, *model.predict_y(Xnew))
    print(f"rmse={error:.3f} coverage={covered:.3f}")

    x = np.linspace(-2.0, 2.0, 400)[:, None]
    mean, var = (moment.numpy()[:, 0] for moment in model.predict_f(x))
    figure, panel = plt.subplots(figsize=(8.0, 3.8), layout="constrained")
    panel.plot(X, Y, ".", color="0.75", ms=2)
    panel.fill_between(x[:, 0], mean - 2 * var**0.5, mean + 2 * var**0.5, alpha=0.3)
    panel.plot(x, mean, label=f"mean and 2 sd of f, {num_neighbors} neighbors")
    panel.plot(x, curve(x), "k--", lw=0.8, label="curve")
    panel.set(xlabel="x", ylabel="y", xlim=(-2.0, 2.0))
    panel.legend()
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
