"""Two worker processes of which one fails, hangs, is interrupted or is killed."""

import subprocess

import pytest

from tests.training import worker_runs

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


def test_a_step_that_fails_on_one_worker_is_taken_back_on_both():
    processes = worker_runs.started("not_finite()", stderr=subprocess.PIPE, text=True)
    errors = [process.communicate()[1] for process in processes]
    assert worker_runs.wait(processes) == 0, errors


def test_a_worker_that_hangs_is_an_error():
    chief, other = worker_runs.started("hanging()", stdout=subprocess.PIPE, text=True)
    output = chief.communicate(timeout=600)[0]
    other.kill()
    assert "another worker has ended or does not answer" in output


def test_ctrl_c_in_one_worker_ends_both_with_a_checkpoint():
    assert worker_runs.interrupted() == (2, True)


def test_killed_and_resumed_workers_end_with_the_same_bits():
    assert worker_runs.killed(6, seed=1)
