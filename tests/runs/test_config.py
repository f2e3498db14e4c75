"""What a run is."""

import dataclasses
import json

import pytest

from gpflow_sparse.runs.config import RECORD, RunConfig, read_record
from gpflow_sparse.runs.memory import memory_estimate


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "magic"},
        {"kernel": "linear"},
        {"initialization": "best"},
        {"schedule": "wild"},
        {"task": "ranking"},
        {"num_inducing": 0},
        {"num_orthogonal": -1},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"natural_gradients": 1.5},
        {"num_columns": -1},
        {"num_basis": 0},
        {"points_per_dimension": 0},
        {"basis": "wavelets"},
        {"inference": "type3"},
    ],
)
def test_a_wrong_field_is_named(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        RunConfig(**wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "grief", "basis": "fourier"}, "basis must be grid for grief; basis_gpr takes"),
        ({"method": "basis_svgp", "inference": "type1"}, "inference must be type2 for basis_svgp"),
        ({"inference": "type1"}, "inference must be type2 for auto; grief has type1"),
        (
            {"method": "basis_gpr", "basis": "fourier", "num_basis": 7},
            "num_basis must be even for fourier, got 7",
        ),
        *(
            (
                {"method": m, "task": "classification"},
                f"task must be regression for {m}; basis_svgp",
            )
            for m in ("grief", "basis_gpr")
        ),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RunConfig(**options)


def test_only_methods_with_a_basis_on_a_grid_need_a_product():
    assert RunConfig(method="grief").on_grid
    assert RunConfig(method="basis_svgp").on_grid
    assert not RunConfig(method="basis_svgp", basis="fourier").on_grid
    assert not RunConfig().on_grid
    assert RunConfig(num_basis=7, basis="fourier").sizes == (256, 256)  # of no concern there
    assert RunConfig(method="basis_gpr", num_basis=30).sizes == (30,)
    assert RunConfig(method="grief").as_baseline().method == "svgp"


@pytest.mark.parametrize(
    ("former", "today"),
    [
        ({"method": "swsgp", "covariance": "low_rank"}, {"covariance": "dense"}),
    ],
)
def test_a_record_with_a_former_value_is_read(former, today, tmp_path):
    dataset = {"source": "a.csv", "checksum": "", "feature_names": ["x"], "target_name": "y"}
    config = {**dataclasses.asdict(RunConfig()), **former}
    record = {"config": config, "dataset": dataset, "results": [{"title": "one"}]}
    (tmp_path / RECORD).write_text(json.dumps(record))
    found, _ = read_record(tmp_path)
    assert found == RunConfig(**{**config, **today, "data": "a.csv"})


def test_the_baseline_has_the_same_m_and_no_orthogonal_set():
    base = RunConfig(num_inducing=40, num_orthogonal=30).as_baseline()
    assert (base.method, base.sizes) == ("svgp", (40,))


def test_the_memory_estimate_grows_as_it_should():
    config = RunConfig(num_inducing=512, num_orthogonal=512)
    single = RunConfig(num_inducing=512, num_orthogonal=512, float32=True)
    need = memory_estimate(config, 100_000, 8)
    assert memory_estimate(single, 100_000, 8) == need // 2
    # ten 1024 x 1024, ten 1024 x 1024 for the batch, data and parameters, in doubles
    assert need == 8 * (900_000 + 4 * (8192 + 2 * (131072 + 512)) + 20 * 1024**2)


def test_deep_models_of_tables_have_layers_and_fewer_points_in_the_hidden_ones():
    config = RunConfig.of_method("deep")
    assert (config.num_layers, config.sizes, config.num_hidden_inducing) == (2, (256, 256), 128)
    shallow = dataclasses.replace(config, num_layers=1)
    per_layer = 4 * 8 * (128**2 // 2 + 256) + 10 * 128**2 + 24 * 128 * 512
    more = memory_estimate(config, 10_000, 8) - memory_estimate(shallow, 10_000, 8)
    assert more == 8 * per_layer
    base = RunConfig.of_method("deep", num_layers=3).as_baseline()
    assert (base.method, base.num_layers) == ("svgp", 1)
    near = RunConfig.of_method("deep", num_neighbors=5, num_inducing=40)
    assert (near.sizes, near.num_hidden_inducing, near.natural_gradients) == ((40,), 40, 0.0)
    with pytest.raises(ValueError, match="num_layers is for conv-solvegp and conv-svgp and deep"):
        RunConfig(method="swsgp", num_layers=2)


def test_the_memory_of_a_basis_does_not_grow_with_the_rows():
    config = RunConfig(method="grief", num_basis=1000)
    small, large = (memory_estimate(config, rows, 8) for rows in (10_000, 1_010_000))
    assert large - small == 8 * 1_000_000 * 9  # the data themselves
    single = RunConfig(method="grief", num_basis=1000, float32=True)
    assert memory_estimate(single, 10_000, 8) == small // 2
    classes = RunConfig(method="basis_svgp", num_basis=1000, task="classification")
    # twelve m x m and four m x n for each of three latent functions
    assert memory_estimate(classes, 10_000, 8, 3) == 8 * (90_000 + 36 * 10**6 + 12 * 1000 * 1024)


def test_a_hybrid_basis_keeps_an_even_number_of_features_when_it_shrinks():
    config = RunConfig(method="qsgp", basis="hybrid", num_basis=100, num_inducing=40)
    assert config.shrunk_to(1000).num_inducing == 40
    assert config.shrunk_to(100).num_inducing == 24  # a quarter is 25
    assert config.shrunk_to(104).num_inducing == 26


def test_the_baseline_of_sampled_functions_has_the_rate_of_adam():
    config = RunConfig(method="rvm", basis="dictionary", learning_rate=0.1)
    assert config.as_baseline().learning_rate == RunConfig().learning_rate
    assert RunConfig(learning_rate=0.3).as_baseline().learning_rate == 0.3


def test_the_memory_of_sampled_functions():
    config = RunConfig(method="qsgp", basis="fourier", num_basis=1000, basis_batch_size=100)
    config = dataclasses.replace(config, batch_size=50, num_support=30)
    need = memory_estimate(config, 500, 3)
    assert need == 8 * (500 * 4 + 2 * 2 * 1000 + 8 * 80 * 200)
    wide = dataclasses.replace(config, covariance="chevron", num_dense_columns=5)
    assert memory_estimate(wide, 500, 3) == 8 * (2000 + 14 * 1000 + 100 + 8 * 80 * 205)


@pytest.mark.parametrize("value", [None, "eq3", "tracked", "anchored", "none"])
def test_a_record_of_an_older_version_has_the_options_of_today(value, tmp_path):
    dataset = {"source": "a.csv", "checksum": "0", "feature_names": ["x"], "target_name": "y"}
    config = {"method": "qsgp", "variance_reduction": value, "site_estimator": "absorbed"}
    record = {"config": config, "dataset": dataset, "results": [{"title": "QSGP"}]}
    (tmp_path / "result.json").write_text(json.dumps(record))
    found, read = read_record(tmp_path)
    wanted = "none" if value == "none" else "anchored"
    assert found.variance_reduction == read["config"]["variance_reduction"] == wanted
