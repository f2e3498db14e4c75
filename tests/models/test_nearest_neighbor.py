"""GPnn: one exact Gaussian process a row, against matrix inverses and exact regression."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_sparse as gs
from gpflow_sparse.models import SWSGP, NearestNeighborGP
from tests.oracles import gpnn as oracle
from tests.oracles.solvegp import matern52
from tests.oracles.swsgp import with_lengthscales

# ratios of lengthscales are rounded in the search for neighbors, which does not change this one
SCALES, VARIANCE, NOISE, N, H = 0.7 * np.exp([0.0, 1.0]), 1.4, 0.13, 40, 6
k = with_lengthscales(matern52, VARIANCE, SCALES)


def rows(num_rows=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 2))
    f = np.concatenate([np.sin(2.0 * X[:, :1]), X.prod(axis=1, keepdims=True)], axis=1)
    return X, f + 0.3 * rng.normal(size=f.shape)


NEW = rows(9, seed=1)


def kernel():
    return gpflow.kernels.Matern52(VARIANCE, SCALES)


def build(data=None, num_neighbors=H, **options):
    options = {"noise_variance": NOISE, **options}
    data = rows() if data is None else data
    return NearestNeighborGP(data, kernel(), num_neighbors=num_neighbors, **options)


@pytest.mark.parametrize("count", [1, H, N])
def test_predictions_are_those_of_one_exact_gp_a_row(count):
    X, Y = rows()
    model = build(num_neighbors=count, mean_function=gpflow.functions.Constant([0.4]))
    mean, var = oracle.predict(k, X, Y - 0.4, NEW[0], count, SCALES, NOISE)
    for predict in (model.predict_f, model.posterior().predict_f):
        for found, expected in zip(predict(NEW[0]), (mean + 0.4, var), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    error = (NEW[1] - mean - 0.4) ** 2 / (var + NOISE)
    density = -0.5 * (np.log(2.0 * np.pi * (var + NOISE)) + error)
    np.testing.assert_allclose(model.predict_log_density(NEW), density.sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("count", [1, H, N])
def test_the_objective_leaves_each_row_out(count):
    X, Y = rows()
    model = build(num_neighbors=count, mean_function=gpflow.functions.Constant([0.4]))
    expected = oracle.leave_one_out(
        k, X, Y - 0.4, range(N), min(count, N - 1), SCALES, NOISE, 1e-6 * VARIANCE
    )
    np.testing.assert_allclose(model.leave_one_out_log_density(), expected, rtol=1e-8)
    np.testing.assert_allclose(model.training_loss(), -expected, rtol=1e-8)


def test_the_objective_of_some_rows_counts_for_all():
    X, Y = rows()
    model = build(num_objective_rows=10)
    chosen = np.random.default_rng(0).permutation(N)[:10]
    expected = oracle.leave_one_out(k, X, Y, chosen, H, SCALES, NOISE, 1e-6 * VARIANCE)
    np.testing.assert_allclose(model.leave_one_out_log_density(), 4.0 * expected, rtol=1e-8)


def repeated_rows(num_places=20, seed=0):
    """Rows that occur one to five times, in random order, and the place of each."""
    rng = np.random.default_rng(seed)
    of_row = rng.permutation(np.repeat(np.arange(num_places), rng.integers(1, 6, num_places)))
    places, f = rows(num_places, seed)
    return (places[of_row], f[of_row] + 0.3 * rng.normal(size=(len(of_row), 2))), places, of_row


@pytest.mark.parametrize("count", [1, 3, 20, 100])
def test_neighbors_are_distinct_rows_with_all_their_outputs(count):
    (X, Y), places, of_row = repeated_rows()
    model = build((X, Y), count, mean_function=gpflow.functions.Constant([0.4]))
    expected = []
    for x in NEW[0]:
        near = oracle.nearest(places, x, count, SCALES)
        around = np.flatnonzero(np.isin(of_row, near))
        expected.append(oracle.moments(k, X, Y - 0.4, x, around, NOISE))
    mean, var = model.predict_f(NEW[0])
    np.testing.assert_allclose(mean, 0.4 + np.array([part[0] for part in expected]), rtol=1e-9)
    np.testing.assert_allclose(var[:, 0], [part[1] for part in expected], rtol=1e-9)
    if count >= 20:
        exact = gpflow.models.GPR((X, Y), kernel(), model.mean_function, NOISE)
        for full_cov in (False, True):
            pairs = zip(model.predict_f(X, full_cov), exact.predict_f(X, full_cov), strict=True)
            for found, wanted in pairs:
                np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("count", [1, 3, 19, 20, 100])
def test_the_objective_leaves_one_output_out_where_rows_repeat(count):
    """The others at its place are one of the neighbors."""
    (X, Y), places, of_row = repeated_rows()
    model = build((X, Y), count, mean_function=gpflow.functions.Constant([0.4]))
    expected = 0.0
    for i, x in enumerate(X):
        others = np.delete(np.arange(len(X)), i)
        left = np.unique(of_row[others])
        near = left[oracle.nearest(places[left], x, count, SCALES)]
        around = others[np.isin(of_row[others], near)]
        mean, var = oracle.moments(k, X, Y - 0.4, x, around, NOISE)
        error = Y[i] - 0.4 - mean
        expected -= 0.5 * np.sum(np.log(2 * np.pi * (var + NOISE)) + error**2 / (var + NOISE))
    # the model adds a jitter of 1.4e-6 to the covariance of the neighbors
    np.testing.assert_allclose(model.leave_one_out_log_density(), expected, rtol=2e-5)
    np.testing.assert_allclose(model.training_loss_closure()(), -expected, rtol=2e-5)


def test_a_model_of_repeated_rows_is_saved_and_keeps_its_data(tmp_path):
    model = build(repeated_rows()[0], num_neighbors=3)
    gs.save(model, tmp_path / "model")
    for other in (gs.load(tmp_path / "model"), gpflow.utilities.deepcopy(model)):
        for a, b in zip(other.predict_f(NEW[0]), model.predict_f(NEW[0]), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(other.training_loss(), model.training_loss())
        for a, b in zip(gradients(other), gradients(model), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    model.data = tuple(part[:5] for part in model.data)
    with pytest.raises(ValueError, match="data must stay"):
        model.predict_f(NEW[0])


def gradients(model):
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    return [loss, *tape.gradient(loss, model.trainable_variables)]


def test_a_closure_keeps_its_neighbors_and_counts_priors():
    model = build()
    one = np.float64(1.0)
    model.kernel.variance.prior = tfp.distributions.Normal(0.0 * one, one)
    closure = model.training_loss_closure()
    np.testing.assert_allclose(closure(), model.training_loss(), rtol=1e-12)
    expected = -model.leave_one_out_log_density() + 0.5 * (np.log(2.0 * np.pi) + VARIANCE**2)
    np.testing.assert_allclose(closure(), expected, rtol=1e-12)
    model.kernel.lengthscales.assign([3.0, 0.3])
    assert abs(float(closure() - model.training_loss())) > 0.1
    again = model.training_loss_closure(compile=False)
    np.testing.assert_allclose(again(), model.training_loss(), rtol=1e-12)


class ForMatrices(gpflow.kernels.Kernel):
    """Takes ``[N, D]`` only."""

    def K(self, X, X2=None):
        X2 = X if X2 is None else X2
        return tf.exp(-tf.reduce_sum((X[:, None] - X2[None]) ** 2, axis=2))

    def K_diag(self, X):
        return tf.ones(tf.shape(X)[:-1], X.dtype)


def test_a_kernel_of_matrices_alone_is_refused_in_one_sentence():
    """By models whose rows have neighbors of their own: what came, and what to do."""
    X, Y = rows()
    nearest = NearestNeighborGP((X, Y), ForMatrices(), num_neighbors=H, noise_variance=NOISE)
    points = gs.inducing_variables.NeighborInducingPoints(X[:9], 4)
    options = {"kl_weighting": "paper", "q_mu": np.zeros((9, 1)), "q_sqrt": np.ones((9, 1))}
    sparse = SWSGP(ForMatrices(), gpflow.likelihoods.Gaussian(), points, num_data=N, **options)
    for call, shape in (
        (lambda: nearest.predict_f(NEW[0]), (9, H + 1, 2)),
        (nearest.leave_one_out_log_density, (N, H + 1, 2)),
        (lambda: sparse.elbo((X, Y[:, :1])), (N, 5, 2)),
        (lambda: sparse.update_posterior((X, Y[:, :1])), (N, 5, 2)),
        (lambda: gs.training.fit(sparse, (X, Y[:, :1]), num_steps=1, progress=False), (N, 5, 2)),
    ):
        with pytest.raises(ValueError, match="kernel must take") as raised:
            call()
        came = (shape[0], shape[0], 2)
        assert str(raised.value) == (
            "kernel must take [..., N, D] and return [..., N, N], or [..., N, ..., N2] for two "
            f"inputs; ForMatrices got shape {shape}: its K returned shape {came}. Write its "
            "K for the last two axes, with axis=-1 and tf.linalg.matmul, and with no "
            "fixed number of rows."
        )


@pytest.mark.parametrize("kind", [gpflow.kernels.Matern12, gpflow.kernels.RationalQuadratic])
def test_float32_predicts_alike_100_lengthscales_from_zero(kind):
    """Inputs have no rounding; a product, so that no one distance is centered for all."""
    X, Y = rows()
    X, new = (np.round(64.0 * part) / 64.0 for part in (X, NEW[0]))

    def predictions(shift):
        kernel = kind(VARIANCE, SCALES) * gpflow.kernels.Matern52(lengthscales=2.0)
        model = NearestNeighborGP(
            (X + shift, Y), kernel, num_neighbors=H, noise_variance=np.float64(NOISE)
        )
        return model.predict_f(new + shift)

    expected = predictions(0.0)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        X, Y, new = (part.astype(np.float32) for part in (X, Y, new))
        found = predictions(np.float32(128.0))
    for part, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, exact, atol=5e-3)
