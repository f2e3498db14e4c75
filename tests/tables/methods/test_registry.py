"""Recipes: their options, sizes, and what follows from the registry."""

import ast
import dataclasses
import inspect
import re
import sys
import types
from pathlib import Path

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs
from gpflow_sparse.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.fitting import starts
from gpflow_sparse.tables.fitting.observations import make_likelihood
from gpflow_sparse.tables.methods import registry
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.mixture import Mixture
from gpflow_sparse.tables.methods.registry import (
    RECIPES,
    recipe_of,
    stored_recipe,
)
from tests.tables.cli.command_line import ALONE, numbers, read_csv, write_csv
from tests.tables.cli.command_line import run as run

PACKAGE = Path(gs.__file__).parent


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("magic", {}),
        ("solvegp", {"kernel": "linear"}),
        ("solvegp", {"num_inducing": 0}),
        ("solvegp", {"batch_size": 2.5}),
        ("solvegp", {"learning_rate": 0.0}),
        ("solvegp", {"natural_gradients": 1.5}),
        ("odvgp", {"num_penalty_samples": -1}),
        ("qsgp", {"num_basis": 0}),
        ("basis_gpr", {"basis": "wavelets"}),
        ("solvegp", {"seed": -1}),
        ("auto", {"covariance": "round"}),
    ],
)
def test_a_wrong_value_is_named(method, wrong):
    (name,) = wrong or ["method"]
    with pytest.raises(ValueError, match=name):
        recipe_of(method, **wrong)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("grief", {"basis": "fourier"}, "basis is not for grief, but for qsgp, basis_gpr and"),
        ("basis_svgp", {"weights": "integrate"}, "weights is not for basis_svgp, but for grief"),
        ("basis_gpr", {"basis": "fourier", "num_basis": 7}, "must be even for fourier, got 7"),
        ("basis_gpr", {"temperature": 0.2}, "temperature is for basis_gpr with another basis"),
        ("qsgp", {"num_basis": 100, "num_inducing": 99}, "an even number of random features"),
        ("swsgp", {"whiten": True}, "whiten is not for swsgp"),
        ("solvegp", {"num_neighbors": 3}, "num_neighbors is not for solvegp, but for"),
        ("solvegp", {"num_inducng": 3}, "not an option of any method; solvegp has num_inducing"),
        ("solvegb", {}, "did you mean 'solvegp'"),
    ],
)
def test_what_does_not_go_together_is_refused(method, options, message):
    with pytest.raises(ValueError, match=message):
        recipe_of(method, **options)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_a_function_and_documented_options(name):
    assert name.replace("-", "_") in gs.recipes.__all__
    kind, function = RECIPES[name], getattr(gs.recipes, name.replace("-", "_"))
    assert kind.name == name
    assert kind.title in function.__doc__
    elsewhere = {"likelihood", "exposure", "noise_column"}
    elsewhere |= set() if kind.takes_conformal else {"conformal"}
    for field in dataclasses.fields(kind):
        assert field.metadata["help"].endswith(".")
        is_documented = f":param {field.name}:" in function.__doc__
        assert is_documented or field.name in elsewhere
    made = recipe_of(name)
    stored = stored_recipe(name, dataclasses.asdict(made))
    assert stored == made


MODELS = {
    "basis_gpr": gs.models.BasisGPR,
    "basis_svgp": gs.models.BasisSVGP,
    "dirichlet_gpnn": gs.models.NearestNeighborClassifier,
    "gpnn": gs.models.NearestNeighborGP,
    "grief": gs.models.GRIEF,
    "mixture": gs.models.GPMixture,
    "odvgp": gs.models.ODVGP,
    "qsgp": gs.models.QSGP,
    "rvm": gs.models.RVM,
    "site_vgp": gs.models.SiteVGP,
    "softki": gs.models.SoftKI,
    "solvegp": gs.models.SOLVEGP,
    "solvegpr": gs.models.SOLVEGPR,
    "swsgp": gs.models.SWSGP,
}


