"""One battery of identities over every model of the package; the members are in battery.py."""

import inspect

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.utilities import multiple_assign, read_values

import gpflow_sparse.models
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.kernels import Basis, WithMissingVariance
from gpflow_sparse.models import SWSGP, NearestNeighborClassifier, NearestNeighborGP
from tests.battery import (
    ALL,
    KINDS,
    MEMBERS,
    REGRESSIONS,
    D,
    N,
    classes,
    inputs,
    labels,
    perturb,
    settle,
)


def each(members):
    return pytest.mark.parametrize("member", members.values(), ids=list(members))


def ours(members):
    return {name: member for name, member in members.items() if member.guarded}


every_member, every_model = each(MEMBERS), each(ALL)
# Members whose f and q are those of others, for what does not see the likelihood.
LIKE_OTHERS = {
    *("solvegp_bernoulli", "solvegp_multiclass", "odvgp_bernoulli", "basis_svgp_bernoulli"),
    "qsgp_bernoulli",
}
OF_F = {name: member for name, member in ALL.items() if name not in LIKE_OTHERS}
OF_Q = {name: member for name, member in OF_F.items() if name in MEMBERS}
every_f, every_q = each(OF_F), each(OF_Q)
every_kind = each(KINDS)
every_kind_with_a_bound = each({name: KINDS[name] for name in MEMBERS if name in KINDS})
XNEW = inputs(seed=7, rows=5)


def holds_data(model):
    return isinstance(model, gpflow.models.InternalDataTrainingLossMixin)


def elbo_of(model, data):
    return model.maximum_log_likelihood_objective() if holds_data(model) else model.elbo(data)


def kl_of(model, member):
    """Of q as a whole, or of the neighbors of all rows."""
    return model.prior_kl() if member.one_kl else model.prior_kl(inputs())


def loss_of(model, data):
    return model.training_loss() if holds_data(model) else model.training_loss(data)


def loss_and_gradients(model, data):
    with tf.GradientTape() as tape:
        loss = loss_of(model, data)
    gradients = tape.gradient(loss, model.trainable_variables)
    return loss, [g if g is None else tf.convert_to_tensor(g) for g in gradients]


def assert_same_predictions(model, other, atol=1e-12):
    for full_cov in (False, True):
        for a, b in zip(
            model.predict_f(XNEW, full_cov), other.predict_f(XNEW, full_cov), strict=True
        ):
            np.testing.assert_allclose(a, b, atol=atol)


def assert_same_objective(model, other, member, rtol):
    np.testing.assert_allclose(elbo_of(model, member.data), elbo_of(other, member.data), rtol=rtol)


def prior_covariances(model, X):
    """Of every output, ``[P, N, N]``."""
    if isinstance(model.kernel, gpflow.kernels.MultioutputKernel):
        return model.kernel(X, full_cov=True, full_output_cov=False).numpy()
    prior = model.kernel(X).numpy()
    return np.broadcast_to(prior, (model.num_latent_gps, *prior.shape))


def test_every_model_of_the_package_is_in_the_battery():
    public = {getattr(gpflow_sparse.models, name) for name in gpflow_sparse.models.__all__}
    expected = {
        kind
        for kind in public
        if isinstance(kind, type)
        and issubclass(kind, gpflow.models.GPModel)
        and not inspect.isabstract(kind)
    }
    assert expected
    assert expected == {type(member.build()) for member in KINDS.values()}


@every_q
def test_q_starts_at_the_prior(member):
    """Predictions are the prior's and the KL is zero, to the rounding of one factorization."""
    model = member.build()
    mean, var = model.predict_f(XNEW)
    if not member.deep:
        np.testing.assert_allclose(mean, model.mean_function(XNEW), atol=1e-8)
    start = float(kl_of(model, member))
    assert (abs(start) < 1e-8) == member.prior
    if member.prior and not member.deep:
        prior = prior_covariances(model, XNEW)
        np.testing.assert_allclose(var, np.diagonal(prior, axis1=1, axis2=2).T, atol=1e-8)
        np.testing.assert_allclose(model.predict_f(XNEW, full_cov=True)[1], prior, atol=1e-8)
    # without it, the start is the closest to the prior among q with that covariance
    assert float(kl_of(perturb(model), member)) > max(0.1, start)


