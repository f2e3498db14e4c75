"""Deep models in files: frozen, pickled, and refused where their layers do not fit."""

import pickle

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from tests import battery
from tests.persistence.test_softki import attribute, forged


def deep():
    return battery.perturb(battery.MEMBERS["deep_convolution"].build())


def elbo(model):
    return float(model.elbo(battery.MEMBERS["deep_convolution"].data))


def test_settings_come_back_and_draws_stay_frozen(tmp_path):
    model = deep()
    gs.save(model, tmp_path / "model.gp")
    loaded = gs.load(tmp_path / "model.gp")
    for name in ("num_samples", "num_prediction_samples", "sampling", "seed", "num_data", "jitter"):
        assert getattr(loaded, name) == getattr(model, name)
    for layer, other in zip(loaded.layers, model.layers, strict=True):
        assert (layer.input_dim, layer.output_dim) == (other.input_dim, other.output_dim)
    assert elbo(loaded) == elbo(model)
    loaded.seed = None
    assert elbo(loaded) != elbo(loaded)


def test_frozen_and_pickled_models_are_equal():
    model = deep()
    np.testing.assert_allclose(elbo(gpflow.utilities.freeze(model)), elbo(model), rtol=1e-12)
    assert elbo(pickle.loads(pickle.dumps(model))) == elbo(model)


FORGERIES = {
    "no layers": (attribute("DeepGP", "layers", None), "layers"),
    "a layer that is none": (attribute("DeepGP", "layers", {"list": [None]}), "layers"),
    "another sampling": (attribute("DeepGP", "sampling", "x"), "sampling"),
    "no draws": (attribute("DeepGP", "num_samples", 0), "num_samples"),
    "another seed": (attribute("DeepGP", "seed", -1), "seed"),
    "more channels": (attribute("ConvLayer", "num_latent_gps", 3), "layers"),
    "no stride": (attribute("ConvLayer", "stride", 0), "stride"),
    "larger patches": (attribute("ConvLayer", "patch_shape", {"tuple": [1, 3]}), "patch_shape"),
    "other images": (attribute("ConvLayer", "image_shape", {"tuple": [2, 2, 1]}), "layers"),
    "no points": (attribute("ConvLayer", "inducing_variable", None), "inducing_variable"),
    "no kernel": (attribute("ConvLayer", "kernel", None), "kernel"),
    "no mean function": (attribute("ConvLayer", "mean_function", 5), "mean_function"),
    "no means": (attribute("ConvLayer", "q_mu", None), "q_mu"),
    "images of another kernel": (attribute("TICK", "image_shape", {"tuple": [2, 2, 2]}), "layers"),
}


@pytest.mark.parametrize(("change", "word"), FORGERIES.values(), ids=list(FORGERIES))
def test_a_model_whose_parts_do_not_fit_is_refused(change, word, tmp_path):
    path = tmp_path / "model.gp"
    gs.save(battery.MEMBERS["deep_convolution"].build(), path)
    with pytest.raises(ValueError, match=f"cannot load .*{word}"):
        gs.load(forged(path, change))
