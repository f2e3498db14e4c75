"""Deep GP: two layers on a curve of three steps, which no stationary kernel describes.

The hidden layer moves inputs apart at a step; the last one has two orthogonal sets of points.

    python examples/deep.py --output deep.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs


def curve(x):
    return np.select([x < -1.0, x < 0.3], [0.0, 1.0], -0.5)


@click.command()
@click.option("--num-inducing", default=15, show_default=True, help="Points of each set.")
@click.option("--num-layers", default=2, show_default=True, help="1 for SOLVE-GP.")
@click.option("--num-steps", default=1000, show_default=True, help="Training steps.")
@click.option("--output", default="deep.png", show_default=True, help="Figure to write.")
def main(num_inducing, num_layers, num_steps, output):
    """Fit a deep GP to noisy values of a curve of three steps."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(120, 1))
    Y = curve(X) + 0.05 * rng.normal(size=X.shape)

    model = gs.models.deep(
        X,
        gpflow.likelihoods.Gaussian(0.1),
        num_inducing=num_inducing,
        num_orthogonal=[0] * (num_layers - 1) + [num_inducing],
        num_layers=num_layers,
        kernel=gpflow.kernels.SquaredExponential(),
        num_samples=2,
        num_prediction_samples=100,
    )
    tf.random.set_seed(0)  # of the draws of hidden values
    adam = gs.training.adam(0.02, decay_steps=num_steps)
    gs.training.fit(model, (X, Y), optimizer=adam, num_steps=num_steps, progress=False)

    x = np.linspace(-3.0, 3.0, 1000)[:, None]
    mean, var = (moment.numpy()[:, 0] for moment in model.predict_f(x))
    print(f"rmse={gs.data.metrics.rmse(curve(x[:, 0]), mean):.3f}")

    figure, panel = plt.subplots(figsize=(8.0, 3.8), layout="constrained")
    panel.plot(X, Y, ".", color="0.6", ms=4)
    panel.fill_between(x[:, 0], mean - 2 * var**0.5, mean + 2 * var**0.5, alpha=0.3)
    panel.plot(x, mean, label="mean and 2 sd of f")
    panel.plot(x, curve(x), "k--", lw=0.8, label="curve")
    panel.legend()
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
