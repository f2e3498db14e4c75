"""The choice of a method by the log density of held-out rows, within a time budget."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from gpflow_sparse.data import Dataset, metrics
from gpflow_sparse.runs.baselines import CONSTANT, LINEAR, TREES, score_baseline
from gpflow_sparse.runs.build import (
    MOST_EXACT_ROWS,
    build_model,
    require_outputs,
)
from gpflow_sparse.runs.calibration import calibrate, shuffled, split_rows
from gpflow_sparse.runs.config import RunConfig
from gpflow_sparse.runs.evaluation import CachedModel, class_probabilities
from gpflow_sparse.runs.fitting import ROUND, fit_model
from gpflow_sparse.runs.methods import (
    AUTO,
    FOR_CLASSES,
    METHODS,
    ROUND_METHODS,
    UNTRAINED_METHODS,
    read_options,
    require_options,
)
from gpflow_sparse.runs.rows import Pair, num_distinct
from gpflow_sparse.runs.starts import EXACT_SUBSET, Starts, name_of
from gpflow_sparse.training.calibration import gain

# Up to so many rows "auto" is an exact GP, which has no inducing points that could be too few.
_FEW_ROWS = 1000
# Held-out rows: a fraction, a largest number, and a least one of at most a quarter of the rows.
_HELD_OUT, _MOST_HELD_OUT, _LEAST_HELD_OUT = 0.1, 2000, 100
_WITH = " with "
# Rounds of the choice: steps of each candidate without a budget, and fractions of a budget.
_ROUNDS = ((100, 0.2), (200, 0.2))
# Steps whose time is measured before the number of steps within a budget is known.
_MEASURED = ROUND
# Largest number of passes over the rows within a budget, and fraction of the time for them.
_MOST_PASSES, _FRACTION = 200, 0.95
# Fraction of the time left in which the hyperparameters of an exact GP are fitted to more rows.
_FRACTION_OF_EXACT = 0.6
# Columns and rows up to which a grid method is tried: an iteration takes N m^2 operations.
_MOST_GRID_COLUMNS, _MOST_GRID_ROWS = 5, 20_000
# Columns up to which neighbors among inducing points are tried: of 60,000 images of 784 pixels the
# search before the first step took 50 s on a core.
_MOST_NEIGHBOR_COLUMNS = 100
# Values of the inputs to which simple models are fitted: logistic regression took 60 s on MNIST.
_MOST_BASELINE_VALUES = 2e6
# Time that must be left for another candidate, in multiples of the longest start of one so far;
# the winner starts once more.
_STARTS_LEFT = 2.0


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

    config: RunConfig
    reason: str
    attempts: tuple[Attempt, ...] = ()
    start: GPModel | None = None
    """The trained candidate; None if there was only one."""
    is_timed: bool = False
    """Whether the number of steps is that of the time left."""
    interrupted: bool = False
    """Whether Ctrl-C or the end of the time ended it; ``start`` is then the best model so far."""


@dataclasses.dataclass(frozen=True)
class Task:
    """
    A table to learn from, and everything that was asked for.

    :param dataset: standardized; only its training rows are used.
    :param kernel: a kernel to copy; None for the one that ``options`` name.
    :param likelihood: a name, a likelihood to copy, or None for the usual one.
    :param options: options of the methods by name, see ``RunConfig``.
    """

    dataset: Dataset
    kernel: gpflow.kernels.Kernel | None = None
    likelihood: Any = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        given = self.likelihood
        gaussian = given in (None, "gaussian") or isinstance(given, gpflow.likelihoods.Gaussian)
        return self.dataset.num_classes is None and gaussian

    @property
    def has_images(self) -> bool:
        """Whether the rows are images, and no kernel was chosen for them."""
        has_kernel = self.kernel is not None or "kernel" in self.options
        return self.dataset.image_shape is not None and not has_kernel

    def config(self, name: str) -> RunConfig:
        """
        Options of a candidate; by default at most a quarter of the rows are inducing points, or all
        distinct rows where rows repeat.

        :param name: a method, or "METHOD with LIKELIHOOD".
        """
        method, _, likelihood = name.partition(_WITH)
        given = dict(self.options) | ({"likelihood": likelihood} if likelihood else {})
        config = RunConfig.of_method(method, **read_options(method, given))
        if {"num_inducing", "num_orthogonal"} & set(self.options):
            return config
        X = self.dataset.train[0]
        return config.shrunk_to(num_distinct(X), len(X))

    def on(self, rows: Pair) -> "Task":
        """The same task with other training rows."""
        return dataclasses.replace(self, dataset=dataclasses.replace(self.dataset, train=rows))


def candidates(task: Task) -> list[str]:
    """
    The methods that "auto" tries for a table.

    For more than two classes softmax and robust-max: the second learns faster, the first has
    probabilities that are calibrated where classes overlap or few steps were made, and is the only
    one where there is no time for both. Images have a convolutional model with softmax alone: with
    robust-max the held-out density of CIFAR-10 was better after 40 steps and worse at the end.
    """
    N, D = task.dataset.train[0].shape
    near = ["swsgp"] if N > _FEW_ROWS and D <= _MOST_NEIGHBOR_COLUMNS else []
    if task.dataset.num_classes is not None:
        softmax = task.dataset.num_classes > 2 and task.likelihood is None
        if task.has_images:
            return [f"conv-solvegp{_WITH}softmax" if softmax else "conv-solvegp"]
        return [*([f"solvegp{_WITH}softmax"] if softmax else []), "solvegp", *near]
    if not task.is_gaussian:
        return ["solvegp", *near] if N > _FEW_ROWS else ["solvegp"]
    if N <= _FEW_ROWS:
        return ["exact"]
    limits = {
        "exact": N <= MOST_EXACT_ROWS,
        "swsgp": bool(near),
        "grief": D <= _MOST_GRID_COLUMNS and N <= _MOST_GRID_ROWS,
    }
    # that which needs no steps first, for a budget that ends before others have learned; then those
    # whose start takes least time
    return [
        m for m in ("gpnn", "softki", "solvegp", "swsgp", "exact", "grief") if limits.get(m, True)
    ]


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
    by the mean log density of the held-out rows goes on (successive halving). A winner that was
    better after the first round than after the second is trained anew, and only for as many steps,
    if there is time for them; so is SoftKI.
    Where the model will be calibrated, log densities are those with calibration.

    :param method: "auto", or a method of ``gpflow-sparse methods``.
    :param seconds: time for the choice and the training on all rows; None for numbers of steps.
    :param report: called with a line of progress.
    :raises ValueError: for an unknown method, or one that does not fit the table.
    """
    require_outputs(task.dataset, task.likelihood)
    if method != AUTO:
        return Choice(task.config(_known(method, task)), f"{method} was asked for.")
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
    best = race.best
    assert best is not None  # run has scored at least one
    interrupted = interrupted or race.seconds_left < best.build_seconds
    num_steps, attempt = best.config.num_steps, race.attempts[best.name]
    start: GPModel | None = best.model
    if seconds is not None:
        num_steps = best.num_steps_within(race.seconds_left)
    reason = _reason(best.name, race.attempts)
    # rows that SoftKI holds out must be new to it, or those that it has learned by heart look best
    anew = attempt.num_steps < best.num_steps or best.method == "softki"
    if anew and num_steps >= attempt.num_steps and not interrupted:
        num_steps, start = attempt.num_steps, None
        reason += f" It was best after {attempt.num_steps} steps, so it is trained for {num_steps}."
    # few more steps at the full rate would lead away from what the start has learned
    rate = best.config.learning_rate * min(1.0, num_steps / max(1, best.num_steps))
    rate = best.config.learning_rate if start is None else rate
    config = dataclasses.replace(best.config, num_steps=num_steps, learning_rate=rate)
    if best.method == "exact" and seconds is not None and not interrupted:
        subset = race.rows_within(race.seconds_left)
        if subset > EXACT_SUBSET:
            config, start = dataclasses.replace(config, num_subset=subset), None
            reason += f" Its hyperparameters are fitted to {subset} rows."
    attempts = tuple(race.attempts.values())
    return Choice(config, reason, attempts, start, seconds is not None, interrupted)


