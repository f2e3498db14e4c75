"""QSGP against the oracle: exact values, estimates over all draws, steps, and where they lead."""

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from tests.oracles import qsgp

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
        num_support=4,
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
def test_the_start_is_close_to_the_prior(name):
    """The mean is zero, and variances are the prior's wherever C can hold them."""
    fresh = {
        "fourier": fourier,
        "hybrid": hybrid,
        "relevance": relevance,
        "dense": dictionary,
    }[name.split("-")[0]]()
    model = gs.models.QSGP(fresh, gpflow.likelihoods.Gaussian(), num_data=N, basis_batch_size=2)
    s = np.diag(model.basis.prior_precision().numpy())
    C = factor(model, 0)
    close(C @ C.T, np.diag(1.0 / s))
    assert np.all(model.q_mu.numpy() == 0.0)


def posterior_of(model, X, Y):
    Phi, S = model.basis(X).numpy(), model.basis.prior_precision().numpy()
    noise = model.likelihood.variance.numpy()
    return qsgp.weight_posterior(Phi, Y[:, 0], S, noise)


def test_at_the_exact_posterior_the_elbo_is_the_evidence():
    """A chevron of all columns but the last, which has its diagonal only, is any factor."""
    X, Y = data()
    model = build(fourier(), "chevron", 5, batch=1)
    mean, cov = posterior_of(model, X, Y)
    model.update_covariance(X)
    C = factor(model, 0)
    close(C @ C.T, cov, rtol=1e-8)
    model.q_mu.assign(mean[:, None])
    evidence = qsgp.log_evidence(model.basis(X).numpy(), Y[:, 0], np.ones(6), NOISE)
    close(model.exact_elbo((X, Y)), evidence, rtol=1e-9)
    close(model.elbo((X, Y)), evidence, rtol=1e-9)  # both draws are the one function left
    gpr = gs.models.BasisGPR((X, Y), fourier(), noise_variance=NOISE)
    close(evidence, gpr.log_marginal_likelihood(), rtol=1e-9)


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


@pytest.mark.parametrize("name", ["fourier-diag", "hybrid-block", "relevance-diag"])
def test_closed_forms_reach_the_collapsed_bound(name):
    X, Y = data()
    model = MODELS[name]()
    mean, _ = posterior_of(model, X, Y)
    model.update_covariance(X)
    model.q_mu.assign(mean[:, None])
    s = np.diag(model.basis.prior_precision().numpy())
    Phi = model.basis(X).numpy()
    expected = qsgp.elbo_collapsed_hybrid(Phi, Y[:, 0], s, NOISE, model.num_head)
    if name == "fourier-diag":
        close(expected, qsgp.elbo_collapsed_mean_field(Phi, Y[:, 0], s, NOISE))
    close(model.exact_elbo((X, Y)), expected, rtol=1e-9)
    with tf.GradientTape() as tape:
        elbo = model.exact_elbo((X, Y))
    close(tape.gradient(elbo, model.q_mu), 0.0, atol=1e-8)


@pytest.mark.parametrize("value", ["eq3", "tracked", None])
def test_a_removed_variance_reduction_is_refused_with_those_that_there_are(value):
    with pytest.raises(ValueError, match="variance_reduction must be one of 'anchored', 'none'"):
        build(fourier(), variance_reduction=value)


@pytest.mark.parametrize("name", MODELS)
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