@every_f
def test_variances_are_positive_at_and_far_from_the_inducing_inputs(member):
    model = perturb(member.build())
    sets = getattr(getattr(model, "inducing_variable", None), "sets", None)
    Z = inputs() if sets is None or sets[0].Z.shape[1] != D else sets[0].Z.numpy()
    X = np.concatenate([Z, Z + 1e-8, inputs(8), 100.0 + inputs(9)])
    var = model.predict_f(X)[1].numpy()
    far = var[-N:]
    assert (var[:-N] > 0).all()
    assert (far >= 0).all()
    assert (far < 1e-100).all() if member.degenerate else (far > 0).all()
    if not (
        member.degenerate or member.deep or isinstance(model.kernel, Basis | WithMissingVariance)
    ):
        prior = prior_covariances(model, X[-N:])
        np.testing.assert_allclose(far, np.diagonal(prior, axis1=1, axis2=2).T, rtol=1e-9)
    assert np.linalg.eigvalsh(model.predict_f(X, full_cov=True)[1].numpy()).min() > -1e-9


def compiled_equal_eager(member, rtol, **options):
    """Relative to the largest entry of each gradient: single entries may cancel."""
    model = perturb(member.build() if member in REGRESSIONS.values() else member.build(num_data=50))
    data = tuple(tf.constant(part) for part in member.data)
    compiled = tf.function(lambda: loss_and_gradients(model, data), **options)
    (got, got_gradients), (loss, gradients) = compiled(), loss_and_gradients(model, data)
    np.testing.assert_allclose(got, loss, rtol=rtol)
    for a, b in zip(got_gradients, gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


@every_model
def test_compiled_values_and_gradients_equal_eager_ones(member):
    compiled_equal_eager(member, 1e-8)


@each({name: member for name, member in ALL.items() if member.xla})
def test_values_and_gradients_compiled_by_xla_equal_eager_ones(member):
    compiled_equal_eager(member, member.xla, jit_compile=True)


@every_kind
def test_compiled_predictions_and_draws_of_zero_rows_have_zero_rows(member):
    """An exported model may be asked for them: its number of rows is not static."""
    model = member.build()
    calls = [(model.predict_f, (0, model.num_outputs))]
    calls += [(lambda X: model.predict_f(X, full_cov=True), (0, model.num_outputs))]
    if member.drawable:
        draws = model.posterior().sample_functions(2, num_features=16, seed=0)
        calls.append((draws, (2, 0, model.num_outputs)))
    for call, shape in calls:
        signature = [tf.TensorSpec([None, D], tf.float64)]
        compiled = tf.function(call, autograph=False, input_signature=signature)
        assert tf.nest.flatten(compiled(tf.zeros([0, D], tf.float64)))[0].shape == shape


@each(KINDS | {k: v for k, v in ours(OF_F).items() if k.startswith(("swsgp", "deep"))})
def test_compiled_predictions_equal_eager_ones(member):
    model = perturb(member.build())
    any_number = model.input_dim is None  # is right, and has to be static
    signature = [tf.TensorSpec([None, D if any_number else None], tf.float64)]
    compiled = tf.function(model.predict_f, autograph=False, input_signature=signature)
    for got, expected in zip(compiled(XNEW), model.predict_f(XNEW), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-10)
    if not any_number:
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected shape"):
            compiled(XNEW[:, :1])


def test_posteriors_predict_in_the_float_type_of_their_model_whatever_the_default_is_then():
    for name in ("solvegp", "swsgp", "deep", "basis_gpr", "gpnn", "mixture"):
        model = perturb(ALL[name].build())
        posterior, expected = model.posterior(), model.predict_f(XNEW)
        with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
            for predict in (posterior.predict_f, model.posterior().predict_f):
                for got, value in zip(predict(XNEW), expected, strict=True):
                    np.testing.assert_allclose(got, value, atol=1e-12)


@every_kind
def test_gradients_exist_and_are_finite(member):
    for model in (member.build(), perturb(member.build())):
        gradients = loss_and_gradients(model, member.data)[1]
        assert len(gradients) >= (2 if getattr(model, "reweighted", None) else 4)
        for gradient, variable in zip(gradients, model.trainable_variables, strict=True):
            assert gradient is not None, variable.name
            assert np.isfinite(gradient).all(), variable.name


@every_model
def test_gradients_equal_central_differences(member):
    """Along a random direction through all parameters at once, by a stencil of fourth order."""
    model = perturb(member.build())
    rng, h = np.random.default_rng(5), 1e-4
    gradients = loss_and_gradients(model, member.data)[1]
    directions = [rng.normal(size=v.shape) for v in model.trainable_variables]
    expected = sum(float(tf.reduce_sum(g * d)) for g, d in zip(gradients, directions, strict=True))

    def loss_at(shift):
        for variable, direction in zip(model.trainable_variables, directions, strict=True):
            variable.assign_add(shift * direction)
        loss = float(loss_of(model, member.data))
        for variable, direction in zip(model.trainable_variables, directions, strict=True):
            variable.assign_sub(shift * direction)
        return loss

    near, wide = loss_at(h) - loss_at(-h), loss_at(2.0 * h) - loss_at(-2.0 * h)
    np.testing.assert_allclose((8.0 * near - wide) / (12.0 * h), expected, rtol=1e-6)


@every_model
def test_float32_is_near_float64_with_the_same_jitter(member):
    config = gpflow.config.Config(float=np.float32, jitter=1e-4)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-4)):
        reference = member.build()
        if member.float32:
            perturb(reference)
        expected = elbo_of(reference, member.data), *reference.predict_f(XNEW)
    with gpflow.config.as_context(config):
        model = member.build()
        if member.float32:  # otherwise compare where q is the prior of either precision
            values = {k: v.astype(np.float32) for k, v in read_values(reference).items()}
            multiple_assign(model, values)
            settle(model)
        data = tuple(part.astype(np.float32) for part in member.data)
        got = elbo_of(model, data), *model.predict_f(XNEW.astype(np.float32))
        assert all(np.isfinite(g).all() for g in loss_and_gradients(model, data)[1])
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == tf.float32
        # float32 has 1e-7, times the condition number of Kuu under its jitter, about 1e4
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


