"""What a posterior over neighbors refuses."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.posteriors import NeighborPosterior


def test_q_that_fits_no_points_is_refused(rng):
    kernel, points = gpflow.kernels.Matern32(), NeighborInducingPoints(rng.normal(size=(6, 2)), 3)
    good = np.zeros((6, 2)), np.ones((6, 2))
    for q_mu, q_sqrt, name in [
        (np.zeros((5, 2)), good[1], "q_mu"),
        (np.zeros(6), good[1], "q_mu"),
        (good[0], np.ones((6, 3)), "q_sqrt"),
        (good[0], np.ones((2, 6, 5)), "q_sqrt"),
        (good[0], np.ones((3, 6, 6)), "q_sqrt"),
        (good[0], (good[1], np.ones((2, 5, 3))), "q_sqrt"),
    ]:
        with pytest.raises(ValueError, match=name):
            NeighborPosterior(kernel, points, q_mu, q_sqrt)
    with pytest.raises(ValueError, match="jitter"):
        NeighborPosterior(kernel, points, *good, jitter=-1.0)
    posterior = NeighborPosterior(kernel, points, *good)
    for X in (np.zeros((3, 1)), np.zeros(2), np.full((1, 2), np.nan)):
        with pytest.raises(ValueError, match="X"):
            posterior.prior_kl(X)