def test_options_have_the_defaults_of_the_arguments_of_their_models():
    """The command line shows them without TensorFlow, and so cannot read them from the models."""
    others = set()
    for name, model in MODELS.items():
        arguments = inspect.signature(model).parameters
        for field in dataclasses.fields(RECIPES[name]):
            given = getattr(arguments.get(field.name), "default", inspect.Parameter.empty)
            if given not in (inspect.Parameter.empty, field.default):
                others.add((name, field.name))
    # as many as left-out rows want, a sample of the columns where the model takes all, and "log"
    # where the model will be calibrated
    assert others == {
        ("gpnn", "num_neighbors"),
        ("odvgp", "num_penalty_samples"),
        ("solvegp", "bound"),
    }


def test_no_file_outside_of_recipes_asks_for_a_method_by_its_name():
    """Text that equals the name of a method stands in recipes, and in tables of names of files."""
    names, found = set(RECIPES), set()
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE)
        if inside.parts[:2] == ("tables", "methods") or inside.name in ("recipes.py", "_names.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                parts = [node.left, *node.comparators]
                texts = {p.value for p in parts if isinstance(p, ast.Constant)}
                for part in parts:
                    elements = getattr(part, "elts", ())
                    texts |= {e.value for e in elements if isinstance(e, ast.Constant)}
                found |= {(str(inside), text) for text in texts if text in names}
    assert found == {("models/softki/model.py", "exact")}  # the objective of that name


def test_the_page_of_methods_lists_the_registry():
    page = (PACKAGE.parent / "docs" / "methods" / "index.md").read_text()
    for name, kind in RECIPES.items():
        classes = f"`{kind.for_classes}`" if kind.for_classes else "itself"
        assert f"| `{name}` | {kind.title} | {kind.idea} | {classes} |\n" in page


def test_the_worked_example_of_a_method_trains_and_predicts(run, rng, tmp_path, monkeypatch):
    """The declaration as the page has it, the lines of other files by hand."""
    page = (PACKAGE.parent / "docs" / "contributing.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    module = types.ModuleType("gpflow_sparse.tables.methods.fitc")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look there for types
    exec(compile(code, "fitc.py", "exec"), vars(module))
    for name in ("RECIPES", "_ALL"):
        monkeypatch.setitem(getattr(registry, name), "fitc", module.FITC)
    monkeypatch.setattr(registry, "_LISTED", (*registry._LISTED, module.FITC))
    write_csv(tmp_path / "my.csv", numbers(rng))
    table = ("--data", "my.csv", "--output")
    options = ("--target", "price", "--num-inducing", "12", "--num-steps", "3", *ALONE)
    status, _, errors = run("fit", "fitc", *table, "run", *options)
    assert status == 0, errors
    status, _, errors = run("predict", "--model", "run", *table, "predictions.csv")
    assert status == 0, errors
    estimator = gs.load(tmp_path / "run" / "model.safetensors")
    assert isinstance(estimator.model_, gpflow.models.GPRFITC)
    X = np.loadtxt(tmp_path / "my.csv", delimiter=",", skiprows=1)[:, :2]
    found = read_csv((tmp_path / "predictions.csv").read_text())["mean"]
    np.testing.assert_allclose(found, estimator.predict(X), rtol=1e-6)


def test_the_worked_example_of_a_method_changes_lines_that_are_there():
    page = (PACKAGE.parent / "docs" / "contributing.md").read_text()
    (changes,) = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    files = re.findall(r"^--- (\S+)\n((?:[+ ].*\n)+)", changes, re.MULTILINE)
    assert len(files) == 4
    for name, lines in files:
        text = (PACKAGE.parent / name).read_text()
        assert all(line[1:] + "\n" in text for line in lines.splitlines() if line[0] == " ")


def test_only_methods_with_a_basis_on_a_grid_need_a_product():
    assert recipe_of("grief").on_grid
    assert recipe_of("basis_svgp").on_grid
    assert recipe_of("basis_svgp").kernel == "squared_exponential"
    assert not recipe_of("basis_svgp", basis="fourier").on_grid
    assert recipe_of("basis_svgp", basis="fourier").kernel == "matern52"
    assert not recipe_of("solvegp").on_grid
    assert recipe_of("basis_gpr", num_basis=30).sizes == (30,)


def test_a_hybrid_basis_keeps_an_even_number_of_features_when_it_shrinks():
    recipe = recipe_of("qsgp", basis="hybrid", num_basis=100, num_inducing=40)
    assert recipe.shrunk_to(1000).num_inducing == 40
    assert recipe.shrunk_to(100).num_inducing == 24  # a quarter is 25
    assert recipe.shrunk_to(104).num_inducing == 26


def test_deep_models_of_tables_have_fewer_points_in_hidden_layers():
    recipe = recipe_of("deep")
    assert (recipe.num_layers, recipe.sizes, recipe.num_hidden_inducing) == (2, (256, 256), 128)
    near = recipe_of("deep", num_neighbors=5, num_inducing=40)
    assert (near.sizes, near.num_hidden_inducing, near.natural_gradients) == ((40,), 40, 0.0)


@pytest.mark.nightly
def test_a_function_returns_what_the_recipe_trains(rng):
    X = rng.normal(size=(60, 2))
    Y = np.sin(X[:, :1])
    Y = (Y - Y.mean()) / Y.std()
    options = {"num_inducing": 10, "num_orthogonal": 5, "num_steps": 5, "num_subset": 30}
    model = gs.recipes.solvegp(X, Y, **options)
    assert type(model) is gs.models.SOLVEGP
    recipe = recipe_of("solvegp", **options)
    from gpflow_sparse.data import Dataset
    from gpflow_sparse.tables.fitting.building import build_model

    dataset = Dataset("rows", (X, Y), (X[:0], Y[:0]), ("a", "b"), "y", None)
    expected = build_model(recipe, dataset)
    recipe.train(expected, dataset.train, progress=False)
    np.testing.assert_array_equal(model.q_mu[0].numpy(), expected.q_mu[0].numpy())
    with pytest.warns(UserWarning, match="Y is not standardized"):
        gs.recipes.exact(X, 50.0 * Y)
    with pytest.raises(ValueError, match="num_steps is not for gpnn"):
        gs.recipes.gpnn(X, Y, num_steps=3)
    with pytest.raises(AttributeError, match=r"did you mean gpflow_sparse\.recipes.softki"):
        gs.recipes.softky  # noqa: B018
    assert isinstance(recipe, Recipe)


def test_documented_defaults_are_those_of_the_methods():
    documented = [
        " ".join(kind.__doc__.split()) for kind in (SparseGPRegressor, SparseGPClassifier)
    ]
    kernels, likelihoods = (doc.partition("None for the ")[2] for doc in documented)
    usual = {2: "bernoulli", 3: "softmax"}
    for kind in RECIPES.values():
        own = {C: kind().usual_likelihood(C) or name for C, name in usual.items()}
        if not kind.for_classes and not kind.takes_images and own != usual:
            assert f'"{kind.name}"' in likelihoods
            assert all(f'"{name}"' in likelihoods for name in own.values())
        default = getattr(kind(), "kernel", "matern52")
        assert default == "matern52" or f'"{kind.name}"' in kernels
    for C, name in usual.items():
        assert type(make_likelihood(None, C, 0.1)) is type(make_likelihood(name, C, 0.1))
        assert f'"{name}" for {"two classes" if C == 2 else "more"}' in likelihoods
    assert '"mixture" averages nine' in kernels
    assert len(starts.KERNELS) == 4
    assert Mixture().num_components == 9
