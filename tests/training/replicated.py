"""Runs of `fit` on replicas and on one, in a process of its own: `python -m ... DEVICES MODEL...`.

Logical devices and workers have to be set up before TensorFlow starts, so that no test can do it in
its own process. With ``TF_CONFIG`` in the environment the process is a worker.
"""

import json
import os
import sys
import time

import gpflow
import numpy as np
import tensorflow as tf

N, STEPS = 40, 20


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return X, np.sin(3.0 * X[:, :1]) + 0.1 * rng.normal(size=(N, 1))


def kernel():
    return gpflow.kernels.Matern32(lengthscales=[0.8, 1.2])


def gaussian():
    return gpflow.likelihoods.Gaussian(0.3)


def svgp(gs):
    return gpflow.models.SVGP(kernel(), gaussian(), data()[0][:6], num_data=N), True


def solvegp(gs, natural=True, **options):
    sets = gs.inducing_variables.OrthogonalInducingVariables(data()[0][:4], data()[0][4:12])
    noise = options.pop("likelihood", None) or gaussian()
    return gs.models.SOLVEGP(kernel(), noise, sets, num_data=N, **options), natural


def log_bound(gs):
    return solvegp(gs, False, bound="log", likelihood=gpflow.likelihoods.StudentT())


def odvgp(gs):
    sets = gs.inducing_variables.OrthogonalInducingVariables(data()[0][:4], data()[0][4:20])
    return gs.models.ODVGP(kernel(), gaussian(), sets, num_penalty_samples=3, num_data=N), False


def basis_svgp(gs):
    basis = gs.bases.RandomFourier(kernel(), 12, seed=1)
    return gs.models.BasisSVGP(basis, gaussian(), num_data=N), True


def softki(gs, objective="pseudo"):
    return gs.models.SoftKI(kernel(), data()[0][:10], objective=objective, num_data=N), False


def swsgp(gs, **options):
    points = gs.inducing_variables.NeighborInducingPoints(data()[0][:30], 3)
    return gs.models.SWSGP(kernel(), gaussian(), points, num_data=N, **options), False


def swsgp_paper(gs):
    return swsgp(gs, kl_weighting="paper", covariance="dense")


def swsgp_chain(gs):
    return swsgp(gs, kl_weighting="chain")


def swsgp_union(gs):
    return swsgp(gs, union=8)


def qsgp(gs, **options):
    basis = gs.bases.RandomFourier(kernel(), 12, seed=1)
    options = {"num_data": N, "basis_batch_size": 3, "num_control_rows": 8} | options
    return gs.models.QSGP(basis, gaussian(), **options), False


def qsgp_chevron(gs):
    return qsgp(gs, covariance="chevron", num_dense_columns=2)


def rvm(gs):
    model = gs.models.RVM(data()[0], kernel(), num_data=N, basis_batch_size=5, num_control_rows=8)
    return model, False


def deep(gs):
    layers = [gs.models.GPLayer(kernel(), data()[0][:6], num_latent_gps=L) for L in (2, 1)]
    for layer in layers:  # at the prior, the last layer would see no draw of the first
        layer.start_at(np.ones((2, layer.num_latent_gps)), scale=0.5)
    return gs.models.DeepGP(layers, gaussian(), num_data=N), True


MODELS = {
    make.__name__: make
    for make in (
        *(svgp, solvegp, log_bound, odvgp, basis_svgp, softki),
        *(swsgp, swsgp_paper, swsgp_chain, swsgp_union),
        *(qsgp, qsgp_chevron, rvm, deep),
    )
}


def trained(gs, name, strategy):
    """Variables after 20 steps whose batches no number of replicas divides, and the objectives."""
    model, natural = MODELS[name](gs)
    history = gs.training.fit(
        model,
        data(),
        num_steps=STEPS,
        batch_size=15,
        natural_gradients=natural,
        checkpoint_every=10,
        progress=False,
        strategy=strategy,
    )
    return [history.elbo, *(v.numpy() for v in model.variables)]


def difference(gs, name, strategy):
    """Largest difference of a run on replicas to one on one; relative for values above 1."""
    many, one = trained(gs, name, strategy), trained(gs, name, None)
    gaps = [
        np.max(np.abs(a - b) / np.maximum(1.0, np.abs(b)), initial=0.0)
        for a, b in zip(many, one, strict=True)
    ]
    return float(max(gaps))


def strategy_of(devices):
    if "TF_CONFIG" in os.environ:
        return tf.distribute.MultiWorkerMirroredStrategy()
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(devices)]
    tf.config.set_logical_device_configuration(cpu, logical)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)])


def main(devices, names):
    strategy = strategy_of(int(devices))
    import gpflow_sparse as gs

    for name in names:
        start = time.process_time()
        gap = difference(gs, name, strategy)
        seconds = time.process_time() - start
        print(json.dumps({"model": name, "gap": gap, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
