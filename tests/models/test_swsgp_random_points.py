"""SWSGP with another p(w): random points in place of the nearest, by an override of `closest`."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from tests.models.test_swsgp import EPS, NOISE, H, L, M, N, build, k, points, rows, spread
from tests.oracles import swsgp as oracle

SETS = np.array([np.random.default_rng(row).permutation(M) for row in range(N)])


class RandomPoints(NeighborInducingPoints):
    """Random points for each row of a batch, drawn once."""

    sets = SETS

    def closest(self, X, kernel, count, before=None, *, keep=False):
        return tf.constant(self.sets, tf.int32)[: tf.shape(X)[0], :count]


class SharedPoints(RandomPoints):
    """The same random points for all rows."""

    sets = np.repeat(SETS[:1], N, axis=0)


@pytest.mark.parametrize("weighting", ["counts", "paper"])
@pytest.mark.parametrize("covariance", ["diag", "dense"])
def test_objective_and_predictions_are_those_of_dense_algebra(covariance, weighting):
    (X, Y), Z, sets = rows(), points().Z.numpy(), SETS[:, :H]
    model = build(covariance, weighting, inducing=RandomPoints(Z, H))
    w, expected = oracle.kl_weights(weighting, sets, M), 0.0
    mean, var = model.predict_f(X)
    for p, m in enumerate(model.q_mu.numpy().T):
        q = m, spread(model, p), EPS
        expected += oracle.objective(k, X, Y[:, p], Z, sets, w, *q, NOISE)
        means, variances, _ = oracle.locals_of(k, X, Z, sets, *q)
        np.testing.assert_allclose(mean[:, p], means, rtol=1e-8)
        np.testing.assert_allclose(var[:, p], variances, rtol=1e-8)
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-8)


def test_one_subset_for_all_rows_is_the_bound_of_svgp_with_these_points():
    """With the paper's weights: the law of w is then the same for all rows."""
    (X, Y), Z, I = rows(), points().Z.numpy(), SETS[0, :H]
    model = build(weighting="paper", inducing=SharedPoints(Z, H))
    svgp = gpflow.models.SVGP(
        model.kernel,
        model.likelihood,
        Z[I],
        num_latent_gps=L,
        q_mu=model.q_mu.numpy()[I],
        q_sqrt=model.q_sqrt.numpy()[I],
        q_diag=True,
        whiten=False,
    )
    np.testing.assert_allclose(model.elbo((X, Y)), svgp.elbo((X, Y)), rtol=1e-8)
