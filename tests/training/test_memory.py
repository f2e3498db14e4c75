"""What fits leave in the process: no graphs, no warnings of retracing, no growth of memory."""

import gc

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow_probability import bijectors

import gpflow_sparse as gs
from bench.steps import megabytes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 2))
Y = np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(2000, 1))


def matern():
    return gpflow.kernels.Matern52(lengthscales=[1.0, 1.0])


def noise():
    return gpflow.likelihoods.Gaussian(0.1)


def points(M):
    return gpflow.inducing_variables.InducingPoints(X[:M].copy())


def sets(M):
    return gs.inducing_variables.OrthogonalInducingVariables(X[:M], X[M : 2 * M])


def fourier(M):
    return gs.bases.RandomFourier(matern(), M)


def nearest(M):
    return gs.inducing_variables.NeighborInducingPoints(X[:M], 4)


# Models of N rows and M points or functions, of this package and of GPflow.
MODELS = {
    "solvegp": lambda N, M: gs.models.SOLVEGP(matern(), noise(), sets(M), num_data=N),
    "solvegpr": lambda N, M: gs.models.SOLVEGPR((X[:N], Y[:N]), matern(), sets(M)),
    "swsgp": lambda N, M: gs.models.SWSGP(matern(), noise(), nearest(M), num_data=N),
    "qsgp": lambda N, M: gs.models.QSGP(fourier(M), noise(), num_data=N, basis_batch_size=4),
    "basis_svgp": lambda N, M: gs.models.BasisSVGP(fourier(M), noise(), num_data=N),
    "basis_gpr": lambda N, M: gs.models.BasisGPR((X[:N], Y[:N]), fourier(M)),
    "svgp": lambda N, M: gpflow.models.SVGP(matern(), noise(), points(M), num_data=N),
    "sgpr": lambda N, M: gpflow.models.SGPR((X[:N], Y[:N]), matern(), points(M)),
}


def fit(kind, N, M, num_steps):
    model = MODELS[kind](N, M)
    holds = isinstance(model, gpflow.models.InternalDataTrainingLossMixin)
    data = None if holds else (X[:N], Y[:N])
    gs.training.fit(model, data, num_steps=num_steps, progress=False)


def left():
    """Numbers of gradients of custom functions, of values cached by bijectors, and of graphs."""
    gc.collect()
    names = [name for name in ops.gradient_registry.list() if name.startswith("CustomGradient")]
    return len(names), len(bijectors.Bijector._cache.storage), num_graphs()


def num_graphs():
    return sum(isinstance(item, tf.__internal__.FuncGraph) for item in gc.get_objects())


def test_a_posterior_of_weights_leaves_no_graphs():
    before = left()
    model = gs.models.SoftKI(matern(), X[:8])
    model.fit_posterior((X[:40], Y[:40]))
    del model
    assert left() == before


@pytest.mark.nightly
def test_gradients_of_a_compiled_closure_leave_no_graphs():
    before = left()
    model = MODELS["basis_gpr"](40, 8)
    closure = model.training_loss_closure()
    with tf.GradientTape() as tape:
        loss = closure()
    compiled = tape.gradient(loss, model.trainable_variables)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    for found, wanted in zip(compiled, tape.gradient(loss, model.trainable_variables), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    del model, closure, tape, loss, compiled, found
    assert left() == before


@pytest.mark.nightly
def test_fits_of_models_of_equal_shape_are_no_retraces(caplog):
    for _ in range(6):
        fit("sgpr", N=20, M=4, num_steps=1)
    assert "retracing" not in caplog.text


@pytest.mark.nightly
@pytest.mark.parametrize("kind", MODELS)
def test_memory_does_not_grow_from_fit_to_fit(kind):
    resident = []
    for _ in range(30):
        fit(kind, N=2000, M=100, num_steps=3)
        gc.collect()
        resident.append(megabytes("VmRSS"))
    assert (resident[-1] - resident[-11]) / 10 < 1.0
