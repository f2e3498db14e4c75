"""Relevance vector machine: a sum of few kernel functions.

A kernel function around every input, each with a prior precision of its own. Most precisions grow
without bound; the inputs whose do not are the relevance vectors.

    python examples/rvm.py --output rvm.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs


@click.command()
@click.option("--num-data", default=500, show_default=True, help="Rows, and centers.")
@click.option("--basis-batch-size", default=250, show_default=True, help="Functions in a draw.")
@click.option("--num-steps", default=600, show_default=True, help="Training steps.")
@click.option("--output", default="rvm.png", show_default=True, help="Figure to write.")
def main(num_data, basis_batch_size, num_steps, output):
    """Fit a relevance vector machine to a noisy sinc."""
    rng = np.random.default_rng(0)
    X = np.linspace(-10.0, 10.0, num_data)[:, None]
    Y = np.sinc(X / np.pi) + 0.1 * rng.normal(size=X.shape)

    kernel = gpflow.kernels.SquaredExponential()
    gpflow.set_trainable(kernel, False)
    sizes = {"num_data": num_data, "basis_batch_size": basis_batch_size}
    model = gs.models.RVM(X, kernel, gpflow.likelihoods.Gaussian(0.01), **sizes)
    tf.random.set_seed(0)  # of the draws of functions
    adam = gs.training.SparseAdam(0.01)
    steps = {"num_steps": num_steps, "batch_size": min(100, num_data)}
    gs.training.fit(model, (X, Y), optimizer=adam, **steps, progress=False)
    model.refine((X, Y))  # closed forms of q and of the precisions in turn

    vectors, small = model.relevance_vectors(), model.prune()  # a model of these alone
    small.update_mean((X, Y))
    error = gs.data.metrics.rmse(np.sinc(X / np.pi), small.predict_f(X)[0])
    print(f"vectors={len(vectors)} rmse={error:.4f}")

    x = np.linspace(-11.0, 11.0, 400)[:, None]
    mean, var = (np.asarray(moment)[:, 0] for moment in small.predict_y(x))
    figure, panel = plt.subplots(figsize=(8.0, 3.8), layout="constrained")
    panel.plot(X, Y, "k.", ms=2)
    panel.fill_between(x[:, 0], mean - 2 * var**0.5, mean + 2 * var**0.5, alpha=0.2)
    panel.plot(x, mean, label="mean and 2 sd of y")
    panel.plot(x, np.sinc(x / np.pi), "k--", lw=0.8, label="function")
    panel.plot(vectors, small.predict_f(vectors)[0], "C3o", label="relevance vectors")
    panel.legend()
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
