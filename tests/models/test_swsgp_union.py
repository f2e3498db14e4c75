"""SWSGP-U: one active set for a batch, and its joint predictions."""

import numpy as np
import pytest

from tests.models import test_swsgp as base
from tests.models.test_swsgp import EPS, LENGTHSCALES, NOISE, H, N, build, k, rows, spread
from tests.oracles import swsgp as oracle

SIZE = 6
every_covariance = pytest.mark.parametrize("covariance", ["diag", "dense"])


def active(X, size=SIZE):
    return oracle.active_set(X / LENGTHSCALES, base.points().Z.numpy() / LENGTHSCALES, size)


def dense_objective(model, X, Y, eps=EPS):
    Z = base.points().Z.numpy()
    return sum(
        oracle.union_objective(
            k, X, Y[:, p], Z, active(X), m, spread(model, p), eps, NOISE, scale=N / len(X)
        )
        for p, m in enumerate(model.q_mu.numpy().T)
    )


@pytest.mark.parametrize("size", [1, 3, N])
@every_covariance
def test_the_objective_is_that_of_dense_algebra(covariance, size):
    X, Y = (part[:size] for part in rows())
    model = build(covariance, union=SIZE)
    np.testing.assert_allclose(model.elbo((X, Y)), dense_objective(model, X, Y), rtol=1e-8)
    elbo = base.compiled_elbo(model)
    np.testing.assert_allclose(elbo(X, Y), dense_objective(model, X, Y), rtol=1e-8)


@every_covariance
def test_for_one_row_it_is_the_papers_objective(covariance):
    X, Y = (part[:1] for part in rows())
    union, paper = build(covariance, union=H), build(covariance, "paper")
    np.testing.assert_allclose(union.elbo((X, Y)), paper.elbo((X, Y)), rtol=1e-10)
