"""SOLVE-GP regression: the bounds by their definitions, their order, q, streaming, doors."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP, SOLVEGPR
from gpflow_sparse.models.solvegp import regression as solvegpr
from tests.oracles import solvegp as oracle
from tests.oracles import solvegpr as collapsed_oracle

NOISE, EPS = 0.2, 1e-6
BOUNDS = ("structured", "coupled", "tighter")
KERNELS = {
    "squared_exponential": (gpflow.kernels.SquaredExponential, oracle.squared_exponential),
    "matern12": (gpflow.kernels.Matern12, collapsed_oracle.matern12),
    "matern32": (gpflow.kernels.Matern32, collapsed_oracle.matern32),
    "matern52": (gpflow.kernels.Matern52, oracle.matern52),
}


def sets(rng, sizes=(7, 5), D=2):
    return [rng.normal(size=(M, D)) for M in sizes]


def data(rng, N=24, P=1):
    X = rng.normal(size=(N, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(N, P))


def build(data, inducing, bound="structured", kernel=None, **options):
    return SOLVEGPR(
        data,
        kernel or gpflow.kernels.Matern52(),
        OrthogonalInducingVariables(*inducing),
        noise_variance=options.pop("noise", NOISE),
        bound=bound,
        **options,
    )


def union(model, inducing):
    """GPflow's SGPR on all inducing inputs; our jitter is GPflow's where the kernel is 1 at 0."""
    return gpflow.models.SGPR(
        model.data, model.kernel, np.concatenate(inducing), noise_variance=NOISE
    )


def small_blocks(monkeypatch, rows=5, columns=12):
    monkeypatch.setattr(solvegpr, "_BLOCK_ENTRIES", rows * columns)
    monkeypatch.setattr(solvegpr, "_ROWS_PER_COLUMN", 0)


def loss_and_gradients(model):
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    return loss, tape.gradient(loss, model.trainable_variables)


def oracle_bound(bound, k, Z, O, X, y):
    return {
        "structured": lambda: collapsed_oracle.structured(k, Z, O, EPS, X, y, NOISE),
        "coupled": lambda: collapsed_oracle.coupled(k, Z, O, EPS, X, y, NOISE),
        # jitter in Kuu and Cvv is jitter on the covariance of the union
        "tighter": lambda: collapsed_oracle.tighter(k, np.r_[Z, O], EPS, X, y, NOISE),
    }[bound]()


@pytest.mark.parametrize("name", list(KERNELS))
@pytest.mark.parametrize("bound", BOUNDS)
def test_every_bound_is_the_one_printed(rng, bound, name):
    """Two outputs, a mean function: the sum of the oracle's bounds of the residuals."""
    kernel, k = KERNELS[name]
    (Z, O), (X, Y) = sets(rng), data(rng, P=2)
    slope = gpflow.functions.Linear(np.full((2, 2), 0.3), np.array([0.1, -0.2]))
    model = build((X, Y), [Z, O], bound, kernel(), mean_function=slope)
    expected = sum(oracle_bound(bound, k, Z, O, X, y) for y in (Y - slope(X).numpy()).T)
    np.testing.assert_allclose(model.elbo(), expected, rtol=1e-8)
    np.testing.assert_allclose(model.maximum_log_likelihood_objective(), expected, rtol=1e-8)


def test_the_fast_form_is_the_printed_one_to_ten_digits(rng):
    """With points apart, so that the oracle's own inverses keep their digits."""
    X, Y = data(rng)
    Z, O = X[:7] + 0.05, X[7:12] + 0.05
    got = build((X, Y), [Z, O], kernel=gpflow.kernels.Matern12()).elbo()
    expected = collapsed_oracle.structured(collapsed_oracle.matern12, Z, O, EPS, X, Y[:, 0], NOISE)
    np.testing.assert_allclose(got, expected, rtol=1e-10)


