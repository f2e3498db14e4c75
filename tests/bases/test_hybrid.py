"""Inducing functions and residual features against NumPy."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.bases import Hybrid
from tests.oracles import bases as oracle

RNG = np.random.default_rng(2)
X, Z = RNG.normal(size=(8, 2)), RNG.normal(size=(4, 2))
LENGTHSCALES = np.array([0.7, 1.4])
K, F = len(Z), 10
both_ways = pytest.mark.parametrize("orthogonal", [False, True], ids=["plain", "orthogonal"])


def kernel():
    return gpflow.kernels.Matern52(variance=1.7, lengthscales=LENGTHSCALES)


def gram(A, B):
    return oracle.matern52(A, B, 1.7, LENGTHSCALES)


def basis(num_features=F, points=Z, seed=3, **options):
    return Hybrid(kernel(), points, num_features, seed=seed, **options)


def jittered(points):
    return gram(points, points) + 1e-6 * 1.7 * np.eye(len(points))


@both_ways
def test_columns_are_those_of_the_oracle(orthogonal):
    phi_X, phi_Z = (
        oracle.fourier_columns(A, range(F), F, 5.0, 3, 1.7, LENGTHSCALES, orthogonal)
        for A in (X, Z)
    )
    expected = oracle.hybrid_columns(gram(X, Z), jittered(Z), phi_X, phi_Z)
    hybrid = basis(orthogonal=orthogonal)
    assert (hybrid.num_basis, hybrid.num_leading, hybrid.precision) == (K + F, K, "identity")
    np.testing.assert_allclose(hybrid(X), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(hybrid.features(X), expected.T, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        hybrid.features(X, hybrid.precompute()), expected.T, rtol=1e-8, atol=1e-10
    )


@both_ways
def test_chosen_columns_of_both_kinds_in_any_order(orthogonal):
    hybrid = basis(orthogonal=orthogonal)
    whole = hybrid(X).numpy()
    for chosen in ([5, 0, 13, 3, 4, 0, 13], np.arange(K + F), [2], [9], range(K)):
        chosen = np.array(chosen)
        np.testing.assert_allclose(hybrid(X, chosen), whole[:, chosen], atol=1e-12)
    np.testing.assert_array_equal(hybrid(X, [1, 7])[:, 0], hybrid(X, [1])[:, 0])


def test_sets_of_functions_are_columns_of_the_whole():
    hybrid = basis()
    whole, sets = hybrid(X).numpy(), [[0, 3], [13, 5, 5], [], [1, 9]]
    for found, chosen in zip(
        hybrid.of_sets(X, [np.array(s, int) for s in sets]), sets, strict=True
    ):
        np.testing.assert_allclose(found, whole[:, chosen], atol=1e-12)
    for wrong, words in ((None, "sets must be a list"), ([[0, 99]], "each of sets must be from 0")):
        with pytest.raises(ValueError, match=words):
            hybrid.of_sets(X, wrong)
