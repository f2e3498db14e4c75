"""Factors of variances from held-out rows, against an oracle and over all models."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate
from scipy.special import gammaln

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.kernels import Convolutional
from gpflow_sparse.models import SOLVEGP
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.training import calibration, rescaling
from tests.battery import KINDS, MEMBERS, REGRESSIONS, inputs, perturb
from tests.oracles import calibration as oracle

OURS = {name: member for name, member in (MEMBERS | REGRESSIONS).items() if member.guarded}
FACTOR = 2.5
XNEW = inputs(seed=7, rows=5)


def held_out(rows=110, P=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.7 * rng.normal(size=(rows, P))


def make(P=1, likelihood=None):
    rng = np.random.default_rng(1)
    model = SOLVEGP(
        gpflow.kernels.Matern52(),
        likelihood or gpflow.likelihoods.Gaussian(0.1),
        OrthogonalInducingVariables(rng.normal(size=(6, 2)), rng.normal(size=(4, 2))),
        num_latent_gps=P,
    )
    for mean, factor in zip(model.q_mu, model.q_sqrt, strict=True):
        mean.assign(0.3 * rng.normal(size=mean.shape))
        factor.assign(0.2 * factor)
    return model


@pytest.mark.parametrize("P", [1, 2])
def test_factors_and_intervals_are_those_of_the_oracle(P):
    model, (X, Y) = make(P), held_out(P=P)
    (mean, var), noise = (m.numpy() for m in model.predict_f(X)), np.full(len(X), 0.1)
    wanted = oracle.best_factors(Y, mean, var, noise)
    found = gs.calibrate(model, (X, Y), conformal=True)
    np.testing.assert_allclose([found.function, found.noise], wanted, rtol=1e-5)
    std = np.sqrt(found.function * var + found.noise * 0.1)
    for coverage in (0.5, 0.95):
        radii = [oracle.radius(Y[:, p], mean[:, p], std[:, p], coverage) for p in range(P)]
        np.testing.assert_allclose(found.radius(coverage), radii, rtol=1e-10)
    with pytest.raises(ValueError, match=r"coverage must be at most 0\.991"):
        found.radius(0.995)


def shaped_rows(rows=600, seed=0):
    """Errors with a heavy right tail."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return X, np.sinh(1.6 * np.arcsinh(rng.normal(size=(rows, 1))) + 0.4)


def test_the_shape_of_observations_is_that_of_the_oracle():
    model, (X, Y) = make(), shaped_rows()
    mean, var = (part.numpy() for part in model.predict_f(X))
    found = gs.calibrate(model, (X, Y))
    residuals = (Y - mean) / np.sqrt(found.function * var + found.noise * 0.1)
    wanted = oracle.best_shape(residuals[:, 0])
    np.testing.assert_allclose([found.skewness, np.log(found.tail)], wanted, atol=1e-4)
    assert found.skewness > 0.02
    assert found.tail < 0.9


def test_every_output_may_have_its_own_noise():
    noises = np.array([[0.1, 0.4]])
    model, (X, Y) = make(2, gpflow.likelihoods.Gaussian(noises)), held_out(P=2)
    var = model.predict_f(X)[1].numpy()
    found = gs.calibrate(model, (X, Y))
    assert found.noise != 1.0
    calibrated = model.predict_y(X)[1]
    np.testing.assert_allclose(calibrated, found.function * var + found.noise * noises, rtol=1e-9)


def test_a_shape_changes_densities_and_quantiles_and_not_moments():
    model, (X, _) = make(), shaped_rows()
    model.calibration = Calibration(2.0, 3.0)
    mean, var = (part.numpy()[:1] for part in model.predict_y(X))
    model.calibration = Calibration(2.0, 3.0, skewness=0.2, tail=0.7)
    np.testing.assert_array_equal(model.predict_y(X)[1][:1], var)
    grid = np.linspace(-30.0, 40.0, 20_001)[:, None]
    rows = np.repeat(X[:1], len(grid), axis=0)
    for predictor in (model, model.posterior()):
        extra = () if predictor is model else (model.likelihood,)
        density = np.exp(predictor.predict_log_density((rows, grid), *extra))
        moments = [
            integrate.trapezoid(density * (grid[:, 0] - mean[0, 0]) ** k, grid[:, 0])
            for k in range(3)
        ]
        np.testing.assert_allclose(moments, [1.0, 0.0, var[0, 0]], atol=1e-3)
    cumulative = integrate.cumulative_trapezoid(density, grid[:, 0], initial=0.0)
    cached = CachedModel(model)
    levels = [0.05, 0.5, 0.95]
    quantiles = cached.predict_quantiles(tf.constant(X[:1]), levels)[:, 0, 0]
    np.testing.assert_allclose(np.interp(quantiles, grid[:, 0], cumulative), levels, atol=1e-4)
    below = cached.predict_distribution((tf.constant(rows), tf.constant(grid)))[:, 0]
    np.testing.assert_allclose(below, cumulative, atol=1e-4)


