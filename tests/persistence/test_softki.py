"""A posterior of weights, and what it was computed for, come back from a file."""

import json

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.models import SoftKI
from gpflow_sparse.persistence import files
from tests.persistence import zoo

OPTIONS = {
    "exact": {},
    "pseudo": {"objective": "pseudo", "num_probes": 4},
    "columns": {"temperature": [0.3, 0.6], "tied": True, "num_latent_gps": 2},
}
MISSING, STALE = "the model has no posterior yet", "have changed since fit_posterior"


def softki(**options):
    options = {"temperature": 0.4, "noise_variance": 0.2, "num_data": zoo.N, **options}
    kernel = gpflow.kernels.Matern32(lengthscales=[0.8, 1.2])
    return SoftKI(kernel, zoo.inputs(seed=2, rows=zoo.M), **options)


def rows(model):
    return zoo.inputs(), zoo.outputs(model.num_latent_gps)


def fitted(**options):
    model = softki(**options)
    model.fit_posterior(*rows(model), refit_noise=False)
    return model


def round_trip(model, folder):
    gs.save(model, folder / "model.gp")
    return gs.load(folder / "model.gp")


def assert_same_predictions(a, b):
    for one, other in zip(a.predict_f(zoo.inputs()), b.predict_f(zoo.inputs()), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_without_a_posterior_stays_one(tmp_path):
    model = softki(**OPTIONS["columns"])
    loaded = round_trip(model, tmp_path)
    with pytest.raises(ValueError, match=MISSING):
        loaded.predict_f(zoo.inputs())
    np.testing.assert_array_equal(loaded.elbo(rows(model)), model.elbo(rows(model)))
    steps = {"num_steps": 3, "progress": False, "deterministic": True}
    for each in (model, loaded):
        gs.training.fit(each, rows(model), **steps)
        each.fit_posterior(*rows(model), refit_noise=True)
    assert_same_predictions(loaded, model)
    for one, other in zip(loaded.variables, model.variables, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_a_posterior_comes_back_and_notices_changes(options, tmp_path):
    model = fitted(**options)
    loaded = round_trip(model, tmp_path)
    assert_same_predictions(loaded, model)
    settings = ("objective", "num_probes", "num_data", "held_out", "jitter")
    assert [getattr(loaded, name) for name in settings] == [
        getattr(model, name) for name in settings
    ]
    loaded.basis.temperature.assign(2.0 * loaded.basis.temperature)
    with pytest.raises(ValueError, match=STALE):
        loaded.predict_f(zoo.inputs())
    loaded.fit_posterior(*rows(model), refit_noise=False)
    before, after = (m.predict_f(zoo.inputs())[0].numpy() for m in (model, loaded))
    assert np.abs(after - before).max() > 1e-3


def test_a_posterior_of_other_parameters_is_still_one_in_another_place(tmp_path):
    model = fitted()
    model.likelihood.variance.assign(0.3)
    loaded = round_trip(model, tmp_path)
    with pytest.raises(ValueError, match=STALE):
        loaded.predict_y(zoo.inputs())
    loaded.likelihood.variance.assign(0.2)  # back where it was fitted
    assert_same_predictions(loaded, fitted())


def test_only_a_fitted_model_is_exported(tmp_path):
    with pytest.raises(ValueError, match=MISSING):
        gs.export(softki(), tmp_path / "model")
    model = fitted()
    model.basis.Z.assign(model.basis.Z + 0.1)
    with pytest.raises(ValueError, match=STALE):
        gs.export(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def forged(path, change):
    """Change a file and sign it again; ``change`` gets the objects by class, and the arrays."""
    header, arrays = files.read(path)
    tree, arrays = json.loads(header["tree"]), dict(arrays)
    objects = tree["objects"]
    parts = {o["class"].rpartition(".")[2]: o["attributes"] for o in objects if "attributes" in o}
    change(parts, objects, arrays)
    files.write(path, arrays, {**header, "tree": json.dumps(tree)})
    return path


def numbers(name, new):
    """Exchange the numbers of one variable of the posterior, and say that this is its shape."""

    def change(parts, objects, arrays):
        described = objects[parts["FittedWeights"][name]["ref"]]
        arrays[described["data"]] = np.ascontiguousarray(new(arrays[described["data"]]))
        described["shape"] = {"shape": list(arrays[described["data"]].shape)}

    return change


def attribute(kind, name, value):
    return lambda parts, objects, arrays: parts[kind].update({name: value})


FORGERIES = {
    "fewer rows": (numbers("q_mu", lambda q: q[:-1]), r"model\.weights\.q_mu must be"),
    "more outputs": (
        numbers("q_mu", lambda q: np.hstack([q, q])),
        r"model\.weights\.q_mu must be a float64 variable of shape \(4, 1\)",
    ),
    "a vector": (numbers("q_mu", lambda q: q[:, 0]), r"model\.weights\.q_mu must be"),
    "single precision": (
        numbers("q_mu", lambda q: q.astype(np.float32)),
        r"model\.weights\.q_mu must be a float64 variable",
    ),
    "a smaller factor": (
        numbers("q_sqrt", lambda q: q[:2, :2]),
        r"model\.weights\.q_sqrt must be a float64 variable of shape \(4, 4\)",
    ),
    "NaN": (numbers("q_mu", lambda q: q * np.nan), r"model\.weights\.q_mu must be finite"),
    "infinity": (numbers("q_sqrt", lambda q: q + np.inf), r"model\.weights\.q_sqrt must be finite"),
    "another basis": (attribute("SoftKI", "basis", None), r"model\.basis must be a SoftInterp"),
    "another objective": (attribute("SoftKI", "objective", "x"), "objective must be one of"),
    "no probes": (attribute("SoftKI", "num_probes", 0), "num_probes must be"),
    "more outputs of the model": (
        attribute("SoftKI", "num_latent_gps", 2),
        r"model\.weights\.q_mu must be a float64 variable of shape \(4, 2\)",
    ),
}


@pytest.mark.parametrize(("change", "message"), FORGERIES.values(), ids=list(FORGERIES))
def test_a_posterior_that_fits_no_model_is_refused(change, message, tmp_path):
    path = tmp_path / "model.gp"
    gs.save(fitted(), path)
    with pytest.raises(ValueError, match=f"cannot load .*{message}"):
        gs.load(forged(path, change))


@pytest.mark.parametrize(("name", "value"), [("num_nearest", 99), ("num_basis", 3), ("tied", True)])
def test_a_basis_of_other_settings_has_no_posterior(name, value, tmp_path):
    path = tmp_path / "model.gp"
    gs.save(fitted(), path)
    loaded = gs.load(forged(path, attribute("SoftInterpolation", name, value)))
    with pytest.raises(ValueError, match=STALE):
        loaded.predict_f(zoo.inputs())