def test_the_hybrid_is_better_than_sgpr_with_its_points_and_below_the_evidence():
    """At the true hyperparameters, in closed form; the sheet's order at every number of points."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(60, 1))
    k = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    cov = k(X).numpy() + 0.01 * np.eye(60)
    Y = np.linalg.cholesky(cov) @ rng.normal(size=(60, 1))
    found = []
    for count in (4, 8, 16):
        Z = np.linspace(-2.0, 2.0, count)[:, None]
        basis = gs.bases.Hybrid(k, Z, 400)
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
    assert found[0] < found[1] < found[2] < evidence + 1.0


def test_features_have_the_kernels_variance():
    X = places(5)
    close(np.sum(fourier(8)(X).numpy() ** 2, axis=1), 1.4)


# Estimates, over all draws


def all_draws(model, number=2):
    sets = qsgp.all_sets(model.num_tail, model.basis_batch_size)
    return list(itertools.product(sets, repeat=number))


def step_gradients(model, batch, all_draws):
    """Loss and gradients of a step at each of some draws, scattered to whole variables."""
    small = model.small_variables

    @tf.function(autograph=False)
    def step(*draws):
        model._draw = lambda: list(draws)
        update = model._row_update(*(tf.constant(part) for part in batch))
        values = [tf.gather(variable, indices) for variable, indices in update.row_indices]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*values, *small])
            loss = update.loss(values)
        found = tape.gradient(loss, [*values, *small], unconnected_gradients="zero")
        whole = [
            tf.tensor_scatter_nd_add(tf.zeros_like(variable), indices[:, None], gradient)
            for (variable, indices), gradient in zip(update.row_indices, found, strict=False)
        ]
        return loss, [*whole, *found[len(values) :]]

    try:
        found = [step(*(tf.constant(part, tf.int32) for part in draws)) for draws in all_draws]
    finally:
        del model._draw
    return [(float(loss), [g.numpy() for g in gradients]) for loss, gradients in found]


def exact_gradients(model, batch):
    """Of minus the exact elbo, in the order of :func:`step_gradients`."""
    variables = [*model.long_variables, *model.small_variables]
    with tf.GradientTape() as tape:
        loss = -model.exact_elbo(batch)
    found = tape.gradient(loss, variables, unconnected_gradients="zero")
    return float(loss), [tf.convert_to_tensor(g).numpy() for g in found]


def steps_average(model, batch, number=2):
    losses, gradients = zip(*step_gradients(model, batch, all_draws(model, number)), strict=True)
    return np.mean(losses), [np.mean(part, axis=0) for part in zip(*gradients, strict=True)]


def elbo_average(model, batch):
    """Of the public elbo."""

    @tf.function(autograph=False)
    def elbo(*draws):
        model._draw = lambda: list(draws)
        return model.elbo(tuple(tf.constant(part) for part in batch))

    try:
        draws = all_draws(model)
        return np.mean([elbo(*(tf.constant(part, tf.int32) for part in d)) for d in draws])
    finally:
        del model._draw


def compare(found, expected, model):
    close(found[0], expected[0], rtol=1e-9)
    names = [v.name for v in [*model.long_variables, *model.small_variables]]
    for name, a, b in zip(names, found[1], expected[1], strict=True):
        close(a, b, rtol=1e-8, atol=1e-8, err_msg=name)


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
    model = MODELS[name](L=2, variance_reduction=reduction, batch=3, num_data=31)
    batch = X[:5], Y[:5]
    model.prepare_step(0, lambda: (X[4:], Y[4:]))
    model.basis.kernel.lengthscales.assign([0.7, 1.3])  # the anchors stay behind
    compare(steps_average(model, batch), exact_gradients(model, batch), model)


def test_steps_are_the_oracles_at_every_draw():
    X, Y = data()
    model = build(relevance(), variance_reduction="none", num_data=20)
    model.prepare_step(0, lambda: (X[3:], Y[3:]))
    Phi, s = model.basis(X).numpy(), np.diag(model.basis.prior_precision().numpy())
    mu, C, y = model.q_mu.numpy()[:, 0], factor(model, 0), Y[:, 0]
    some = all_draws(model)[::31]
    for (it, jt), (loss, _) in zip(some, step_gradients(model, (X, Y), some), strict=True):
        L = qsgp.l_mu_estimate_diagonal(Phi, y, mu, s, NOISE, it, jt, n=20)
        for q in (it, jt):
            L += 0.5 * qsgp.l_sigma_estimate_chevron(Phi, C, s, NOISE, it, jt, q, 0, n=20)
            L += 0.5 * qsgp.l_const_estimate(y, s, NOISE, q, n=20)
        close(loss, 0.5 * L)


@pytest.mark.parametrize("reduction", ["none", "anchored"])
def test_a_dense_prior_precision_is_unbiased_but_for_its_determinant(reduction):
    X, Y = data(2)
    model = build(dictionary(), L=2, variance_reduction=reduction)
    batch = X[:5], Y[:5]
    model.prepare_step(0, lambda: (X[4:], Y[4:]))
    S = model.basis.prior_precision().numpy()
    found, expected = steps_average(model, batch), exact_gradients(model, batch)
    missing = np.linalg.slogdet(S)[1]  # L / 2 times, for two latent functions
    close(found[0] - missing, expected[0], rtol=1e-5)
    for a, b in zip(found[1], expected[1], strict=True):
        close(a, b, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_elbo_at_full_draws_is_exact(name):
    X, Y = data(2)
    tail = MODELS[name]().num_tail
    model = MODELS[name](L=2, batch=tail, num_data=40)
    missing = np.linalg.slogdet(model.basis.prior_precision().numpy())[1] if "dense" in name else 0
    close(
        float(model.elbo((X, Y))) + missing,
        model.exact_elbo((X, Y)),
        rtol=1e-5 if "dense" in name else 1e-9,
    )


@pytest.mark.parametrize("name", ["fourier-diag", "hybrid-block", "relevance-chevron"])
def test_the_public_elbo_is_unbiased(name):
    X, Y = data()
    model = MODELS[name]()
    close(elbo_average(model, (X, Y)), model.exact_elbo((X, Y)), rtol=1e-9)


SITES = {
    "laplace": lambda: gs.likelihoods.Laplace(0.5),
    "logit": gs.likelihoods.BernoulliLogit,
}


@pytest.mark.parametrize("site", SITES)
def test_sites_at_full_draws_are_exact(site):
    X, Y = data()
    Y = (Y > 0).astype(float) if site == "logit" else Y
    for name in ("fourier-diag", "fourier-chevron", "hybrid-block"):
        tail = MODELS[name]().num_tail
        model = MODELS[name](likelihood=SITES[site](), batch=tail)
        close(model.elbo((X, Y)), model.exact_elbo((X, Y)), rtol=1e-9)


# Steps


def train(model, batch, optimizer, steps, *, compiled=True, prepare=True):
    def step():
        return model.sparse_step(batch, optimizer)

    run = tf.function(step, autograph=False) if compiled else step
    for i in range(steps):
        if prepare:
            model.prepare_step(i, lambda: batch)
        loss, finite = run()
    return float(loss), bool(finite)


@pytest.mark.parametrize("name", MODELS)
def test_a_step_leaves_untouched_rows_alone(name):
    model = MODELS[name](batch=1, L=2)
    X, Y = data(2)
    model.prepare_step(0, lambda: (X, Y))
    kinds = [gs.training.SparseAdam(0.01)]
    if name == "fourier-chevron":
        kinds += [gs.training.SparseSGD(0.01), gs.training.SparseAdagrad(0.1)]
    for optimizer in kinds:
        before = [v.numpy() for v in model.long_variables]
        taken = []
        draw = type(model)._draw

        def recorded(model=model, taken=taken, draw=draw):
            draws = draw(model)
            taken.extend(int(i) for part in draws for i in part)
            return draws

        model._draw = recorded
        _, finite = model.sparse_step((X, Y), optimizer)
        del model._draw
        assert bool(finite)
        h = model.num_head
        for variable, old in zip(model.long_variables, before, strict=True):
            whole = variable.shape[0] == model.basis.num_basis
            rows = {*range(h), *(h + i for i in taken)} if whole else set(taken)
            changed = np.any((variable.numpy() != old).reshape(len(old), -1), axis=1)
            assert set(np.flatnonzero(changed)) == rows


@pytest.mark.parametrize("name", ["fourier-diag", "fourier-chevron", "hybrid-block", "dense-diag"])
def test_values_at_the_support_rows_follow_every_step(name):
    X, Y = data(2)
    model = MODELS[name](L=2)
    train(model, (X, Y), gs.training.SparseAdagrad(0.1, dense=gs.training.adam(0.01)), 60)
    tail = model.tail
    vectors = [tail.mu.numpy()]
    if tail.D is not None:
        vectors.append(tail.D.numpy().reshape(model.num_tail, -1))
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


def test_move_false_and_scale_zero():
    X, Y = data()
    model, optimizer = build(fourier()), gs.training.SparseSGD(0.1)
    model.prepare_step(0, lambda: (X, Y))
    model.sparse_step((X, Y), optimizer)
    before = [v.numpy() for v in model.variables]
    model.sparse_step((X, Y), optimizer, move=False)
    model.sparse_step((X, Y), optimizer, scale=0.0)
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())


@pytest.mark.parametrize(
    "name", ["fourier-chevron", "hybrid-block", "relevance-diag", "dense-diag"]
)
def test_compiled_steps_are_eager_steps(name):
    X, Y = data(2)
    states = []
    for compiled in (False, True):
        model = MODELS[name](L=2)
        drawn = [[qsgp_draw(model, s) for s in (i, 100 + i)] for i in range(3)]
        optimizer = gs.training.SparseAdagrad(0.1, dense=gs.training.adam(0.01))

        @tf.function(autograph=False)
        def step(first, second, model=model, optimizer=optimizer):
            model._draw = lambda: [first, second]
            return model.sparse_step((X, Y), optimizer)

        for i, (first, second) in enumerate(drawn):
            model.prepare_step(i, lambda: (X, Y))
            if compiled:
                step(first, second)
            else:
                step.python_function(first, second)
        states.append([v.numpy() for v in model.variables])
    for a, b in zip(*states, strict=True):
        close(a, b, rtol=1e-9, atol=1e-12)


def qsgp_draw(model, seed):
    rng = np.random.default_rng(seed)
    return tf.constant(rng.permutation(model.num_tail)[: model.basis_batch_size], tf.int32)


def test_steps_before_the_support_rows_are_taken_say_so():
    with pytest.raises(ValueError, match="prepare_step"):
        build(fourier()).sparse_step(data(), gs.training.SparseSGD(0.1))


def test_ordinary_optimizers_are_refused_with_a_reason():
    model = build(fourier())
    model.prepare_step(0, data)
    with pytest.raises(ValueError, match="SparseAdagrad"):
        model.sparse_step(data(), tf.keras.optimizers.SGD(0.1))


# Where steps lead


@pytest.mark.nightly
def test_cheap_steps_reach_the_exact_posterior_mean():
    """RMSE of the mean against its spread, after 800 steps of two fifths of the functions."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-2.0, 2.0, size=(50, 1))
    Y = np.sin(3.0 * X) + 0.3 * rng.normal(size=(50, 1))
    basis = gs.bases.RandomFourier(gpflow.kernels.SquaredExponential(lengthscales=0.6), 100)
    gpflow.set_trainable(basis, False)
    likelihood = gpflow.likelihoods.Gaussian(0.09)
    gpflow.set_trainable(likelihood, False)
    model = gs.models.QSGP(
        basis,
        likelihood,
        num_data=50,
        basis_batch_size=20,
        num_support=25,
    )
    steps = 800
    rate = tf.keras.optimizers.schedules.PolynomialDecay(0.3, steps, 0.0)
    tf.random.set_seed(0)
    train(model, (X, Y), gs.training.SparseAdagrad(rate), steps)
    Xnew = np.linspace(-2.0, 2.0, 101)[:, None]
    expected = gs.models.BasisGPR((X, Y), basis, noise_variance=0.09).predict_f(Xnew)[0].numpy()
    error = np.sqrt(np.mean((model.predict_f(Xnew)[0].numpy() - expected) ** 2))
    assert error < 0.03 * np.std(expected)


