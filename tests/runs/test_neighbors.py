"""Models with neighbors from the options of the command line."""

import numpy as np
import pytest

from gpflow_sparse.data import Dataset
from gpflow_sparse.models import SOLVEGP, SWSGP, ResidualNeighborGP
from gpflow_sparse.runs.build import build_model
from gpflow_sparse.runs.config import RunConfig


@pytest.mark.parametrize(
    ("method", "options", "kind"),
    [
        ("solvegp", {"num_neighbors": 3}, ResidualNeighborGP),
        ("solvegp", {}, SOLVEGP),
        ("swsgp", {"num_neighbors": 3}, SWSGP),
    ],
)
def test_a_number_of_neighbors_puts_them_on_the_residual(method, options, kind):
    X = np.random.default_rng(0).normal(size=(40, 2))
    rows = X, np.sin(X[:, :1])
    dataset = Dataset("small", rows, rows, ("a", "b"), "y", None).standardized()
    options = {"num_inducing": 6, "num_orthogonal": 20, "num_subset": 0, **options}
    config = RunConfig.of_method(method, **options)
    model = build_model(config, dataset)
    assert type(model) is kind
    if kind is not SOLVEGP:
        assert model.points.num_neighbors == 3
        assert config.batch_size == 128
    if kind is ResidualNeighborGP:
        assert model.inducing_variable.sizes == (6, 20)
        whole = RunConfig.of_method(method, num_neighbors=3, num_inducing=6, num_subset=0)
        assert build_model(whole, dataset).inducing_variable.sizes == (6, 40)


def test_whiten_is_not_for_neighbors():
    with pytest.raises(ValueError, match="whiten"):
        RunConfig.of_method("solvegp", num_neighbors=3, whiten=False)
