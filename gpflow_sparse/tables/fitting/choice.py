"""The choice of a method by the log density of held-out rows, within a time budget."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gpflow.models import GPModel

from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting import tree_mean as trees
from gpflow_sparse.tables.fitting.baselines import CONSTANT, LINEAR, TREES, score_baseline
from gpflow_sparse.tables.fitting.building import attach_units, require_outputs, require_unweighted
from gpflow_sparse.tables.fitting.calibration import calibrate, split_rows, will_calibrate
from gpflow_sparse.tables.fitting.candidate import MEASURED, Candidate
from gpflow_sparse.tables.fitting.evaluation import held_out_scores
from gpflow_sparse.tables.fitting.starts import InitialHyperparameters, resolved
from gpflow_sparse.tables.fitting.task import Task, candidates, method_of
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.registry import AUTO, kind_of, recipe_of
from gpflow_sparse.tables.methods.rows import shuffled
from gpflow_sparse.training.calibration import calibration_improvement

# Held-out rows: a fraction, a largest number, and a least one of at most a quarter of the rows.
_HELD_OUT, _MAX_HELD_OUT, _MIN_HELD_OUT = 0.1, 2000, 100
# Rounds of the choice: steps of each candidate without a budget, and fractions of a budget.
_ROUNDS = ((100, 0.2), (200, 0.2))
# Values of the inputs to which simple models are fitted: logistic regression took 60 s on MNIST.
_MAX_BASELINE_VALUES = 2e6
# Fraction of a budget in which kernels are compared, and axes of gradients are found.
_STARTS = 0.4
# Time that must be left for another candidate, in multiples of the longest start of one so far;
# the winner starts once more.
_STARTS_LEFT = 2.0
# Fraction of a budget for what a candidate without steps does before it is scored.
_FINISHED = 0.25
# Fraction of the time by which the end of the training of a method without steps may exceed it.
_SLACK = 0.1
# Largest fraction of the time that is left for the trees of a mean, which are fitted twice.
_TREES_SHARE = 0.3


class Attempt(NamedTuple):
    """Scores of one method on held-out rows, and its cost."""

    method: str
    nlpd: float
    """Mean negative log density of a held-out row, in nats, of standardized outputs."""
    error: float
    """Root mean squared error of standardized outputs, or the fraction of wrong labels."""
    num_steps: int
    seconds: float


class Choice(NamedTuple):
    """A method, with the number of steps and the start for training it on all rows."""

    recipe: Recipe
    reason: str
    attempts: tuple[Attempt, ...] = ()
    start: GPModel | None = None
    """A trained candidate; None to build the model."""
    end: float = math.inf
    """Value of ``time.perf_counter`` after which no training step begins."""
    interrupted: bool = False
    """Whether Ctrl-C ended it; ``start`` is then the best model so far."""
    out_of_time: bool = False
    """Whether no time is left to train it on all rows; ``start`` is then the model."""
    finish_seconds: float = math.inf
    """Time for :meth:`~gpflow_sparse.tables.methods.base.Recipe.finish`."""

    @property
    def is_model(self) -> bool:
        """Whether ``start`` is the model to keep."""
        return (self.interrupted or self.out_of_time) and self.start is not None


def choose(
    task: Task,
    method: str = AUTO,
    *,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
) -> Choice:
    """
    The method that was asked for, or the candidate that predicts held-out rows best.

    Candidates are trained in two rounds on nine tenths of the rows; after the first the better half
    by the mean log density of the held-out rows is trained further (successive halving). A winner
    that was better after the first round than after the second is trained anew, and only for as
    many steps, if there is time for them; so is a method that holds out rows itself. Where the
    model will be calibrated, the rows for that are left out of all this, and log densities of the
    held-out rows are calibrated by cross-validation. A candidate that fails, or whose log density
    is NaN, is left out; the reason of the choice names it.

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
        return _only_choice(task, names[0], seconds)
    race = _Race(task, seconds, report)
    try:
        race.run(names)
        race.refine()
        interrupted = False
    except KeyboardInterrupt:
        if race.best is None:
            raise
        interrupted = True
    return _for_all_rows(task, race, seconds, interrupted)