@pytest.mark.parametrize("name", list(KERNELS))
def test_the_bounds_are_in_order(rng, name):
    """Titsias(Z) <= (10) <= (30) <= Titsias(Z+O) <= coupled <= (14) on Z+O <= log evidence."""
    kernel, k = KERNELS[name]
    (Z, O), (X, Y) = sets(rng), data(rng, N=40)
    y = Y[:, 0]
    structured, coupled, tighter = (
        float(build((X, Y), [Z, O], bound, kernel()).elbo()) for bound in BOUNDS
    )
    on_z = float(build((X, Y), [Z], "tighter", kernel()).elbo())
    chain = [
        collapsed_oracle.titsias(k, Z, EPS, X, y, NOISE),
        collapsed_oracle.prior_covariance(k, Z, O, EPS, X, y, NOISE),
        structured,
        collapsed_oracle.titsias(k, np.r_[Z, O], EPS, X, y, NOISE),
        coupled,
        tighter,
        oracle.log_evidence(k, X, y, NOISE),
    ]
    assert (np.diff(chain) > -1e-9).all()
    assert (np.diff(chain) > 1e-4).sum() >= 5
    assert chain[0] < on_z < coupled


def test_no_q_of_v_beats_the_coupled_bound(rng):
    (Z, O), (X, Y) = sets(rng), data(rng)
    best = float(build((X, Y), [Z, O], "coupled").elbo())
    for _ in range(10):
        m, root = rng.normal(size=5), 0.3 * np.tril(rng.normal(size=(5, 5))) + 0.3 * np.eye(5)
        other = collapsed_oracle.coupled(
            oracle.matern52, Z, O, EPS, X, Y[:, 0], NOISE, m, root @ root.T
        )
        assert other < best


@pytest.mark.parametrize("sizes", [(7, 5), (6, 4, 3)])
def test_the_gap_is_what_the_structured_bound_lacks_to_sgpr_on_all_inputs(rng, sizes):
    inducing, rows = sets(rng, sizes), data(rng, P=2)
    model = build(rows, inducing)
    gap = float(model.structured_gap())
    assert gap > 1e-3
    np.testing.assert_allclose(model.elbo() + gap, union(model, inducing).elbo(), rtol=1e-7)
    for bound in BOUNDS[1:]:
        np.testing.assert_allclose(build(rows, inducing, bound).structured_gap(), gap, rtol=1e-9)


def test_one_set_is_sgpr(rng):
    inducing, rows = sets(rng, (9,)), data(rng)
    model = build(rows, inducing)
    assert float(model.structured_gap()) == 0.0
    reference = union(model, inducing)
    np.testing.assert_allclose(model.elbo(), reference.elbo(), rtol=1e-9)
    for full_cov in (False, True):
        for a, b in zip(
            model.predict_f(rows[0], full_cov), reference.predict_f(rows[0], full_cov), strict=True
        ):
            np.testing.assert_allclose(a, b, atol=1e-7)


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_mean_is_that_of_sgpr_on_all_inputs(rng, bound):
    inducing, rows = sets(rng, (6, 4, 3)), data(rng, P=2)
    model = build(rows, inducing, bound)
    mean = union(model, inducing).predict_f(rows[0])[0]
    np.testing.assert_allclose(model.predict_f(rows[0])[0], mean, atol=1e-8)


def test_predictions_equal_the_oracle(rng):
    (Z, O), (X, Y) = sets(rng), data(rng)
    model = build((X, Y), [Z, O])
    m, S = collapsed_oracle.optimal_q(oracle.matern52, Z, O, EPS, X, Y[:, 0], NOISE)
    mean, cov = oracle.predict(oracle.matern52, Z, O, EPS, m, S, X)
    got_mean, got_cov = model.predict_f(X, full_cov=True)
    np.testing.assert_allclose(got_mean[:, 0], mean, atol=1e-8)
    np.testing.assert_allclose(got_cov[0], cov, atol=1e-8)
    np.testing.assert_allclose(model.predict_y(X)[1][:, 0], np.diag(cov) + NOISE, atol=1e-8)
    elbo = oracle.gaussian_elbo(oracle.matern52, Z, O, EPS, m, S, X, Y[:, 0], NOISE)
    np.testing.assert_allclose(model.elbo(), elbo, rtol=1e-8)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bound", BOUNDS)
