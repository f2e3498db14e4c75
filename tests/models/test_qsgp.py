"""QSGP against the oracle: exact values, estimates over all draws, steps, and where they lead."""

import contextlib
import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from tests.oracles import qsgp, qsgp_sites

N, D = 9, 2
NOISE = 0.3


def kernel():
    return gpflow.kernels.SquaredExponential(variance=1.4, lengthscales=[0.8, 1.2])


def places(rows, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, D))


def fourier(m=6):
    return gs.bases.RandomFourier(kernel(), m, seed=2)


def hybrid(k=2, m=4):
    return gs.bases.Hybrid(kernel(), places(k), m, seed=2)


def centers():
    """Apart, so that S is no harder to factorize than it has to be."""
    return np.array([[-1.5, -1.5], [-1.5, 1.5], [1.5, -1.5], [1.5, 1.5], [0.0, 0.0]])


def dictionary():
    return gs.bases.KernelDictionary(kernel(), centers(), precision="dense")


def relevance():
    """A diagonal prior precision, and a constant."""
    initial = np.random.default_rng(5).uniform(0.5, 2.0, size=6)
    return gs.bases.KernelDictionary(
        kernel(), centers(), precision="diagonal", constant=True, initial_precision=initial
    )


def data(P=1, rows=N):
    X = places(rows, seed=7)
    return X, np.sin(2.0 * X[:, :1] + np.arange(P)) + 0.3 * places(rows, seed=8)[:, :1]


def build(basis, covariance="diag", head=None, *, batch=2, L=1, seed=3, num_data=N, **options):
    """A model at values of no meaning, all different."""
    likelihood = options.pop("likelihood", None) or gpflow.likelihoods.Gaussian(NOISE)
    model = gs.models.QSGP(
        basis,
        likelihood,
        num_data=num_data,
        basis_batch_size=batch,
        covariance=covariance,
        num_dense_columns=head,
        num_latent_gps=L,
        num_control_rows=4,
        **options,
    )
    rng = np.random.default_rng(seed)
    model.q_mu.assign(rng.normal(size=model.q_mu.shape))
    model.q_log_scale.assign(0.5 * rng.normal(size=model.q_log_scale.shape) - 1.0)
    if model.q_block is not None:
        h = model.num_head
        model.q_block.assign(np.tril(0.3 * rng.normal(size=(L, h, h))) + 0.5 * np.eye(h))
    if model.q_columns is not None:
        model.q_columns.assign(0.3 * rng.normal(size=model.q_columns.shape))
    return model


def factor(model, p):
    """C of one latent function."""
    h, m = model.num_head, model.basis.num_basis
    C = np.zeros((m, m))
    C[range(h, m), range(h, m)] = np.exp(model.q_log_scale.numpy()[:, p])
    if h:
        C[:h, :h] = model.q_block.numpy()[p]
    if model.q_columns is not None:
        C[h:, :h] = model.q_columns.numpy()[:, p]
    return C


def exact(model, X, Y):
    """The oracle's elbo, of a batch as if its rows stood for all data."""
    Phi, S = model.basis(X).numpy(), model.basis.prior_precision().numpy()
    noise, total = model.likelihood.variance.numpy(), 0.0
    for p in range(model.num_latent_gps):
        mu, C = model.q_mu.numpy()[:, p], factor(model, p)
        kl = qsgp.prior_kl(mu, C, S)
        elbo = qsgp.elbo_gaussian(Phi, Y[:, p] - mean_at(model, X)[:, p], mu, C, S, noise)
        total += model.num_data / len(X) * (elbo + kl) - kl
    return total


def mean_at(model, X):
    return np.broadcast_to(model.mean_function(X).numpy(), (len(X), model.num_latent_gps))


MODELS = {
    "fourier-diag": lambda **o: build(fourier(), **o),
    "fourier-block": lambda **o: build(fourier(), "block", 2, **o),
    "fourier-chevron": lambda **o: build(fourier(), "chevron", 2, **o),
    "hybrid-block": lambda **o: build(hybrid(), None, **o),
    "hybrid-chevron": lambda **o: build(hybrid(), "chevron", 1, **o),
    "relevance-diag": lambda **o: build(relevance(), **o),
    "relevance-chevron": lambda **o: build(relevance(), "chevron", 2, **o),
    "dense-diag": lambda **o: build(dictionary(), **o),
}


