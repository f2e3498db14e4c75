"""Names of earlier versions work, with a warning that says the present one."""

import numpy as np
import pytest
from click.testing import CliRunner
from gpflow.kernels import Matern52
from gpflow.likelihoods import Gaussian

import gpflow_sparse as gs
from gpflow_sparse.cli import main
from gpflow_sparse.recipes.registry import recipe_of

X = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize(
    ("module", "former", "present"),
    [
        ("kernels", "Filled", "WithMissingVariance"),
        ("training", "fit_in_rounds", "fit_with_basis_refresh"),
        ("data", "Moments", "RunningMoments"),
        ("data", "open", "open_shards"),
    ],
)
def test_public_names(module, former, present):
    with pytest.warns(DeprecationWarning, match=f"{former} is now {present}"):
        found = getattr(getattr(gs, module), former)
    assert found is getattr(getattr(gs, module), present)


def test_arguments_and_attributes_of_models():
    points = gs.inducing_variables.OrthogonalInducingVariables(X[:4], X[4:9])
    with pytest.warns(DeprecationWarning, match="num_columns is now num_penalty_samples"):
        model = gs.models.ODVGP(Matern52(), Gaussian(), points, num_columns=3)
    with pytest.warns(DeprecationWarning, match="num_penalty_samples"):
        assert model.num_columns == model.num_penalty_samples == 3
    basis = gs.bases.RandomFourier(Matern52(), 10)
    with pytest.warns(DeprecationWarning, match="num_support is now num_control_rows"):
        model = gs.models.QSGP(basis, Gaussian(), num_data=20, basis_batch_size=4, num_support=7)
    with pytest.warns(DeprecationWarning, match="num_control_rows"):
        assert model.num_support == 7
    near = gs.inducing_variables.NeighborInducingPoints(X[:9], 3)
    with pytest.warns(DeprecationWarning, match="kl_weighting='usage' is now 'counts'"):
        model = gs.models.SWSGP(Matern52(), Gaussian(), near, kl_weighting="usage", num_data=20)
    assert model.kl_weighting == "counts"
    with pytest.warns(DeprecationWarning, match="count_neighbors"):
        model.update_neighbors(X)
    assert float(np.sum(model.usage)) == 60.0


@pytest.mark.parametrize(
    ("method", "former", "present"),
    [
        ("odvgp", {"num_columns": 5}, {"num_penalty_samples": 5}),
        ("qsgp", {"num_support": 5}, {"num_control_rows": 5}),
        ("swsgp", {"kl_weighting": "usage"}, {"kl_weighting": "counts"}),
        ("grief", {"inference": "type1"}, {"weights": "integrate"}),
        ("auto", {"inference": "type1"}, {"weights": "integrate"}),
    ],
)
def test_options_of_methods(method, former, present):
    assert recipe_of(method, **former) == recipe_of(method, **present)
    ((name, value),) = former.items()
    # another number of steps, which is refused after all options have been read
    arguments = ["fit", method, f"--{name.replace('_', '-')}", str(value), "--num-steps", "0"]
    result = CliRunner().invoke(main, arguments)
    assert "num_steps must be positive" in result.stderr