def test_streaming_changes_neither_value_nor_gradients(rng, monkeypatch, bound, compiled):
    inducing, rows = sets(rng), data(rng, P=2)
    slope = gpflow.functions.Linear(np.full((2, 2), 0.3), np.zeros(2))
    model = build(rows, inducing, bound, mean_function=slope)
    call = tf.function(loss_and_gradients, autograph=False) if compiled else loss_and_gradients
    with monkeypatch.context() as patch:
        patch.setattr(solvegpr, "streamed_sum", lambda f, data, t=(), *, block_rows: f(data, t))
        expected_loss, expected = loss_and_gradients(model)  # TensorFlow's own gradient
    small_blocks(monkeypatch)
    loss, gradients = call(model)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-12)
    assert len(gradients) == 7
    for a, b in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_the_streamed_gradient_is_that_of_sgpr_on_one_set(rng, monkeypatch):
    """But for the variance of the kernel, which our jitter follows and GPflow's does not."""
    inducing, rows = sets(rng, (9,)), data(rng)
    small_blocks(monkeypatch)
    model = build(rows, inducing)
    reference = union(model, inducing)
    with tf.GradientTape(persistent=True) as tape:
        ours, theirs = model.elbo(), reference.elbo()
    pairs = [
        (model.kernel.lengthscales, model.kernel.lengthscales),
        (model.likelihood.variance, reference.likelihood.variance),
        (model.inducing_variable.sets[0].Z, reference.inducing_variable.Z),
    ]
    for a, b in pairs:
        a, b = (getattr(v, "unconstrained_variable", v) for v in (a, b))
        np.testing.assert_allclose(
            tape.gradient(ours, a), tape.gradient(theirs, b), rtol=1e-6, atol=1e-7
        )