def close(actual, expected, **kwargs):
    np.testing.assert_allclose(actual, expected, **({"rtol": 1e-10, "atol": 1e-10} | kwargs))


# Exact values


@pytest.mark.parametrize("name", MODELS)
def test_exact_elbo_is_the_oracles(name):
    X, Y = data(2)
    mean = gpflow.mean_functions.Constant([0.3, -0.2])
    model = MODELS[name](L=2, mean_function=mean)
    rtol = 1e-5 if "dense" in name else 1e-9  # of the jitter in log |S|
    close(model.exact_elbo((X, Y)), exact(model, X, Y), rtol=rtol)
    model.num_data = 50
    close(model.exact_elbo((X, Y)), exact(model, X, Y), rtol=rtol)


@pytest.mark.parametrize("name", MODELS)
def test_updated_covariances_are_the_best_of_their_shape(name):
    X, Y = data(2)
    model = MODELS[name](L=2)
    model.update_covariance(X)
    Phi, S = model.basis(X).numpy(), model.basis.prior_precision().numpy()
    A, h = qsgp.precision(Phi, S, NOISE), model.num_head
    best = qsgp.optimal_chevron(A, h) if model.covariance == "chevron" else qsgp.optimal_block(A, h)
    for p in range(2):
        C = factor(model, p)
        close(C @ C.T, best @ best.T, rtol=1e-8)
    variables = [model.q_log_scale]
    variables += [] if model.q_block is None else [model.q_block.unconstrained_variable]
    variables += [] if model.q_columns is None else [model.q_columns]
    with tf.GradientTape() as tape:
        elbo = model.exact_elbo((X, Y))
    for gradient in tape.gradient(elbo, variables):
        close(tf.convert_to_tensor(gradient), 0.0, atol=1e-7)


@pytest.mark.parametrize("name", ["fourier-diag", "hybrid-block", "relevance-diag", "dense-diag"])
def test_the_updated_mean_is_that_of_the_exact_posterior(name):
    X, Y = data(2)
    model = MODELS[name](L=2)
    model.mean_function = gpflow.functions.Constant([0.3, 0.3])
    model.update_mean((X, Y))
    Phi, S = model.basis(X).numpy(), model.basis.prior_precision().numpy()
    noise = model.likelihood.variance.numpy()
    for p in range(2):
        close(model.q_mu[:, p], qsgp.weight_posterior(Phi, Y[:, p] - 0.3, S, noise)[0], rtol=1e-8)
    with pytest.raises(ValueError, match="Gaussian likelihood"):
        build(fourier(), "diag", 0, likelihood=gs.likelihoods.Laplace()).update_mean(data())


def test_every_output_may_have_its_own_noise():
    """With all functions drawn; closed forms of q are for one variance, a number."""
    X, Y = data(2)
    noises = np.array([[0.1, 0.4]])
    options = {"L": 2, "batch": 4, "covariance": "chevron", "head": 2}
    model = build(fourier(), likelihood=gpflow.likelihoods.Gaussian(noises), **options)
    one, other = (
        build(fourier(), likelihood=gpflow.likelihoods.Gaussian(noise), **options)
        for noise in noises[0]
    )
    expected = 0.0
    for p, twin in enumerate((one, other)):  # both outputs with either noise
        mean, var = twin.predict_f(X)
        terms = gpflow.logdensities.gaussian(Y, mean, noises[0, p]) - 0.5 * var / noises[0, p]
        expected += np.sum(terms[:, p])
    close(model.exact_elbo((X, Y)), expected - model.prior_kl(), rtol=1e-9)
    close(model.elbo((X, Y)), expected - model.prior_kl(), rtol=1e-9)
    for likelihood in (
        model.likelihood,
        gpflow.likelihoods.Gaussian(gpflow.functions.Constant([0.1])),
        gs.likelihoods.Laplace(),
    ):
        model.likelihood = likelihood
        for closed_form in (lambda: model.update_covariance(X), lambda: model.update_mean((X, Y))):
            with pytest.raises(ValueError, match="one variance for all rows and outputs, got "):
                closed_form()


