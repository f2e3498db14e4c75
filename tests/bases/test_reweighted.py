"""Re-weighted and rotated bases."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.bases import GridEigenfunctions, RandomFourier, ReweightedBasis

D, M = 2, 12


def inputs(rows=6, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, D))


def basis(dtype=np.float64):
    kernel = gpflow.kernels.SquaredExponential(1.7, [0.9, 1.2])
    return GridEigenfunctions(kernel, inputs(30), M)


def weights():
    return np.random.default_rng(2).exponential(size=M)


def rotation():
    return np.linalg.qr(np.random.default_rng(3).normal(size=(M, M)))[0]


pytestmark = pytest.mark.filterwarnings("ignore:.*prior variance")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "build", [basis, lambda: RandomFourier(gpflow.kernels.Matern32(), M)], ids=["grid", "fourier"]
)
def test_features_are_turned_and_then_scaled(build, turned):
    inner, X, w = build(), inputs(), weights()
    V = rotation() if turned else np.eye(M)
    outer = ReweightedBasis(inner, w, V if turned else None)
    Phi = inner(X).numpy()
    expected = Phi @ V @ np.diag(np.sqrt(w))
    np.testing.assert_allclose(outer(X), expected, atol=1e-13)
    np.testing.assert_allclose(outer.features(X), expected.T, atol=1e-13)
    np.testing.assert_allclose(outer.features(X, outer.precompute()), expected.T, atol=1e-13)
    np.testing.assert_allclose(outer(X, [3, 0, 3]), expected[:, [3, 0, 3]], atol=1e-13)
    kernel = Phi @ V @ np.diag(w) @ V.T @ Phi.T  # eq. (12) for V = I
    np.testing.assert_allclose(expected @ expected.T, kernel, atol=1e-13)
    assert outer.num_basis == M
    assert outer.kernel is inner.kernel
    assert not outer.is_projection


def test_a_diagonal_in_turned_coordinates_is_another_kernel():
    """Sheet 1.8: no rotated diagonal reproduces Phi W Phi^T."""
    X, inner, w = inputs(40), basis(), weights()
    Phi = inner(X).numpy()
    V = np.linalg.svd(Phi)[2].T
    wanted = V.T @ np.diag(w) @ V
    best = ReweightedBasis(inner, np.diag(wanted).copy(), V)(X).numpy()
    target = Phi @ np.diag(w) @ Phi.T
    assert np.linalg.norm(best @ best.T - target) > 0.05 * np.linalg.norm(target)