@pytest.mark.parametrize("P", [1, 2])
@pytest.mark.nightly
def test_to_solvegp_starts_at_the_structured_bound_and_cannot_be_improved(rng, P):
    inducing, rows = sets(rng, (6, 4, 3)), data(rng, P=P)
    model = build(rows, inducing)
    twin = model.to_solvegp()
    assert twin.num_data == len(rows[0])
    np.testing.assert_allclose(twin.elbo(rows), model.elbo(), rtol=1e-10)
    for a, b in zip(twin.predict_f(rows[0]), model.predict_f(rows[0]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    q = [p.unconstrained_variable for pair in twin.variational_parameters for p in pair]
    with tf.GradientTape() as tape:
        loss = twin.training_loss(rows)
    for gradient in tape.gradient(loss, q):
        np.testing.assert_allclose(gradient, np.zeros(gradient.shape), atol=1e-8)
    q_mu, q_sqrt = model.compute_qu()
    natural = gpflow.optimizers.NaturalGradient(gamma=1.0)
    for pair in twin.variational_parameters:
        natural.minimize(twin.training_loss_closure(rows), [pair])
    for got, expected in zip((*twin.q_mu, *twin.q_sqrt), (*q_mu, *q_sqrt), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-7)
    with tf.GradientTape() as tape:
        loss = twin.training_loss(rows)
    (at_twin,) = tape.gradient(loss, twin.kernel.lengthscales.trainable_variables)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    (at_model,) = tape.gradient(loss, model.kernel.lengthscales.trainable_variables)
    np.testing.assert_allclose(at_twin, at_model, rtol=1e-6)  # the envelope theorem


@pytest.mark.nightly
def test_to_solvegp_shares_nothing_and_trains_on_minibatches(rng):
    rows = X, Y = data(rng)
    model = build(rows, sets(rng), mean_function=gpflow.functions.Constant([0.1]))
    model.jitter, model.standardizer = 1e-5, gs.Standardizer.fit(X, Y)
    before = gpflow.utilities.read_values(model)
    twin = model.to_solvegp()
    assert twin.jitter == 1e-5
    np.testing.assert_array_equal(twin.standardizer.x_mean, model.standardizer.x_mean)
    assert not {v.ref() for v in twin.variables} & {v.ref() for v in model.variables}
    batches = [float(twin.elbo((X[i : i + 4], Y[i : i + 4]))) for i in range(0, 24, 4)]
    np.testing.assert_allclose(np.mean(batches), model.elbo(), rtol=1e-8)
    gs.training.fit(twin, rows, batch_size=4, num_steps=2, progress=False)
    for name, value in gpflow.utilities.read_values(model).items():
        np.testing.assert_array_equal(value, before[name])
    assert model.to_solvegp(num_data=100).num_data == 100


@pytest.mark.parametrize("bound", BOUNDS)
def test_coinciding_sets_give_finite_bounds_and_gradients(rng, bound, float_type):
    (Z,) = sets(rng, (7,))
    rows = data(rng)
    model = build(rows, [Z, np.concatenate([Z, Z[:2]])], bound)
    loss, gradients = loss_and_gradients(model)
    assert loss.dtype == float_type
    assert np.isfinite(loss)
    assert all(np.isfinite(g).all() for g in gradients)
    alone = build(rows, [Z])
    if bound == "structured":  # nothing is left for O to explain but jitter
        tolerance = 1e-4 if float_type is np.float64 else 1e-2
        np.testing.assert_allclose(loss, alone.training_loss(), rtol=tolerance)


@pytest.mark.parametrize("bound", BOUNDS)
def test_float32_is_near_float64_with_the_same_jitter(rng, bound):
    inducing, rows = sets(rng), data(rng)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-4)):
        expected = build(rows, inducing, bound)
        with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
            model = build(rows, inducing, bound)
            got = model.elbo(), model.structured_gap(), *model.predict_f(rows[0])
            twin = model.to_solvegp()
            assert twin.q_mu[0].dtype == tf.float32
            np.testing.assert_allclose(twin.elbo(rows), build(rows, inducing).elbo(), rtol=1e-4)
        reference = expected.elbo(), expected.structured_gap(), *expected.predict_f(rows[0])
    for a, b in zip(got, reference, strict=True):
        assert a.dtype == tf.float32
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.nightly
def test_large_blocks_can_be_differentiated_again_and_again():
    """
    TensorFlow's memory optimizer puts temporary variables into loops over large tensors, which
    fail at the second call (TensorFlow issue 23780); blocks are their own functions because of it.
    """
    X = np.linspace(-3.0, 3.0, 4200)[:, None]
    Z = np.linspace(-3.0, 3.0, 512)[:, None]
    model = build((X, np.sin(X)), [Z[::2], Z[1::2]], kernel=gpflow.kernels.Matern12())
    step = tf.function(lambda: loss_and_gradients(model), autograph=False)
    first, second = step(), step()
    np.testing.assert_allclose(second[0], first[0], rtol=1e-12)


@pytest.mark.nightly
def test_scipy_and_fit_improve_every_bound(rng):
    rows, inducing = data(rng), sets(rng)
    for bound in BOUNDS:
        model = build(rows, inducing, bound, noise=1.0)
        before = float(model.elbo())
        gpflow.optimizers.Scipy().minimize(
            model.training_loss_closure(), model.trainable_variables, options={"maxiter": 10}
        )
        middle = float(model.elbo())
        assert middle > before + 1.0
        history = gs.training.fit(model, num_steps=3, progress=False)
        np.testing.assert_allclose(history.elbo[0], middle, rtol=1e-9)
        assert float(model.elbo()) > middle - 1.0


