"""Every model computes the same together on a GPU as in blocks on a CPU."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.numerics import devices, random_draws
from tests.battery import MEMBERS, REGRESSIONS, N, inputs, perturb

ALL = MEMBERS | REGRESSIONS


def values_and_gradients(name):
    """The loss with its gradients, and predictions with and without a cache."""
    member = ALL[name]
    model = perturb(member.build() if name in REGRESSIONS else member.build(num_data=N))
    data = () if hasattr(model, "data") else (member.data,)
    with random_draws.seeded([1, 2]), tf.GradientTape() as tape:
        loss = model.training_loss(*data)
    slopes = tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")
    new = inputs(seed=5, rows=7) if member.data[0].shape[1] == 2 else member.data[0][:7]
    found = [loss, *map(tf.convert_to_tensor, slopes)]
    return found, [*model.predict_f(new), *model.posterior().predict_f(new)]


@pytest.mark.parametrize("name", ALL)
def test_losses_gradients_and_predictions_are_those_of_a_cpu(name, monkeypatch):
    expected = values_and_gradients(name)
    monkeypatch.setattr(devices, "sees_gpu", lambda: True)
    for parts, wanted in zip(values_and_gradients(name), expected, strict=True):
        for got, value in zip(parts, wanted, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-8, atol=1e-9)
