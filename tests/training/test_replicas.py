"""Training on replicas is training on one: the same steps to rounding, the same errors."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from gpflow_sparse.numerics.replicas import Replicas
from gpflow_sparse.training import fit
from tests.training import worker_runs as workers
from tests.training.replicated import MODELS, data, svgp


def gaps(output):
    return {found["model"]: found["gap"] for found in map(json.loads, output.splitlines())}


def command(devices, names):
    return [sys.executable, "-m", "tests.training.replicated", str(devices), *names]


def on_devices(devices, names):
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    run = subprocess.run(
        command(devices, names), env=environment, check=True, capture_output=True, text=True
    )
    return gaps(run.stdout)


def on_workers(names):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    processes = workers.start(command(1, names), 2, **pipes)
    outputs = [process.communicate()[0] for process in processes]
    assert workers.wait(processes) == 0
    return [gaps(output) for output in outputs]


def require_equal(found, names):
    assert set(found) == set(names)
    assert max(found.values()) < 1e-10, found


@pytest.mark.nightly
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("part", range(4))
def test_devices_take_the_steps_of_one(devices, part):
    names = list(MODELS)[part::4]
    require_equal(on_devices(devices, names), names)


@pytest.mark.nightly
def test_two_workers_take_the_steps_of_one():
    for found in on_workers(["svgp"]):
        require_equal(found, ["svgp"])


@pytest.mark.parametrize("strategy", [None, tf.distribute.OneDeviceStrategy])
def test_one_replica_is_no_other_computation(strategy):
    one = Replicas(strategy and strategy("CPU:0"))
    assert (one.count, one.num_workers, one.is_chief) == (1, 1, True)
    assert one.any_of([True, False]) == [True, False]
    assert one.of_each_worker([3.0, 4.0]).tolist() == [[3.0, 4.0]]
    result = object()
    assert one.mean(lambda batch: result, data()) is result


def model():
    return svgp(None)[0]


def test_other_strategies_are_refused():
    strategy = tf.distribute.get_strategy()
    with pytest.raises(ValueError, match="strategy must be None or one of MirroredStrategy"):
        fit(model(), data(), num_steps=1, strategy=strategy)


def test_a_call_in_the_scope_is_refused():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope(), pytest.raises(ValueError, match=r"outside of strategy\.scope"):
        fit(model(), data(), num_steps=1, strategy=strategy)


def test_a_model_made_in_the_scope_is_refused():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        mirrored = model()
    with pytest.raises(ValueError, match=r"outside of strategy\.scope"):
        fit(mirrored, data(), num_steps=1, strategy=strategy)


@pytest.mark.parametrize("timeout", [0.0, -1.0, "long"])
def test_a_timeout_is_positive(timeout):
    with pytest.raises(ValueError, match="strategy_timeout must be"):
        fit(model(), data(), num_steps=1, strategy_timeout=timeout)


def test_batches_have_a_row_for_each_replica():
    from gpflow_sparse.training.feed import open_feed, require_rows
    from gpflow_sparse.validation.checks import require_data

    with pytest.raises(ValueError, match="batch_size must be at least 4"):
        require_rows(open_feed(data(), 3, 0, require_data), 4)
    batches = tf.data.Dataset.from_tensor_slices(data()).batch(38)
    feed = require_rows(open_feed(batches, None, 0, require_data), 4)
    assert len(feed.at(0)[0]) == 38
    with pytest.raises(ValueError, match="data must have a row for each of the 4 replicas"):
        feed.at(1)


@pytest.mark.nightly
def test_models_that_hold_their_data_have_the_rows_of_all_workers():
    command = [sys.executable, "-m", "tests.training.streamed"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    processes = workers.start(command, 2, **pipes)
    outputs = [process.communicate()[0] for process in processes]
    for output in outputs:
        require_equal(gaps(output), ["grief", "basis_gpr", "solvegpr", "softki"])
