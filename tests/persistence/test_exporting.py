"""An export predicts what the model predicts, where nothing but TensorFlow can be imported."""

import json
import os

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.persistence import exporting
from tests import battery
from tests.persistence import zoo
from tests.persistence.test_round_trip import run

NOT_EXPORTED = ("gpr_of_variables", "shared", "decorated")
OTHERS = [name for name in zoo.BUILDERS if not name.startswith("battery.")]
EXPORTED = [name for name in zoo.BUILDERS if name.startswith("battery.")][::4] + [
    name
    for name in [name for name in OTHERS if not name.endswith(NOT_EXPORTED)][::3]
    if name not in ("likelihood.gaussian_mc", "likelihood.softmax")  # whose predictions are random
]
LOAD = """
import sys
for name in ("gpflow", "tensorflow_probability", "gpflow_sparse", "check_shapes"):
    sys.modules[name] = None
import numpy as np, tensorflow as tf
folder = sys.argv[1]
expected = np.load(folder + "/expected.npz")
for name in sys.argv[2:]:
    loaded = tf.saved_model.load(f"{folder}/{name}")
    X = expected[f"{name}.X"]
    for rows in (len(X), 1):
        for method in ("predict_f", "predict_y"):
            named = loaded.signatures[method](X=tf.constant(X[:rows]))
            assert set(named) == {"mean", "variance"}
            moments = getattr(loaded, method)(X[:rows])
            for i, part in enumerate((*moments, named["mean"], named["variance"])):
                np.testing.assert_allclose(
                    part, expected[f"{name}.{method}"][i % 2][:rows],
                    rtol=1e-10, atol=1e-10, err_msg=name + method,
                )
    if hasattr(loaded, "predict"):
        for part, wanted in zip(loaded.predict(10.0 * X + 3.0), expected[f"{name}.predict"]):
            np.testing.assert_allclose(part, wanted, rtol=1e-10, err_msg="predict")
        print("predict", end=" ")
print("loaded", len(sys.argv) - 2)
"""


@pytest.mark.nightly
def test_exports_agree_where_only_tensorflow_can_be_imported(tmp_path):
    expected = {}
    for name in EXPORTED:
        model, X = zoo.BUILDERS[name](), zoo.inputs_of(name)
        gs.export(model, tmp_path / name)
        expected[f"{name}.X"] = X
        expected[f"{name}.predict_f"] = np.stack(model.predict_f(X))
        expected[f"{name}.predict_y"] = np.stack(model.predict_y(X))
        if name.endswith("standardized"):
            expected[f"{name}.predict"] = np.stack(
                model.standardizer.predict_y(model, 10.0 * X + 3.0)
            )
    np.savez(tmp_path / "expected.npz", **expected)
    said = run(LOAD, tmp_path, *EXPORTED).split()
    predicting = sum(name.endswith("standardized") for name in EXPORTED)
    assert predicting
    assert said == [*["predict"] * predicting, "loaded", str(len(EXPORTED))]


@pytest.mark.nightly
def test_an_export_is_replaced_as_a_whole_and_other_folders_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "new" / "model"
    first, second = (battery.perturb(battery.MEMBERS["solvegp"].build(), seed=s) for s in (1, 2))
    gs.export(first, path)
    gs.export(second, str(path))
    X = zoo.inputs()

    def predicts_like(model):
        loaded = tf.saved_model.load(str(path))
        np.testing.assert_allclose(loaded.predict_f(X)[0], model.predict_f(X)[0], atol=1e-10)

    predicts_like(second)

    def fail(*arguments, **options):
        raise OSError("no space left")

    for owner, name in ((tf.saved_model, "save"), (exporting, "_replace")):
        monkeypatch.setattr(owner, name, fail)
        with pytest.raises(ValueError, match=r"can be written, got .*: no space left; nothing was"):
            gs.export(first, path)
        monkeypatch.undo()
        predicts_like(second)
    assert [p.name for p in path.parent.iterdir()] == ["model"]
    (tmp_path / "notes.json").write_text(json.dumps(1))
    with pytest.raises(ValueError, match="holds other files"):
        gs.export(first, tmp_path)
    with pytest.raises(ValueError, match=r"directory must name a folder, but .* is a file"):
        gs.export(first, tmp_path / "notes.json")
    with pytest.raises(ValueError, match=r"can be written, got .*notes.json/new: File exists"):
        gs.export(first, tmp_path / "notes.json" / "new")
    with pytest.raises(ValueError, match="directory must be a str or a Path, got int"):
        gs.export(first, 5)
    with pytest.raises(ValueError, match="model must be a GPflow model, got OrthogonalInducing"):
        gs.export(first.inducing_variable, tmp_path / "other")
    assert (tmp_path / "notes.json").exists()


def predictions_of(folder):
    loaded = tf.saved_model.load(str(folder))  # has to outlive the call
    return loaded.predict_f(zoo.inputs())[0].numpy()


@pytest.mark.nightly
def test_an_export_that_is_interrupted_between_renames_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "model"
    first, second = (battery.perturb(battery.MEMBERS["solvegp"].build(), seed=s) for s in (1, 2))
    gs.export(first, path)
    old, real = predictions_of(path), os.replace

    def interrupted(source, target):
        if os.path.basename(source) == "new":
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gs.export(second, path)
    monkeypatch.undo()
    np.testing.assert_array_equal(predictions_of(path), old)
    gs.export(second, path)
    np.testing.assert_allclose(predictions_of(path), second.predict_f(zoo.inputs())[0])
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["notes.txt", "variables/notes.txt", ".hidden", "a/b/c"])
def test_an_export_with_a_persons_files_in_it_is_refused_by_name(name, tmp_path):
    model = battery.MEMBERS["solvegp"].build()
    gs.export(model, tmp_path / "model")
    notes = tmp_path / "model" / name
    notes.parent.mkdir(parents=True, exist_ok=True)
    notes.write_text("mine")
    with pytest.raises(ValueError, match=rf"holds other files, such as {name};"):
        gs.export(model, tmp_path / "model")
    assert notes.read_text() == "mine"
    notes.unlink()
    gs.export(model, tmp_path / "model")


@pytest.mark.nightly
def test_a_model_of_gpflow_without_a_posterior_is_exported_in_original_units(tmp_path):
    rng = np.random.default_rng(0)
    X, Y = 10.0 * rng.normal(size=(20, 2)) + 3.0, 5.0 * rng.normal(size=(20, 1))
    standardizer = gs.Standardizer.fit(X, Y)
    rows, kernel = standardizer.transform(X, Y), gpflow.kernels.Matern32()
    model = gpflow.models.GPMC(rows, kernel, gpflow.likelihoods.Gaussian(0.1))
    model.V.assign(rng.normal(size=model.V.shape))
    model.standardizer = standardizer
    gs.export(model, tmp_path / "model")
    exported = tf.saved_model.load(str(tmp_path / "model"))
    for found, wanted in zip(exported.predict(X), standardizer.predict_y(model, X), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