def _only_choice(task: Task, name: str, seconds: float | None) -> Choice:
    """The choice where there is no other candidate; a few steps tell how many the time allows."""
    begin = time.perf_counter()
    N, D = task.dataset.train[0].shape
    table = f"at most {_FEW_ROWS} rows" if N <= _FEW_ROWS else f"{N} rows of {D} columns"
    reason = f"{name} is the method for {'images' if task.has_images else table}."
    config = task.config(name)
    if seconds is None or config.method in UNTRAINED_METHODS:
        return Choice(config, reason)
    candidate = Candidate(task, config, name=name)
    candidate.train(_MEASURED)
    num_steps = candidate.num_steps_within(seconds - (time.perf_counter() - begin))
    return Choice(dataclasses.replace(config, num_steps=num_steps), reason, is_timed=True)


def _reason(method: str, attempts: Mapping[str, Attempt]) -> str:
    """Why a candidate was chosen, and what predicts better although it is no candidate."""
    best = attempts[method]
    reason = f"{method} has the lowest NLPD on held-out rows of the candidates, {best.nlpd:.3f}"
    for name in (CONSTANT, LINEAR, TREES):
        other = attempts.get(name, best)
        if other.nlpd < best.nlpd:
            reason += f"; the baseline {name} has {other.nlpd:.3f}, which is lower"
        elif other.error < best.error:
            reason += f"; {name} has the lower error, {other.error:.3f} beside {best.error:.3f}"
    return f"{reason}."