def test_intervals_of_every_probability_are_calibrated():
    """Mean error of the coverage of central intervals on new rows; without a shape .09."""
    model = make()
    gs.calibrate(model, shaped_rows())
    X, Y = shaped_rows(4000, seed=1)
    for entry in gs.diagnostics(model, (X[:1000], Y[:1000]))["calibration"]["coverage"]:
        assert entry["observed"] == pytest.approx(entry["nominal"], abs=0.05)
    cached = CachedModel(model)
    below = cached.predict_distribution((tf.constant(X), tf.constant(Y))).numpy()
    levels = np.linspace(0.05, 0.95, 19)
    covered = [(np.abs(below - 0.5) <= 0.5 * level).mean() for level in levels]
    assert np.abs(covered - levels).mean() < 0.03


def test_predictions_of_observations_have_the_calibrated_noise():
    model, (X, Y) = make(), held_out()
    mean, var = model.predict_f(X)
    model.calibration = Calibration(FACTOR, 0.3)
    total = FACTOR * var.numpy() + 0.3 * 0.1
    for predictor in (model, model.posterior()):
        extra = () if predictor is model else (model.likelihood,)
        np.testing.assert_allclose(predictor.predict_y(X, *extra)[1], total, rtol=1e-12)
        np.testing.assert_allclose(predictor.predict_y(X, *extra)[0], mean, atol=1e-13)
        found = predictor.predict_log_density((X, Y), *extra)
        each = [oracle.log_density(*row) for row in zip(Y, mean.numpy(), total, strict=True)]
        np.testing.assert_allclose(found, np.ravel(each), rtol=1e-10)
    assert model.likelihood.variance.numpy() == pytest.approx(0.1, rel=1e-15)


def test_noise_that_depends_on_the_inputs_is_scaled_everywhere():
    X, Y = held_out()
    scale = gpflow.functions.Linear(A=[[0.1], [0.0]], b=[0.8])
    likelihood = gpflow.likelihoods.Gaussian(scale=scale)
    model = make(likelihood=likelihood)
    (mean, var), noise = (m.numpy() for m in model.predict_f(X)), likelihood.variance_at(X).numpy()
    found = gs.calibrate(model, (X, Y))
    wanted = oracle.best_factors(Y, mean, var, noise[:, 0])
    np.testing.assert_allclose([found.function, found.noise], wanted, rtol=1e-5)
    total = found.function * var + found.noise * noise
    np.testing.assert_allclose(model.predict_y(X)[1], total, rtol=1e-12)


def test_another_likelihood_has_a_factor_of_the_function_only():
    X, Y = held_out()
    model = make(likelihood=gs.likelihoods.Laplace(0.1))
    for mean in model.q_mu:
        mean.assign(8.0 * mean)  # too certain
    mean, var = model.predict_f(X)
    found = gs.calibrate(model, (X, Y))
    assert found.noise == 1.0
    logs = np.linspace(-6.0, 6.0, 601)
    inputs, means, outputs = (np.tile(part, [len(logs), 1]) for part in (X, mean, Y))
    variances = np.exp(np.repeat(logs, len(X)))[:, None] * np.tile(var, [len(logs), 1])
    densities = model.likelihood.predict_log_density(inputs, means, variances, outputs)
    densities = densities.numpy().reshape(len(logs), -1)  # [601, N]
    folds, penalty = np.arange(len(X)) % 10, 0.5 * logs**2
    gains = np.empty(len(X))
    for fold in range(10):
        best = np.argmax(densities[:, folds != fold].sum(axis=1) - penalty)
        gains[folds == fold] = (densities[best] - densities[300])[folds == fold]
    share = 1.0 - gains.var() / len(X) / gains.mean() ** 2
    best = share * logs[np.argmax(densities.sum(axis=1) - penalty)]
    assert gains.mean() > 0.0
    assert share > 0.2
    assert np.log(found.function) == pytest.approx(best, abs=0.02)  # of one step of the grid
    counts = make(likelihood=gpflow.likelihoods.Poisson())
    with pytest.raises(ValueError, match="conformal must be False"):
        gs.calibrate(counts, (X, np.round(np.exp(Y))), conformal=True)


