"""The benchmarks of convolutional models: the work is the same in each way it is done."""

import gpflow
import numpy as np
import pytest

from bench import image_variants
from bench.image_variants import Images
from gpflow_sparse.models import SOLVEGP

TINY = Images(5, 7, 3, num_classes=4, num_inducing=6, num_orthogonal=5)


@pytest.mark.nightly
def test_models_with_stored_covariances_are_the_models():
    (whole, data), (stored, _) = (image_variants.image_models(TINY, s) for s in (False, True))
    assert list(whole) == list(stored)
    whole, stored = list(whole.values()), list(stored.values())
    assert [type(model) for model in whole] == [SOLVEGP, gpflow.models.SVGP, SOLVEGP]
    sizes = [model.inducing_variable.sizes for model in (whole[0], whole[2])]
    assert sizes == [(6, 5), (11,)]
    for one, other in zip(whole, stored, strict=True):
        np.testing.assert_allclose(one.elbo(data), other.elbo(data), rtol=1e-9)
    # the same at another q, so that Kuf counts
    mean = np.random.default_rng(0).normal(size=(11, 4))
    for models in (whole, stored):
        models[1].q_mu.assign(mean)
    np.testing.assert_allclose(whole[1].elbo(data), stored[1].elbo(data), rtol=1e-9)