class Candidate:
    """
    One candidate in training on the rows of a task.

    :param name: as in :meth:`Task.config`.
    :param hyperparameters: starting values of kernel and noise variance; None to fit them.
    :param start: a trained model of the same method, whose parameters are the start.
    """

    def __init__(
        self,
        task: Task,
        config: RunConfig,
        *,
        name: str = "",
        hyperparameters: tuple[gpflow.kernels.Kernel, float] | None = None,
        start: GPModel | None = None,
    ) -> None:
        begin = time.perf_counter()
        self.config, self.method, self.rows = config, config.method, task.dataset.train
        self.name = name or config.method
        self.num_steps = 0
        kernel, noise = (task.kernel, None) if hyperparameters is None else hyperparameters
        self.model = build_model(
            config,
            task.dataset,
            kernel=kernel,
            likelihood=task.likelihood,
            noise_variance=noise,
            start=start,
        )
        self.build_seconds = self.seconds = time.perf_counter() - begin
        self.step_seconds = self.first_seconds = math.nan

    def train(self, num_steps: int, until: float = math.inf) -> None:
        """
        Train by a number of steps.

        :param until: value of ``time.perf_counter`` after which no step begins.
        """
        if self.method in UNTRAINED_METHODS:  # the start is the optimum
            return
        begin = time.perf_counter()
        per_entry = ROUND if self.method in ROUND_METHODS else 1
        history = fit_model(
            self.model,
            dataclasses.replace(self.config, num_steps=num_steps),
            self.rows,
            until=until,
            progress=False,
        )
        self.num_steps += history.num_steps * per_entry
        self.seconds += time.perf_counter() - begin
        if history.num_steps > 1:
            self.first_seconds = float(history.seconds[0])
            spent = float(history.seconds[-1]) - self.first_seconds
            self.step_seconds = spent / ((history.num_steps - 1) * per_entry)
        elif self.method in ROUND_METHODS:  # too slow if at all, since it includes compilation
            self.first_seconds, self.step_seconds = 0.0, float(history.seconds[-1]) / per_entry

    def train_until(self, until: float) -> None:
        """Train for as many steps as the time left allows."""
        if math.isnan(self.step_seconds):
            self.train(_MEASURED)
        left = until - time.perf_counter() - self.first_seconds
        if left > self.step_seconds:  # False if there are no steps
            self.train(int(left / self.step_seconds), until)

    def num_steps_within(self, seconds: float) -> int:
        """Steps for which building the model anew and training it take at most this time."""
        left = _FRACTION * seconds - self.build_seconds - self.first_seconds
        batch = len(self.rows[0]) if self.method in ROUND_METHODS else self.config.batch_size
        most = max(self.config.num_steps, math.ceil(_MOST_PASSES * len(self.rows[0]) / batch))
        if not self.step_seconds > 0.0:
            return self.config.num_steps
        return max(ROUND, min(most, int(left / self.step_seconds)))


