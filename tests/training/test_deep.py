"""The jitter that training raises, in all layers of a deep model."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables, Patches
from gpflow_sparse.kernels import Convolutional
from gpflow_sparse.models import ConvLayer, DeepGP, GPLayer

N, IMAGE, PATCH = 12, (3, 4), (2, 2)


def images():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 12))
    return X, (X[:, :4].sum(axis=1, keepdims=True) > 0.0).astype(float)


def deep(seed=None):
    rng = np.random.default_rng(1)
    hidden = ConvLayer(
        gpflow.kernels.Matern52(lengthscales=2.0),
        OrthogonalInducingVariables(rng.normal(size=(4, 4)), rng.normal(size=(3, 4))),
        IMAGE,
        PATCH,
        num_latent_gps=2,
    )
    hidden.start_at(rng.normal(size=(4, 2)), scale=0.1)
    top = GPLayer(
        Convolutional(gpflow.kernels.Matern52(lengthscales=2.0), hidden.output_shape, (1, 2)),
        OrthogonalInducingVariables(*(Patches(rng.normal(size=(M, 4))) for M in (4, 3))),
    )
    return DeepGP(
        [hidden, top], gpflow.likelihoods.Bernoulli(), num_data=N, num_samples=2, seed=seed
    )


@pytest.mark.parametrize("sampling", ["marginal", "joint"])
def test_the_jitter_that_training_raises_reaches_every_layer(sampling):
    model, data = deep(seed=0), images()
    model.sampling = sampling
    for mean in model.layers[1].q_mu:  # at the prior jitter makes no difference
        mean.assign(np.ones(mean.shape))
    plain = float(model.elbo(data))
    model.jitter = 1e-2
    raised = float(model.elbo(data))
    model.jitter = None
    for layer in model.layers:
        layer.jitter = 1e-2
    assert float(model.elbo(data)) == raised
    model.layers[0].jitter = None
    assert len({plain, raised, float(model.elbo(data))}) == 3