@every_member
def test_permuting_rows_permutes_predictions_and_leaves_the_elbo(member, rng):
    model = perturb(member.build())
    X, Y = member.data
    order = rng.permutation(N)
    np.testing.assert_allclose(model.elbo((X[order], Y[order])), model.elbo((X, Y)), rtol=1e-12)
    for a, b in zip(model.predict_f(X[order]), model.predict_f(X), strict=True):
        np.testing.assert_allclose(a, b.numpy()[order], atol=1e-12)
    if member.deep:
        return
    permuted, plain = (model.predict_f(x, full_cov=True)[1].numpy() for x in (X[order], X))
    np.testing.assert_allclose(permuted, plain[:, order][:, :, order], atol=1e-12)


@every_member
def test_minibatch_estimates_average_to_the_full_bound(member, rng):
    """Exactly, over the disjoint batches of one epoch."""
    if not member.averages:
        pytest.skip("terms are drawn for each batch, or its rows share their inducing points")
    X, Y = member.data
    model = perturb(member.build(num_data=N))
    for size in (1, 4):
        batches = rng.permutation(N).reshape(-1, size)
        estimates = [float(model.elbo((X[rows], Y[rows]))) for rows in batches]
        np.testing.assert_allclose(np.mean(estimates), model.elbo((X, Y)), rtol=1e-10)
        assert np.std(estimates) > 0.01


@every_member
def test_the_elbo_is_the_expected_log_likelihood_minus_the_kl(member):
    if member.shared:
        pytest.skip("predictions of single rows do not see the points of a whole batch")
    X, Y = member.data
    model = perturb(member.build(num_data=5 * N))
    mean, var = model.predict_f(X)
    expected = tf.reduce_sum(model.likelihood.variational_expectations(X, mean, var, Y))
    np.testing.assert_allclose(
        model.elbo((X, Y)), 5.0 * float(expected) - float(kl_of(model, member)), rtol=1e-10
    )
    objective = model.maximum_log_likelihood_objective((X, Y))
    np.testing.assert_allclose(objective, model.elbo((X, Y)), rtol=1e-14)


@every_kind_with_a_bound
def test_the_training_loss_is_minus_the_bound_and_the_log_prior(member):
    model = perturb(member.build())
    closure = model.training_loss_closure(member.data, compile=False)
    for loss in (model.training_loss(member.data), closure()):
        np.testing.assert_allclose(loss, -model.elbo(member.data), rtol=1e-14)
    one = np.float64(1.0)
    model.likelihood.shift = gpflow.Parameter(2.0, prior=tfp.distributions.Normal(0.0 * one, one))
    expected = model.elbo(member.data) - 0.5 * np.log(2.0 * np.pi) - 2.0  # log N(2; 0, 1)
    for loss in (model.training_loss(member.data), closure()):
        np.testing.assert_allclose(loss, -expected, rtol=1e-14)


@every_kind_with_a_bound
def test_one_row_has_a_finite_bound_and_prediction(member):
    X, Y = member.data
    model = perturb(member.build())
    assert np.isfinite(model.elbo((X[:1], Y[:1])))
    for a, b in zip(model.predict_f(X[:1]), model.predict_f(X), strict=True):
        np.testing.assert_allclose(a, b[:1], atol=1e-12)


