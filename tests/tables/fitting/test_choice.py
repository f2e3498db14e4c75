"""Candidates of a choice, baselines beside them, and numbers of steps within a time."""

import dataclasses
import time
from types import SimpleNamespace

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting import choice, race, starts
from gpflow_sparse.tables.fitting.attempts import Attempt
from gpflow_sparse.tables.fitting.building import build_model
from gpflow_sparse.tables.fitting.evaluation import held_out_scores
from gpflow_sparse.tables.fitting.task import Task, candidates
from gpflow_sparse.tables.fitting.training import Candidate, train
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.exact import Exact
from gpflow_sparse.tables.methods.gpnn import GPnn
from gpflow_sparse.tables.methods.rows import num_distinct
from gpflow_sparse.tables.methods.simple import Simple
from gpflow_sparse.training.calibration import HeldOutPredictions


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    return X, 2.0 * X[:, :1] + 0.5 * rng.normal(size=(count, 1))


def table_of(num_rows, num_columns, num_classes=None):
    """Standardized inputs, and labels or a sum of columns."""
    X = np.random.default_rng(0).normal(size=(num_rows, num_columns))
    Y = X[:, :1] if num_classes is None else np.arange(num_rows)[:, None] % num_classes * 1.0
    names = tuple(f"x{i}" for i in range(num_columns))
    return Dataset("table", (X, Y), (X[:5], Y[:5]), names, "y", num_classes)


def test_distinct_rows_are_counted_with_zeros_of_both_signs():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    assert num_distinct(X) == len(np.unique(X, axis=0)) == 3


def test_a_method_has_the_steps_of_its_time():
    """A few are measured; of the time that is left at most 200 passes are made."""
    task = Task(table_of(1500, 2), options={"num_inducing": 4, "num_subset": 60})
    recipe = dataclasses.replace(task.recipe("svgp"), batch_size=1000, calibrate=False)
    counts = []
    for seconds in (0.0, 1e6):
        candidate = Candidate(task, recipe)

        def few(count, until, steps=candidate.train):
            counts.append(count)
            if count < 20:
                steps(count, until)

        candidate.train = few
        candidate.train_until(time.perf_counter() + seconds)
    assert counts == [10, 10, recipe.num_steps]  # 300 steps are 200 passes, and it has 600


@pytest.mark.nightly
def test_the_choice_for_images_is_trained():
    digits = gs.data.load("digits").standardized(per_channel=True)
    few = dataclasses.replace(digits, train=tuple(part[:400] for part in digits.train))
    options = {"num_inducing": 30, "num_orthogonal": 10, "num_steps": 300, "batch_size": 100}
    task = Task(few, options=options)
    found = choice.choose(task, seconds=None)
    assert found.recipe.name == "conv-solvegp"
    _, model = train(task, found)
    assert type(model.likelihood) is gs.likelihoods.Softmax
    scores = held_out_scores(CachedModel(model), digits.test, 10)
    assert scores[1] < 0.15  # 0.9 by chance


def test_a_choice_without_time_ends_with_a_simple_model():
    task = Task(table_of(2100, 2, 3))
    found = choice.choose(task, seconds=1e-3)
    assert [attempt.method for attempt in found.attempts] == ["constant", "linear"]
    assert (found.interrupted, found.is_model) == (False, True)
    assert "The time was over before dirichlet_gpnn, solvegp with trees." in found.reason
    assert found.reason.endswith("No time is left to train it on all rows.")
    assert train(task, found, seconds=0.0)[1] is found.start


def test_a_model_from_a_start_has_its_points_without_a_choice_of_points(monkeypatch):
    dataset = table_of(100, 2)
    config = Task(dataset).recipe("solvegp")
    start = build_model(config, dataset)
    monkeypatch.setattr(initialization.inducing_inputs, "kmeans", None)
    again = build_model(config, dataset, start=start)
    for before, after in zip(start.parameters, again.parameters, strict=True):
        np.testing.assert_array_equal(before.numpy(), after.numpy())


def test_a_likelihood_that_a_method_always_has_may_be_named():
    given = {"likelihood": "softmax", "options": {"likelihood": "softmax"}}
    task = Task(table_of(1200, 2, 3), **given)
    assert candidates(task)[0] == "dirichlet_gpnn"
    assert task.recipe("dirichlet_gpnn").likelihood == "softmax"
    with pytest.raises(ValueError, match="likelihood is for dirichlet_gpnn always softmax"):
        Task(table_of(1200, 2, 3), options={"likelihood": "multiclass"}).recipe("dirichlet_gpnn")


