"""The public names: listed, sorted, documented, without what the modules import for themselves."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import gpflow_sparse as gs

API = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
MODULES = [name for name in gs.__all__ if name.islower() and inspect.ismodule(getattr(gs, name))]


def order(name):
    """As ruff sorts: constants, classes, functions."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name


def test_the_modules_of_the_package_are_these():
    assert MODULES == [
        "bases",
        "data",
        "diagnosis",
        "estimators",
        "inducing_variables",
        "initialization",
        "kernels",
        "likelihoods",
        "mean_functions",
        "models",
        "persistence",
        "posteriors",
        "recipes",
        "training",
    ]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_module_lists_its_names(name):
    module = getattr(gs, name)
    assert module.__all__ == sorted(module.__all__, key=order)
    assert dir(module) == sorted(module.__all__)
    for each in module.__all__:
        value = getattr(module, each)
        home = value.__name__ if inspect.ismodule(value) else type(value).__module__
        home = value.__module__ if inspect.isclass(value) or inspect.isfunction(value) else home
        # the one dispatcher is an object of GPflow's class
        assert home.startswith("gpflow_sparse.") or each == "Kuv", (each, home)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_class_and_function_is_listed(name):
    """In a package what its files import into it; in a module what it defines."""
    module = getattr(gs, name)
    own = module.__name__ + ("." if hasattr(module, "__path__") else "")
    found = {
        each
        for each, value in vars(module).items()
        if not each.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith(own)
    }
    assert found - set(module.__all__) == set()


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_documented(name):
    """Sphinx makes a page of each module, with its classes and functions; others are listed."""
    module = getattr(gs, name)
    values = {each: getattr(module, each) for each in module.__all__}
    others = [k for k, v in values.items() if not (inspect.isclass(v) or inspect.isfunction(v))]
    for each in (name, *(f"{name}.{other}" for other in others)):
        assert f"   gpflow_sparse.{each}\n" in API


def test_the_package_lists_its_names():
    assert dir(gs) == sorted(gs.__all__)
    assert not hasattr(gs.models, "TABLE_5")  # of one function, and no model
    for name in gs.__all__:
        assert getattr(gs, name) is not None


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("", "SOLVEGP", "gpflow_sparse.models.SOLVEGP"),
        ("", "model", "gpflow_sparse.models"),
        ("", "fit", "gpflow_sparse.training.fit"),
        ("", "Standardiser", "gpflow_sparse.Standardizer"),
        ("models", "SolveGP", "gpflow_sparse.models.SOLVEGP"),
        ("models", "StudentT", "gpflow_sparse.likelihoods.StudentT"),
        ("kernels", "SoftKi", "gpflow_sparse.kernels.SoftKI"),
        ("initialization", "k_means", "gpflow_sparse.initialization.kmeans"),
        ("inducing_variables", "Frequencies", None),
        ("persistence", "laod", "gpflow_sparse.persistence.load"),
        ("training", "NaturalGradient", "gpflow_sparse.training.NaturalGradients"),
        ("models", "SVGP", "gpflow.models.SVGP"),
        ("", "SVGP", "gpflow.models.SVGP"),
        ("kernels", "Matern52", "gpflow.kernels.Matern52"),
        ("inducing_variables", "InducingPoints", "gpflow.inducing_variables.InducingPoints"),
        ("models", "_solvegp", None),
        ("", "__wrapped__", None),
    ],
)
def test_misspelled_names_are_answered_with_a_hint(module, name, hint):
    owner = getattr(gs, module) if module else gs
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    expected = f"module {owner.__name__!r} has no attribute {name!r}"
    assert str(caught.value) == expected + (f"; did you mean {hint}?" if hint else "")
    assert not hasattr(owner, name)


def test_imports_of_files_and_of_unknown_names_are_pythons():
    assert importlib.import_module("gpflow_sparse.models.softki").SoftKI is gs.models.SoftKI
    with pytest.raises(ImportError, match="cannot import name 'SolveGP'"):
        from gpflow_sparse.models import SolveGP  # noqa: F401


def test_a_hint_needs_no_tensorflow():
    code = (
        "import sys, gpflow_sparse as gs\n"
        "for name in ('SVGP', 'SOLVEGP'):\n"
        "    try:\n        getattr(gs, name)\n"
        "    except AttributeError as error:\n        print(error)\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == [
        "gpflow.models.SVGP?",
        "gpflow_sparse.models.SOLVEGP?",
    ]
