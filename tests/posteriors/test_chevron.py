"""The posterior over many weights: whole matrices, chunks, draws, augmentation."""

import gpflow
import numpy as np
import pytest

from tests.models.test_qsgp import MODELS, build, close, dictionary, factor, fourier, places
from tests.oracles import qsgp

XNEW = places(5, seed=11)


def dense(model, X):
    """Mean ``[N, L]`` and covariance ``[L, N, N]`` from whole matrices, without mean function."""
    Phi = model.basis(X).numpy()
    parts = [
        qsgp.predict(Phi, model.q_mu.numpy()[:, p], factor(model, p))
        for p in range(model.num_latent_gps)
    ]
    return np.stack([mean for mean, _ in parts], axis=1), np.stack([cov for _, cov in parts])


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_those_of_the_whole_matrices(name):
    mean_function = gpflow.mean_functions.Linear(np.ones((2, 2)))
    model = MODELS[name](L=2, mean_function=mean_function)
    mean, cov = dense(model, XNEW)
    mean = mean + XNEW.sum(axis=1, keepdims=True)
    for predict in (
        model.predict_f,
        model.posterior().predict_f,
        model.posterior().fused_predict_f,
    ):
        found = predict(XNEW)
        close(found[0], mean)
        close(found[1], np.diagonal(cov, axis1=1, axis2=2).T)
        found = predict(XNEW, full_cov=True)
        close(found[0], mean)
        close(found[1], cov)
    both = model.predict_f(XNEW, full_cov=True, full_output_cov=True)[1].numpy()  # [N, 2, N, 2]
    for p in range(2):
        close(both[:, p, :, p], cov[p])
        close(both[:, p, :, 1 - p], 0.0)
    apart = model.predict_f(XNEW, full_output_cov=True)[1].numpy()  # [N, 2, 2]
    close(apart[:, 0, 1], 0.0)
    close(apart[:, 1, 1], np.diag(cov[1]))


def test_many_rows_are_predicted_with_some_functions_at_a_time():
    """All 3,000 at a time for 500 rows, about 2,000 for 4,000 rows."""
    model, X = build(fourier(3000), "chevron", 2), places(4000, seed=5)
    whole = model.predict_f(X)
    parts = [model.predict_f(X[i : i + 500]) for i in range(0, 4000, 500)]
    for got, expected in zip(whole, zip(*parts, strict=True), strict=True):
        close(got, np.concatenate(expected), rtol=1e-9, atol=1e-9)


def test_batches_of_inputs_are_predicted_one_by_one():
    model = MODELS["fourier-chevron"](L=2)
    X = places(12, seed=4).reshape(2, 3, 2, 2)
    for full_cov in (False, True):
        mean, cov = model.predict_f(X, full_cov=full_cov)
        for i in range(2):
            for j in range(3):
                alone = model.predict_f(X[i, j], full_cov=full_cov)
                close(mean[i, j], alone[0])
                close(cov[i, j], alone[1])


@pytest.mark.parametrize("name", ["fourier-chevron", "hybrid-block"])
def test_drawn_functions_have_the_moments_of_the_posterior(name):
    """2,000 draws: five standard errors."""
    model, S = MODELS[name](L=2), 2000
    mean, cov = dense(model, XNEW)
    found = model.posterior().sample_functions(S, seed=3)(XNEW).numpy()  # [S, N, 2]
    for p in range(2):
        sd = np.sqrt(np.diag(cov[p]))
        assert np.all(np.abs(found[..., p].mean(axis=0) - mean[:, p]) < 5.0 * sd / np.sqrt(S))
        error = np.sqrt((np.outer(sd, sd) ** 2 + cov[p] ** 2) / S)
        assert np.all(np.abs(np.cov(found[..., p].T) - cov[p]) < 5.0 * error)


def augmented(**options):
    X = places(7, seed=6)
    return X, build(dictionary(), augmentation=X, **options)


def test_augmentation_is_the_model_with_one_function_more():
    X, model = augmented(L=2)
    Z = model.basis.centers.numpy()

    def kernel(A, B):
        return model.basis.kernel(A, B).numpy()

    var = model.predict_f(XNEW)[1].numpy()
    for i in range(len(XNEW)):
        x = XNEW[i : i + 1]
        for p in range(2):
            C = factor(model, p)
            close(var[i, p], qsgp.augmented_variance_brute_force(kernel, x, X, Z, C, 0.3))
            rows = kernel(x, Z)[0], C @ C.T, kernel(x, x)[0, 0], kernel(x, X)[0]
            close(var[i, p], qsgp.augmented_variance(*rows, 0.3))
    plain = build(dictionary(), L=2)
    close(model.predict_f(XNEW)[0], plain.predict_f(XNEW)[0])
    close(model.posterior().predict_f(XNEW)[1], var)


def test_augmentation_gives_the_prior_back_far_away():
    _, model = augmented()
    far = np.full((1, 2), 50.0)
    close(model.predict_f(far)[1], 1.4)
    close(build(dictionary()).predict_f(far)[1], 0.0)
    assert np.all(model.predict_f(XNEW)[1] > build(dictionary()).predict_f(XNEW)[1])


@pytest.mark.parametrize("name", MODELS)
def test_prior_kl_is_the_oracles(name):
    model = MODELS[name](L=2)
    S = model.basis.prior_precision().numpy()
    expected = sum(qsgp.prior_kl(model.q_mu.numpy()[:, p], factor(model, p), S) for p in range(2))
    close(model.prior_kl(), expected, rtol=1e-4 if "dense" in name else 1e-10)