@pytest.mark.parametrize(
    ("given", "task", "expected"),
    [
        ((300, None), {}, ["mixture"]),
        ((300, None), {"kernel": gpflow.kernels.Matern32()}, ["exact"]),
        ((300, None), {"options": {"conformal": True}}, ["exact"]),
        ((300, None), {"likelihood": "student_t"}, ["solvegp"]),
        ((1100, None), {}, ["gpnn", "gpnn with trees"]),
        ((1100, None), {"options": {"mean": "zero"}}, ["gpnn"]),
        ((1100, None), {"likelihood": "student_t"}, ["solvegp"]),
        ((300, 2), {}, ["site_vgp"]),
        ((300, 3), {"likelihood": "multiclass"}, ["solvegp"]),
        ((1500, 2), {}, ["dirichlet_gpnn", "solvegp with trees", "site_vgp"]),
        ((1200, 10), {}, ["dirichlet_gpnn", "solvegp with trees"]),
        ((2500, 3), {}, ["dirichlet_gpnn", "solvegp with trees"]),
        ((2500, 3), {"likelihood": "multiclass"}, ["solvegp"]),
    ],
)
def test_the_kind_of_table_leaves_at_most_three_candidates(given, task, expected):
    num_rows, num_classes = given
    assert candidates(Task(table_of(num_rows, 2, num_classes), **task)) == expected


def test_images_get_convolutional_models_unless_a_kernel_is_chosen():
    digits = gs.data.load("digits").standardized(per_channel=True)
    assert candidates(Task(digits, options={"image_shape": "8,8"})) == ["conv-solvegp"]
    two = dataclasses.replace(digits, train=(digits.train[0], digits.train[1] % 2), num_classes=2)
    assert candidates(Task(two)) == ["dirichlet_gpnn", "conv-solvegp"]
    with_kernel = Task(two, options={"image_shape": "8,8", "kernel": "matern32"})
    names = candidates(with_kernel)
    assert names == ["dirichlet_gpnn", "solvegp with trees", "site_vgp"]
    assert not any(hasattr(with_kernel.recipe(name), "image_shape") for name in names)


def test_a_few_rows_of_classes_are_trained_without_held_out_rows():
    task = Task(table_of(60, 2, 3))
    found = choice.choose(task, seconds=20.0)
    assert (found.recipe.name, found.start, found.attempts) == ("site_vgp", None, ())
    _, model = train(task, found, seconds=20.0)
    assert type(model.likelihood) is gs.likelihoods.OneVersusRest


FAILURES = {
    "build": (ValueError("no kernel fits."), "no kernel fits"),
    "finish": (tf.errors.InternalError(None, None, "out of memory\nNode: x"), "out of memory"),
    "usual_likelihood": (ZeroDivisionError(), "ZeroDivisionError"),
    "score": (None, "its NLPD on held-out rows is nan"),
}


def fail(monkeypatch, kind, place):
    """Let a method fail in one of its functions, or predict NaN."""

    def raise_error(*_, **__):
        raise FAILURES[place][0]

    def scores(model, *rows):
        found = held_out_scores(model, *rows)
        return (np.nan, np.nan) if type(model._model) is gs.models.NearestNeighborGP else found

    if place == "score":
        monkeypatch.setattr(race, "held_out_scores", scores)
    else:
        monkeypatch.setattr(kind, place, raise_error)


def two_methods(monkeypatch, *names):
    monkeypatch.setattr(choice, "candidates", lambda task: list(names))
    monkeypatch.setattr(race.Race, "simple_models", [])
    data = Dataset("made", rows(120), rows(5), ("a", "b"), "y", None)
    return Task(data, options={"num_subset": 0, "calibrate": False})


@pytest.mark.parametrize("place", FAILURES)
@pytest.mark.parametrize("names", [("gpnn", "exact"), ("exact", "gpnn")])
def test_a_candidate_that_fails_is_left_out_and_named(monkeypatch, names, place):
    task, lines, reason = two_methods(monkeypatch, *names), [], FAILURES[place][1]
    fail(monkeypatch, GPnn, place)
    found = choice.choose(task, report=lines.append)
    assert found.recipe.name == "exact"
    assert [attempt.method for attempt in found.attempts] == ["exact"]
    assert f"gpnn is left out: {reason}." in lines
    assert found.reason.endswith(f". gpnn was left out: {reason}.")


