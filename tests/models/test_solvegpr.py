"""SOLVE-GP regression: the bounds by their definitions, their order, q, streaming, doors."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGPR
from gpflow_sparse.models.solvegp import regression
from tests.oracles import solvegp as oracle
from tests.oracles import solvegpr as collapsed_oracle

NOISE, EPS = 0.2, 1e-6
BOUNDS = ("standard", "coupled", "fully_coupled")
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


def build(data, inducing, bound="standard", kernel=None, **options):
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


def loss_and_gradients(model):
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    return loss, tape.gradient(loss, model.trainable_variables)


def oracle_bound(bound, k, Z, O, X, y):
    return {
        "standard": lambda: collapsed_oracle.structured(k, Z, O, EPS, X, y, NOISE),
        "coupled": lambda: collapsed_oracle.coupled(k, Z, O, EPS, X, y, NOISE),
        # jitter in Kuu and Cvv is jitter on the covariance of the union
        "fully_coupled": lambda: collapsed_oracle.tighter(k, np.r_[Z, O], EPS, X, y, NOISE),
    }[bound]()


@pytest.mark.parametrize(
    ("bound", "name"),
    [
        *((bound, "matern32") for bound in BOUNDS),
        *(("fully_coupled", name) for name in KERNELS if name != "matern32"),
    ],
)
def test_every_bound_is_the_one_printed(rng, bound, name):
    """Two outputs, a mean function: the sum of the oracle's bounds of the residuals."""
    kernel, k = KERNELS[name]
    (Z, O), (X, Y) = sets(rng), data(rng, P=2)
    slope = gpflow.functions.Linear(np.full((2, 2), 0.3), np.array([0.1, -0.2]))
    model = build((X, Y), [Z, O], bound, kernel(), mean_function=slope)
    expected = sum(oracle_bound(bound, k, Z, O, X, y) for y in (Y - slope(X).numpy()).T)
    np.testing.assert_allclose(model.elbo(), expected, rtol=1e-8)
    np.testing.assert_allclose(model.maximum_log_likelihood_objective(), expected, rtol=1e-8)


@pytest.mark.parametrize("name", list(KERNELS))
def test_the_bounds_are_in_order(rng, name):
    """Titsias(Z) <= (10) <= (30) <= Titsias(Z+O) <= coupled <= (14) on Z+O <= log evidence."""
    kernel, k = KERNELS[name]
    (Z, O), (X, Y) = sets(rng), data(rng, N=40)
    y = Y[:, 0]
    structured, coupled, tighter = (
        float(build((X, Y), [Z, O], bound, kernel()).elbo()) for bound in BOUNDS
    )
    on_z = float(build((X, Y), [Z], "fully_coupled", kernel()).elbo())
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


@pytest.mark.parametrize("sizes", [(7, 5), (6, 4, 3)])
def test_the_gap_is_what_the_structured_bound_lacks_to_sgpr_on_all_inputs(rng, sizes):
    inducing, rows = sets(rng, sizes), data(rng, P=2)
    model = build(rows, inducing)
    gap = float(model.structured_gap())
    assert gap > 1e-3
    np.testing.assert_allclose(model.elbo() + gap, union(model, inducing).elbo(), rtol=1e-7)
    for bound in BOUNDS[1:]:
        np.testing.assert_allclose(build(rows, inducing, bound).structured_gap(), gap, rtol=1e-9)


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


@pytest.mark.parametrize("bound", BOUNDS)
def test_streaming_changes_neither_value_nor_gradients(rng, bound, monkeypatch):
    """
    Rows that take two blocks: against SGPR, whose gradient by the variance has another jitter; and
    for the bounds over pairs of rows against the oracle and differences.
    """
    monkeypatch.setattr(regression, "_BLOCK_ENTRIES", 2**13)
    if bound == "standard":
        inducing, rows = sets(rng, (9,)), data(rng, N=1000)
        model = build(rows, inducing)
        reference = union(model, inducing)
        with tf.GradientTape(persistent=True) as tape:
            ours, theirs = model.elbo(), reference.elbo()
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        for a, b in (
            (model.kernel.lengthscales, model.kernel.lengthscales),
            (model.likelihood.variance, reference.likelihood.variance),
            (model.inducing_variable.sets[0].Z, reference.inducing_variable.Z),
        ):
            a, b = (tape.gradient(t, v.unconstrained_variable) for t, v in ((ours, a), (theirs, b)))
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max())
        return
    (Z, O), (X, Y) = sets(rng), data(rng, N=140)
    model = build((X, Y), [Z, O], bound)
    loss, gradients = loss_and_gradients(model)
    expected = oracle_bound(bound, oracle.matern52, Z, O, X, Y[:, 0])
    np.testing.assert_allclose(loss, -expected, rtol=1e-8)
    directions = [rng.normal(size=v.shape) for v in model.trainable_variables]
    slope = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    values = []
    for step in (1e-5, -2e-5):
        for variable, direction in zip(model.trainable_variables, directions, strict=True):
            variable.assign_add(step * direction)
        values.append(float(model.training_loss()))
    np.testing.assert_allclose((values[0] - values[1]) / 2e-5, slope, rtol=1e-5)


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


def test_bounds_over_pairs_refuse_many_rows():
    X = np.linspace(0.0, 1.0, 20_001)[:, None]
    for bound in BOUNDS[1:]:
        with pytest.raises(ValueError, match=r"at most 20000 rows.*all pairs of rows.*has 20001"):
            build((X, X), [X[:3], X[3:5]], bound)
    model = build((X, X), [X[:3], X[3:5]])
    model.bound = "coupled"
    with pytest.raises(ValueError, match="at most 20000 rows"):
        model.elbo()


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


def test_to_solvegp_keeps_what_was_said_of_the_noise(rng):
    rows = data(rng)
    prior = tfp.distributions.Gamma(*np.array([2.0, 3.0]))
    for known in (None, np.full(len(rows[0]), 0.1)):
        model = build(rows, sets(rng), known_variance=known)
        gpflow.set_trainable(model.likelihood.variance, False)
        model.likelihood.variance.prior = prior
        noise = model.to_solvegp().likelihood.variance
        assert not noise.trainable
        np.testing.assert_allclose(noise.prior.mean(), prior.mean())
        np.testing.assert_allclose(noise, NOISE)