@each({"solvegp": KINDS["solvegp"]} | {name: KINDS[name] for name in REGRESSIONS if name in KINDS})
def test_a_checkpoint_restores_the_model_in_another_object(member, tmp_path):
    """Also those of tests/persistence/test_trained.py, which are trained before."""
    model, fresh = perturb(member.build()), perturb(member.build(), seed=5)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=fresh).read(path).assert_consumed()
    assert_same_predictions(fresh, model)
    assert_same_objective(fresh, model, member, rtol=1e-14)


@every_kind
def test_a_deep_copy_is_equal_and_independent(member):
    model = perturb(member.build())
    before = model.predict_f(XNEW)[0].numpy()
    copy = gpflow.utilities.deepcopy(model)
    assert_same_predictions(copy, model)
    perturb(copy)
    np.testing.assert_array_equal(model.predict_f(XNEW)[0], before)
    assert np.abs(copy.predict_f(XNEW)[0] - before).max() > 1e-3


@every_kind
def test_a_model_says_what_it_is_in_one_line(member):
    model = member.build()
    text = repr(model)
    kernel, likelihood = type(model.kernel).__name__, type(model.likelihood).__name__
    assert "\n" not in text
    assert text.startswith(f"{type(model).__name__}(kernel={kernel}, likelihood={likelihood}, ")
    assert f"num_latent_gps={int(model.num_latent_gps)}" in text
    rows = model.num_data if hasattr(model, "num_data") else N
    assert (f", num_data={rows})" in text) == (rows is not None)
    if hasattr(model, "inducing_variable"):
        sizes = getattr(model.inducing_variable, "sizes", int(model.inducing_variable.num_inducing))
        assert f"num_inducing={sizes}, " in text
    if hasattr(model, "basis"):
        assert f"num_basis={model.basis.num_basis}, " in text
    model.kernel = gpflow.kernels.White()
    assert repr(model).startswith(f"{type(model).__name__}(kernel=White, ")


@each(KINDS | {k: v for k, v in ALL.items() if v.outputs in (labels, classes)})
def test_observations_are_predicted_through_the_likelihood(member):
    model = perturb(member.build())
    X, Y = member.data
    likelihood, moments = model.likelihood, model.predict_f(X)
    expected = likelihood.predict_mean_and_var(X, *moments)
    for a, b in zip(model.predict_y(X), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    density = model.predict_log_density((X, Y))
    assert density.shape == (N,)
    if member.mixture:
        return
    np.testing.assert_allclose(density, likelihood.predict_log_density(X, *moments, Y), rtol=1e-10)
    if isinstance(likelihood, gpflow.likelihoods.Gaussian):
        mean, var = (m.numpy() for m in moments)
        var = var + likelihood.variance.numpy()
        np.testing.assert_allclose(model.predict_y(X)[1], var, rtol=1e-12)
        log_density = -0.5 * (np.log(2.0 * np.pi * var) + (Y - mean) ** 2 / var)
        np.testing.assert_allclose(density, log_density.sum(axis=1), rtol=1e-10)


@pytest.mark.parametrize(
    ("full_cov", "member"),
    [
        pytest.param(full_cov, member, id=f"{full_cov}-{name}")
        for name, member in OF_F.items()
        # joint predictions of deep models average over draws of their own
        for full_cov in (*[True] * (not member.deep), *[False] * (member.deep or name in KINDS))
    ],
)
def test_samples_have_the_predicted_moments(full_cov, member):
    """
    Of calibrated models, within 5 standard errors of 20,000 draws, on every mean and covariance.
    """
    S, X = 20_000, XNEW[:4]
    model = calibrated(member)
    tf.random.set_seed(6)
    width = 5.0
    if member.deep:  # predictions have an error of their own
        model.num_prediction_samples, width = S, 8.0
    samples = model.predict_f_samples(X, S, full_cov=full_cov).numpy()
    mean, cov = (m.numpy() for m in model.predict_f(X, full_cov=full_cov))
    P = mean.shape[1]
    assert samples.shape == (S, 4, P)
    for p in range(P):
        C = cov[p] if full_cov else np.diag(cov[:, p])
        got = np.cov(samples[..., p], rowvar=False)
        error_of_mean = np.sqrt(np.diag(C) / S)
        error_of_cov = np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / S)
        assert (np.abs(samples[..., p].mean(axis=0) - mean[:, p]) < width * error_of_mean).all()
        assert (np.abs(got - C) < width * error_of_cov + 1e-5).all()  # GPflow's sampling jitter
    assert model.predict_f_samples(X).shape == (4, P)


