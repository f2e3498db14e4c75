"""Predictions in one thread while another one trains the model."""

import threading
import time

import gpflow
import numpy as np
import pytest

from gpflow_sparse.training import between_steps, fit
from tests.training.test_checkpoints import data, solvegp


class Training(threading.Thread):
    """A run of `fit` in a thread of its own, until :meth:`stop`."""

    def __init__(self, model, **options):
        super().__init__()
        self.model, self.options, self.steps, self.stopped = model, options, 0, False

    def run(self):
        fit(
            self.model,
            data(),
            num_steps=100_000,
            progress=False,
            callbacks=[self.count],
            **self.options,
        )

    def count(self, state):
        self.steps = state.step
        return self.stopped

    def wait(self, step):
        while self.steps < step:
            assert self.is_alive()
            time.sleep(0.001)

    def __enter__(self):
        self.start()
        self.wait(1)
        return self

    def __exit__(self, *error):
        self.stopped = True
        self.join()


def test_no_step_is_taken_in_a_block_between_steps_and_waiting_threads_get_their_turn():
    model = solvegp()
    with Training(model, batch_size=16) as training:
        for _ in range(20):
            with between_steps(model):
                before = [variable.numpy() for variable in model.variables]
                steps = training.steps
                time.sleep(0.005)
                after = [variable.numpy() for variable in model.variables]
                assert training.steps <= steps + 1  # the step before is counted after the lock
                for old, new in zip(before, after, strict=True):
                    np.testing.assert_array_equal(old, new)
            training.wait(training.steps + 1)  # and training goes on


@pytest.mark.nightly
def test_predictions_during_training_never_fail_and_are_those_of_one_moment():
    """Without the lock, parameters of two moments make matrices that cannot be factored."""
    model = solvegp()
    X = data()[0]
    options = {"natural_gradients": 0.5, "batch_size": 16, "optimizer": None}
    with Training(model, **options) as training:
        for _ in range(15):
            mean, variance = model.predict_f(X)
            assert np.isfinite(mean).all()
            assert (variance.numpy() > 0.0).all()
            model.posterior().predict_f(X)
            with between_steps(model):
                copy = gpflow.utilities.deepcopy(model)
                expected = model.predict_f(X)[0]
            step = training.steps
            training.wait(step + 2)
            np.testing.assert_allclose(copy.posterior().predict_f(X)[0], expected, atol=1e-9)