def test_the_loss_counts_priors_of_parameters(rng):
    model = build(data(rng), sets(rng))
    one = np.float64(1.0)
    model.kernel.variance.prior = tfp.distributions.Normal(0.0 * one, one)
    expected = -model.elbo() + 0.5 * np.log(2.0 * np.pi) + 0.5  # log N(1; 0, 1)
    np.testing.assert_allclose(model.training_loss(), expected, rtol=1e-12)
    for compile in (True, False):
        closure = model.training_loss_closure(compile=compile)
        np.testing.assert_allclose(closure(), expected, rtol=1e-12)


def test_every_cache_predicts_the_same_and_update_cache_computes_q_anew(rng):
    X, _ = rows = data(rng)
    model = build(rows, sets(rng), mean_function=gpflow.functions.Constant([0.4]))
    caches = [model.posterior(kind) for kind in ("tensor", "variable")]
    for _ in range(2):
        expected = model.predict_f(X)
        for posterior in caches:
            posterior.update_cache()
            for a, b in zip(posterior.predict_f(X), expected, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-9)
        model.kernel.lengthscales.assign(0.5)
        model.likelihood.variance.assign(0.05)


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_saved_model_comes_back(rng, tmp_path, bound):
    rows = data(rng, P=2)
    model = build(rows, sets(rng, (6, 4, 3)), bound)
    model.kernel.lengthscales.assign(0.7)
    model.standardizer = gs.Standardizer.fit(*rows)
    gs.save(model, tmp_path / "model.npz")
    loaded = gs.load(tmp_path / "model.npz")
    assert (type(loaded), loaded.bound) == (SOLVEGPR, bound)
    np.testing.assert_allclose(loaded.elbo(), model.elbo(), rtol=1e-14)
    for a, b in zip(loaded.predict_f(rows[0]), model.predict_f(rows[0]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_an_exported_model_predicts_without_the_data(rng, tmp_path):
    rows = data(rng)
    model = build(rows, sets(rng))
    gs.export(model, tmp_path / "exported")
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    for a, b in zip(loaded.predict_y(tf.constant(rows[0])), model.predict_y(rows[0]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_gradients_reach_everything_through_predictions(rng):
    rows = data(rng)
    model = build(rows, sets(rng))
    with tf.GradientTape() as tape:
        mean, var = model.predict_f(rows[0])
        out = tf.reduce_sum(mean) + tf.reduce_sum(var)
    (slope,) = tape.gradient(out, model.likelihood.trainable_variables)
    variable = model.likelihood.variance.unconstrained_variable

    def at(shift):
        variable.assign_add(shift)
        value = sum(float(tf.reduce_sum(part)) for part in model.predict_f(rows[0]))
        variable.assign_sub(shift)
        return value

    np.testing.assert_allclose(slope, (at(1e-4) - at(-1e-4)) / 2e-4, rtol=1e-6)


def test_inter_domain_patches_are_taken(rng):
    kernel = gpflow.kernels.Convolutional(gpflow.kernels.SquaredExponential(), [4, 4], [3, 3])
    patches = [gpflow.inducing_variables.InducingPatches(rng.normal(size=(M, 9))) for M in (4, 3)]
    rows = rng.normal(size=(6, 16)), rng.normal(size=(6, 1))
    model = build(rows, patches, kernel=kernel)
    np.testing.assert_allclose(model.to_solvegp().elbo(rows), model.elbo(), rtol=1e-9)


def test_bounds_over_pairs_refuse_many_rows():
    X = np.linspace(0.0, 1.0, 20_001)[:, None]
    for bound in BOUNDS[1:]:
        with pytest.raises(ValueError, match=r"at most 20000 rows.*all pairs of rows.*has 20001"):
            build((X, X), [X[:3], X[3:5]], bound)
    model = build((X, X), [X[:3], X[3:5]])
    model.bound = "coupled"
    with pytest.raises(ValueError, match="at most 20000 rows"):
        model.elbo()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"bound": "exact"},
            "bound must be one of 'standard', 'log', 'block', 'coupled', 'fully_coupled'; got",
        ),
        ({"bound": None}, "bound must be one of"),
        ({"bound": ["structured"]}, "bound must be one of"),
        ({"noise": 0.0}, "noise_variance must be one number above 1e-06"),
        ({"noise": -1.0}, "noise_variance must be one number above"),
        ({"noise": [0.1, 0.2]}, "noise_variance must be one number"),
        ({"noise": "0.1"}, "noise_variance must hold real numbers"),
        ({"noise": np.nan}, "noise_variance must be finite"),
        ({"kernel": "RBF"}, "kernel must be a GPflow Kernel"),
        (
            {"kernel": gpflow.kernels.SharedIndependent(gpflow.kernels.RBF(), 1)},
            "kernel must be single-output.*SharedIndependent",
        ),
        ({"mean_function": np.sin}, "mean_function must be a GPflow Function"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(rng, options, message):
    with pytest.raises(ValueError, match=message):
        build(data(rng), sets(rng), **options)


def test_data_and_sets_that_do_not_fit_are_refused(rng):
    (Z, O), (X, Y) = sets(rng), data(rng)
    for rows, message in (
        ((X, Y[:, 0]), r"Y must be a matrix.*Use Y\[:, None\]"),
        ((X, Y[:9]), "same number of rows"),
        ((X[:, :1], Y), r"X must have 2 column\(s\)"),
        ((X, np.where(Y > 0, np.nan, Y)), "Y must be finite"),
        ((X, 1e200 * Y), "Y must be smaller than"),
        (X, "data must be a tuple"),
    ):
        with pytest.raises(ValueError, match=message):
            build(rows, [Z, O])
    with pytest.raises(ValueError, match=r"inducing_variable must be OrthogonalInducingVariables"):
        SOLVEGPR((X, Y), gpflow.kernels.RBF(), Z)


def test_other_likelihoods_are_refused_when_assigned(rng):
    model = build(data(rng), sets(rng))
    for likelihood in (
        gpflow.likelihoods.StudentT(),
        gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear(np.ones((2, 1)))),
    ):
        model.likelihood = likelihood
        for call in (model.elbo, model.compute_qu, lambda: model.predict_f(model.data[0])):
            with pytest.raises(ValueError, match="likelihood must be gpflow"):
                call()
    model.likelihood = gpflow.likelihoods.Gaussian(scale=np.sqrt(NOISE))
    reference = build(model.data, [s.Z for s in model.inducing_variable.sets])
    np.testing.assert_allclose(model.elbo(), reference.elbo(), rtol=1e-10)


def test_it_is_a_regression_model_of_gpflow(rng):
    model = build(data(rng), sets(rng))
    assert isinstance(model, gpflow.models.InternalDataTrainingLossMixin)
    assert not isinstance(model, SOLVEGP)
    assert isinstance(model.likelihood, gpflow.likelihoods.Gaussian)
    np.testing.assert_allclose(model.likelihood.variance, NOISE)


def test_a_posterior_that_was_kept_follows_the_parameters_but_for_its_cache(rng):
    model = build(data(rng), sets(rng))
    posterior, X = model.posterior(), rng.normal(size=(3, 2))
    before = posterior.predict_f(X)[0]
    model.kernel.lengthscales.assign(2.0)
    model.likelihood.variance.assign(0.02)
    for a, b in zip(posterior.fused_predict_f(X), model.predict_f(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    gradients = []
    for predict in (posterior.fused_predict_f, model.predict_f):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(predict(X)[0])
        gradients.append(tape.gradient(total, model.kernel.lengthscales.unconstrained_variable))
    np.testing.assert_allclose(*gradients, rtol=1e-9)
    draws, fresh = (p.sample_functions(3, seed=1)(X) for p in (posterior, model.posterior()))
    np.testing.assert_allclose(draws, fresh, rtol=1e-9)
    posterior.update_cache()
    np.testing.assert_allclose(posterior.predict_f(X)[0], model.predict_f(X)[0], rtol=1e-8)
    assert np.abs(posterior.predict_f(X)[0] - before).max() > 0.01