def _for_all_rows(task: Task, race: "_Race", seconds: float | None, interrupted: bool) -> Choice:
    """The choice after a race: the winner, and how it is trained on all rows in the time left."""
    best = race.best
    assert best is not None  # run has scored at least one
    needed = best.build_seconds + max(0.0, best.finish_seconds - _SLACK * (seconds or 0.0))
    out_of_time = not interrupted and race.seconds_left < needed
    num_steps, attempt = best.recipe.num_iterations, race.attempts[best.name]
    start: GPModel | None = best.model
    left = race.seconds_left - _scoring_seconds(best, task.dataset)
    if seconds is not None:
        num_steps = best.num_steps_within(left)
    reason = f"{_reason(best.name, race.attempts, race.failures)} {best.recipe.caveat}".strip()
    anew = attempt.num_steps < best.num_steps or best.recipe.holds_out
    ended = interrupted or out_of_time
    if out_of_time:
        reason += " No time is left to train it on all rows."
    if anew and num_steps >= attempt.num_steps and not ended:
        num_steps, start = attempt.num_steps, None
        reason += f" It was best after {attempt.num_steps} steps, so it is trained for {num_steps}."
    recipe = best.recipe.with_steps(num_steps)
    if start is not None and best.recipe.is_trained:
        # few more steps at the full rate would move away from the trained start
        part = min(1.0, num_steps / max(1, best.num_steps))
        recipe = best.recipe.with_steps(num_steps, part * getattr(best.recipe, "learning_rate", 0))
    if seconds is not None and not ended:
        grown, words = recipe.more_rows(task.num_rows, left, race.start_seconds)
        recipe, start, reason = grown, None if words else start, reason + words
    attempts = tuple(race.attempts.values())
    end, finish_seconds = time.perf_counter() + left, max(left, best.finish_seconds)
    return Choice(recipe, reason, attempts, start, end, interrupted, out_of_time, finish_seconds)


def _scoring_seconds(candidate: "Candidate", dataset: Dataset) -> float:
    """Time after the training for corrections of variances and for the scores of test rows."""
    rest, held_out = split_rows(candidate.recipe, dataset)
    num_rows = len(dataset.test[0]) + (0 if held_out is None else len(held_out.train[0]))
    num_rows += candidate.recipe.num_left_out(len(rest.train[0]))
    return candidate.row_seconds * num_rows


def _only_choice(task: Task, name: str, seconds: float | None) -> Choice:
    """The choice without another candidate."""
    few = f"at most {task.few_rows} rows"
    table = f"{task.num_rows} rows of {task.num_columns} columns" if task.is_long else few
    reason = f"{name} is the method for {'images' if task.has_images else table}."
    return within(task, task.recipe(name), seconds, reason)


def within(task: Task, recipe: Recipe, seconds: float | None, reason: str) -> Choice:
    """A method with as many steps as a time allows, by the time of a few; None for its own."""
    begin = time.perf_counter()
    end = math.inf if seconds is None else begin + seconds
    if seconds is None or not recipe.num_iterations:
        return Choice(recipe, reason, end=end)
    rest, _ = split_rows(recipe, task.dataset)
    candidate = Candidate(task.on(rest), recipe)
    candidate.train(MEASURED, end)
    # the model is the start of the training, which takes the time of compilation once more
    left = end - time.perf_counter()
    if not left > 2.0 * candidate.first_seconds:
        recipe = recipe.with_steps(candidate.num_steps)
        reason = f"{reason} No time is left after {candidate.num_steps} step(s)."
        return Choice(recipe, reason.strip(), start=candidate.model, end=end, out_of_time=True)
    num_steps = candidate.num_steps_within(left + candidate.build_seconds)
    return Choice(recipe.with_steps(num_steps), reason, start=candidate.model, end=end)


def _reason(method: str, attempts: Mapping[str, Attempt], failures: Mapping[str, str]) -> str:
    """Why a candidate was chosen, which baselines predict better, and why others were left out."""
    best = attempts[method]
    reason = f"{method} has the lowest NLPD on held-out rows of the candidates, {best.nlpd:.3f}"
    for name in (CONSTANT, LINEAR, TREES):
        other = attempts.get(name, best)
        if other.nlpd < best.nlpd:
            reason += f"; the baseline {name} has {other.nlpd:.3f}, which is lower"
        elif other.error < best.error:
            reason += f"; {name} has the lower error, {other.error:.3f} beside {best.error:.3f}"
    left_out = [f"{name} was left out: {why}" for name, why in failures.items()]
    return " ".join(f"{sentence}." for sentence in [reason, *left_out])


