"""Early stopping on made-up histories, and GPflow monitors as callbacks."""

from types import SimpleNamespace

import gpflow
import numpy as np
import pytest
from gpflow.monitor import ExecuteCallback, Monitor, MonitorTaskGroup

from gpflow_sparse.training import EarlyStopping, FitState, KeepBest, fit


def stops(stopper, values, model=None):
    """The step at which it stops, or None."""
    for step, value in enumerate(values, start=1):
        if stopper(FitState(step, value, model)):
            return step
    return None


def test_it_stops_after_patience_looks_without_a_rise():
    assert stops(EarlyStopping(every=1, patience=3), [1, 2, 3, 3, 2, 3, 9]) == 6
    assert stops(EarlyStopping(every=1, patience=1), [1, 2, 2]) == 3


def test_small_rises_do_not_count():
    values = [0.0, 0.5, 1.0, 1.5, 2.0]
    assert stops(EarlyStopping(every=1, patience=2, min_delta=1.0), values) == 3
    assert stops(EarlyStopping(every=1, patience=3, min_delta=0.4), values) is None


def test_scores_come_from_held_out_rows_if_there_are_any():
    asked, scores = [], iter([[0.0], [1.0, 3.0], [2.0, 3.0], [2.0, 2.0], [1.0, 1.0]])
    held_out = np.zeros((2, 1)), np.zeros((2, 1))

    def predict_log_density(data):
        asked.append(data)
        return np.array(next(scores))

    model = SimpleNamespace(predict_log_density=predict_log_density)
    stopper = EarlyStopping(validation=held_out, every=3, patience=2)
    assert stops(stopper, range(100), model) == 12
    assert stopper.best == 2.5
    assert len(asked) == 5
    assert [len(part) for part in asked[0]] == [1, 1]  # at the first step: rows that are refused
    assert all(data is held_out for data in asked[1:])
    with pytest.raises(ValueError, match="validation must be a tuple"):
        EarlyStopping(validation=np.zeros((3, 1)))
    with pytest.raises(ValueError, match="Y must"):
        stops(EarlyStopping(validation=(np.zeros((2, 1)), 2)), range(2), model)


def model():
    X = np.linspace(0.0, 1.0, 6)[:, None]
    return gpflow.models.GPR((X, X), gpflow.kernels.RBF())


def test_gpflow_monitors_groups_and_tasks_are_called_with_the_step():
    seen, task = [], ExecuteCallback(lambda **_: seen.append(1))
    callbacks = [task, MonitorTaskGroup(task, period=1), Monitor(MonitorTaskGroup(task))]
    fit(model(), num_steps=3, callbacks=callbacks, progress=False)
    assert len(seen) == 9


def test_the_best_parameters_are_kept():
    """Scores 1, 5, 3 at steps 2, 4, 6: the value of step 4 comes back."""
    kernel, scores = gpflow.kernels.RBF(), iter([1.0, 5.0, 3.0])
    best = KeepBest(lambda model: next(scores), every=2)
    best.restore(kernel)  # nothing was evaluated
    for step in range(1, 7):
        kernel.variance.assign(float(step))
        assert best(FitState(step, 0.0, kernel)) is None
    best.restore(kernel)
    assert best.best == 5.0
    np.testing.assert_allclose(kernel.variance, 4.0, rtol=1e-12)
    with pytest.raises(ValueError, match=r"trainable variables that were kept.* got Linear"):
        best.restore(gpflow.kernels.Linear([1.0, 2.0]))
