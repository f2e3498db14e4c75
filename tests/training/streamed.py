"""Models that hold their data, with the rows of two workers and with all: a process of its own."""

import json
import os

import gpflow
import numpy as np
import tensorflow as tf

from tests.training.replicated import data, kernel, strategy_of


def grief(gs, rows):
    options = {"num_eigenfunctions": 12, "noise_variance": 0.2}
    options["grid"] = [np.linspace(-2.0, 2.0, 6)] * 2  # not from the rows of a worker
    product = gpflow.kernels.SquaredExponential(lengthscales=[0.8, 1.2])
    return gs.models.GRIEF(rows, product, **options)


def basis_gpr(gs, rows):
    basis = gs.bases.RandomFourier(kernel(), 10, seed=1)
    return gs.models.BasisGPR(rows, basis, noise_variance=0.2)


def solvegpr(gs, rows):
    sets = gs.inducing_variables.OrthogonalInducingVariables(data()[0][:4], data()[0][4:12])
    return gs.models.SOLVEGPR(rows, kernel(), sets, noise_variance=0.2)


MODELS = {make.__name__: make for make in (grief, basis_gpr, solvegpr)}


def values(gs, rows, name):
    """The bound, its gradient and the evidence after a few iterations; and predictions."""
    if name == "softki":
        model = gs.models.SoftKI(kernel(), data()[0][:10], num_data=len(data()[0]))
        model.fit_posterior(rows)
        return [model.likelihood.variance.numpy(), *model.predict_y(data()[0][:5])]
    model = MODELS[name](gs, rows)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    gradients = tape.gradient(loss, model.trainable_variables)
    history = gs.training.fit_with_basis_refresh(
        model, num_rounds=1, num_iterations=4, progress=False
    )
    return [loss, *gradients, history.elbo, *model.predict_f(data()[0][:5])]


def main():
    strategy = strategy_of(1)
    import gpflow_sparse as gs

    X, Y = data()
    mine = [slice(None, 13), slice(13, None)][json.loads(os.environ["TF_CONFIG"])["task"]["index"]]
    for name in (*MODELS, "softki"):
        with gs.training.rows_of_workers(strategy):
            found = values(gs, (X[mine], Y[mine]), name)
        wanted = values(gs, (X, Y), name)
        gap = max(np.max(np.abs(a - b)) for a, b in zip(found, wanted, strict=True))
        print(json.dumps({"model": name, "gap": float(gap)}), flush=True)


if __name__ == "__main__":
    main()