@pytest.mark.nightly
def test_a_dictionary_at_the_data_reaches_the_exact_mean():
    """Near: its precision is ill-conditioned. At its weights: to the digits of the solver."""
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(-3.0, 3.0, size=(30, 1)), axis=0)
    Y = np.sin(2.0 * X) + 0.2 * rng.normal(size=(30, 1))
    k = gpflow.kernels.SquaredExponential(lengthscales=0.4)
    Xnew = np.linspace(-3.0, 3.0, 61)[:, None]
    expected = qsgp.gp_mean(k(X).numpy(), Y[:, 0], 0.04, k(Xnew, X).numpy())
    basis = gs.bases.KernelDictionary(k, X)
    likelihood = gpflow.likelihoods.Gaussian(0.04)
    gpflow.set_trainable(likelihood, False)
    model = gs.models.QSGP(basis, likelihood, num_data=30, basis_batch_size=10)
    mean, _ = qsgp.weight_posterior(k(X).numpy(), Y[:, 0], k(X).numpy(), 0.04)
    model.q_mu.assign(mean[:, None])
    close(model.predict_f(Xnew)[0][:, 0], expected, rtol=1e-6, atol=1e-6)
    gpr = gpflow.models.GPR((X, Y), k, noise_variance=0.04)
    close(gpr.predict_f(Xnew)[0][:, 0], expected, rtol=1e-6, atol=1e-6)
    model.q_mu.assign(tf.zeros_like(model.q_mu))
    steps = 800
    rate = tf.keras.optimizers.schedules.PolynomialDecay(0.3, steps, 0.0)
    tf.random.set_seed(0)
    train(model, (X, Y), gs.training.SparseAdagrad(rate), steps)
    error = np.sqrt(np.mean((model.predict_f(Xnew)[0][:, 0] - expected) ** 2))
    assert error < 0.08 * np.std(expected)