def test_the_updated_mean_of_centers_that_are_close_is_that_of_the_exact_gp():
    X = np.random.default_rng(0).normal(size=(200, 2))
    Y, k = np.sin(X[:, :1]), gpflow.kernels.SquaredExponential()
    basis = gs.bases.KernelDictionary(k, np.vstack([X, X[:3]]))
    model = build(basis, likelihood=gpflow.likelihoods.Gaussian(0.1), num_data=200)
    model.update_mean((X, Y))
    gpr = gpflow.models.GPR((X, Y), k, noise_variance=0.1)
    close(model.predict_f(X + 0.1)[0], gpr.predict_f(X + 0.1)[0], rtol=0.0, atol=1e-5)


def test_the_hybrid_is_better_than_sgpr_with_its_points_and_below_the_evidence():
    """At the true hyperparameters, in closed form; the sheet's order at every number of points."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(60, 1))
    k = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    cov = k(X).numpy() + 0.01 * np.eye(60)
    Y = np.linalg.cholesky(cov) @ rng.normal(size=(60, 1))
    found = []
    for count in (4, 12):
        Z = np.linspace(-2.0, 2.0, count)[:, None]
        basis = gs.bases.Hybrid(k, Z, 200)
        model = gs.models.QSGP(
            basis, gpflow.likelihoods.Gaussian(0.01), num_data=60, basis_batch_size=40
        )
        Phi = basis(X).numpy()
        mean, _ = qsgp.weight_posterior(Phi, Y[:, 0], np.ones(Phi.shape[1]), 0.01)
        model.update_covariance(X)
        model.q_mu.assign(mean[:, None])
        found.append(float(model.exact_elbo((X, Y))))
        sgpr = gpflow.models.SGPR((X, Y), k, Z, noise_variance=0.01)
        assert found[-1] > float(sgpr.elbo())
    evidence = float(gpflow.models.GPR((X, Y), k, noise_variance=0.01).log_marginal_likelihood())
    assert found[0] < found[1] < evidence + 1.0


# Estimates, over all draws


def all_draws(model):
    """Pairs of sets of functions of the tail."""
    sets = qsgp.all_sets(model.num_tail, model.basis_batch_size)
    return list(itertools.product(sets, repeat=2))


@contextlib.contextmanager
def at_draws(model, function):
    """``function()``, compiled as a function of the draws that the model is to take."""

    @tf.function(autograph=False)
    def compiled(*draws):
        model._draw = lambda: list(draws)
        return function()

    try:
        yield lambda draws: compiled(*(tf.constant(part, tf.int32) for part in draws))
    finally:
        vars(model).pop("_draw", None)


@contextlib.contextmanager
def steps_of_rate_one(model, batch):
    """Losses and gradients of plain steps at given draws, as a function of the draws."""
    optimizer = gs.training.SparseSGD(1.0, dense=tf.keras.optimizers.SGD(1.0))
    batch = tuple(tf.constant(part) for part in batch)

    def at(step, draws):
        start = [v.numpy() for v in model.variables]
        variables, found = trained(model), []
        before = [v.numpy() for v in variables]
        for pair in draws:
            loss, finite = step(pair)
            assert finite
            moves = [old - v.numpy() for old, v in zip(before, variables, strict=True)]
            found.append((float(loss), moves))
            for variable, value in zip(model.variables, start, strict=True):
                variable.assign(value)
        return found

    with at_draws(model, lambda: model.sparse_step(batch, optimizer)) as step:
        yield lambda draws: at(step, draws)


def trained(model):
    return [*model.row_variables, *model.dense_variables]


def exact_gradients(model, batch):
    """Of minus the exact elbo."""
    with tf.GradientTape() as tape:
        loss = -model.exact_elbo(batch)
    found = tape.gradient(loss, trained(model), unconnected_gradients="zero")
    return float(loss), [tf.convert_to_tensor(g).numpy() for g in found]


def average_of(found):
    losses, gradients = zip(*found, strict=True)
    return np.mean(losses), [np.mean(part, axis=0) for part in zip(*gradients, strict=True)]


def steps_average(model, batch):
    with steps_of_rate_one(model, batch) as steps:
        return average_of(steps(all_draws(model)))


def elbo_average(model, batch):
    batch = tuple(tf.constant(part) for part in batch)
    with at_draws(model, lambda: model.elbo(batch)) as elbo:
        return np.mean([elbo(pair) for pair in all_draws(model)])


def compare(found, expected, model, rtol=1e-8):
    for variable, a, b in zip(trained(model), found[1], expected[1], strict=True):
        close(a, b, rtol=rtol, atol=rtol, err_msg=variable.name)


@pytest.mark.parametrize(
    ("name", "reduction"),
    [
        *itertools.product(["fourier-diag", "fourier-chevron"], ["none", "anchored"]),
        ("fourier-block", "anchored"),
        ("hybrid-block", "anchored"),
        ("relevance-chevron", "anchored"),
    ],
)
def test_steps_are_unbiased_values_and_gradients(name, reduction):
    """Of the batch of a step; anchors are of other hyperparameters and rows."""
    X, Y = data(2)
    model = MODELS[name](L=2, variance_reduction=reduction, num_data=31)
    batch = X[:5], Y[:5]
    model.prepare_step(0, lambda: (X[4:], Y[4:]))
    if reduction == "anchored":  # a first call takes the rows, whatever the step
        other = MODELS[name](L=2, variance_reduction=reduction, num_data=31)
        other.prepare_step(10_000, lambda: (X[4:], Y[4:]))
        close(other.anchors.factor, model.anchors.factor, rtol=1e-12)
    model.basis.kernel.lengthscales.assign([0.7, 1.3])  # the anchors stay behind
    found, expected = steps_average(model, batch), exact_gradients(model, batch)
    close(found[0], expected[0], rtol=1e-9)
    compare(found, expected, model)


def test_steps_are_the_oracles_at_every_draw():
    X, Y = data()
    model = build(relevance(), variance_reduction="none", num_data=20)
    model.prepare_step(0, lambda: (X[3:], Y[3:]))
    Phi, s = model.basis(X).numpy(), np.diag(model.basis.prior_precision().numpy())
    mu, C, y = model.q_mu.numpy()[:, 0], factor(model, 0), Y[:, 0]
    some = all_draws(model)[::31]
    with steps_of_rate_one(model, (X, Y)) as steps:
        found = steps(some)
    for (it, jt), (loss, _) in zip(some, found, strict=True):
        L = qsgp.l_mu_estimate_diagonal(Phi, y, mu, s, NOISE, it, jt, n=20)
        for q in (it, jt):
            L += 0.5 * qsgp.l_sigma_estimate_chevron(Phi, C, s, NOISE, it, jt, q, 0, n=20)
            L += 0.5 * qsgp.l_const_estimate(y, s, NOISE, q, n=20)
        close(loss, 0.5 * L)


@pytest.mark.nightly
@pytest.mark.parametrize("reduction", ["none", "anchored"])
def test_a_dense_prior_precision_is_unbiased_but_for_its_determinant(reduction):
    X, Y = data(2)
    model = build(dictionary(), L=2, variance_reduction=reduction)
    batch = X[:5], Y[:5]
    model.prepare_step(0, lambda: (X[4:], Y[4:]))
    found, expected = steps_average(model, batch), exact_gradients(model, batch)
    missing = np.linalg.slogdet(model.basis.prior_precision().numpy())[1]  # L / 2 times, L = 2
    close(found[0] - missing, expected[0], rtol=1e-5)
    compare(found, expected, model, rtol=1e-7)


SITES = {
    "laplace": (lambda: gs.likelihoods.Laplace(0.5), qsgp_sites.expect_laplace),
    "logit": (gs.likelihoods.BernoulliLogit, qsgp_sites.expect_logit),
}
every_site = pytest.mark.parametrize("site", SITES)


def site_problem(site, name, **options):
    X, Y = data()
    Y = (Y > 0).astype(float) if site == "logit" else Y
    return MODELS[name](likelihood=SITES[site][0](), num_data=31, **options), (X, Y)


def oracle_sites(model, site, X, Y):
    """Average over all draws: moments of each, the diagonal's variance from the other."""
    y = 2.0 * Y[:, 0] - 1.0 if site == "logit" else Y[:, 0]
    mu, C, h, found = model.q_mu.numpy()[:, 0], factor(model, 0), model.num_head, []
    Phi = model.basis(X).numpy()
    for draws in all_draws(model):
        for own, other in (draws, draws[::-1]):
            moments = qsgp_sites.site_moments_split(Phi, mu, C, h + own, h + other, h)
            found.append(np.sum(SITES[site][1](*moments, y)))
    kl = qsgp.prior_kl(mu, C, model.basis.prior_precision().numpy())
    return model.num_data / len(X) * np.mean(found) - kl


