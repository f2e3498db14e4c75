"""The choice of a method: by the kind of table, and of at most three by held-out rows."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting import tree_mean as trees
from gpflow_sparse.tables.fitting.attempts import Attempt, Choice, reason_of
from gpflow_sparse.tables.fitting.baselines import CONSTANT, LINEAR, TREES, score_baseline
from gpflow_sparse.tables.fitting.building import require_outputs, require_unweighted
from gpflow_sparse.tables.fitting.calibration import split_for_calibration, will_calibrate
from gpflow_sparse.tables.fitting.evaluation import held_out_scores
from gpflow_sparse.tables.fitting.splits import hold_out
from gpflow_sparse.tables.fitting.starts import InitialHyperparameters, resolved
from gpflow_sparse.tables.fitting.task import Task, candidates
from gpflow_sparse.tables.fitting.training import Candidate
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.registry import AUTO, kind_of, recipe_of
from gpflow_sparse.tables.methods.rows import sized
from gpflow_sparse.training.calibration import calibration_improvement

# Held-out rows: a fraction, a largest number, and a least one of at most a quarter of the rows.
_HELD_OUT, _MAX_HELD_OUT, _MIN_HELD_OUT = 0.1, 2000, 100
# Steps of a candidate without a budget, and the fraction of a budget for the steps of all.
_STEPS, _SHARE = 200, 0.4
# Values of the inputs to which simple models are fitted: logistic regression took 60 s on MNIST.
_MAX_BASELINE_VALUES = 2e6
# Fractions of a budget in which kernels are compared, and in which a model is finished.
_STARTS, _FINISHED = 0.4, 0.25
# Time that must be left for another candidate, in multiples of the longest start of one so far;
# the winner starts once more.
_STARTS_LEFT = 2.0
# Largest fraction of the time that is left for the trees of a mean, which are fitted twice.
_TREES_SHARE = 0.3


def choose(
    task: Task,
    method: str = AUTO,
    *,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
) -> Choice:
    """
    The method that was asked for, or the candidate that predicts held-out rows best.

    The kind of table leaves one to three candidates, see
    :func:`~gpflow_sparse.tables.fitting.task.candidates`. Several are trained on nine tenths of the
    rows, and compared by the mean log density of the others. Where the model will be calibrated,
    the rows for that are left out of all this, and log densities of the held-out rows are
    calibrated by cross-validation. A candidate that fails, or whose log density is NaN, is left
    out; the reason of the choice names it.

    :param method: "auto", or a method of ``gpflow-sparse methods``.
    :param seconds: time for the choice and the training on all rows; None for numbers of steps.
    :param report: called with a line of progress.
    :raises ValueError: for an unknown method, or one that does not fit the table, or if every
        candidate fails.
    """
    require_outputs(task.dataset, task.likelihood)
    if method != AUTO:
        return Choice(_asked_for(method, task), f"{method} was asked for.")
    recipe_of(AUTO, **task.options)  # refuses options that no method has
    names = candidates(task)
    if len(names) == 1:
        kind = "images" if task.has_images else f"tables of this kind with {task.num_rows} rows"
        return Choice(task.recipe(names[0]), f"{names[0]} is the method for {kind}.")
    race = _Race(task, seconds, report)
    try:
        race.run(names)
        race.refine()
    except KeyboardInterrupt:
        if race.best is None:
            raise
        return race.choice()._replace(interrupted=True, is_model=True)
    return race.choice()


def _asked_for(method: str, task: Task) -> Recipe:
    """:raises ValueError: for an unknown method, or one that does not take the likelihood."""
    kind = kind_of(method)
    if kind.for_classes and not task.is_gaussian:
        raise ValueError(f"method {method} is for Gaussian noise; take auto, or solvegp.")
    recipe = sized(recipe_of(method, **task.options), task.dataset.train[0], task.options)
    require_unweighted(recipe, task.dataset)
    return recipe


class _Race:
    """The candidates on the same held-out rows, with the scores so far."""

    def __init__(self, task: Task, seconds: float | None, report: Callable[[str], Any]) -> None:
        self.task, self.seconds, self.report = task, seconds, report
        self.begin = time.perf_counter()
        self.attempts: dict[str, Attempt] = {}
        self.best: Candidate | None = None
        self.failures: dict[str, str] = {}
        """Why candidates and baselines were left out."""
        # rows that choose the best of several models would flatter it in its calibration too
        rows, _ = split_for_calibration(recipe_of(AUTO, **task.options), task.dataset)
        num_rows, seed = len(rows.train[0]), int(task.options.get("seed", 0))
        least = min(_MIN_HELD_OUT, num_rows // 4)
        count = max(least, min(_MAX_HELD_OUT, int(_HELD_OUT * num_rows)))
        held, rest = hold_out(rows, count, seed)
        self.held_out: Dataset = rows.take(held)
        self.rest = task.on(rows.take(rest))
        self._starts = InitialHyperparameters(
            self.rest.dataset, task.likelihood, task.kernel, until=self._starts_until
        )
        self._longest_build = 0.0

    @property
    def _starts_until(self) -> float:
        return time.perf_counter() + _STARTS * self.seconds_left

    @property
    def seconds_left(self) -> float:
        """Time left of the budget."""
        passed = time.perf_counter() - self.begin
        return math.inf if self.seconds is None else self.seconds - passed

    def run(self, names: list[str]) -> None:
        """
        Train and score all candidates; ``best`` is the winner.

        :raises ValueError: if every candidate fails.
        """
        for name in (CONSTANT, LINEAR, *([TREES] if self.task.options.get("trees") else [])):
            self._tried(f"the baseline {name}", self._score_baseline, name)
        for number, name in enumerate(names):
            if self.best is not None and self.seconds_left < _STARTS_LEFT * self._longest_build:
                break
            begin, share = time.perf_counter(), _SHARE * self.seconds_left / (len(names) - number)
            self._tried(name, self._advance, name, share)
            self._longest_build = max(self._longest_build, time.perf_counter() - begin - share)
        if self.best is None:
            causes = "; ".join(f"{name} ({why})" for name, why in self.failures.items())
            raise ValueError(f"every method failed on these rows: {causes}.")

    def _tried(self, name: str, evaluate: Callable[..., None], *arguments: Any) -> None:
        """Evaluate a model; if that fails, the reason is kept and reported."""
        try:
            evaluate(*arguments)
        except Exception as error:  # of any kind: the other candidates do not depend on it
            first = str(error).split("\n")[0] or type(error).__name__
            self.failures[name] = first.rstrip(".")
            self.report(f"{name} is left out: {self.failures[name]}.")

    def _score_baseline(self, name: str) -> None:
        """Score a simple model, which is no candidate."""
        most = max(1, int(_MAX_BASELINE_VALUES / self.rest.num_columns))
        rows = self.rest.dataset.take(np.arange(min(most, self.rest.num_rows)))  # in random order
        begin, weights = time.perf_counter(), (rows.weights, self.held_out.weights)
        count = self.task.dataset.num_classes
        scores = score_baseline(name, rows.train, self.held_out.train, count, weights=weights)
        error = scores.get("rmse", scores.get("error_rate", math.nan))
        self._keep(Attempt(name, scores["nlpd"], error, 0, time.perf_counter() - begin))

    def _advance(self, name: str, share: float) -> None:
        """Build, train and score a candidate."""
        recipe, dataset = self.task.recipe(name), self.rest.dataset
        hyperparameters, mean, starts = None, None, self._starts
        if recipe.has_tree_mean:
            num_rows, num_columns = dataset.train[0].shape
            needed = trees.expected_seconds(num_rows, num_columns, dataset.num_classes)
            if needed > _TREES_SHARE * self.seconds_left:
                return
            mean = trees.fit_tree_mean(dataset, *starts.find(recipe)[:2], recipe.seed)
            starts = starts.about(mean, self._starts_until)
        if not (recipe.makes_kernel or recipe.takes_images):
            start = starts.find(recipe)
            hyperparameters = start[:2]
            if self.task.kernel is None:
                recipe = resolved(recipe, start.kernel)
        found = Candidate(self.rest, recipe, hyperparameters, mean=mean, starts=starts, name=name)
        if self.seconds is None:
            found.train(_STEPS)
        else:
            found.train_until(time.perf_counter() + share)
        self._score(found)

    def _score(self, candidate: Candidate) -> None:
        """Finish a candidate, score it on held-out rows, and compare it with the best."""
        candidate.finish(_FINISHED * self.seconds_left)
        (X, Y), weights = self.held_out.train, self.held_out.weights
        count, begin = self.task.dataset.num_classes, time.perf_counter()
        nlpd, error = held_out_scores(CachedModel(candidate.model), (X, Y), count, weights)
        if will_calibrate(candidate.recipe, self.task.dataset):
            nlpd -= calibration_improvement(candidate.model, (X, Y), weights)
        candidate.row_seconds = (time.perf_counter() - begin) / len(X)
        before = math.inf if self.best is None else self._nlpd(self.best)
        self._keep(Attempt(candidate.name, nlpd, error, candidate.num_steps, candidate.seconds))
        if nlpd <= before:
            self.best = candidate

    def _nlpd(self, candidate: Candidate) -> float:
        return self.attempts[candidate.name].nlpd

    def _keep(self, attempt: Attempt) -> None:
        if not attempt.nlpd > -math.inf:
            raise ValueError(f"its NLPD on held-out rows is {attempt.nlpd}.")
        left = "" if self.seconds is None else f"; {max(0.0, self.seconds_left):.0f} s left"
        self.report(
            f"{attempt.method}: held-out NLPD {attempt.nlpd:.3f}, error {attempt.error:.3f}, "
            f"{attempt.num_steps} steps, {attempt.seconds:.1f} s{left}"
        )
        known = self.attempts.get(attempt.method, attempt)
        self.attempts[attempt.method] = min(known, attempt, key=lambda each: each.nlpd)

    def refine(self) -> None:
        """Fit the start of a winner without steps to more local subsets, in half of the time."""
        best = self.best
        if self.seconds is None or best is None or best.recipe.is_trained or best.starts is None:
            return
        self._tried(f"{best.name} from a better start", self._score_better_start, best)

    def _score_better_start(self, best: Candidate) -> None:
        assert best.starts is not None
        until = time.perf_counter() + 0.5 * (self.seconds_left - self._needed(best))
        start = best.starts.improve(best.recipe, until)
        if start is best.starts.find(best.recipe):
            return
        self._score(Candidate(self.rest, best.recipe, start[:2], mean=best.mean, name=best.name))

    def _needed(self, best: Candidate) -> float:
        """Time of building and finishing the winner on all rows, and of predicting for scores."""
        return best.build_seconds + best.finish_seconds + best.row_seconds * _MAX_HELD_OUT

    def choice(self) -> Choice:
        """The winner, and how it is trained on all rows in the time that is left."""
        best, attempts = self.best, tuple(self.attempts.values())
        assert best is not None  # run has scored at least one
        reason, recipe = reason_of(best.name, self.attempts, self.failures), best.recipe
        left = self.seconds_left - best.build_seconds - best.finish_seconds
        is_timed = self.seconds is not None and recipe.is_trained and best.num_steps > 1
        count = best.num_steps_within(left) if is_timed else 1
        if left < 0.0 or not count:
            reason += " No time is left to train it on all rows."
            return Choice(recipe, reason, attempts, best.model, is_model=True)
        if is_timed:  # few more steps at the full rate would move away from the trained start
            rate = min(1.0, count / best.num_steps) * getattr(recipe, "learning_rate", 0.0)
            recipe = recipe.with_steps(count, rate)
        seconds = max(self.seconds_left, best.finish_seconds)
        return Choice(recipe, reason, attempts, best.model, finish_seconds=seconds)