def test_if_all_candidates_fail_the_reason_of_each_is_named(monkeypatch):
    task = two_methods(monkeypatch, "gpnn", "exact")
    fail(monkeypatch, GPnn, "score")
    fail(monkeypatch, Exact, "build")
    message = r"every method failed .* gpnn \(its NLPD .* nan\); exact \(no kernel fits\)\.$"
    with pytest.raises(ValueError, match=message):
        choice.choose(task)


def test_a_simple_model_that_fails_is_left_out(monkeypatch):
    task = two_methods(monkeypatch, "gpnn", "exact")
    monkeypatch.setattr(race.Race, "simple_models", ["constant", "linear"])
    monkeypatch.setattr(Simple, "build", lambda *_, **__: 1 / 0)
    found = choice.choose(task)
    assert {attempt.method for attempt in found.attempts} == {"gpnn", "exact"}
    assert "linear was left out: division by zero." in found.reason


def test_trees_of_counts_are_refused():
    """They took the counts for log rates."""
    task = Task(table_of(100, 2, num_classes=5), likelihood="poisson")
    task = task.on(dataclasses.replace(task.dataset, num_classes=None))  # counts from 0 to 4
    with pytest.raises(ValueError, match=r"^mean must be constant or linear for this target"):
        choice.choose(task, "simple")


def test_the_model_is_the_simple_one_that_predicts_held_out_rows_better(monkeypatch):
    """A line, of which a GP of a short lengthscale knows nothing between the rows."""
    task = two_methods(monkeypatch, "gpnn", "exact")
    monkeypatch.setattr(race.Race, "simple_models", ["constant", "linear"])
    short = gpflow.kernels.SquaredExponential(lengthscales=0.01)
    found = choice.choose(dataclasses.replace(task, kernel=short, options={"num_subset": 0}))
    scores = {attempt.method: attempt.nlpd for attempt in found.attempts}
    assert found.recipe.name == "simple"
    assert scores["linear"] == min(scores.values()) < scores["exact"] - 0.3
    assert found.reason.startswith("linear has the lowest NLPD on held-out rows")
    _, model = train(task, found)
    np.testing.assert_allclose(model.mean_function.A, [[2.0], [0.0]], atol=0.15)


@pytest.mark.parametrize("better", ["fails", "worse", "equal"])
def test_a_better_start_is_taken_only_if_it_predicts_held_out_rows_better(monkeypatch, better):
    task, lines = two_methods(monkeypatch, "gpnn", "exact"), []
    monkeypatch.setattr(Exact, "build", None)  # gpnn wins
    advance, best = starts.StartSearch.advance, starts.StartSearch.best.fget
    wrong = starts.Hyperparameters(gpflow.kernels.SquaredExponential(lengthscales=1e-3), 1.0)

    def advance_once(search, *until):
        if not search.is_fitted:
            return advance(search, *until)
        if better == "fails":
            raise ValueError("no subset.")
        search.has_ended = not getattr(search, "has_ended", False)
        return search.has_ended

    def found(search):
        return wrong if better == "worse" and hasattr(search, "has_ended") else best(search)

    monkeypatch.setattr(starts.StartSearch, "advance", advance_once)
    monkeypatch.setattr(starts.StartSearch, "best", property(found))
    options = {"num_subset": 50, "calibrate": False, "kernel": "matern32", "metric": "columns"}
    task = dataclasses.replace(task, options=options)
    chosen = choice.choose(task, seconds=600.0, report=lines.append)
    assert np.max(chosen.start.kernel.lengthscales) > 0.1
    assert ("gpnn from a better start was left out: no subset." in chosen.reason) == (
        better == "fails"
    )
    scores = [line for line in lines if line.startswith("gpnn: held-out")]
    assert len(scores) == (2 if better == "worse" else 1)
    assert f"{chosen.attempts[-1].nlpd:.3f}" in scores[0]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [([0.1, 0.004, 0.02, 0.004, 0.0, 0.5], 5), ([0.0, -0.1, 0.5], 2), ([0.1, 0.1, 0.1], 3)],
)
def test_a_search_ends_after_two_stages_in_a_row_that_gain_little(monkeypatch, gains, expected):
    compared = race.Race(two_methods(monkeypatch, "exact"), 1000.0, str)
    gp = Candidate(compared.rest, compared.task.recipe("exact"))
    gp.name, compared.best, begun = "exact", gp, []

    def advance(until):
        if len(begun) == len(gains):
            return False
        search.gain = gains[len(begun)]
        begun.append(until)
        return True

    search = SimpleNamespace(
        advance=advance, best=None, is_out_of_time=False, stage="kernels", is_fitted=False
    )
    compared._improve(gp, search)
    assert len(begun) == expected
    assert ("no start of exact gained more than 0.005 nats" in compared.ended) == (expected != 3)


