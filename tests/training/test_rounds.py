"""Rounds of L-BFGS with the basis frozen in each; and the loop of ``fit`` over the same models."""

import warnings
from contextlib import nullcontext

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.models import GRIEF
from gpflow_sparse.training import TrainingError, fit_with_basis_refresh, rounds
from tests import battery
from tests.training.test_checkpoints import bits

REWEIGHTED = ("grief_original", "grief_rotated")
HELD = ("grief", "grief_corrected", *REWEIGHTED, "basis_gpr", "basis_gpr_fourier")
QUIET = {"progress": False}


@pytest.fixture(autouse=True)
def quiet():
    """Short lengthscales leave a part of the prior variance, of which the basis warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def build(name):
    member = {**battery.MEMBERS, **battery.REGRESSIONS}[name]
    return battery.perturb(member.build() if name in HELD else member.build(battery.N))


def grief(**options):
    data = battery.inputs(), battery.reals(1)()
    options = {"num_eigenfunctions": 6, "points_per_dimension": 5, "noise_variance": 0.2, **options}
    return GRIEF(data, battery.gaussian_product(), **options)


def objective(model):
    return float(model.maximum_log_likelihood_objective())


@pytest.mark.nightly
def test_one_round_is_l_bfgs():
    ours, stock = build("basis_gpr_fourier"), build("basis_gpr_fourier")
    history = fit_with_basis_refresh(ours, num_rounds=1, num_iterations=5, **QUIET)
    result = gpflow.optimizers.Scipy().minimize(
        stock.training_loss, stock.trainable_variables, options={"maxiter": 5}
    )
    np.testing.assert_allclose(history.elbo, [-result.fun], rtol=1e-9)
    np.testing.assert_allclose(objective(ours), history.elbo[-1], rtol=1e-9)
    assert history.num_steps == len(history.seconds) == 1
    assert not history.stopped_early


def test_the_functions_change_between_rounds_only(monkeypatch):
    model, found = grief(), []
    model.kernel.lengthscales.assign([3.0, 0.3])
    refresh = GRIEF.refresh_basis

    def watched(m):
        value = objective(model)
        found.append((value, refresh(m)))
        return found[-1][1]

    monkeypatch.setattr(GRIEF, "refresh_basis", watched)
    start = objective(model)
    history = fit_with_basis_refresh(model, num_rounds=3, num_iterations=3, **QUIET)
    assert any(changed for _, changed in found)
    np.testing.assert_allclose([value for value, _ in found], history.elbo, rtol=1e-9)
    assert history.elbo[0] > start + 1.0


@pytest.mark.nightly
def test_it_stops_where_neither_the_functions_nor_the_parameters_move():
    model = grief()
    history = fit_with_basis_refresh(model, num_rounds=30, num_iterations=50, **QUIET)
    assert history.stopped_early
    assert history.num_steps < 30
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    slopes = tape.gradient(loss, model.trainable_variables)
    assert max(np.abs(slope).max() for slope in slopes) < 1e-2


@pytest.mark.parametrize("name", HELD)
def test_every_model_that_holds_its_data_climbs(name):
    model = build(name)
    start = objective(model)
    history = fit_with_basis_refresh(model, num_rounds=2, num_iterations=4, **QUIET)
    assert history.elbo[0] > start
    assert np.isfinite(objective(model))


def test_ctrl_c_leaves_the_best_point(monkeypatch):
    model = build("basis_gpr_fourier")
    start, seen = objective(model), []
    call = rounds._Loss.__call__

    def interrupted(loss):
        if len(seen) == 4:
            raise KeyboardInterrupt
        value = call(loss)
        seen.append(-float(value))
        return value

    monkeypatch.setattr(rounds._Loss, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_with_basis_refresh(model, **QUIET)
    np.testing.assert_allclose(objective(model), max(seen), rtol=1e-9)
    assert max(seen) > start


@pytest.mark.parametrize("seconds", [0.5, 12.0])
def test_no_evaluation_but_the_first_begins_after_the_time(monkeypatch, seconds):
    model, seen = build("basis_gpr_fourier"), []
    start, loss = objective(model), rounds._Loss.__call__

    def timed(self):
        seen.append(None)  # a second for each call, and each later one reads the clock once
        return loss(self)

    monkeypatch.setattr(rounds._Loss, "__call__", timed)
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: float(len(seen)))
    expected = pytest.warns(UserWarning, match="no time") if seconds < 1.0 else nullcontext()
    with expected:
        history = fit_with_basis_refresh(model, num_rounds=30, seconds=seconds, **QUIET)
    assert len(seen) == max(2, int(seconds) + 1)  # the last one had no time
    np.testing.assert_allclose(objective(model), history.elbo[-1], rtol=1e-9)
    assert (objective(model) > start) == (seconds > 1.0)
    assert history.num_steps < 30
    assert not history.stopped_early


def test_an_objective_that_is_not_finite_is_an_error_and_moves_nothing():
    model = build("basis_gpr_fourier")
    before = bits(model)
    model.data = (model.data[0], tf.constant(np.full((battery.N, 1), np.nan)))
    with pytest.raises(TrainingError, match="the objective"):
        fit_with_basis_refresh(model, **QUIET)
    assert bits(model) == before
    model = build("basis_gpr_fourier")
    model.likelihood.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(ValueError, match=r"likelihood\.variance must be finite"):
        fit_with_basis_refresh(model, **QUIET)


def test_models_that_are_given_their_data_are_for_fit():
    with pytest.raises(ValueError, match=r"model must hold its data.* got BasisSVGP, which is for"):
        fit_with_basis_refresh(build("basis_svgp"))
    with pytest.raises(ValueError, match="num_rounds must be a positive integer"):
        fit_with_basis_refresh(build("basis_gpr_fourier"), num_rounds=0)
    with (
        rounds.rows_of_workers(None),
        pytest.raises(ValueError, match="seconds must be None in rows_of_workers"),
    ):
        fit_with_basis_refresh(build("basis_gpr_fourier"), seconds=1.0)
