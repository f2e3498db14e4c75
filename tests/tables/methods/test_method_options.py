"""The options of a method on the command line: its help, and options that it does not read."""

import numpy as np
import pytest
from gpflow.keras import tf_keras

import gpflow_sparse as gs
from gpflow_sparse.tables.methods.registry import RECIPES, recipe_of
from tests.tables.cli.command_line import run as run


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("solvegp", ["--kl-weighting", "paper"], "kl_weighting is not for solvegp, but for swsgp"),
        ("swsgp", ["--variance-reduction", "none"], "not for swsgp, but for qsgp and rvm"),
        ("softki", ["--covariance", "dense"], "covariance is not for softki"),
        ("exact", ["--num-inducing", "9"], "num_inducing is not for exact"),
        ("gpnn", ["--num-steps", "9"], "num_steps is not for gpnn"),
        ("grief", ["--learning-rate", "0.1"], "learning_rate is not for grief"),
        ("odvgp", ["--num-neighbors", "9"], "num_neighbors is not for odvgp"),
        ("svgp", ["--bound", "log"], "bound is not for svgp"),
        ("solvegpr", ["--no-whiten"], "whiten is not for solvegpr"),
        ("basis_gpr", ["--temperature", "0.2"], "with another basis than grid"),
    ],
)
def test_an_option_that_the_method_does_not_read_is_refused(run, method, options, words):
    code, _, err = run("fit", method, *options)
    assert code == 1
    assert words in err


def test_the_help_of_fit_is_that_of_a_method(run):
    lines = run("fit", "--help")[1].splitlines()
    assert sum(line.startswith("  -") for line in lines) <= 32
    for method, recipe in RECIPES.items():
        code, out, _ = run("fit", method, "--help")
        assert code == 0
        assert len(out.splitlines()) <= 60  # of 80 columns
        own = {line.split()[0].rstrip(",") for line in out.splitlines() if line.startswith("  --")}
        assert own == {f"--{name.replace('_', '-')}" for name in recipe.own_options()}
    assert run("fit", "swsgp", "--help")[1] == run("fit", "--method", "swsgp", "--help")[1]
    code, _, err = run("fit", "swspg")
    assert code == 2
    assert "did you mean 'swsgp'?" in err


@pytest.mark.parametrize("method", ["site_vgp", "dirichlet_gpnn"])
def test_methods_that_compare_no_kernels_refuse_to_choose_one(run, method):
    assert run("fit", method, "--kernel", "auto")[0] == 2
    with pytest.raises(ValueError, match=r"^kernel must be one of matern12, .*; got 'auto'"):
        recipe_of(method, kernel="auto")


def test_help_on_a_method_for_classes_does_not_explain_intervals(run):
    for method, expected in (("dirichlet_gpnn", False), ("svgp", True)):
        assert ("--conformal" in run("fit", method, "--help")[1]) is expected
        assert (":param conformal:" in getattr(gs.recipes, method).__doc__) is expected


def test_a_staircase_is_a_quarter_of_the_rate_after_each_sixth_of_the_run():
    recipe = recipe_of("solvegp", schedule="staircase", learning_rate=0.003, num_steps=300_000)
    found = [float(recipe.rate()(step)) for step in (0, 49_999, 50_000, 299_999)]
    np.testing.assert_allclose(found, 0.003 * 0.25 ** np.array([0, 0, 1, 5]), rtol=1e-5)
    chosen = recipe.optimizer().get_config()["learning_rate"]
    assert chosen == tf_keras.optimizers.schedules.serialize(recipe.rate())