def test_counts_of_large_rates_are_calibrated():
    """A first step of the search to a factor of 160,000 overflowed and ended it where it began."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(600, 2))
    model = make(likelihood=gpflow.likelihoods.Poisson())
    mean, var = (part.numpy() for part in model.predict_f(X))
    rates = np.exp(mean + np.sqrt(3.0 * var) * rng.normal(size=var.shape))
    Y = rng.poisson(rates).astype(float)
    logs, (z, w) = np.linspace(-2.0, 3.0, 501), np.polynomial.hermite_e.hermegauss(60)
    f = mean + np.exp(0.5 * logs)[:, None, None] * np.sqrt(var) * z  # [501, N, 60]
    density = np.log(np.sum(w * np.exp(Y * f - np.exp(f) - gammaln(Y + 1.0)), axis=2))
    best = logs[np.argmax(density.sum(axis=1) - 0.5 * logs**2)]
    found = gs.calibrate(model, (X, Y))
    assert 0.8 * best < np.log(found.function) < best + 0.02  # shrunk by what folds gain


CLASSES = ["solvegp_bernoulli", "solvegp_multiclass", "deep_convolution", "site_vgp_classes"]


@pytest.mark.parametrize("name", CLASSES)
def test_a_temperature_raises_probabilities_to_a_power(name, tmp_path):
    member = OURS[name]
    model, X, Y = perturb(member.build()), inputs(), member.outputs()
    before, f = probabilities(model, X), model.predict_f(X)
    model.calibration = Calibration(temperature=1.7)
    wanted, labels = oracle.tempered(before, 1.7), Y[:, 0].astype(int)
    assert np.abs(wanted - before).max() > 0.01
    density = np.log(wanted[np.arange(len(X)), labels])
    gs.save(model, tmp_path / "model")
    for same in (model, gs.load(tmp_path / "model")):
        np.testing.assert_allclose(probabilities(same, X), wanted, rtol=1e-9)
        P, likelihood = same.predict_y(X)[0], same.likelihood
        np.testing.assert_allclose(same.predict_y(X)[1], P * (1.0 - P), rtol=1e-9)
        np.testing.assert_allclose(same.predict_log_density((X, Y)), density, rtol=1e-9)
        cached = same.posterior()
        np.testing.assert_allclose(cached.predict_y(X, likelihood)[0], P, rtol=1e-9)
        np.testing.assert_allclose(
            cached.predict_log_density((X, Y), likelihood), density, rtol=1e-9
        )
        np.testing.assert_array_equal(same.predict_f(X)[1], f[1])


def probabilities(model, X):
    mean = model.predict_y(X)[0].numpy()
    P = np.hstack([1.0 - mean, mean]) if mean.shape[1] == 1 else mean
    return P / P.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_temperature_of_classes_is_that_of_the_oracle(num_classes, tmp_path):
    X, _ = held_out(300)
    two = num_classes == 2
    likelihood = gpflow.likelihoods.Bernoulli() if two else gpflow.likelihoods.MultiClass(3)
    model = make(1 if two else 3, likelihood)
    for mean in model.q_mu:
        mean.assign(4.0 * mean)  # too certain
    P = probabilities(model, X)
    rng = np.random.default_rng(0)
    labels = np.array([rng.choice(num_classes, p=oracle.tempered(p, 3.0)) for p in P])
    data = X, labels[:, None].astype(float)
    before = np.mean(model.predict_log_density(data))
    found = gs.calibrate(model, data)
    wanted = oracle.best_temperature(P, labels)
    assert found.temperature == pytest.approx(wanted, abs=2e-3)  # of the grid
    assert wanted > 1.3
    assert (found.function, found.noise, found.num_rows) == (1.0, 1.0, 300)
    assert np.mean(model.predict_log_density(data)) > before + 0.01
    gs.export(model, tmp_path / "export")
    loaded = tf.saved_model.load(str(tmp_path / "export"))
    np.testing.assert_allclose(loaded.predict_y(tf.constant(X))[0], model.predict_y(X)[0])
    gs.uncalibrate(model)
    np.testing.assert_allclose(probabilities(model, X), P)


@pytest.mark.parametrize("name", [*KINDS, "solvegp_mixed", "swsgp_separate", "deep_convolution"])
def test_calibration_scales_covariances_and_leaves_means_and_objectives(name):
    """In a deep model the variance given draws of the hidden layers."""
    member = OURS[name]
    model = perturb(member.build())
    before = predictions(model)
    objective = elbo_of(model, member.data)
    model.calibration = Calibration(FACTOR, 0.5)
    after = predictions(model)
    assert elbo_of(model, member.data) == objective
    for name, (mean, var) in before.items():
        np.testing.assert_array_equal(after[name][0], mean)
        if not member.deep:
            np.testing.assert_array_equal(after[name][1], FACTOR * var)
    gs.uncalibrate(model)
    assert_equal(predictions(model), before)


@pytest.mark.parametrize("name", ["gpnn", "deep", "solvegp_bernoulli", "solvegp_multiclass"])
def test_held_out_rows_are_predicted_as_by_the_model(name):
    member = OURS[name]
    model, X, Y = perturb(member.build()), inputs(), member.outputs()
    found = calibration.predict_held_out(model, (X, Y))
    wanted = probabilities(model, X) if name in CLASSES else model.predict_y(X)[0]
    np.testing.assert_allclose(found.mean, wanted, rtol=1e-9)
    # probabilities by quadrature add up to one less 1e-6
    np.testing.assert_allclose(found.log_density, model.predict_log_density((X, Y)), rtol=1e-5)


def test_the_gain_of_held_out_rows_is_that_of_their_calibration():
    X, Y = held_out()
    poisson = make(likelihood=gpflow.likelihoods.Poisson())
    cases = [(make(), held_out(600), 0.1), (poisson, (X, np.round(np.exp(Y))), 0.0)]
    for model, data, least in cases:
        found = calibration.predict_held_out(model, data)
        np.testing.assert_allclose(found.mean, model.predict_y(data[0])[0])
        np.testing.assert_allclose(found.log_density, model.predict_log_density(data))
        gs.calibrate(model, data)
        after = model.predict_log_density(data).numpy().mean()
        assert found.gain == pytest.approx(after - found.log_density.mean(), abs=0.03)
        assert found.gain >= least


@pytest.mark.parametrize("name", ["solvegp", "swsgp", "softki", "deep"])
def test_a_saved_model_is_calibrated(name, tmp_path):
    model = perturb(OURS[name].build())
    model.calibration = Calibration(FACTOR, 0.5, num_rows=60, scores=np.ones((60, 1)))
    gs.save(model, tmp_path / "model")
    loaded = gs.load(tmp_path / "model")
    assert_equal(predictions(loaded), predictions(model))
    found = loaded.calibration
    assert (found.function, found.noise, found.num_rows) == (FACTOR, 0.5, 60)
    np.testing.assert_array_equal(found.radius(0.9), [1.0])
    gs.uncalibrate(loaded)
    gs.save(loaded, tmp_path / "model")
    assert gs.load(tmp_path / "model").calibration is None


def assert_equal(found, wanted):
    for name, moments in wanted.items():
        for a, b in zip(found[name], moments, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "name", ["solvegp", "basis_svgp", "qsgp", "swsgp", "softki", "mixture", "gpnn"]
)
def test_functions_drawn_deviate_from_the_mean_by_the_root_of_the_factor(name):
    """With equal random numbers; of deep models only the last layer is calibrated."""
    model = perturb(KINDS[name].build())
    posterior = model.posterior()
    nothing, one, four = (draws(posterior, factor) for factor in (1e-30, 1.0, 4.0))
    np.testing.assert_allclose(four - nothing, 2.0 * (one - nothing), atol=1e-6)
    assert np.abs(one - nothing).max() > 0.01


def draws(posterior, factor):
    posterior.calibration = Calibration(factor)
    return posterior.sample_functions(3, num_features=8, seed=0)(XNEW).numpy()


def predictions(model):
    """Means and (co)variances by all ways, with equal random numbers."""
    cached = model.posterior()
    found = {
        "marginal": model.predict_f(XNEW),
        "joint": model.predict_f(XNEW, full_cov=True),
        "cached": cached.predict_f(XNEW),
        "outputs": cached.predict_f(XNEW, full_output_cov=True),
    }
    return {name: tuple(m.numpy() for m in moments) for name, moments in found.items()}


def elbo_of(model, data):
    tf.random.set_seed(0)
    held = isinstance(model, gpflow.models.InternalDataTrainingLossMixin)
    return float(model.maximum_log_likelihood_objective() if held else model.elbo(data))


def gpr(kernel):
    X, Y = held_out(40, seed=3)
    return gpflow.models.GPR((X, Y), kernel, noise_variance=0.05)


def svgp(kernel, **options):
    Z = np.random.default_rng(4).normal(size=(6, 2))
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(0.05), Z, **options)
    model.q_mu.assign(np.sin(np.arange(6.0))[:, None])
    model.q_sqrt.assign(0.2 * model.q_sqrt)
    return model


STOCK = {
    "gpr": lambda: gpr(gpflow.kernels.Matern52()),
    "gpr of a sum": lambda: gpr(gpflow.kernels.Matern52() + gpflow.kernels.Linear()),
    "gpr of a product": lambda: gpr(gpflow.kernels.Matern52() * gpflow.kernels.Cosine()),
    "gpr of a periodic kernel": lambda: gpr(gpflow.kernels.Periodic(gpflow.kernels.RBF())),
    "gpr of images": lambda: gpr(Convolutional(gpflow.kernels.Matern52(), (1, 2), (1, 1))),
    "svgp": lambda: svgp(gpflow.kernels.Matern52()),
    "svgp, not whitened": lambda: svgp(gpflow.kernels.Matern52(), whiten=False),
}


@pytest.mark.parametrize("build", STOCK.values(), ids=list(STOCK))
def test_models_of_gpflow_are_reparametrized_and_restored(build, tmp_path):
    """Means and variances up to GPflow's jitter, which does not grow with the kernel."""
    model, (X, Y) = build(), held_out()
    before = [m.numpy() for m in model.predict_f(X)]
    noise = model.likelihood.variance.numpy()
    found = gs.calibrate(model, (X, Y))
    mean, var = model.predict_f(X)
    assert abs(np.log(found.function)) > 0.05
    np.testing.assert_allclose(mean, before[0], atol=2e-4)
    np.testing.assert_allclose(var, found.function * before[1], rtol=1e-3)
    assert model.likelihood.variance.numpy() == pytest.approx(found.noise * noise)
    gs.save(model, tmp_path / "model")
    loaded = gs.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_y(X)[1], model.predict_y(X)[1])
    gs.uncalibrate(loaded)
    np.testing.assert_array_equal(loaded.predict_f(X), before)


