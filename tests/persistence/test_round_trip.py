"""A loaded model is the saved one: same predictions, flags, priors, names, and what is shared."""

import subprocess
import sys
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_sparse as gs
from gpflow_sparse.models import NearestNeighborGP
from gpflow_sparse.models.nearest_neighbor import LocalVariance
from gpflow_sparse.persistence import files
from tests import battery
from tests.persistence import zoo

# Builders whose files hold no class, attribute or kind of value that those of others do not; they
# are loaded in another process.
LIKE_OTHERS = {
    *(f"basis_gpr.{name}" for name in zoo.BASES),
    "basis_svgp.orthogonal",
    *(f"kernel.{name}" for name in ("squared_exponential", "matern32", "arc_cosine")),
    *(f"likelihood.{name}" for name in ("quadrature", "robust_max", "multi_class", "student_t")),
    *(f"likelihood.bernoulli{name}" for name in ("", "_trapezoid", "_logit")),
    "likelihood.only_known_variance",
    *(f"mean.{name}" for name in ("zero", "linear", "constant", "polynomial", "sum")),
}
OF_BATTERY = {
    *battery.KINDS,
    *("qsgp_chevron", "swsgp_dense", "swsgp_union", "solvegp_patches", "deep_rectified"),
    *("deep_convolution", "solvegpr_coupled", "softki_filled", "grief_original", "grief_rotated"),
    "site_vgp_classes",
}
LIKE_OTHERS |= {f"battery.{name}" for name in battery.ALL if name not in OF_BATTERY}


def round_trip(model, folder, **options):
    path = folder / "model.gp"
    gs.save(model, path)
    return gs.load(path, **options)


def assert_equal_predictions(loaded, model, X):
    for a, b in zip(zoo.predictions(loaded, X), zoo.predictions(model, X), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [n for n in zoo.BUILDERS if n not in LIKE_OTHERS])
def test_a_loaded_model_predicts_the_same_to_the_last_bit(name, tmp_path):
    model = zoo.BUILDERS[name]()
    loaded = round_trip(model, tmp_path)
    assert type(loaded) is type(model)
    assert_equal_predictions(loaded, model, zoo.inputs_of(name))
    old, new = (gpflow.utilities.parameter_dict(m) for m in (model, loaded))
    assert list(old) == list(new)
    for path, parameter in old.items():
        same = new[path]
        assert type(same) is type(parameter)
        if isinstance(same, tf.Variable):
            continue
        assert (same.name, same.trainable, same.shape) == (
            parameter.name,
            parameter.trainable,
            parameter.shape,
        )
        assert type(same.transform) is type(parameter.transform)
        assert type(same.prior) is type(parameter.prior)
        assert same.prior_on == parameter.prior_on
    assert [v.name for v in loaded.variables] == [v.name for v in model.variables]
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    # saving once more gives the same file but for the order in the header
    header, arrays = files.read(tmp_path / "model.gp")
    gs.save(loaded, tmp_path / "again.gp")
    header_again, arrays_again = files.read(tmp_path / "again.gp")
    assert header_again == header
    for key, array in arrays.items():
        np.testing.assert_array_equal(arrays_again[key], array)


READ = """
import sys, numpy as np
import gpflow_sparse as gs
from tests.persistence import zoo
expected = np.load(sys.argv[1] + "/expected.npz")
for name in zoo.BUILDERS:
    model = gs.load(f"{sys.argv[1]}/{name}")
    for i, part in enumerate(zoo.predictions(model, zoo.inputs_of(name))):
        np.testing.assert_allclose(
            part, expected[f"{name}.{i}"], rtol=1e-12, atol=1e-12, err_msg=name
        )
print("loaded", len(zoo.BUILDERS))
"""


@pytest.mark.nightly
def test_another_process_loads_every_model_and_predicts_the_same(tmp_path):
    expected = {}
    for name, build in zoo.BUILDERS.items():
        model = build()
        gs.save(model, tmp_path / name)
        for i, part in enumerate(zoo.predictions(model, zoo.inputs_of(name))):
            expected[f"{name}.{i}"] = part
    np.savez(tmp_path / "expected.npz", **expected)
    assert f"loaded {len(zoo.BUILDERS)}" in run(READ, tmp_path)


def run(source, *arguments):
    """The output of a fresh Python, which must succeed."""
    result = subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_what_was_shared_is_shared(tmp_path):
    loaded = round_trip(zoo.shared(), tmp_path)
    product, kernel = loaded.kernel.kernels
    assert product.kernels[0] is kernel
    assert product.kernels[1].lengthscales is kernel.lengthscales
    assert len(loaded.kernel.trainable_variables) == 3
    kernel.lengthscales.assign(0.123)
    assert product.kernels[1].lengthscales.numpy() == pytest.approx(0.123)


def test_priors_transforms_flags_and_shapes_come_back(tmp_path):
    model = zoo.decorated()
    loaded = round_trip(model, tmp_path)
    first, second = loaded.kernel.kernels
    assert isinstance(first.variance.prior, tfp.distributions.Gamma)
    assert isinstance(first.variance.prior.rate, gpflow.Parameter)
    assert first.lengthscales.prior_on is gpflow.base.PriorOn.UNCONSTRAINED
    assert first.lengthscales.name == "between"
    assert 0.1 <= float(first.lengthscales.transform(np.float64(-50.0))) < 0.1 + 1e-9
    assert not second.variance.trainable
    assert [type(b).__name__ for b in second.variance.transform.bijectors] == ["Shift", "Softplus"]
    assert loaded.q_mu.shape.as_list() == [None, 1]
    assert not loaded.inducing_variable.Z.trainable
    density = float(model.log_prior_density())
    assert np.isfinite(density)
    assert float(loaded.log_prior_density()) == density != 0.0


