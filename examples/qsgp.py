"""QSGP: steps that see some of the rows and some of 100,000 basis functions.

Functions around inducing points are part of every step, random Fourier features are sampled.

    python examples/qsgp.py --output qsgp.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs


def function(X):
    return np.sin(1.5 * X[:, :1]) + np.cos(X[:, 1:2]) * np.tanh(X[:, 3:])


def fit(X, Y, num_features, basis_batch_size, num_steps):
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(4, 2.0))
    model = gs.models.QSGP(
        gs.bases.Hybrid(kernel, X[:100], num_features),
        gpflow.likelihoods.Gaussian(0.1),
        num_data=len(X),
        basis_batch_size=basis_batch_size,
    )
    tf.random.set_seed(0)  # of the draws of functions
    adam = gs.training.adam(0.05, decay_steps=num_steps)  # of kernel and noise
    optimizer = gs.training.SparseAdagrad(0.1, dense=adam)
    steps = {"num_steps": num_steps, "batch_size": 250}
    gs.training.fit(model, (X, Y), optimizer=optimizer, **steps, progress=False)
    model.update_covariance(X[:1000])  # the best covariance, from rows that stand for all
    return model


@click.command()
@click.option("--num-features", default=99_900, show_default=True, help="Fourier features, even.")
@click.option("--basis-batch-size", default=2000, show_default=True, help="Of them in a draw.")
@click.option("--num-steps", default=400, show_default=True, help="Training steps.")
@click.option("--output", default="qsgp.png", show_default=True, help="Figure to write.")
def main(num_features, basis_batch_size, num_steps, output):
    """Fit QSGP to noisy values of a function of four inputs."""
    rng = np.random.default_rng(0)
    X, Xnew = (rng.normal(size=(rows, 4)).astype(np.float32) for rows in (20_000, 1000))
    Y = (function(X) + 0.1 * rng.normal(size=(len(X), 1))).astype(np.float32)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        model = fit(X, Y, num_features, basis_batch_size, num_steps)
        mean, noise = model.predict_f(Xnew)[0].numpy(), np.sqrt(model.likelihood.variance)
    print(f"rmse={gs.data.metrics.rmse(function(Xnew), mean):.3f} noise={noise:.3f}")
    figure, panel = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
    panel.plot(function(Xnew), mean, ".", ms=3)
    panel.axline((0.0, 0.0), slope=1.0, color="0.5", lw=0.8)
    panel.set(xlabel="function at new inputs", ylabel="mean of f")
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
