"""The bounds "log" and "block" against dense algebra, the exact evidence and each other."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.bases import GridEigenfunctions
from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.models import GRIEF, ODVGP, SOLVEGP, SOLVEGPR, SWSGP, BasisSVGP, DeepGP, GPLayer
from tests.oracles import residual_bounds as oracle

N, EPS, NOISE = 24, 1e-6, 0.05
KERNELS = {
    "squared_exponential": lambda: gpflow.kernels.SquaredExponential(1.3, [0.5, 0.9]),
    "matern12": lambda: gpflow.kernels.Matern12(1.3, [0.5, 0.9]),
    "matern32": lambda: gpflow.kernels.Matern32(1.3, [0.5, 0.9]),
    "sum": lambda: gpflow.kernels.Matern52(lengthscales=0.4) + gpflow.kernels.Linear(0.3),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


@pytest.fixture
def rows(rng):
    X = rng.uniform(-1.5, 1.5, size=(N, 2))
    return X, np.sin(3.0 * X[:, :1]) + 0.2 * rng.normal(size=(N, 1))


def points(rng, *sizes):
    return OrthogonalInducingVariables(*(rng.uniform(-1.5, 1.5, size=(m, 2)) for m in sizes))


def covariance(kernel):
    return lambda A, B: kernel(A, B).numpy()


def jitter(kernel, Z):
    return EPS * float(np.mean(kernel(Z, full_cov=False)))


def log_gain(ratio):
    """What the bound "log" has more than the standard one, for each row."""
    return 0.5 * (ratio - np.log1p(ratio))


def evidence(kernel, data, noise=NOISE):
    return float(gpflow.models.GPR(data, kernel, noise_variance=noise).log_marginal_likelihood())


@pytest.mark.parametrize(
    ("kernel", "bound"),
    [(kernel, "log") for kernel in KERNELS.values()] + [(KERNELS["sum"], "standard")],
    ids=[*KERNELS, "standard"],
)
def test_elbo_of_any_q_is_that_of_dense_algebra(rng, rows, kernel, bound):
    """With the covariance of the residual process that the closed form takes for the best."""
    (X, Y), Z, k = rows, rng.uniform(-1.5, 1.5, size=(5, 2)), kernel()
    m, B = rng.normal(size=5), rng.normal(size=(5, 5))
    S = B @ B.T + 0.1 * np.eye(5)
    model = SOLVEGP(
        k,
        gpflow.likelihoods.Gaussian(NOISE),
        OrthogonalInducingVariables(Z),
        whiten=False,
        q_mu=[m[:, None]],
        q_sqrt=[np.linalg.cholesky(S)[None]],
        bound=bound,
    )
    eps = jitter(k, Z)
    D, _, _ = oracle.residual(covariance(k), Z, eps, X)
    V = np.eye(N) if bound == "standard" else oracle.best_blocks(D, NOISE, [[i] for i in range(N)])
    expected = oracle.elbo(covariance(k), Z, eps, X, Y[:, 0], NOISE, m, S, V)
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-9)


@every_kernel
def test_blocks_of_the_best_q_are_those_of_dense_algebra(rng, kernel):
    """
    Rows in eight places, three at each, and in any order: the blocks are these. The rows are in
    variables, so that the compiled loss does not know their number.
    """
    places = 3.0 * np.stack(np.meshgrid([0.0, 1.0, 2.0, 3.0], [0.0, 1.0]), axis=-1).reshape(-1, 2)
    order = rng.permutation(N)
    X = (np.repeat(places, 3, axis=0) + 0.2 * rng.normal(size=(N, 2)))[order]
    Y, Z, k = rng.normal(size=(N, 1)), places[:5] + 0.1, kernel()
    held = tuple(tf.Variable(part, shape=[None, part.shape[1]]) for part in (X, Y))
    model = SOLVEGPR(
        held,
        k,
        OrthogonalInducingVariables(Z),
        noise_variance=NOISE,
        bound="block",
        block_size=3,
    )
    groups, eps = np.argsort(order).reshape(-1, 3), jitter(k, Z)
    D, _, _ = oracle.residual(covariance(k), Z, eps, X)
    V = oracle.best_blocks(D, NOISE, groups)
    m, S = oracle.optimal_q(covariance(k), Z, eps, X, Y[:, 0], NOISE)
    expected = oracle.elbo(covariance(k), Z, eps, X, Y[:, 0], NOISE, m, S, V)
    np.testing.assert_allclose(model.elbo(), expected, rtol=1e-7)
    np.testing.assert_allclose(model.training_loss_closure()(), -expected, rtol=1e-7)


@every_kernel
def test_order_of_the_bounds(rng, rows, kernel):
    """standard <= log <= blocks of 4 <= blocks of 12 <= one block of all rows <= evidence."""
    iv, values = points(rng, 4, 3), []
    for bound, size in (("standard", 1), ("log", 1), ("block", 4), ("block", 12), ("block", N)):
        model = SOLVEGPR(rows, kernel(), iv, noise_variance=NOISE, bound=bound, block_size=size)
        values.append(float(model.elbo()))
        start = model.to_solvegp()
        if bound != "block":
            np.testing.assert_allclose(start.elbo(rows), values[-1], rtol=1e-8)
    values.append(evidence(kernel(), rows))
    assert np.all(np.diff(values) > 1e-6), values


def gaussian():
    return gpflow.likelihoods.Gaussian(NOISE)


def basis(data):
    return GridEigenfunctions(gpflow.kernels.SquaredExponential(1.0, [0.5, 0.5]), data[0], 6, 4)


MODELS = {
    "SOLVEGP": lambda rng, d, **o: SOLVEGP(
        KERNELS["matern32"](), gaussian(), points(rng, 4, 3), **o
    ),
    "ODVGP": lambda rng, d, **o: ODVGP(KERNELS["matern32"](), gaussian(), points(rng, 4, 3), **o),
    "SWSGP": lambda rng, d, **o: SWSGP(
        KERNELS["matern32"](),
        gaussian(),
        NeighborInducingPoints(rng.uniform(-1.5, 1.5, size=(6, 2)), 3),
        kl_weighting="paper",
        num_data=N,
        **o,
    ),
    "BasisSVGP": lambda rng, d, **o: BasisSVGP(basis(d), gaussian(), **o),
    "DeepGP": lambda rng, d, **o: DeepGP(
        [GPLayer(KERNELS["matern32"](), points(rng, 4))], gaussian(), **o
    ),
    "outputs": lambda rng, d, **o: SOLVEGP(
        gpflow.kernels.LinearCoregionalization(
            [KERNELS["matern12"](), KERNELS["matern32"]()], W=rng.normal(size=(1, 2))
        ),
        gaussian(),
        points(rng, 4, 3),
        **o,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_log_bound_exceeds_the_standard_one_by_the_gain_of_every_row(rng, rows, name):
    """The residual variance of a row is that of f where q(u) has no covariance."""
    state, found = rng.bit_generator.state, {}
    for bound in ("standard", "log"):
        rng.bit_generator.state = state
        found[bound] = MODELS[name](rng, rows, bound=bound)
    model = found["log"]
    narrow = gpflow.utilities.deepcopy(model)
    for variable in narrow.trainable_variables:
        if name == "SWSGP" and variable is narrow.q_log_scale:
            variable.assign(-30.0 * tf.ones_like(variable))
    factors = getattr(narrow, "q_sqrt", ())
    if name == "DeepGP":
        factors = narrow.layers[0].q_sqrt
    if name != "SWSGP":
        for R in factors if isinstance(factors, tuple) else (factors,):
            R.assign(1e-9 * tf.ones_like(R) * tf.eye(R.shape[-1], dtype=R.dtype))
    D = narrow.predict_f(rows[0])[1].numpy()
    expected = np.sum(log_gain(D / NOISE))
    assert expected > 1.0
    gain = model.elbo(rows) - found["standard"].elbo(rows)
    np.testing.assert_allclose(gain, expected, rtol=1e-6)


def test_grid_eigenfunctions_stay_below_the_evidence(rows):
    kernel = gpflow.kernels.SquaredExponential(1.0, [0.5, 0.5])
    options = {"num_eigenfunctions": 6, "points_per_dimension": 4, "noise_variance": NOISE}
    model = GRIEF(rows, kernel, bound="log", **options)
    standard = GRIEF(rows, kernel, **options)
    assert standard.elbo() < model.elbo() < evidence(kernel, rows)
    np.testing.assert_allclose(model.to_svgp().elbo(rows), model.elbo(), rtol=1e-8)
    with pytest.raises(ValueError, match="bound must be 'standard' with reweighted"):
        GRIEF(rows, kernel, bound="log", reweighted="rotated", **options)


@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (gpflow.likelihoods.StudentT(0.3, df=4.0), lambda Y: Y),
        (gpflow.likelihoods.Bernoulli(), lambda Y: (Y > 0.0).astype(float)),
    ],
    ids=["student_t", "bernoulli"],
)
def test_scalar_of_other_likelihoods_is_a_bound(rng, likelihood, targets):
    """Below the evidence of two rows by quadrature over a grid; v = 1 is the standard bound."""
    X, Y = np.array([[0.0, 0.1], [0.4, 0.0]]), targets(np.array([[0.5], [-0.3]]))
    kernel, Z = KERNELS["matern32"](), np.array([[1.0, 1.0]])
    grid, step = np.linspace(-9.0, 9.0, 361, retstep=True)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    F = np.stack([a.ravel(), b.ravel()], axis=1)
    K = kernel(X).numpy()
    log_prior = -0.5 * (np.sum(F @ np.linalg.inv(K) * F, 1) + np.linalg.slogdet(2 * np.pi * K)[1])
    each = [likelihood.log_prob(X[[i]], F[:, [i]], np.tile(Y[[i]], (len(F), 1))) for i in (0, 1)]
    exact = np.log(np.sum(np.exp(log_prior + each[0].numpy() + each[1].numpy())) * step**2)
    iv = OrthogonalInducingVariables(Z)
    model = SOLVEGP(kernel, likelihood, iv, bound="log")
    standard = SOLVEGP(kernel, likelihood, iv)
    values = []
    for v in (0.05, 0.3, 0.6, 0.9, 1.0 - 1e-9):
        model.residual_scale.assign(v)
        values.append(float(model.elbo((X, Y))))
    assert max(values) < exact
    assert max(values) > values[-1] + 1e-3
    np.testing.assert_allclose(values[-1], standard.elbo((X, Y)), rtol=1e-6)


def test_heteroskedastic_noise(rng, rows):
    """Row by row, with the noise variance of the row."""
    scale = gpflow.functions.Linear(A=[[0.1], [0.0]], b=[0.4])
    iv = points(rng, 4)
    models = [
        SOLVEGP(KERNELS["matern32"](), gpflow.likelihoods.Gaussian(scale=scale), iv, bound=bound)
        for bound in ("standard", "log")
    ]
    noise, kernel = models[0].likelihood.variance_at(rows[0]).numpy(), models[0].kernel
    Z = iv.sets[0].Z.numpy()
    D = oracle.residual(covariance(kernel), Z, jitter(kernel, Z), rows[0])[0].diagonal()[:, None]
    values = [float(model.elbo(rows)) for model in models]
    np.testing.assert_allclose(values[1] - values[0], np.sum(log_gain(D / noise)), rtol=1e-9)


def test_every_output_may_have_its_own_noise(rng, rows):
    X, Y = rows[0], np.hstack([rows[1], 2.0 * rows[1]])
    iv, noises = points(rng, 4), np.array([[0.1, 0.4]])

    def bound(noise, P):
        likelihood = gpflow.likelihoods.Gaussian(noise)
        return SOLVEGP(KERNELS["matern32"](), likelihood, iv, num_latent_gps=P, bound="log")

    both = bound(noises, 2).elbo((X, Y))
    alone = [bound(noises[0, p], 1).elbo((X, Y[:, [p]])) for p in range(2)]
    np.testing.assert_allclose(both, sum(alone), rtol=1e-9)


def test_refusals(rng, rows):
    bernoulli, iv = gpflow.likelihoods.Bernoulli(), points(rng, 3)
    kernel = gpflow.kernels.SquaredExponential()
    for make in (*MODELS.values(), lambda _, d, **o: GRIEF(d, kernel, **o)):
        with pytest.raises(ValueError, match="bound must be one of 'standard', 'log'; got 'block'"):
            make(rng, rows, bound="block")
    with pytest.raises(ValueError, match="unexpected keyword argument 'block_size'; write SOLVEGP"):
        SOLVEGP(KERNELS["matern32"](), gaussian(), iv, block_size=8)
    with pytest.raises(ValueError, match="block_size must be"):
        SOLVEGPR(rows, KERNELS["matern32"](), iv, bound="block", block_size=0)
    model = SOLVEGP(KERNELS["matern32"](), gaussian(), iv, bound="log")
    model.likelihood = bernoulli
    with pytest.raises(ValueError, match="likelihood must stay Gaussian"):
        model.elbo(rows)