@pytest.mark.parametrize("build", [STOCK["gpr"], STOCK["svgp"]], ids=["gpr", "svgp"])
def test_training_between_two_calibrations_of_a_gpflow_model_is_kept(build):
    model, data = build(), held_out()
    gs.calibrate(model, data)
    model.kernel.variance.assign(1.5 * model.kernel.variance)  # as training does
    model.kernel.lengthscales.assign(0.7)
    before = [m.numpy() for m in model.predict_f(XNEW)]
    found = gs.calibrate(model, data)
    mean, var = model.predict_f(XNEW)
    np.testing.assert_allclose(mean, before[0], atol=2e-4)
    np.testing.assert_allclose(var, found.function * before[1], rtol=1e-3)
    gs.uncalibrate(model)
    np.testing.assert_allclose(model.predict_f(XNEW), before, rtol=1e-12)
    gs.calibrate(model, data)
    model.likelihood.variance.assign(0.3)
    before = [m.numpy() for m in model.predict_y(XNEW)]
    gs.uncalibrate(model)
    np.testing.assert_array_equal(model.predict_y(XNEW), before)
    assert model.calibration is None


CALIBRATED = {"gpr": STOCK["gpr"], "svgp": STOCK["svgp"], "ours": make}


@pytest.mark.parametrize("build", CALIBRATED.values(), ids=list(CALIBRATED))
def test_a_second_calibration_that_is_interrupted_leaves_the_first(build, monkeypatch):
    """In the search for factors, after the parameters have changed, and in the scores."""
    model, other = build(), held_out(seed=1)
    first, before = gs.calibrate(model, held_out()), predictions_of_y(model)
    places = [(calibration, "_best"), (rescaling, "rescale"), (type(model), "predict_y")]
    for owner, name in places if build is not make else places[::2]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted_after(getattr(owner, name)))
            with pytest.raises(KeyboardInterrupt):
                gs.calibrate(model, other, conformal=True)
        assert model.calibration is first
        np.testing.assert_array_equal(predictions_of_y(model), before)
    assert gs.calibrate(model, other).function != first.function


def interrupted_after(function):
    def call(*arguments, **options):
        function(*arguments, **options)
        raise KeyboardInterrupt

    return call


def predictions_of_y(model):
    return np.stack([part.numpy() for part in model.predict_y(XNEW)])


def test_a_kernel_without_a_variance_is_refused():
    model = gpr(gpflow.kernels.Polynomial(degree=2))
    before = model.predict_f(held_out()[0])
    with pytest.raises(ValueError, match=r"model\.kernel \(Polynomial\) has no variance"):
        gs.calibrate(model, held_out())
    np.testing.assert_array_equal(model.predict_f(held_out()[0]), before)