def train(
    task: Task,
    choice: Choice,
    *,
    seconds: float | None = None,
    report: Callable[[str], Any] = lambda line: None,
) -> GPModel:
    """
    The chosen model, trained on all rows, or on all but some, on which it is calibrated; after
    Ctrl-C as it is then.

    :param seconds: time after which no training step begins; None for the number of steps of the
        choice.
    """
    rows, held_out = split_rows(choice.config, task.dataset)
    if choice.interrupted and choice.start is not None:
        calibrate(choice.start, held_out, choice.config, report)
        return choice.start
    end = math.inf if seconds is None else time.perf_counter() + seconds
    final = Candidate(task.on(rows), choice.config, start=choice.start)
    try:
        if seconds is None or choice.is_timed:
            final.train(choice.config.num_steps, end)
        else:
            final.train_until(end)
    except KeyboardInterrupt:
        report("interrupted: this is the model as it is now.")
    scope = "all rows" if held_out is None else f"{len(rows[0])} rows"
    report(f"{final.name}: {final.num_steps} steps on {scope}. {choice.reason}")
    calibrate(final.model, held_out, choice.config, report)
    return final.model


def _known(method: str, task: Task) -> str:
    if method not in METHODS:
        raise ValueError(f"method must be {AUTO}, or one of {', '.join(METHODS)}; got {method!r}.")
    require_options(method, task.options)
    if method in FOR_CLASSES and not task.is_gaussian:
        raise ValueError(f"method {method} is for Gaussian noise; take auto, or solvegp.")
    return method