@every_site
@pytest.mark.parametrize("name", ["fourier-diag", "fourier-chevron", "hybrid-block"])
def test_sites_at_full_draws_are_exact(site, name):
    """And with few functions, of which both draws share the work, the oracle's on average."""
    model, batch = site_problem(site, name)
    close(elbo_average(model, batch), oracle_sites(model, site, *batch), rtol=1e-7)
    whole, batch = site_problem(site, name, batch=model.num_tail)
    close(whole.elbo(batch), whole.exact_elbo(batch), rtol=1e-9)


@pytest.mark.nightly
@every_site
def test_the_gradient_of_anchored_sites_is_that_of_their_average_value(site):
    """The projections at the control rows move with the weights."""
    model, (X, Y) = site_problem(site, "fourier-chevron")
    direction = np.random.default_rng(1).normal(size=model.q_mu.shape)

    def average(steps, shift=0.0):
        model.q_mu.assign_add(shift * direction)
        model.prepare_step(0, lambda: (X[3:], Y[3:]))
        return average_of(steps(all_draws(model)))

    with steps_of_rate_one(model, (X, Y)) as steps:
        _, (slopes, *_) = average(steps)
        low, high = average(steps, -1e-5)[0], average(steps, 2e-5)[0]
    np.testing.assert_allclose(np.sum(slopes * direction), (high - low) / 2e-5, rtol=1e-5)


