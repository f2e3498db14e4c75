"""Steps with products of the batch in float32 beside the same steps in float64."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import ODVGP, SOLVEGP
from gpflow_sparse.training import fit

N = 120


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, np.sin(3.0 * X[:, :1]) + 0.1 * rng.normal(size=(N, 1))


def parts():
    Z = np.random.default_rng(1).normal(size=(50, 2))
    sets = OrthogonalInducingVariables(Z[:30], Z[30:])
    return gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), sets


def solvegp(kind=SOLVEGP, **options):
    model, rng = kind(*parts(), num_data=N, **options), np.random.default_rng(2)
    for q_mu, q_sqrt in model.variational_parameters:
        q_mu.assign(rng.normal(size=q_mu.shape))
        q_sqrt.assign(0.5 * q_sqrt + 0.05 * np.tril(rng.normal(size=q_sqrt.shape)))
    return model


def loss_and_gradients(model, is_mixed):
    """Of the first step of `fit`, which moves by the gradient times the rate."""
    before = [v.numpy() for v in model.trainable_variables]
    options = {"optimizer": tf_keras.optimizers.SGD(2.0**-16), "num_steps": 1, "progress": False}
    history = fit(model, data(), precision="mixed" if is_mixed else "full", **options)
    moved = [
        2.0**16 * (a - v.numpy()) for a, v in zip(before, model.trainable_variables, strict=True)
    ]
    return -history.elbo[0], moved


def test_a_run_in_mixed_precision_is_resumed_exactly_and_only_so(tmp_path):
    options = {"batch_size": 40, "checkpoint_every": 5, "progress": False}
    whole, again = solvegp(), solvegp()
    fit(whole, data(), num_steps=10, precision="mixed", **options)
    options["checkpoint_dir"] = tmp_path
    fit(solvegp(), data(), num_steps=6, precision="mixed", **options)
    with pytest.raises(ValueError, match=r"precision='?mixed"):
        fit(again, data(), num_steps=10, resume=True, **options)
    fit(again, data(), num_steps=10, resume=True, precision="mixed", **options)
    for a, b in zip(again.trainable_variables, whole.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_strategy_computes_the_same_in_threads_of_its_own():
    ours, theirs = solvegp(), solvegp()
    options = {"num_steps": 2, "batch_size": 40, "precision": "mixed", "progress": False}
    fit(ours, data(), **options, strategy=tf.distribute.MirroredStrategy(["cpu:0"]))
    fit(theirs, data(), **options)
    for a, b in zip(ours.trainable_variables, theirs.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_other_models_refuse_it():
    with pytest.raises(ValueError, match=r"must be 'full' for a ODVGP; SOLVEGP takes 'mixed'"):
        fit(solvegp(ODVGP), data(), num_steps=1, precision="mixed")
    with pytest.raises(ValueError, match=r"precision must be one of 'full', 'mixed'; got 'half'"):
        fit(solvegp(), data(), num_steps=1, precision="half")
