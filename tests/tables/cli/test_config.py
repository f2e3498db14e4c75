"""What a run is, and how it is stored."""

import json

import pytest

from gpflow_sparse.tables.cli.config import RECORD, RunConfig, read_record
from gpflow_sparse.tables.methods.registry import RECIPES

DATASET = {"source": "a.csv", "checksum": "", "feature_names": ["x"], "target_name": "y"}


def stored(folder, config):
    record = {"config": config, "dataset": DATASET, "results": [{"title": "one"}]}
    (folder / RECORD).write_text(json.dumps(record))
    return read_record(folder)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "solvegp", "task": "ranking"}, "task must be one of"),
        ({"method": "solvegp", "split": -1}, "split must be not negative"),
        ({"method": "solvegp", "precision": "mixed", "float32": True}, "precision must be full"),
        ({"method": "auto", "image_shape": "8"}, "image_shape must be height and width"),
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
        RunConfig.of_method(**options)


@pytest.mark.parametrize("method", ["auto", *RECIPES])
def test_a_record_gives_the_same_run(method, tmp_path):
    config = RunConfig.of_method(method, data="a.csv", target="y", seed=4, calibrate=False)
    assert stored(tmp_path, config.to_record()) == config


def test_options_for_candidates_are_stored(tmp_path):
    config = RunConfig.of_method("auto", data="a.csv", num_steps=7, trees=True, kernel="auto")
    assert stored(tmp_path, config.to_record()) == config
    assert config.recipe.for_candidates == {"num_steps": 7, "kernel": "auto", "trees": True}


def test_a_damaged_record_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"result.json is damaged: config.num_steps must be"):
        stored(tmp_path, {"method": "svgp", "num_steps": "many"})
