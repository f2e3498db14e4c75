"""Every example at a small size, in process."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import gpflow
import numpy as np
import pytest

import gpflow_sparse as gs

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def folder_of_examples(monkeypatch):
    """The folder that ``python examples/x.py`` has on its path."""
    monkeypatch.syspath_prepend(EXAMPLES)


def load_example(stem):
    spec = importlib.util.spec_from_file_location(f"example_{stem}", EXAMPLES / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.nightly
def test_solvegp_prints_finite_bounds_below_the_evidence_and_draws(tmp_path, capsys):
    example = load_example("solvegp")
    figure = tmp_path / "solvegp.png"
    numbers = example.main(example.Config(num_data=40, num_steps=2, output=figure))
    assert set(numbers) == {"svgp", "mean_only", "solvegp", "svgp_union", "exact"}
    assert np.isfinite(list(numbers.values())).all()
    # "exact" is maximized over the hyperparameters, so it bounds every bound at any of them
    exact = numbers.pop("exact")
    assert all(bound < exact for bound in numbers.values())
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"solvegp={numbers['solvegp']:.2f}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_dates_forecasts_better_with_its_own_kernel_and_draws(tmp_path):
    example = load_example("dates")
    figure = tmp_path / "dates.png"
    numbers = example.main(example.Config(output=figure))
    assert numbers["own"]["error"] < 0.7 < numbers["default"]["error"]
    assert all(0.9 < found["coverage"] <= 1.0 for found in numbers.values())
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_without_an_output_nothing_is_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = load_example("rvm")
    sizes = {"num_data": 30, "basis_batch_size": 10, "num_support": 10, "batch_size": 10}
    example.main(example.Config(**sizes, num_steps=2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_every_field_of_an_example_is_an_option_with_a_text(path, monkeypatch, capsys):
    example = load_example(path.stem)
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        example.run(example.main, example.Config)
    shown = capsys.readouterr().out
    for name in ("seed", "output", *example.Config.__dataclass_fields__):
        assert f"--{name.replace('_', '-')} " in shown
    assert "None" not in shown


def test_the_mean_only_set_keeps_the_covariance_of_the_prior():
    example = load_example("solvegp")
    config = example.Config(num_data=40, num_steps=3)
    X, Y = example.make_data(config)
    model = example.build_models(X, config)["mean_only"]
    example.maximize(model, config.num_steps, (X, Y))
    np.testing.assert_array_equal(model.q_sqrt[1][0], np.eye(config.num_orthogonal))
    assert np.abs(model.q_mu[1]).max() > 0
    assert np.abs(model.q_sqrt[0][0] - np.eye(config.num_inducing)).max() > 1e-3


@pytest.mark.nightly
def test_odvgp_improves_the_mean_and_leaves_the_variance(tmp_path, capsys):
    example = load_example("odvgp")
    figure = tmp_path / "odvgp.png"
    config = example.Config(
        num_data=60, num_inducing=4, num_orthogonal=8, num_steps=40, output=figure
    )
    numbers = example.main(config)
    svgp, odvgp, solvegp = (numbers[name] for name in ("svgp", "odvgp", "solvegp"))
    assert odvgp["bound"] > svgp["bound"] + 50.0
    assert solvegp["bound"] > odvgp["bound"] + 50.0
    assert odvgp["rmse"] < 0.5 * svgp["rmse"]
    # the best covariance of q(u) does not depend on the means, nor on O
    np.testing.assert_allclose(odvgp["sd"], svgp["sd"], rtol=1e-3)
    assert solvegp["sd"] < 0.5 * odvgp["sd"]
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"odvgp: bound={odvgp['bound']:.3f}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_solvegpr_prints_the_bounds_in_their_order_and_draws(tmp_path, capsys):
    example = load_example("solvegpr")
    figure = tmp_path / "solvegpr.png"
    config = example.Config(num_data=60, num_steps=5, num_draws=2, output=figure)
    numbers = example.main(config)
    order = ["titsias_Z", "standard", "titsias_all", "coupled", "fully_coupled", "evidence"]
    assert list(numbers) == [*order, "gap", "solvegp"]
    assert (np.diff([numbers[name] for name in order]) > 1e-3).all()
    np.testing.assert_allclose(numbers["titsias_all"] - numbers["standard"], numbers["gap"])
    np.testing.assert_allclose(numbers["solvegp"], numbers["standard"], rtol=1e-8)
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"gap={numbers['gap']:.2f}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_looking_at_all_bounds_leaves_the_streamed_one_to_train():
    example = load_example("solvegpr")
    config = example.Config(num_data=40)
    model = example.build_model(example.make_data(config), config)
    example.all_bounds(model)
    assert model.bound == "standard"


@pytest.mark.nightly
def test_grief_shows_what_holds_of_the_papers_two_figures(tmp_path, capsys):
    example = load_example("grief")
    figure = tmp_path / "grief.png"
    config = example.Config(
        num_steps=10, num_rows=60, num_columns=20, num_nodes=20, num_draws=2, output=figure
    )
    numbers = example.main(config)
    assert list(numbers) == [
        *("exact", "vfe", "grief", "grief_bound"),
        *("fourier_K", "nystrom_K", "grief_K", "optimal_K", "explained"),
    ]
    # erratum E12: at p = 1 + d, which cuts no group of eigenvalues, and not for every p
    assert numbers["grief_K"] < numbers["nystrom_K"] < numbers["fourier_K"]
    assert numbers["optimal_K"] <= numbers["grief_K"]
    assert 0.0 < numbers["explained"] < 1.0
    assert 0.0 < numbers["exact"] < 1.0
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"grief={numbers['grief']:.3f}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore:.*prior variance")
def test_the_share_of_the_leading_eigenfunctions_is_what_a_basis_of_them_says():
    example = load_example("grief")
    config = example.Config(num_rows=40, num_columns=4, num_nodes=8, num_draws=1)
    sizes, errors, explained = example.reconstruction(config)
    X = np.random.default_rng(config.seed).uniform(-np.sqrt(3.0), np.sqrt(3.0), size=(80, 4))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=2.0)
    basis = gs.bases.GridEigenfunctions(kernel, X[:40], 5, 8)
    np.testing.assert_allclose(explained, basis.explained_variance())
    K, Phi = kernel(X).numpy(), basis(X).numpy()
    error = np.linalg.norm(K - Phi @ Phi.T) / np.linalg.norm(K)
    np.testing.assert_allclose(errors["grief"][1, list(sizes).index(5)], error)


@pytest.mark.nightly
def test_both_bases_serve_both_kinds_of_observations(tmp_path, capsys):
    example = load_example("basis")
    figure = tmp_path / "basis.png"
    config = example.Config(num_data=300, num_basis=40, num_steps=40, batch_size=100, output=figure)
    numbers = example.main(config)
    assert list(numbers) == ["grid", "fourier"]
    for found in numbers.values():
        assert found["rmse"] < 0.5  # the function's standard deviation is 1.0
        assert found["error"] < 0.25
        assert found["elbo"] < 0.0
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"grid: evidence={numbers['grid']['evidence']:.3f}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_qsgp_shows_what_augmentation_does_and_learns_a_function(tmp_path, capsys):
    example = load_example("qsgp")
    figure = tmp_path / "qsgp.png"
    sizes = {"num_data": 1000, "num_inducing": 40, "num_features": 400, "basis_batch_size": 100}
    config = example.Config(**sizes, batch_size=200, num_support=100, num_steps=40, output=figure)
    numbers = example.main(config)
    assert list(numbers) == [
        *("mean", "exact_far", "plain_far", "augmented_far"),
        *("rmse", "coverage", "noise", "seconds"),
    ]
    assert numbers["mean"] < 1e-8
    np.testing.assert_allclose(numbers["exact_far"], 1.0, rtol=1e-6)
    np.testing.assert_allclose(numbers["augmented_far"], 1.0, rtol=1e-6)
    assert numbers["plain_far"] < 1e-6
    assert numbers["rmse"] < 0.4  # the function's standard deviation is 0.85
    assert 0.0 < numbers["coverage"] <= 1.0
    assert gpflow.default_float() == np.float64
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"rmse={numbers['rmse']:.3g}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_softki_is_better_calibrated_by_rows_that_its_points_have_not_seen(tmp_path, capsys):
    example = load_example("softki")
    figure = tmp_path / "softki.png"
    sizes = {"num_data": 800, "num_held_out": 200, "num_columns": 12, "num_inducing": 60}
    left = {"links": (2,), "temperatures": (0.3,), "num_short": 3}
    config = example.Config(**sizes, **left, batch_size=200, num_steps=150, output=figure)
    numbers = example.main(config)
    assert list(numbers) == ["own", "softki", "svgp"]
    for found in numbers.values():
        assert found["rmse"] < 1.0
        assert 0.0 < found["coverage"] <= 1.0
    assert numbers["softki"]["nlpd"] < numbers["own"]["nlpd"] - 0.05
    assert numbers["softki"]["coverage"] > numbers["own"]["coverage"] + 0.03
    assert gpflow.default_float() == np.float64
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"softki: rmse={numbers['softki']['rmse']:.3g}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_the_relevance_vectors_are_few_and_enough(tmp_path, capsys):
    example = load_example("rvm")
    figure = tmp_path / "rvm.png"
    sizes = {"num_data": 80, "basis_batch_size": 40, "num_support": 40, "num_dense_columns": 0}
    config = example.Config(
        **sizes, batch_size=80, num_steps=300, learning_rate=0.05, output=figure
    )
    numbers = example.main(config)
    assert list(numbers) == ["rmse", "vectors", "pruned", "noise", "seconds"]
    assert 3 <= numbers["vectors"] <= 30
    assert numbers["rmse"] < 0.08
    np.testing.assert_allclose(numbers["pruned"], numbers["rmse"], atol=0.03)
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"vectors={numbers['vectors']}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_two_layers_follow_steps_that_one_layer_smooths(tmp_path, capsys):
    example = load_example("deep")
    figure = tmp_path / "deep.png"
    config = example.Config(
        num_data=80, num_inducing=10, num_orthogonal=10, num_steps=400, output=figure
    )
    numbers = example.main(config)
    assert list(numbers) == ["shallow", "deep"]
    shallow, deep = numbers.values()
    assert deep["nlpd"] < shallow["nlpd"] - 0.1
    assert deep["rmse"] < shallow["rmse"] < 0.25  # the curve's standard deviation is 0.6
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"deep: rmse={deep['rmse']:.3f}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_digits_are_told_apart_by_few_patches(tmp_path, capsys):
    example = load_example("convolutional")
    figure = tmp_path / "convolutional.png"
    sizes = {"num_data": 200, "num_inducing": 20, "num_orthogonal": 20, "num_hidden": 10}
    config = example.Config(**sizes, num_channels=2, num_steps=80, output=figure)
    numbers = example.main(config)
    assert list(numbers) == ["pixels", "conv", "deep"]
    for found in numbers.values():  # of ten classes, by chance: 0.1 and 2.3
        assert found["accuracy"] > 0.7
        assert found["nlpd"] < 0.8
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"conv: accuracy={numbers['conv']['accuracy']:.3g}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_layers_that_start_at_filters_pass_on_signal_from_the_first_step(tmp_path, capsys):
    example = load_example("layers")
    figure = tmp_path / "layers.png"
    config = example.Config(num_inducing=20, num_steps=40, every=20, output=figure)
    numbers = example.main(config)
    assert list(numbers) == ["filters", "prior"]
    filters, prior = numbers.values()
    assert prior["first_start"] == prior["second_start"] == 0.0
    assert filters["first_start"] > 0.3
    assert filters["first"] > 10.0 * prior["first"]
    assert filters["accuracy"] > prior["accuracy"]
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"filters: first_start={filters['first_start']:.3g}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_pictures_side_by_side_are_where_they_should_be():
    example = load_example("convolutional")
    images = np.arange(1.0, 5.0)[:, None, None] * np.ones((4, 2, 2))
    shown = example.tiles(images, 3)
    assert shown.shape == (5, 8)
    for value, (row, column) in enumerate(((0, 0), (0, 3), (0, 6), (3, 0)), start=1):
        assert (shown[row : row + 2, column : column + 2] == value).all()
    assert np.isnan(shown).sum() == 40 - 16


@pytest.mark.nightly
def test_swsgp_follows_a_surface_that_is_too_rough_for_few_points(tmp_path, capsys):
    example = load_example("swsgp")
    figure = tmp_path / "swsgp.png"
    sizes = {"num_data": 2000, "num_inducing": 400, "num_neighbors": 8, "num_svgp": 16}
    config = example.Config(**sizes, lengthscale=0.15, num_steps=100, output=figure)
    numbers = example.main(config)
    assert list(numbers) == ["swsgp", "svgp"]
    ours, svgp = numbers["swsgp"], numbers["svgp"]
    assert ours["rmse"] < 0.25  # the surface's standard deviation is 1
    assert ours["rmse"] < 0.7 * svgp["rmse"]
    assert ours["coverage"] > 0.85
    # averages: variances alone leave out that errors of neighboring places are alike
    assert ours["joint"] > ours["independent"] + 0.1
    assert ours["saved"] == 0.0
    line = capsys.readouterr().out.strip()
    assert "\n" not in line
    assert f"swsgp: rmse={ours['rmse']:.3g}" in line
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_gpnn_approaches_the_exact_gp_with_more_neighbors(tmp_path, capsys):
    example = load_example("gpnn")
    figure = tmp_path / "gpnn.png"
    numbers = example.main(example.Config(num_data=400, most=128, output=figure))
    assert list(numbers) == ["exact", "4", "8", "16", "32", "64", "128"]
    for key in ("mean", "std"):
        distances = [numbers[name][key] for name in ("4", "16", "128")]
        assert distances[0] > 2.0 * distances[1] > 8.0 * distances[2]
    np.testing.assert_allclose(numbers["128"]["nlpd"], numbers["exact"]["nlpd"], atol=0.01)
    line = capsys.readouterr().out.strip()
    assert f"exact: rmse={numbers['exact']['rmse']:.3g}" in line


@pytest.mark.nightly
def test_dual_solves_with_both_partitions_and_draws(tmp_path, capsys):
    example = load_example("dual")
    figure = tmp_path / "dual.png"
    config = example.Config(
        num_data=300, num_columns=2, block_size=60, num_passes=6, num_paths=4, num_draws=2
    )
    numbers = example.main(dataclasses.replace(config, output=figure))
    assert numbers["neighbors"]["passes"] < numbers["random"]["passes"]
    assert numbers["neighbors"]["rmse"] < 0.2
    assert "neighbors: passes=" in capsys.readouterr().out
    assert figure.read_bytes().startswith(b"\x89PNG")
