"""A race of methods: simple models and at most three candidates, scored on held-out rows."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting import tree_mean as trees
from gpflow_sparse.tables.fitting.attempts import Attempt, Choice, reason_of
from gpflow_sparse.tables.fitting.calibration import split_for_calibration, will_calibrate
from gpflow_sparse.tables.fitting.evaluation import error_of, held_out_scores
from gpflow_sparse.tables.fitting.splits import hold_out
from gpflow_sparse.tables.fitting.starts import ROWS, InitialHyperparameters, StartSearch, resolved
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.fitting.training import Candidate
from gpflow_sparse.tables.methods.base import TREES, Recipe
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.registry import AUTO, recipe_of
from gpflow_sparse.tables.methods.simple import Simple
from gpflow_sparse.training.calibration import predict_held_out

# Held-out rows: a fraction, a largest number, and a least one of at most a quarter of the rows.
_HELD_OUT, _MAX_HELD_OUT, _MIN_HELD_OUT = 0.1, 2000, 100
# Steps of a candidate without a budget, and the fraction of the time left for the steps of all.
_STEPS, _SHARE = 200, 0.4
# Fraction of the time left in which a model is finished, and largest one for trees; and multiple of
# the former that the winner must have in the end: variances of few left-out rows are poor.
_FINISHED, _TREES_SHARE, _LAST_FINISH = 0.08, 0.3, 3.0
# Time that must be left for another candidate or stage, in multiples of what it is known to take.
_SPARE = 1.3
# A search ends when so many stages in a row have gained less than so many nats of a held-out row.
_POOR_STAGES, _LEAST_GAIN = 2, 0.005
# Trees behind the GP alone by more nats than this are not tried as its mean in a short time.
_FAR_BETTER = 0.25


class _TimeOverError(Exception):
    """There is no time left for a candidate beside a model that is known already."""


class Race:
    """The simple models and the candidates on the same held-out rows, with the scores so far."""

    def __init__(self, task: Task, seconds: float | None, report: Callable[[str], Any]) -> None:
        self.task, self.seconds, self.report = task, seconds, report
        self.begin = time.perf_counter()
        self.attempts: dict[str, Attempt] = {}
        self.best: Candidate | None = None
        self.best_gp: Candidate | None = None
        """The best model with a GP, whose search continues."""
        self.failures: dict[str, str] = {}
        """Why models were left out."""
        self.ended = ""
        """Why the search ended, in a sentence."""
        # rows that choose the best of several models would flatter it in its calibration too
        rows, _ = split_for_calibration(recipe_of(AUTO, **task.options), task.dataset)
        num_rows, seed = len(rows.train[0]), int(task.options.get("seed", 0))
        least = min(_MIN_HELD_OUT, num_rows // 4)
        count = max(least, min(_MAX_HELD_OUT, int(_HELD_OUT * num_rows)))
        held_out, rest = hold_out(rows, count, seed)
        self.held_out: Dataset = rows.take(held_out)
        self.rest = task.on(rows.take(rest))
        exposure = task.options.get("exposure")
        self._starts = InitialHyperparameters(
            self.rest.dataset, task.likelihood, task.kernel, exposure=exposure
        )
        self._trees: trees.TreeMean | None = None
        self._longest = 0.0  # time of a candidate without its steps

    @property
    def seconds_left(self) -> float:
        """Time left of the budget."""
        passed = time.perf_counter() - self.begin
        return math.inf if self.seconds is None else self.seconds - passed

    def run(self, names: list[str]) -> None:
        """
        Score the simple models and all candidates, and improve the best candidate.

        :raises ValueError: if every model fails.
        """
        for variant in self.simple_models:
            self._tried(variant, self._advance, f"{Simple.name} with {variant}", variant, 0.0)
        for number, name in enumerate(names):
            if self._trees_are_worse(name):
                continue
            if self.best is not None and self.seconds_left < self._needed(_SPARE * self._longest):
                self.ended = f"The time was over before {', '.join(names[number:])}."
                break
            begin, share = time.perf_counter(), _SHARE * self.seconds_left / (len(names) - number)
            self._tried(name, self._advance, name, name, share)
            self._longest = max(self._longest, time.perf_counter() - begin - share)
        if self.best is None:
            causes = "; ".join(f"{name} ({why})" for name, why in self.failures.items())
            raise ValueError(f"every method failed on these rows: {causes}.")
        if self.best_gp is not None and self.best_gp.search is not None:
            gp, search = self.best_gp, self.best_gp.search
            self._tried(f"{gp.name} from a better start", self._improve, gp, search)

    @property
    def simple_models(self) -> list[str]:
        """Those of the likelihood of the task, from the cheapest to the best."""
        given = self.task.likelihood or self.task.options.get("likelihood")
        if self.task.has_labels and given not in (None, "bernoulli_logit", "softmax"):
            return []
        return list(Simple.variants(self.task))

    def _trees_are_worse(self, name: str) -> bool:
        """Whether a GP about trees is not worth its time: the GP alone predicts far better."""
        trees, gp = self.attempts.get(TREES), self.best_gp
        if self.seconds is None or trees is None or gp is None:
            return False
        if not self.task.recipe(name).has_tree_mean or trees.nlpd - self._nlpd(gp) < _FAR_BETTER:
            return False
        self.report(f"{name} is left out: trees predict far worse than {gp.name}.")
        return True

    def _tried(self, name: str, evaluate: Callable[..., None], *arguments: Any) -> None:
        """Evaluate a model; if that fails, the reason is kept and reported."""
        try:
            evaluate(*arguments)
        except _TimeOverError:
            self.ended = f"The time was over in {name}."
            self.report(self.ended)
        except Exception as error:  # of any kind: the other candidates do not depend on it
            first = str(error).split("\n")[0] or type(error).__name__
            self.failures[name] = first.rstrip(".")
            self.report(f"{name} is left out: {self.failures[name]}.")

    def _require_time(self, recipe: Recipe) -> None:
        """:raises _TimeOverError: where the time that is left is for the best model on all rows."""
        if (
            recipe.name != Simple.name
            and self.best is not None
            and self.seconds_left < self._needed(0.0)
        ):
            raise _TimeOverError

    def _advance(self, method: str, name: str, share: float) -> None:
        """Build a model from the first start, train it for a share of the time, and score it."""
        begin, recipe, starts = time.perf_counter(), self.task.recipe(method), self._starts
        rows, mean, search = self.rest, None, None
        if recipe.has_tree_mean:
            find = self._first_trees if recipe.name == Simple.name else self._mean_of_trees
            if (found := find(recipe)) is None:
                return
            mean, rows = found
        if not (recipe.makes_kernel or recipe.takes_images):
            search = (starts if mean is None else starts.about(mean)).search(recipe)
            search.advance()
        self._require_time(recipe)
        start = self._with_start(recipe, search)
        tried = Candidate(rows, *start, mean=mean, search=search, name=name)
        self._require_time(recipe)
        if self.seconds is None:
            tried.train(_STEPS)
        else:
            tried.train_until(time.perf_counter() + share)
        self._score(tried, begin)

    def _with_start(self, recipe: Recipe, search: StartSearch | None) -> tuple[Recipe, Any]:
        """The recipe with the kernel of the best start, and the hyperparameters of that."""
        if search is None:
            return recipe, None
        start = search.best
        return (recipe if self.task.kernel else resolved(recipe, start.kernel)), start[:2]

    def _first_trees(self, recipe: Recipe) -> tuple[trees.TreeMean, Task] | None:
        """The trees of a first answer, and the rows whose mean they are; None for want of time."""
        if not self._has_time_for_trees(0):
            return None
        self._trees, rows = trees.fit_first_trees(self.rest.dataset, recipe.seed)
        return self._trees, self.rest.on(self.rest.dataset.take(rows))

    def _mean_of_trees(self, recipe: Recipe) -> tuple[trees.TreeMean, Task] | None:
        """The trees of all folds, with the weight beside a GP, and all rows; None likewise."""
        begin, dataset = time.perf_counter(), self.rest.dataset
        known = () if self._trees is None else self._trees.models
        if len(known) < trees.num_folds(self.rest.num_rows, dataset.num_classes):
            if not self._has_time_for_trees(len(known)):
                return None
            self._trees = trees.fit_tree_mean(dataset, recipe.seed, known=known)
            if known:
                simple = self.task.recipe(f"{Simple.name} with {TREES}")
                self._score(Candidate(self.rest, simple, mean=self._trees, name=TREES), begin)
        assert self._trees is not None
        if self.task.has_labels:
            return self._trees, self.rest
        search = self._starts.search(recipe)
        self._require_time(recipe)
        search.advance()
        self._require_time(recipe)
        found = trees.weight_beside(dataset, self._trees, *search.best[:2], recipe.seed)
        return self._trees.weighted(found), self.rest

    def _has_time_for_trees(self, num_known: int) -> bool:
        """Whether the trees of another fold, or of all others, take a small part of the time."""
        sizes = self.rest.num_rows, self.rest.num_columns, self.rest.dataset.num_classes
        needed = trees.expected_seconds(*sizes, num_known)
        has_time = needed <= _TREES_SHARE * self.seconds_left
        if not has_time:
            self.report(f"trees are left out: they would take {needed:.0f} s.")
        return has_time

    def _score(self, candidate: Candidate, begin: float) -> None:
        """Finish a candidate, score it on held-out rows, and compare it with the best."""
        self._require_time(candidate.recipe)
        candidate.finish(_FINISHED * self.seconds_left)
        self._require_time(candidate.recipe)
        (X, Y), weights = self.held_out.train, self.held_out.weights
        count, scoring = self.task.dataset.num_classes, time.perf_counter()
        if will_calibrate(candidate.recipe, self.task.dataset):
            found = predict_held_out(candidate.model, (X, Y), weights)
            nlpd = -float(np.average(found.log_density, weights=weights)) - found.gain
            error = error_of(found.mean, Y, count, weights)
        else:
            nlpd, error = held_out_scores(CachedModel(candidate.model), (X, Y), count, weights)
        now = time.perf_counter()
        candidate.row_seconds = (now - scoring) / len(X)
        self._keep(Attempt(candidate.name, nlpd, error, candidate.num_steps, now - begin))
        if nlpd <= min(attempt.nlpd for attempt in self.attempts.values()):
            self.best = candidate
        is_gp = candidate.recipe.name != Simple.name
        if is_gp and (self.best_gp is None or nlpd <= self._nlpd(self.best_gp)):
            self.best_gp = candidate

    def _nlpd(self, candidate: Candidate) -> float:
        return self.attempts[candidate.name].nlpd

    def _keep(self, attempt: Attempt) -> None:
        if not attempt.nlpd > -math.inf:
            raise ValueError(f"its NLPD on held-out rows is {attempt.nlpd}.")
        steps = f", {attempt.num_steps} steps" if attempt.num_steps else ""
        self.report(
            f"{attempt.method}: held-out NLPD {attempt.nlpd:.3f}, error {attempt.error:.3f}"
            f"{steps}, {attempt.seconds:.1f} s{self._left}"
        )
        known = self.attempts.get(attempt.method, attempt)
        # the trees of all folds replace the trees of one, whatever the score on few held-out rows
        if attempt.method == TREES or attempt.nlpd <= known.nlpd:
            self.attempts[attempt.method] = attempt

    @property
    def _left(self) -> str:
        return "" if self.seconds is None else f"; {max(0.0, self.seconds_left):.0f} s left"

    def _improve(self, gp: Candidate, search: StartSearch) -> None:
        """Go on with the search for the start of a model, and build it from a better one."""
        begin, first, poor = time.perf_counter(), search.best, 0
        spent = gp.build_seconds + gp.finish_seconds + gp.row_seconds * _MAX_HELD_OUT
        scoring = _SPARE * spent
        while poor < _POOR_STAGES:
            # where another model leads, a better start must show that it is ahead
            left = self.seconds_left - self._needed(0.0 if self.best is gp else scoring)
            if not search.advance(time.perf_counter() + left):
                if search.is_out_of_time:
                    self.ended = f"The time was over in the search for starts of {gp.name}."
                break
            self.report(f"{gp.name}: {search.stage} compared{self._left}")
            if search.stage != ROWS:  # one more fit of the best kernel
                poor = poor + 1 if search.gain < _LEAST_GAIN else 0
        else:
            passed = time.perf_counter() - self.begin
            gained = f"no start of {gp.name} gained more than {_LEAST_GAIN} nats"
            self.ended = f"The search was over after {passed:.0f} s: {gained}."
        if search.is_fitted and search.best is not first:
            start = self._with_start(self.task.recipe(gp.name), search)
            better = Candidate(self.rest, *start, mean=gp.mean, name=gp.name)
            if self.best is not gp or self.seconds_left > self._needed(scoring):
                self._score(better, begin)
            elif self.seconds_left > gp.build_seconds + gp.finish_seconds:
                # held-out rows of the search have shown that it is better; it is not finished yet
                better.finish_seconds, better.row_seconds = gp.finish_seconds, gp.row_seconds
                self.best = better

    def _needed(self, spent: float) -> float:
        """Time of something, and after it of the best GP on all rows; others are answers as are."""
        best = self.best
        if best is None or best.recipe.name == Simple.name:
            return spent
        return spent + best.build_seconds + _LAST_FINISH * best.finish_seconds

    def choice(self, *, interrupted: bool = False) -> Choice:
        """The winner, and how it is trained on all rows in the time that is left, if there is."""
        best, attempts = self.best, tuple(self.attempts.values())
        assert best is not None  # run has scored at least one
        reason, recipe = reason_of(best.name, self.attempts, self.failures), best.recipe
        reason = " ".join([reason, *([self.ended] if self.ended else [])])
        left = self.seconds_left - best.build_seconds - best.finish_seconds
        is_timed = self.seconds is not None and recipe.is_trained and best.num_steps > 1
        count = best.num_steps_within(left) if is_timed else 1
        if interrupted or left < 0.0 or not count:
            reason += "" if interrupted else " No time is left to train it on all rows."
            kept = Choice(recipe, reason, attempts, best.model, is_model=True)
            return kept._replace(interrupted=interrupted)
        if is_timed:  # few more steps at the full rate would move away from the trained start
            rate = min(1.0, count / best.num_steps) * getattr(recipe, "learning_rate", 0.0)
            recipe = recipe.with_steps(count, rate)
        seconds = max(self.seconds_left, best.finish_seconds)
        start = None if recipe.name == Simple.name else best.model
        return Choice(recipe, reason, attempts, start, finish_seconds=seconds)
