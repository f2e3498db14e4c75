"""Training of soft interpolation: resumed, what it says where it fails, and what it refuses."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.models import SoftKI
from gpflow_sparse.training import TrainingError, fit
from tests.training.test_checkpoints import N, data

Z = np.random.default_rng(1).normal(size=(6, 2))


def softki(kernel=None, **options):
    options = {"temperature": 0.3, "tied": True, "noise_variance": 0.1, "num_data": N, **options}
    if kernel is None:
        kernel = gpflow.kernels.Matern32(lengthscales=[1.0, 1.0])
    return SoftKI(kernel, options.pop("Z", Z), **options)


class Nearly(gpflow.kernels.SquaredExponential):
    """Of a covariance with an eigenvalue below zero, until there is more jitter."""

    def K(self, X, X2=None):
        K = super().K(X, X2)
        if X2 is not None:
            return K
        return tf.linalg.set_diag(K, tf.linalg.diag_part(K) - tf.cast(5e-6, K.dtype))


def test_jitter_is_raised_where_the_covariance_of_the_points_fails():
    model = softki(Nearly(lengthscales=[1.0, 1.0]), Z=np.repeat(Z[:1], 6, axis=0))
    with pytest.raises(ValueError, match=r"Kzz \(covariance of the interpolation points\) failed"):
        model.elbo(data())
    with pytest.warns(UserWarning, match=r"jitter"):
        history = fit(model, data(), num_steps=5, progress=False)
    assert model.basis.jitter == model.jitter > 1e-6
    assert np.isfinite(history.elbo).all()
    model.fit_posterior(data())
    assert np.isfinite(model.predict_f(Z)[0]).all()


def test_a_failure_is_not_blamed_on_the_posterior_that_comes_later():
    model = softki()
    zero, tiny = np.float64(0.0), np.float64(1e-200)
    model.basis.kernel.variance.prior = tfp.distributions.Normal(zero, tiny)
    with pytest.raises(TrainingError, match="the objective is -inf") as error:
        fit(model, data(), num_steps=2, progress=False)
    assert "fit_posterior" not in str(error.value)
    model = softki()
    model.basis.Z.unconstrained_variable.assign(np.full_like(Z, np.nan))
    with pytest.raises(TrainingError, match=r"model\.basis\.Z"):
        fit(model, data(), num_steps=2, progress=False)


def test_density_of_held_out_rows_is_that_of_a_fit_without_them():
    X, Y = data()
    model = softki(held_out=0.25)
    with pytest.raises(ValueError, match=r"data must be all rows of the last training.fit"):
        model.held_out_density((X, Y))
    fit(model, (X, Y), num_steps=3, progress=False, seed=3)
    found = float(model.held_out_density((X, Y)))
    kept, rest = np.split(np.random.default_rng(3).permutation(N), [N // 4])
    model.fit_posterior((X[rest], Y[rest]), refit_noise=False)
    expected = np.mean(model.predict_log_density((X[kept], Y[kept])))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(ValueError, match="got 59 rows"):
        model.held_out_density((X[1:], Y[1:]))


def test_the_noise_comes_from_rows_that_training_has_kept_back():
    X, Y = data()
    model = softki()
    history = fit(model, (X, Y), num_steps=5, batch_size=N, progress=False, seed=3)
    kept, rest = np.split(np.random.default_rng(3).permutation(N), [N // 10])
    seen = softki(num_data=len(rest)).elbo((X[rest], Y[rest]))
    np.testing.assert_allclose(history.elbo[0], seen * N / len(rest), rtol=0.2)
    found = []
    for rows in (kept, np.arange(N)):
        copy = softki()  # of the same parameters, but without rows that were kept back
        for mine, trained in zip(copy.parameters, model.parameters, strict=True):
            mine.assign(trained)
        copy.fit_posterior((X[rows], Y[rows]))
        found.append(copy.likelihood.variance.numpy())
    assert found[0] > 1.05 * found[1]
    model.fit_posterior((X, Y))
    np.testing.assert_allclose(model.likelihood.variance, found[0], rtol=1e-6)
    model.fit_posterior((np.concatenate([X, X]), np.concatenate([Y, Y])))  # other rows
    assert model.likelihood.variance.numpy() < found[1]


def test_nothing_is_kept_back_or_refitted_if_told_so():
    X, Y = data()
    literal, default = softki(held_out=0.0), softki()
    for model in (literal, default):
        history = fit(model, (X, Y), num_steps=1, batch_size=N, progress=False)
        expected = softki().elbo((X, Y)).numpy()
        assert (abs(history.elbo[0] - expected) < 1e-9) == (model is literal)
    before = literal.likelihood.variance.numpy()
    literal.fit_posterior((X, Y), refit_noise=False)
    assert literal.likelihood.variance.numpy() == before
    gpflow.set_trainable(default.likelihood.variance, False)
    before = default.likelihood.variance.numpy()
    default.fit_posterior((X, Y))
    assert default.likelihood.variance.numpy() == before