def test_the_heteroskedastic_closure_sees_the_loaded_likelihood(tmp_path):
    likelihood = gpflow.likelihoods.HeteroskedasticTFPConditional(tfp.distributions.Laplace)
    loaded = round_trip(zoo.svgp(likelihood=likelihood, P=2), tmp_path).likelihood
    loaded.scale_transform = tfp.bijectors.Softplus()
    distribution = loaded.conditional_distribution(tf.zeros([1, 2], tf.float64))
    assert isinstance(distribution, tfp.distributions.Laplace)
    np.testing.assert_allclose(distribution.scale, np.log(2.0))


def test_numbers_that_json_has_no_word_for_come_back(tmp_path):
    model = zoo.svgp()
    model.remarks = {
        "bounds": (-np.inf, np.inf, float("nan"), -0.0, 0.1 + 0.2),
        "numbered": {3: [True, None, 2**70, "π"]},
        "types": (tf.float32, np.dtype("int8"), np.float64),
        "arrays": (np.zeros((0, 3)), np.float32(0.1), np.arange(3)[::-1], tf.constant([True])),
        "shapes": (tf.TensorShape(None), tf.TensorShape([None, 2]), slice(None, 3)),
    }
    remarks = round_trip(model, tmp_path).remarks
    a, b, c, d, e = remarks["bounds"]
    assert (a, b, str(c), str(d), e) == (-np.inf, np.inf, "nan", "-0.0", 0.1 + 0.2)
    assert remarks["numbered"][3] == [True, None, 2**70, "π"]
    assert remarks["types"] == model.remarks["types"]
    empty, scalar, backward, flag = remarks["arrays"]
    assert empty.shape == (0, 3)
    assert type(scalar) is np.float32
    np.testing.assert_array_equal(backward, [2, 1, 0])
    assert flag.dtype == tf.bool
    assert remarks["shapes"][0].rank is None
    assert remarks["shapes"][1:] == (tf.TensorShape([None, 2]), slice(None, 3))


def test_a_circle_of_modules_comes_back(tmp_path):
    model = zoo.svgp()
    model.kernel.owner = model
    loaded = round_trip(model, tmp_path)
    assert loaded.kernel.owner is loaded


def test_a_model_without_its_local_variance_is_the_model_before(tmp_path):
    X = zoo.inputs()
    model = NearestNeighborGP((X, np.sin(X[:, :1])), gpflow.kernels.Matern32(), num_neighbors=4)
    gs.save(model, tmp_path / "before")
    ones = tf.ones(len(X), tf.float64)
    options = {"num_nearest": 2, "strength": 1.0, "level": 2.0, "gain": 0.1, "error": 0.01}
    parts = [model.kernel, model.mean_function, model.likelihood]
    model.local_variance = LocalVariance(ones, ones, parts, **options)
    assert "level=2," in repr(round_trip(model, tmp_path).local_variance)
    model.local_variance = None
    assert round_trip(model, tmp_path).local_variance is None
    assert files.read(tmp_path / "model.gp")[0] == files.read(tmp_path / "before")[0]


@pytest.mark.parametrize("name", ["grief_original", "grief_rotated"])
def test_trained_weights_and_their_statistics_come_back(name, tmp_path):
    model = zoo.BUILDERS[f"battery.{name}"]()
    loaded = round_trip(model, tmp_path)
    np.testing.assert_array_equal(loaded.weights, model.weights)
    assert np.ptp(loaded.weights) > 0.1
    for loss in ("elbo", "log_marginal_likelihood"):
        assert float(getattr(loaded, loss)()) == float(getattr(model, loss)())
    assert not loaded.kernel.trainable_variables
    assert loaded.basis.kernel is loaded.kernel
    assert loaded.refresh_basis() is False
    options = {"num_burnin": 5, "seed": 2}
    a, b = (m.sample_posterior(3, **options).predict_f(zoo.inputs()) for m in (loaded, model))
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    loaded.kernel.lengthscales.assign([0.5, 0.5])
    with pytest.raises(ValueError, match=r"other parameters.*refresh_basis\(\)"):
        loaded.elbo()
    assert loaded.refresh_basis()
    np.testing.assert_allclose(loaded.weights, np.ones(9), rtol=1e-14)


class OwnKernel(gpflow.kernels.SquaredExponential):
    """A user's kernel, with an attribute of its own."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def K_r2(self, r2):
        return self.factor * super().K_r2(r2)


def test_a_class_of_the_users_comes_back_when_it_is_passed(tmp_path):
    model = zoo.svgp(OwnKernel(0.5))
    gs.save(model, tmp_path / "own")
    message = r"test_round_trip:OwnKernel.*pass gs.load\(path, classes=\[OwnKernel\]\)"
    with pytest.raises(ValueError, match=message):
        gs.load(tmp_path / "own")
    loaded = gs.load(tmp_path / "own", classes=[OwnKernel])
    assert type(loaded.kernel) is OwnKernel
    assert_equal_predictions(loaded, model, zoo.inputs())
    moved = type("OwnKernel", (OwnKernel,), {"__module__": "another"})
    assert type(gs.load(tmp_path / "own", classes=[moved]).kernel) is moved
    assert type(gs.load(tmp_path / "own", classes=[moved, OwnKernel]).kernel) is OwnKernel
    third = type("OwnKernel", (OwnKernel,), {"__module__": "a third"})
    with pytest.raises(ValueError, match="several of that name"):
        gs.load(tmp_path / "own", classes=[moved, third])
    for wrong in (["OwnKernel"], [int], OwnKernel, 3):
        with pytest.raises(ValueError, match="classes must be a list of your subclasses"):
            gs.load(tmp_path / "own", classes=wrong)
