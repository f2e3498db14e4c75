"""The table of all methods: agreement, peers, processes, and the page."""

import importlib.util
import json
import time
from concurrent.futures.process import BrokenProcessPool

import gpflow
import numpy as np
import pytest

from bench.papers import agreement, harness, peer_models, tables
from bench.papers.comparison import LEVELS
from bench.papers.pages import write_page
from bench.papers.spec import PaperRun, load_paper
from bench.papers.training import Budget
from gpflow_sparse.data import Dataset
from gpflow_sparse.training import TrainingError

has_gpytorch = importlib.util.find_spec("gpytorch") is not None


def table(rng, N=100):
    X = rng.normal(size=(N, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.2 * rng.normal(size=(N, 1))
    count = 4 * N // 5
    pairs = (X[:count], Y[:count]), (X[count:], Y[count:])
    return Dataset("a", *pairs, ("a", "b"), "y", None).standardized()


def budget(folder, steps=None, seconds=None):
    return Budget(steps, seconds, 0, folder, time.perf_counter() + 100.0)


def test_libraries_agree_at_fixed_hyperparameters(rng):
    found = agreement.compare_libraries(table(rng), 0)
    libraries = {line["library"] for line in found["differences"]}
    assert libraries == {"scikit-learn", "gpflow_sparse"} | (
        {"GPyTorch"} if has_gpytorch else set()
    )
    assert max(line["difference"] for line in found["differences"]) < 1e-6
    assert found["num_rows"] == 80


def test_a_library_that_differs_ends_the_row(rng, monkeypatch):
    monkeypatch.setattr(
        agreement,
        "_sgpr",
        lambda *_: ({"mean": np.ones(2)}, {"other": {"mean": 1.0 + 1e-5 * np.ones(2)}}),
    )
    with pytest.raises(TrainingError, match=r"differ at the same hyperparameters.*other"):
        agreement.compare_libraries(table(rng), 0)


@pytest.mark.nightly
def test_peers_with_all_rows_find_the_exact_gp(rng, tmp_path):
    """The maximum of the marginal likelihood of GPflow's GPR, from another start."""
    data = table(rng)
    exact = gpflow.models.GPR(data.train, gpflow.kernels.Matern52(lengthscales=[1.0, 1.0]))
    gpflow.optimizers.Scipy().minimize(exact.training_loss, exact.trainable_variables)
    nlpd = -float(np.mean(exact.predict_log_density(data.test)))
    rmse = float(np.sqrt(np.mean((data.test[1] - exact.predict_y(data.test[0])[0]) ** 2)))
    sklearn = peer_models.fit_evidence(
        {"method": "sklearn", "num_rows": 1000}, data, budget(tmp_path)
    )
    np.testing.assert_allclose([sklearn["nlpd"], sklearn["rmse"]], [nlpd, rmse], rtol=1e-2)
    assert sklearn["chosen"].startswith("scikit-learn ")
    assert len(sklearn["covered"]) == len(LEVELS)
    assert np.all(np.diff(sklearn["covered"]) >= 0.0)
    sgpr = peer_models.fit_evidence({"method": "sgpr", "num_inducing": 40}, data, budget(tmp_path))
    np.testing.assert_allclose(sgpr["rmse"], rmse, rtol=0.1)  # with 40 points for 80 rows


def test_sgpr_ends_with_the_time(rng, tmp_path):
    options = {"method": "sgpr", "num_inducing": 10}
    found = peer_models.fit_evidence(options, table(rng), budget(tmp_path, seconds=1e-3))
    assert found["steps"] <= 1


@pytest.mark.nightly
@pytest.mark.skipif(not has_gpytorch, reason="GPyTorch is not installed")
def test_gpytorch_learns_and_ends_with_the_steps(rng, tmp_path):
    data, options = table(rng, 400), {"method": "gpytorch", "num_inducing": 20}
    found = peer_models.fit_evidence(options, data, budget(tmp_path, steps=200))
    assert found["steps"] == 200
    assert found["rmse"] < 0.4
    at_once = peer_models.fit_evidence(options, data, budget(tmp_path, steps=1))
    assert at_once["rmse"] > found["rmse"] + 0.2


@pytest.mark.skipif(has_gpytorch, reason="GPyTorch is installed")
def test_without_gpytorch_the_row_says_what_to_do(rng, tmp_path):
    options = {"method": "gpytorch", "num_inducing": 8}
    with pytest.raises(ValueError, match=r"pip install gpytorch; or choose others by --rows"):
        peer_models.fit_evidence(options, table(rng), budget(tmp_path, steps=1))


def a_run(folder, size="small", **chosen):
    return PaperRun(load_paper("evidence"), size, folder, **chosen)


@pytest.mark.nightly
def test_a_task_has_a_process_of_its_own(tmp_path):
    run = a_run(tmp_path, datasets=("digits",), rows=("linear",))
    (record,) = harness.run_paper(run, 10.0)
    assert record["status"] == "done"
    assert record["error_rate"] < 0.1
    assert record["peak"] > 100.0 or np.isnan(record["peak"])
    assert record["threads"] >= 1
    assert isinstance(record["commit"], str)


def test_a_process_that_ends_is_a_failure(tmp_path, monkeypatch):
    def ends(*_):
        raise BrokenProcessPool

    monkeypatch.setattr(harness, "run_alone", ends)
    run = a_run(tmp_path, datasets=("digits",), rows=("linear",))
    (record,) = harness.run_paper(run, 10.0)
    assert (record["status"], record["message"]) == (
        "failed", "the process ended, perhaps for want of memory",
    )  # fmt: skip


def test_budgets_are_those_of_the_sizes(tmp_path):
    quick, small, full = (
        {row.key: row for row in load_paper("evidence").rows[size]}
        for size in ("quick", "small", "full")
    )
    assert quick.keys() == small.keys() == full.keys()
    assert [rows["svgp"].minutes for rows in (quick, small, full)] == [0.25, 1.0, 5.0]
    assert len(quick["svgp"].datasets) == 5
    assert small["svgp"].count_splits("energy") == 1
    assert full["svgp"].count_splits("energy") == 3
    assert all("kin8nm" in rows["agreement"].datasets for rows in (quick, small, full))


NLPD = {"auto": 0.1, "gpnn": 0.3, "solvegp": 0.2, "softki": 0.5, "swsgp": 0.4, "svgp": 0.6}
NLPD |= {"sgpr": 0.7, "sklearn": 0.8, "trees": 0.9, "linear": 1.0}


def invented(row, dataset, run, **changes):
    value = NLPD[row]
    scores = {"rmse": 1.1 - value, "nlpd": value, "crps": value, "coverage": 0.95}
    return {
        "row": row, "title": row, "dataset": dataset, "split": 0, "status": "done",
        "num_train": 90, "num_test": 10, "config": {}, "cores": 2, "devices": ["CPU"],
        "versions": {"gpflow": "1"}, "commit": "0a1b2c3d", "chosen": row,
        "training_seconds": 60.0, "peak": 2048.0, "covered": [level - 0.02 for level in LEVELS],
        **scores, **changes,
    }  # fmt: skip


def test_the_page_ranks_the_methods_on_the_sets_that_all_have(tmp_path):
    run = a_run(tmp_path)
    names = ("elevators", "kin40k")
    records = [invented(row, name, run) for name in names for row in NLPD]
    records.append(invented("auto", "protein", run))  # where the others are missing
    large = [r | {"num_train": 1001} for r in records if r["dataset"] == "kin40k"]
    records = [r for r in records if r["dataset"] != "kin40k"] + large
    records[0] |= {"training_seconds": 66.1}  # auto on elevators
    records[1] |= {"status": "failed", "message": "lost"}  # gpnn on elevators
    text = write_page(run, records, {}).read_text(encoding="utf-8")
    assert (
        "Mean ranks over 2 regression sets on which all these methods were run: elevators, kin40k"
        in text
    )
    assert "| NLPD, more than 1,000 rows | RMSE, more than 1,000 rows | NLPD, at most 1,000" in text
    # best by NLPD; by RMSE behind all but the failed one; of all sets, the large and the small one
    assert "| auto | 1.00 | 9.50 | 1.00 | 10.00 | 1.00 | 9.00 |" in text
    # the last of ten, and third; the last, and eighth; on the large set it has not failed
    assert "| GPnn | 6.50 | 9.00 | 3.00 | 8.00 | 10.00 | 10.00 |" in text
    assert "Not in the ranks, since some of these rows were not run: protein." in text
    assert "| auto | elevators | 66 |" in text
    assert "| auto | 0a1b2c3d (3) |" in text
    assert "| auto | auto | 1.0000 | 0.1000 | 0.1000 | 0.950 | 60 | 2.0 |" in text
    assert "- gpnn, elevators, split 0: lost" in text
    assert "| Linear | 0.020 |" in text  # mean error of coverage
    for name in ("ranks", "calibration"):
        assert (tmp_path / f"evidence-{name}.png").is_file() or "![" not in text


def test_the_page_has_times_of_all_sizes(tmp_path):
    run = a_run(tmp_path)
    records = [invented(row, "kin8nm", run) for row in NLPD]
    short = [r | {"training_seconds": 15.0, "rmse": r["rmse"] + 0.1} for r in records]
    lines = "".join(f"{json.dumps(record)}\n" for record in short)
    (tmp_path / "evidence-quick.jsonl").write_text(lines)
    (tmp_path / "evidence.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
    text = write_page(run, records, {}).read_text(encoding="utf-8")
    assert "## RMSE against time" in text
    assert "| kin8nm | auto | auto | 15 | 1.1000 | 0.1000 |" in text
    assert (tmp_path / "evidence-times.png").is_file() or "![" not in text


def test_differences_of_libraries_are_on_the_page(tmp_path):
    run = a_run(tmp_path)
    difference = {"quantity": "SGPR: mean", "library": "other", "difference": 2.5e-9}
    record = invented("auto", "kin8nm", run) | {
        "row": "agreement", "differences": [difference], "num_rows": 500,
    }  # fmt: skip
    text = write_page(run, [record], {}).read_text(encoding="utf-8")
    assert "On 500 training rows of kin8nm" in text
    assert "| SGPR: mean | other | 2.5e-09 |" in text
    assert tables.expected_times([record])