@pytest.mark.parametrize(
    ("seconds", "behind", "expected"), [(60.0, 0.3, True), (60.0, 0.2, False), (None, 0.3, False)]
)
def test_trees_far_behind_a_gp_are_no_mean_of_it(monkeypatch, seconds, behind, expected):
    task = dataclasses.replace(two_methods(monkeypatch, "gpnn"), options={})
    compared, lines = race.Race(task, seconds, str), []
    compared.report, compared.best_gp = lines.append, SimpleNamespace(name="gpnn")
    compared.attempts["gpnn"] = Attempt("gpnn", 0.1, 0.0, 0, 1.0)
    compared.attempts["trees"] = Attempt("trees", 0.1 + behind, 0.0, 0, 1.0)
    assert compared._trees_are_worse("gpnn with trees") is expected
    assert not compared._trees_are_worse("gpnn")
    assert len(lines) == expected


def test_trees_of_all_folds_replace_those_of_one(monkeypatch):
    compared = race.Race(two_methods(monkeypatch, "gpnn"), 60.0, str)
    for name in ("trees", "gpnn"):
        for nlpd in (0.1, 0.2):
            compared._keep(Attempt(name, nlpd, 0.0, 0, 1.0))
    assert [attempt.nlpd for attempt in compared.attempts.values()] == [0.2, 0.1]


def test_scores_are_those_after_a_calibration_of_the_held_out_rows(monkeypatch):
    compared = race.Race(two_methods(monkeypatch, "exact"), 60.0, str)
    monkeypatch.setattr(race, "will_calibrate", lambda *_: True)
    found = HeldOutPredictions(compared.held_out.train[1] + 3.0, np.array([-1.0, -2.0]), 0.25)
    monkeypatch.setattr(race, "predict_held_out", lambda *_: found)
    candidate = Candidate(compared.rest, compared.task.recipe("exact"))
    compared._score(candidate, time.perf_counter())
    attempt = compared.attempts["exact"]
    np.testing.assert_allclose([attempt.nlpd, attempt.error], [1.25, 3.0])
    candidate.build_seconds, candidate.finish_seconds = 2.0, 3.0
    assert (compared.best, compared._needed(1.0)) == (candidate, 12.0)
    candidate.recipe = compared.task.recipe("simple with linear")  # an answer as it is
    assert compared._needed(1.0) == 1.0


def test_a_winner_gets_the_steps_of_the_time_that_is_left_at_a_rate_for_them(monkeypatch):
    """Few more steps at the full rate would leave a trained start."""
    task = two_methods(monkeypatch, "svgp", "exact")
    runs = race.Race(task, 1000.0, str)
    runs.best = winner = Candidate(runs.rest, task.recipe("svgp"))
    runs.attempts["svgp"] = Attempt("svgp", 0.0, 0.0, 200, 1.0)
    winner.num_steps, winner.step_seconds, winner.first_seconds = 200, 1.0, 0.0
    for seconds in (500.0, 101.0):
        runs.begin, runs.seconds = time.perf_counter(), seconds + winner.build_seconds
        found = runs.choice()
        assert found.recipe.num_steps == pytest.approx(0.95 * seconds, abs=1.0)
        rate = winner.recipe.learning_rate * min(1.0, found.recipe.num_steps / 200)
        assert found.recipe.learning_rate == pytest.approx(rate, rel=1e-12)
    runs.seconds = 0.5
    assert runs.choice().is_model


def test_ctrl_c_is_no_failure_of_a_candidate(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    task = two_methods(monkeypatch, "exact", "gpnn")
    monkeypatch.setattr(GPnn, "finish", interrupt)
    found = choice.choose(task)
    assert (found.recipe.name, found.interrupted) == ("exact", True)
    monkeypatch.setattr(Exact, "finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        choice.choose(task)