def calibrated(member):
    """A model away from its start whose variances of f are four times as large."""
    model = perturb(member.build())
    if member.guarded:
        model.calibration = Calibration(4.0, 0.5)
    return model


@each(ours(OF_F))
def test_drawn_functions_have_the_predicted_moments(member):
    """
    Of calibrated models, within 6 standard errors of 2,000 draws; the tails of a draw are a little
    heavier.
    """
    S, X = 2_000, XNEW[:4]
    model = calibrated(member)
    if member.deep:  # each draw is a function of its own in every layer, and predictions are drawn
        S, model.num_prediction_samples = 30, 500
    # with neighbors each row has its own, whatever other rows there are
    joint = not isinstance(model, SWSGP | NearestNeighborGP | NearestNeighborClassifier)
    posterior = model.posterior("nocache")
    if not member.drawable:
        words = r"kernels.WithMissingVariance|does not draw|Patches|for random Fourier features"
        with pytest.raises(ValueError, match=words):
            posterior.sample_functions(S)
        return
    mean, cov = (m.numpy() for m in model.predict_f(X, full_cov=joint))
    draws = posterior.sample_functions(S, num_features=256, seed=6)(X).numpy()
    assert draws.shape == (S, *mean.shape)
    for p in range(mean.shape[1]):
        C = cov[p] if joint else np.diag(cov[:, p])
        got = np.cov(draws[..., p], rowvar=False)
        error_of_cov = np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / S)
        assert (
            np.abs(draws[..., p].mean(axis=0) - mean[:, p]) < 6.0 * np.sqrt(np.diag(C) / S)
        ).all()
        known = np.ones_like(C, bool) if joint else np.eye(len(C), dtype=bool)
        assert (np.abs(got - C) < 6.0 * error_of_cov)[known].all()


DATA_METHODS = (
    "elbo",
    "maximum_log_likelihood_objective",
    "training_loss",
    "training_loss_closure",
    "predict_log_density",
)
INPUT_METHODS = ("predict_f", "predict_y", "predict_f_samples")


def refused(call, argument, message):
    """Refused eagerly and while tracing, before anything can broadcast."""
    with pytest.raises(ValueError, match=message):
        call(argument)
    with pytest.raises(ValueError, match=message):
        tf.function(lambda: call(argument), autograph=False)()


@every_kind_with_a_bound
def test_data_that_would_broadcast_are_refused_eagerly_and_while_tracing(member):
    model, (X, Y) = member.build(), (tf.constant(part) for part in member.data)
    for call in (getattr(model, name) for name in DATA_METHODS):
        refused(call, (X, Y[:, 0]), r"Y must be a matrix.*Use Y\[:, None\]")
        refused(call, (X, Y[:1]), r"X and Y must have the same number of rows, got 12 and 1")
        refused(call, (X, tf.concat([Y, Y], axis=1)), r"Y must have \d column\(s\)")
        refused(
            call,
            (X[:, :1], Y),
            r"X must have 2 column\(s\)|reads 2 column\(s\), but X has 1|2 values, but X has 1|"
            r"X with 1 column",
        )
        refused(call, (X[:, 0], Y), r"X must be a matrix")
        refused(call, (X, Y, Y), r"data must be a tuple \(X \[N, D\], Y \[N, P\]\)")
        refused(call, X, r"data must be a tuple")


@every_kind
def test_inputs_of_a_wrong_shape_are_refused_eagerly_and_while_tracing(member):
    model = member.build()
    posterior = model.posterior()
    X = tf.constant(XNEW)
    calls = (getattr(model, name) for name in INPUT_METHODS)
    for call in (*calls, posterior.predict_f, posterior.fused_predict_f):
        # a basis that any D suits leaves it to the mean function or the kernel to refuse another
        refused(call, X[:, :1], r"Xnew must have 2 column\(s\)|X has 1|X with 1 column\(s\)")
        refused(call, X[:, 0], r"Xnew must have shape \[\.\.\., N, D\]")
        refused(call, X[:0], r"Xnew is empty")
        with pytest.raises(ValueError, match=r"Xnew must be finite"):
            call(np.full((3, D), np.inf))


@each(ours(OF_Q))
def test_every_cache_predicts_what_the_model_predicts(member):
    model = perturb(member.build())
    expected = model.predict_f(XNEW)
    for kind in ("tensor", "variable"):
        for a, b in zip(model.posterior(kind).predict_f(XNEW), expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)