def train(
    task: Task,
    choice: Choice,
    *,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
    checkpoint_dir: Any = None,
) -> tuple[Choice, GPModel]:
    """
    The chosen model, trained on all rows, or on all but some, on which it is calibrated; after
    Ctrl-C as it is then, which the returned choice says.

    :param seconds: time after which no step begins; None for the number of steps of the choice.
    :param checkpoint_dir: see :func:`fit_task`.
    """
    rest, held_out = split_rows(choice.recipe, task.dataset)
    if choice.is_model:
        assert choice.start is not None
        model = attach_units(choice.start, task.dataset)
        calibrate(model, held_out, choice.recipe, report)
        return choice, model
    end = choice.end if seconds is None else min(choice.end, time.perf_counter() + seconds)
    final = Candidate(task.on(rest), choice.recipe, start=choice.start)
    try:
        if seconds is None or not math.isinf(choice.end):
            final.train(choice.recipe.num_iterations, end, checkpoint_dir)
        else:
            final.train_until(end)
    except KeyboardInterrupt:
        report("interrupted: this is the model as it is now.")
        choice = choice._replace(interrupted=True)
    model = attach_units(choice.recipe.finish(final.model, choice.finish_seconds), task.dataset)
    scope = "all rows" if held_out is None else f"{len(rest.train[0])} rows"
    report(f"{final.name}: {final.num_steps} steps on {scope}. {choice.reason}")
    calibrate(model, held_out, choice.recipe, report)
    return choice, model


def _asked_for(method: str, task: Task) -> Recipe:
    """:raises ValueError: for an unknown method, or one that does not take the likelihood."""
    kind = kind_of(method)
    if kind.for_classes and not task.is_gaussian:
        raise ValueError(f"method {method} is for Gaussian noise; take auto, or solvegp.")
    recipe = task.sized(recipe_of(method, **task.options))
    require_unweighted(recipe, task.dataset)
    return recipe


def first_line(error: Exception) -> str:
    """The first line of the message of an error, or its kind if it has no message."""
    return str(error).split("\n")[0] or type(error).__name__


