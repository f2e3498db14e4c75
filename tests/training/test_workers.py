"""Two worker processes of which one fails, hangs, is interrupted or is killed."""

import json
import subprocess
import sys

import pytest

from gpflow_sparse.tables.cli import workers
from tests.training import worker_runs

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


def test_a_step_that_fails_on_one_worker_is_taken_back_on_both():
    processes = worker_runs.started("not_finite()", stderr=subprocess.PIPE, text=True)
    errors = [process.communicate()[1] for process in processes]
    assert workers.wait(processes) == 0, errors


def test_a_worker_that_hangs_is_an_error():
    chief, other = worker_runs.started("hanging()", stdout=subprocess.PIPE, text=True)
    output = chief.communicate(timeout=600)[0]
    other.kill()
    assert "another worker has ended or does not answer" in output


def test_ctrl_c_in_one_worker_ends_both_with_a_checkpoint():
    assert worker_runs.interrupted() == (2, True)


def test_killed_and_resumed_workers_end_with_the_same_bits():
    assert worker_runs.killed(6, seed=1)


def test_the_command_on_two_workers_and_on_two_devices_has_the_scores_of_one(tmp_path):
    options = "--method solvegp --num-inducing 16 --num-orthogonal 16 --num-steps 20 --no-plot"
    scores = []
    for place, more in enumerate(([], ["--workers", "2"], ["--devices", "cpu:0,cpu:1"])):
        output = ["--output", str(tmp_path / str(place))]
        command = [sys.executable, "-c", "from gpflow_sparse.tables.cli.main import main; main()"]
        command += ["fit", *options.split(), *output, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        record = json.loads(done.stdout.splitlines()[-1])
        scores.append([(r["rmse"], r["nlpd"], r["elbo"]) for r in record["results"]])
    for found in scores[1:]:
        assert found[0] == pytest.approx(scores[0][0], rel=1e-8)