# Steps


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["fourier-diag", "fourier-chevron", "hybrid-block", "dense-diag"])
def test_values_at_the_support_rows_follow_every_step(name):
    """Compiled steps, whose draws repeat functions."""
    X, Y = data(2)
    model = MODELS[name](L=2)
    optimizer = gs.training.SparseAdagrad(0.1, dense=gs.training.adam(0.01))
    step = tf.function(lambda: model.sparse_step((X, Y), optimizer), autograph=False)
    for i in range(20):
        model.prepare_step(i, lambda: (X, Y))
        step()
    vectors = [model.tail.mu.numpy()]
    if model.tail.D is not None:
        vectors.append(model.tail.D.numpy().reshape(model.num_tail, -1))
    Phi_p = model.anchors.basis(model.anchors.X).numpy()[:, model.num_head :]
    expected = Phi_p @ np.hstack(vectors)
    close(model.anchors.values, expected, rtol=1e-12, atol=1e-12)
    assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize(
    "name", ["fourier-chevron", "hybrid-block", "relevance-diag", "dense-diag"]
)
def test_a_batch_that_is_not_finite_moves_nothing(name):
    """Eagerly such a batch is refused; a compiled step finds it out by its loss and gradients."""
    X, Y = data()
    model = MODELS[name]()
    optimizer = gs.training.SparseAdagrad(0.1)

    @tf.function(autograph=False)
    def step(Y):
        return model.sparse_step((X, Y), optimizer)

    model.prepare_step(0, lambda: (X, Y))
    assert bool(step(tf.constant(Y))[1])
    before = [v.numpy() for v in [*model.variables, *optimizer.variables]]
    for value in (1e200, np.nan, np.inf):
        bad = tf.constant(np.where(np.arange(N)[:, None] == 3, value, Y))
        assert not bool(step(bad)[1])
        with pytest.raises(ValueError, match="Y"):
            model.sparse_step((X, bad), optimizer)
    for old, variable in zip(before, [*model.variables, *optimizer.variables], strict=True):
        np.testing.assert_array_equal(old, variable.numpy())