def test_fit_trains_all_that_is_trainable():
    X, Y = data(rows=40)
    model = build(hybrid(3, 20), None, batch=5, num_data=40)
    before = float(model.exact_elbo((X, Y)))
    start = [v.numpy() for v in model.trainable_variables]
    gs.training.fit(
        model,
        (X, Y),
        optimizer=gs.training.SparseAdagrad(0.1, dense=gs.training.adam(0.01)),
        num_steps=200,
        batch_size=10,
        progress=False,
    )
    assert float(model.exact_elbo((X, Y))) > before + 10.0
    assert all(
        np.any(a != v.numpy()) for a, v in zip(start, model.trainable_variables, strict=True)
    )


def test_float32_estimates_are_those_of_float64_to_its_digits():
    X, Y = data()
    values = []
    for dtype in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
            model = build(fourier(), "chevron", 2)
            model._draw = lambda: [tf.constant([0, 2]), tf.constant([2, 3])]
            values.append(float(model.elbo((X.astype(dtype), Y.astype(dtype)))))
            values.append(float(model.exact_elbo((X.astype(dtype), Y.astype(dtype)))))
            assert model.q_mu.dtype == dtype
    # 1e-5 of the sum of the terms' sizes, which is about the weight (m / k)^2 times the value
    scale = 1e-5 * 4.0 * max(abs(value) for value in values)
    close(values[2:], values[:2], rtol=0.0, atol=scale)


@pytest.mark.parametrize(("covariance", "count"), [("diag", 2), ("block", 3), ("chevron", 4)])
def test_the_variables_of_q_are_one_block(covariance, count):
    model = build(relevance(), covariance, None if covariance == "diag" else 2)
    (found,) = model.variational_parameters
    assert len(found) == count
    assert found[0] is model.q_mu
    assert found[1] is model.q_log_scale