class _Race:
    """Successive halving of the candidates, with the scores so far."""

    def __init__(self, task: Task, seconds: float | None, report: Callable[[str], Any]) -> None:
        self.task, self.seconds, self.report = task, seconds, report
        self.begin = time.perf_counter()
        self.attempts: dict[str, Attempt] = {}
        """The best of each method, in the order of the methods."""
        self.best: Candidate | None = None
        self._early: Candidate | None = None  # only until its method is scored
        self._built: dict[str, Candidate] = {}
        self.failures: dict[str, str] = {}
        """Why candidates and baselines were left out."""
        # rows that choose the best of several models would flatter it in its calibration too
        rows, _ = split_rows(recipe_of(AUTO, **task.options), task.dataset)
        num_rows, seed = len(rows.train[0]), int(task.options.get("seed", 0))
        order = shuffled(num_rows, seed)
        least = min(_MIN_HELD_OUT, num_rows // 4)
        count = max(least, min(_MAX_HELD_OUT, int(_HELD_OUT * num_rows)))
        self.held_out = rows.take(order[:count])
        self.rest = task.on(rows.take(order[count:]))
        self._starts = InitialHyperparameters(
            self.rest.dataset, task.likelihood, task.kernel, until=self._starts_until
        )
        self._about_trees: (
            tuple[InitialHyperparameters, trees.TreeMean | trees.ClassTreeMean] | None
        ) = None
        self.start_seconds = self._longest_build = 0.0

    @property
    def _starts_until(self) -> float:
        return time.perf_counter() + _STARTS * self.seconds_left

    def _prepared(
        self, recipe: Recipe
    ) -> tuple[InitialHyperparameters, trees.TreeMean | trees.ClassTreeMean | None]:
        """The starts of a method, and its mean of trees if it has one, which is fitted once."""
        if not recipe.has_tree_mean:
            return self._starts, None
        if self._about_trees is None:
            data = self.rest.dataset
            mean = trees.fit_tree_mean(data, *self._starts.find(recipe)[:2], recipe.seed)
            self._about_trees = self._starts.about(mean, self._starts_until), mean
        return self._about_trees

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
        begin, built = time.perf_counter(), self._built
        if not self._tried(f"{names[0]} from the first start", self._score_early, names[0]):
            self._early = None
        self._longest_build = time.perf_counter() - begin if self._early else 0.0
        for number, (num_steps, fraction) in enumerate(_ROUNDS):
            trained = [name for name in names if kind_of(method_of(name)).is_trained]
            if number:  # a method without steps has been trained to its end
                trained = [name for name in trained if built[name].recipe.num_iterations]
            for name in trained if number else names:
                needed = self._longest_build * (_STARTS_LEFT if built else 1.0)
                least = 0.0 if name in built else needed
                if (built or self._early) and self.seconds_left < least:
                    break
                share = fraction * (self.seconds or 0.0) / max(1, len(trained))
                if not self._tried(name, self._advance, name, num_steps, share):
                    self._leave_out(name)
            names = sorted(built, key=lambda name: self.attempts[name].nlpd)
            names = names[: -(-len(names) // 2)]
        if self.best is None:
            causes = "; ".join(f"{name} ({why})" for name, why in self.failures.items())
            raise ValueError(f"every method failed on these rows: {causes}.")

    def _tried(self, name: str, evaluate: Callable[..., None], *arguments: Any) -> bool:
        """Whether an evaluation succeeds; if it fails, the reason is kept and reported."""
        try:
            evaluate(*arguments)
        except Exception as error:  # of any kind: the other candidates do not depend on it
            self.failures[name] = first_line(error).rstrip(".")
            self.report(f"{name} is left out: {self.failures[name]}.")
            return False
        return True

    def _advance(self, name: str, num_steps: int, seconds: float) -> None:
        """Train a candidate further, and score it; it is built before its first steps."""
        if name not in self._built:
            if self._has_slow_trees(name):
                return
            begin = time.perf_counter()
            self._built[name] = self._candidate(name)
            self._longest_build = max(self._longest_build, time.perf_counter() - begin)
        if self.seconds is None:
            self._built[name].train(num_steps)
        else:
            self._built[name].train_until(time.perf_counter() + seconds)
        self._score(self._built[name])

    def _leave_out(self, name: str) -> None:
        """Forget a candidate that failed; the best of the others becomes the best."""
        self._built.pop(name, None)
        self.attempts.pop(name, None)
        if self._early is not None and self._early.name == name:
            self._early = None
        others = self._built.values()
        self.best = min(others, key=lambda c: self.attempts[c.name].nlpd, default=self._early)

    def _score_baseline(self, name: str) -> None:
        """Score a simple model, which is no candidate."""
        most = max(1, int(_MAX_BASELINE_VALUES / self.rest.num_columns))
        rows = self.rest.dataset.take(np.arange(min(most, self.rest.num_rows)))  # in random order
        begin = time.perf_counter()
        scores = score_baseline(
            name,
            rows.train,
            self.held_out.train,
            self.task.dataset.num_classes,
            weights=(rows.weights, self.held_out.weights),
        )
        _require_score(scores["nlpd"])
        error = scores.get("rmse", scores.get("error_rate", math.nan))
        self._keep(Attempt(name, scores["nlpd"], error, 0, time.perf_counter() - begin))

    def _score_early(self, name: str) -> None:
        """
        Score a candidate without steps with the first of its starts: a result within seconds, and
        a model to keep after Ctrl-C, until it is scored with the best of its starts.
        """
        recipe = self.task.recipe(name)
        if recipe.is_trained or not recipe.improves_start or recipe.has_tree_mean:
            return
        start = self._starts.first(recipe)
        if start is not None:
            recipe = resolved(recipe, start.kernel)
            self._early = Candidate(self.rest, recipe, name=name, hyperparameters=start[:2])
            self._score(self._early)

    def _has_slow_trees(self, name: str) -> bool:
        """Whether a candidate has a mean of trees for which there is no time."""
        dataset = self.rest.dataset
        num_rows, num_columns = dataset.train[0].shape
        seconds = trees.expected_seconds(num_rows, num_columns, dataset.num_classes)
        return self.task.recipe(name).has_tree_mean and seconds > _TREES_SHARE * self.seconds_left

    def refine(self) -> None:
        """
        Fit the start of the best candidate to more local subsets in half of the time that is left,
        if that is all that makes it better.
        """
        best = self.best
        if best is None or best is self._early or self.seconds is None:
            return
        if not best.recipe.improves_start:
            return
        self._tried(f"{best.name} from a better start", self._score_better_start, best)

    def _score_better_start(self, best: Candidate) -> None:
        left = self.seconds_left - _scoring_seconds(best, self.task.dataset)
        until = time.perf_counter() + 0.5 * left
        starts, mean = self._prepared(best.recipe)
        start = starts.improve(best.recipe, until)
        if start is not starts.find(best.recipe):
            candidate = Candidate(
                self.rest, best.recipe, name=best.name, hyperparameters=start[:2], mean=mean
            )
            self._score(candidate)

    def _candidate(self, name: str) -> Candidate:
        """An untrained candidate."""
        task, recipe = self.rest, self.task.recipe(name)
        if recipe.makes_kernel or recipe.takes_images:
            return Candidate(task, recipe, name=name)
        starts, mean = self._prepared(recipe)
        start = starts.find(recipe)
        self.start_seconds = max(self.start_seconds, start.seconds)
        if task.kernel is None:
            recipe = resolved(recipe, start.kernel)
        return Candidate(task, recipe, name=name, hyperparameters=start[:2], mean=mean)

    def _score(self, candidate: Candidate) -> None:
        """
        Score a candidate on held-out rows, and compare it with the best; one without steps as it
        would be kept, but for an early score.
        """
        if candidate is not self._early and not candidate.recipe.is_trained:
            begin = time.perf_counter()
            allowed = math.inf if self.seconds is None else _FINISHED * self.seconds
            candidate.model = candidate.recipe.finish(candidate.model, allowed)
            candidate.finish_seconds = time.perf_counter() - begin
            candidate.recipe = candidate.recipe.settled(candidate.model)
        num_classes, begin = self.task.dataset.num_classes, time.perf_counter()
        (X, Y), weights = self.held_out.train, self.held_out.weights
        nlpd, error = held_out_scores(CachedModel(candidate.model), (X, Y), num_classes, weights)
        if will_calibrate(candidate.recipe, self.task.dataset):
            nlpd -= calibration_improvement(candidate.model, (X, Y), weights)
        _require_score(nlpd)
        if self._early is not None and candidate is not self._early:
            del self.attempts[self._early.name]
            self.best = self._early = None
        candidate.row_seconds = (time.perf_counter() - begin) / len(X)
        attempt = Attempt(candidate.name, nlpd, error, candidate.num_steps, candidate.seconds)
        if self.best is None or nlpd <= self.attempts[self.best.name].nlpd:
            self.best = candidate
        self._keep(attempt, " from the first start" if candidate is self._early else "")

    def _keep(self, attempt: Attempt, note: str = "") -> None:
        left = "" if self.seconds is None else f"; {max(0.0, self.seconds_left):.0f} s left"
        self.report(
            f"{attempt.method}{note}: held-out NLPD {attempt.nlpd:.3f}, error {attempt.error:.3f}, "
            f"{attempt.num_steps} steps, {attempt.seconds:.1f} s{left}"
        )
        before = self.attempts.get(attempt.method)
        if before is None or attempt.nlpd <= before.nlpd:
            self.attempts[attempt.method] = attempt


def _require_score(nlpd: float) -> None:
    """:raises ValueError: for a score that cannot be compared with others."""
    if not nlpd > -math.inf:
        raise ValueError(f"its NLPD on held-out rows is {nlpd}.")


def fit_task(
    task: Task,
    method: str,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
    start: GPModel | None = None,
    checkpoint_dir: Any = None,
) -> tuple[Choice, GPModel]:
    """
    Choose a method unless one is given, and train its model on all rows.

    :param seconds: time for both; None for numbers of steps.
    :param start: a trained model of the method, the start where the choice has none.
    :param checkpoint_dir: folder of checkpoints of a method that is given, without a time; training
        goes on from the newest in it.
    :return: the choice, which says whether Ctrl-C has ended the training, and the model.
    :raises ValueError: for checkpoints of a choice or of a time, which do not repeat.
    """
    if checkpoint_dir is not None and (method == AUTO or seconds is not None):
        raise ValueError(
            "checkpoint_dir must be None for method='auto' and within a time, whose steps differ "
            "each time; give a method, and its number of steps."
        )
    begin = time.perf_counter()
    choice = choose(task, method, seconds=seconds, report=report)
    if choice.start is None:
        choice = choice._replace(start=start)
    left = None if seconds is None else seconds - (time.perf_counter() - begin)
    return train(task, choice, seconds=left, report=report, checkpoint_dir=checkpoint_dir)
