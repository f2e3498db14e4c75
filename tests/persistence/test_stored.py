"""Files of version 0.1 load with the code of today, and models predict what they did."""

import json
import tarfile

import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.persistence import names
from tests.persistence import stored, zoo

EXPECTED = json.loads((stored.FIXTURES / stored.EXPECTED).read_text())
REMOVED = json.loads((stored.REMOVED / stored.EXPECTED).read_text())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(stored.FIXTURES / stored.ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def assert_expected(parts, name):
    pairs = list(zip(parts, EXPECTED[name]["values"], strict=True))
    if name.endswith("swsgp_chain"):
        del pairs[-2]  # the KL from points drawn at random, by other numbers than in version 0.1
    for part, old in pairs:
        np.testing.assert_allclose(part, old, rtol=1e-10, atol=1e-10)


def of_kind(kind):
    return [name for name in EXPECTED if name.startswith(kind)]


@pytest.mark.nightly
def test_files_of_the_first_code_of_a_class_predict_what_they_did(tmp_path):
    """Before version 0.1: SoftKI without held-out rows, three forms of the statistics of GRIEF."""
    with tarfile.open(stored.FIRST / stored.ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    expected = json.loads((stored.FIRST / stored.EXPECTED).read_text())
    assert len(expected) >= 10
    for name, known in expected.items():
        model, X = gs.load(tmp_path / name), np.array(known["X"])
        for part, old in zip(zoo.predictions(model, X), known["values"], strict=False):
            np.testing.assert_allclose(part, old, rtol=1e-10, atol=1e-10, err_msg=name)
        gs.save(model, tmp_path / "again")
        assert type(gs.load(tmp_path / "again")) is type(model)


@pytest.mark.parametrize("name", of_kind("models/"))
def test_a_stored_model_predicts_what_it_did(name, files):
    model, X = gs.load(files / name), np.array(EXPECTED[name]["X"])
    assert_expected(zoo.predictions(model, X), name)


@pytest.mark.parametrize("name", of_kind("runs/"))
def test_a_stored_checkpoint_is_resumed(name, files):
    """The steps after it are those that an unbroken run of the old code took."""
    model = stored.train(name.partition("/")[2], files / name, 4, resume=True)
    assert_expected(zoo.predictions(model, np.array(EXPECTED[name]["X"])), name)


def test_a_stored_export_predicts_what_it_did(files):
    exported, X = tf.saved_model.load(str(files / "export")), np.array(EXPECTED["export"]["X"])
    assert_expected([*exported.predict_f(X), *exported.predict_y(X)], "export")


def test_a_rename_is_one_line_in_the_table(files, monkeypatch, tmp_path):
    """A class and its attributes as they may be called tomorrow, in the code but not in files."""
    path = files / "models/battery.odvgp"
    old = gs.load(path)
    kind = type(old)
    renamed = type("DecoupledGP", (kind,), {"__module__": kind.__module__})
    monkeypatch.setattr(f"{kind.__module__}.DecoupledGP", renamed, raising=False)
    classes = {"gpflow_sparse.models.ODVGP": f"{kind.__module__}:DecoupledGP"}
    attributes = {"DecoupledGP": {"num_data": "num_rows", "jitter": None, "whiten": "white"}}
    attributes["DecoupledGP"] |= names.RENAMED_ATTRIBUTES["ODVGP"]
    upgrades = {"DecoupledGP": lambda found: found | {"num_data": found["num_rows"]}}
    monkeypatch.setattr(names, "RENAMED_CLASSES", classes)
    monkeypatch.setattr(names, "RENAMED_ATTRIBUTES", attributes)
    monkeypatch.setattr(names, "UPGRADES", upgrades)
    monkeypatch.setattr(names, "assembled_classes", names.assembled_classes.__wrapped__)
    new = gs.load(path)
    assert type(new) is renamed
    assert (new.num_rows, new.num_data, new.white) == (old.num_data, old.num_data, old.whiten)
    assert not {"jitter", "whiten"} & vars(new).keys()
    assert names.class_name(renamed) == "gpflow_sparse.models.ODVGP"
    assert names.attribute_in_files(renamed, "num_rows") == "num_data"


@pytest.mark.nightly
@pytest.mark.parametrize("name", REMOVED)
def test_a_stored_model_with_a_removed_option_predicts_what_it_did_and_trains_on(name, tmp_path):
    with tarfile.open(stored.REMOVED / stored.ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    model, X = gs.load(tmp_path / name), np.array(REMOVED[name]["X"])
    for part, old in zip(zoo.predictions(model, X), REMOVED[name]["values"], strict=True):
        np.testing.assert_allclose(part, old, rtol=1e-10, atol=1e-10)
    assert model.variance_reduction == ("none" if name == "qsgp_strict" else "anchored")
    assert not hasattr(model, "site_estimator")
    before = model.q_mu.numpy()
    Y = (zoo.outputs() > 0.0).astype(float)
    gs.training.fit(model, (zoo.inputs(), Y), num_steps=2, progress=False)
    assert np.all(np.isfinite(model.q_mu))
    assert np.any(model.q_mu.numpy() != before)
    gs.save(model, tmp_path / "again")
    assert gs.load(tmp_path / "again").variance_reduction == model.variance_reduction