class _Race:
    """Successive halving of the candidates, with the scores so far."""

    def __init__(self, task: Task, seconds: float | None, report: Callable[[str], Any]) -> None:
        self.task, self.seconds, self.report = task, seconds, report
        self.begin = time.perf_counter()
        self.attempts: dict[str, Attempt] = {}
        """The best of each method, in the order of the methods."""
        self.best: Candidate | None = None
        seed = int(task.options.get("seed", 0))
        X, Y = task.dataset.train
        order = shuffled(len(X), seed)
        least = min(_LEAST_HELD_OUT, len(X) // 4)
        count = max(least, min(_MOST_HELD_OUT, int(_HELD_OUT * len(X))))
        self.held_out = X[order[:count]], Y[order[:count]]
        self.rest = task.on((X[order[count:]], Y[order[count:]]))
        self._starts = Starts(self.rest.dataset, task.likelihood, task.kernel)
        self._start_seconds = 0.0

    @property
    def seconds_left(self) -> float:
        """Time left of the budget."""
        passed = time.perf_counter() - self.begin
        return math.inf if self.seconds is None else self.seconds - passed

    def run(self, names: list[str]) -> None:
        """Train and score all candidates; ``best`` is the winner."""
        X, Y = self.rest.dataset.train
        most = max(1, int(_MOST_BASELINE_VALUES / X.shape[1]))
        rows = X[:most], Y[:most]  # in random order
        for name in (CONSTANT, LINEAR, *([TREES] if self.task.options.get("trees") else [])):
            begin = time.perf_counter()
            scores = score_baseline(name, rows, self.held_out, self.task.dataset.num_classes)
            error = scores.get("rmse", scores.get("error_rate", math.nan))
            self._keep(Attempt(name, scores["nlpd"], error, 0, time.perf_counter() - begin))
        built: dict[str, Candidate] = {}
        longest = 0.0
        for number, (num_steps, fraction) in enumerate(_ROUNDS):
            trained = [n for n in names if self.task.config(n).method not in UNTRAINED_METHODS]
            for name in trained if number else names:
                least = 0.0 if name in built else _STARTS_LEFT * longest
                if built and self.seconds_left < least:
                    break
                if name not in built:  # not all at once, so that the first is trained early
                    begin = time.perf_counter()
                    built[name] = self._candidate(name)
                    longest = max(longest, time.perf_counter() - begin)
                if self.seconds is None:
                    built[name].train(num_steps)
                else:
                    share = fraction * self.seconds / max(1, len(trained))
                    built[name].train_until(time.perf_counter() + share)
                self._score(built[name])
            names = sorted(
                (name for name in names if name in built), key=lambda name: self.attempts[name].nlpd
            )
            names = names[: -(-len(names) // 2)]

    def refine(self) -> None:
        """Fit GPnn, if it is the best, to more local subsets in half of the time that is left."""
        best = self.best
        if best is None or best.method != "gpnn" or self.seconds is None:
            return
        until = time.perf_counter() + 0.5 * self.seconds_left
        start = self._starts.improve(best.config, until)
        if start is not self._starts.find(best.config):
            candidate = Candidate(self.rest, best.config, name=best.name, hyperparameters=start[:2])
            self._score(candidate)

    def rows_within(self, seconds: float) -> int:
        """Rows to which the hyperparameters of an exact GP can be fitted in some time."""
        if not self._start_seconds:  # none were fitted
            return 0
        # the time grows as the cube of the rows; the factors of all rows and the scores need some
        growth = (_FRACTION_OF_EXACT * max(0.0, seconds) / self._start_seconds) ** (1 / 3)
        return min(int(EXACT_SUBSET * growth), len(self.task.dataset.train[0]))

    def _candidate(self, name: str) -> Candidate:
        """An untrained candidate."""
        task, config = self.rest, self.task.config(name)
        start = self._starts.find(config)
        self._start_seconds = max(self._start_seconds, start.seconds)
        if task.kernel is None:
            config = dataclasses.replace(config, kernel=name_of(start.kernel) or config.kernel)
        return Candidate(task, config, name=name, hyperparameters=start[:2])

    def _score(self, candidate: Candidate) -> None:
        """Score a candidate on held-out rows, and compare it with the best."""
        num_classes = self.task.dataset.num_classes
        nlpd, error = held_out_scores(CachedModel(candidate.model), self.held_out, num_classes)
        if split_rows(candidate.config, self.task.dataset)[1] is not None:
            nlpd -= gain(candidate.model, self.held_out)
        attempt = Attempt(candidate.name, nlpd, error, candidate.num_steps, candidate.seconds)
        if self.best is None or nlpd <= self.attempts[self.best.name].nlpd:
            self.best = candidate
        self._keep(attempt)

    def _keep(self, attempt: Attempt) -> None:
        left = "" if self.seconds is None else f"; {max(0.0, self.seconds_left):.0f} s left"
        self.report(
            f"{attempt.method}: held-out NLPD {attempt.nlpd:.3f}, error {attempt.error:.3f}, "
            f"{attempt.num_steps} steps, {attempt.seconds:.1f} s{left}"
        )
        before = self.attempts.get(attempt.method)
        if before is None or attempt.nlpd <= before.nlpd:
            self.attempts[attempt.method] = attempt


def held_out_scores(model: Any, rows: Pair, num_classes: int | None) -> tuple[float, float]:
    """NLPD and error on held-out rows."""
    X, Y = (tf.convert_to_tensor(values, gpflow.default_float()) for values in rows)
    parts = [slice(i, i + 4096) for i in range(0, len(X), 4096)]
    mean = np.concatenate([model.predict_y(X[p])[0].numpy() for p in parts])
    density = [model.predict_log_density((X[p], Y[p])).numpy() for p in parts]
    nlpd = -float(np.mean(np.concatenate(density)))
    if num_classes is None:
        return nlpd, float(metrics.rmse(rows[1], mean))
    return nlpd, float(metrics.error_rate(rows[1], class_probabilities(mean, num_classes)))
