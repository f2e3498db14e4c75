"""The choice of a method by held-out rows, and the training of the chosen one on all rows."""

import copy
import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPModel
from sklearn.linear_model import BayesianRidge, LogisticRegression

from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset, metrics
from gpflow_sparse.estimators.outputs import make_likelihood
from gpflow_sparse.runs.build import make_kernel, make_model
from gpflow_sparse.runs.config import RunConfig
from gpflow_sparse.runs.evaluation import CachedModel, class_probabilities
from gpflow_sparse.runs.methods import FOR_CLASSES, METHODS
from gpflow_sparse.runs.training import fit_model

Rows = tuple[np.ndarray, np.ndarray]

EXACT = "exact"
"""Method: an exact GP, GPflow's GPR, for Gaussian noise."""
# Up to so many rows "auto" is an exact GP, which has no inducing points that could be too few.
_FEW_ROWS = 1000
# Rows of the largest exact GP: its covariance takes 8 N^2 bytes, an iteration N^3 operations.
_MOST_EXACT_ROWS = 10_000
_HELD_OUT, _MOST_HELD_OUT = 0.1, 2000
# Rounds of the choice: steps of each candidate without a budget, and fractions of a budget.
_ROUNDS = ((100, 0.2), (200, 0.2))
# Steps whose time is measured before the number of steps within a budget is known.
_MEASURED = 10
_MIN_NOISE, _START_NOISE = 0.01, 0.1
_BASELINES = ("constant", "linear")


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
    """A trained model, and how it was chosen."""

    model: GPModel
    method: str
    attempts: tuple[Attempt, ...]
    reason: str


@dataclasses.dataclass(frozen=True)
class Task:
    """
    A table to learn from, and everything that was asked for.

    :param dataset: standardized; only its training rows are used.
    :param kernel: a kernel to copy; None for the one that ``options`` name.
    :param likelihood: a name, a likelihood to copy, or None for the usual one.
    :param options: options of the method by name, see ``RunConfig``.
    """

    dataset: Dataset
    kernel: gpflow.kernels.Kernel | None = None
    likelihood: Any = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0

    @property
    def num_classes(self) -> int | None:
        """None for regression."""
        return self.dataset.num_classes

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        given = self.likelihood
        gaussian = given in (None, "gaussian") or isinstance(given, gpflow.likelihoods.Gaussian)
        return self.num_classes is None and gaussian


def candidates(task: Task) -> list[str]:
    """The methods that "auto" tries for a table."""
    N, D = task.dataset.train[0].shape
    if N <= _FEW_ROWS:
        return [EXACT if task.is_gaussian else "solvegp"]
    if not task.is_gaussian:
        return ["solvegp", "swsgp"]
    return ["solvegp", "softki", "swsgp", *(["grief"] if D <= 10 else [])]


def choose(
    task: Task,
    method: str = "auto",
    *,
    seconds: float | None = None,
    start: GPModel | None = None,
    report: Any = None,
) -> Choice:
    """
    The trained model of a method, or of the candidate that predicts held-out rows best.

    Candidates are trained in two rounds on nine tenths of the rows; after the first the better half
    by the mean log density of the held-out rows goes on (successive halving). The winner is trained
    on all rows, from the hyperparameters it has learned.

    :param method: "auto", "exact", or a method of ``gpflow-sparse methods``.
    :param seconds: time after which no training step begins; None for numbers of steps.
    :param start: a trained model of the same method, whose parameters are the start.
    :param report: called with a line of progress.
    :raises ValueError: for an unknown method, or one that does not fit the table.
    """
    begin = time.perf_counter()
    end = begin + (math.inf if seconds is None else seconds)
    report = report or (lambda line: None)
    names = candidates(task) if method == "auto" else [_known(method, task)]
    attempts: list[Attempt] = []
    reason = f"{names[0]} was asked for."
    if method == "auto" and len(names) == 1:
        reason = f"{names[0]} is the method for at most {_FEW_ROWS} rows."
    if len(names) > 1:
        winner, attempts = _halve(task, names, begin, seconds, report)
        names, start = [winner.method], winner.model
        reason = _reason(winner.method, attempts)
    final = Candidate(task, names[0], task.dataset.train, start)
    if seconds is None:
        final.train(final.config.num_steps)
    else:
        final.train_until(end)
    final.model.standardizer = task.dataset.standardizer
    report(f"{names[0]}: {final.num_steps} steps on all rows; {reason}")
    return Choice(final.model, names[0], tuple(attempts), reason)


def _reason(method: str, attempts: list[Attempt]) -> str:
    """Why a candidate was chosen, and what predicts better although it is no candidate."""
    scores = {attempt.method: attempt.nlpd for attempt in attempts}
    reason = (
        f"{method} has the lowest NLPD on held-out rows of the candidates, {scores[method]:.3f}"
    )
    better = [name for name in _BASELINES if scores[name] < scores[method]]
    if better:
        reason += f"; the baseline {better[0]} has {scores[better[0]]:.3f}, which is lower"
    return f"{reason}."


class Candidate:
    """
    One method in training.

    :param rows: standardized training rows ``(X, Y)``; may be fewer than those of the task.
    :param start: a trained model of the same method, whose parameters are the start.
    """

    def __init__(self, task: Task, method: str, rows: Rows, start: GPModel | None = None) -> None:
        begin = time.perf_counter()
        self.task, self.method, self.rows = task, method, rows
        self.config = _config(task, method)
        self.num_steps = 0
        self.model = _build(task, self.config, method, rows, start)
        self.seconds = time.perf_counter() - begin
        self._step_seconds = self._first_seconds = math.nan

    def train(self, num_steps: int, until: float = math.inf) -> None:
        """
        Train by a number of steps.

        :param until: value of ``time.perf_counter`` after which no step begins.
        """
        if self.method == EXACT:  # its hyperparameters have been fitted as the start
            return
        begin = time.perf_counter()
        history = fit_model(
            self.model,
            dataclasses.replace(self.config, num_steps=num_steps),
            self.rows,
            callbacks=[lambda state: time.perf_counter() > until],
            progress=False,
        )
        self.num_steps += history.num_steps
        self.seconds += time.perf_counter() - begin
        if history.num_steps > 1:
            self._first_seconds = float(history.seconds[0])
            spent = float(history.seconds[-1]) - self._first_seconds
            self._step_seconds = spent / (history.num_steps - 1)

    def train_until(self, until: float) -> None:
        """Train for as many steps as the time left allows."""
        if math.isnan(self._step_seconds):
            self.train(_MEASURED, until)
        left = until - time.perf_counter() - self._first_seconds
        if self.method != EXACT and left > self._step_seconds:
            self.train(int(left / self._step_seconds), until)

    def score(self, rows: Rows) -> Attempt:
        """Scores on held-out rows."""
        scores = _scores(CachedModel(self.model), rows, self.task.num_classes)
        return Attempt(self.method, *scores, self.num_steps, self.seconds)


def _known(method: str, task: Task) -> str:
    if method not in (EXACT, *METHODS):
        raise ValueError(
            f"method must be auto, {EXACT}, or one of {', '.join(METHODS)}; got {method!r}."
        )
    if method in (EXACT, *FOR_CLASSES) and not task.is_gaussian:
        raise ValueError(f"method {method} is for Gaussian noise; take auto, or solvegp.")
    if method == EXACT and len(task.dataset.train[0]) > _MOST_EXACT_ROWS:
        raise ValueError(
            f"method {EXACT} takes at most {_MOST_EXACT_ROWS} rows, got "
            f"{len(task.dataset.train[0])}; take auto."
        )
    return method


def _config(task: Task, method: str) -> RunConfig:
    """Options of the method; by default at most a quarter of the rows are inducing points."""
    config = RunConfig.of_method("solvegp" if method == EXACT else method, **task.options)
    config = dataclasses.replace(config, seed=task.seed)
    if {"num_inducing", "num_orthogonal"} & set(task.options):
        return config
    return config.shrunk_to(len(np.unique(task.dataset.train[0], axis=0)))


def _build(
    task: Task, config: RunConfig, method: str, rows: Rows, start: GPModel | None
) -> GPModel:
    """The model of a method, its hyperparameters fitted to a subset of rows, or those of start."""
    X, Y = rows
    kernel = copy.deepcopy(task.kernel)
    if kernel is None:
        kernel = make_kernel(config, initialization.median_lengthscales(X, seed=config.seed))
    noise = _START_NOISE
    if start is None and task.is_gaussian and config.num_subset:
        count = len(X) if method == EXACT else min(config.num_subset, len(X))
        try:
            noise = initialization.subset_hyperparameters(
                X, Y, kernel, num_rows=count, seed=config.seed
            )
        except ValueError:  # the data suit no kernel of this kind; medians do
            noise = _START_NOISE
    if method == EXACT:
        model = gpflow.models.GPR(rows, kernel, noise_variance=noise)
    else:
        likelihood = make_likelihood(task.likelihood, task.num_classes, max(noise, _MIN_NOISE))
        model = make_model(config, rows, kernel, likelihood)
    if start is not None:
        _copy_parameters(start, model)
    return model


def _copy_parameters(source: GPModel, target: GPModel) -> None:
    """Give a model all parameters of another one that have the same path and shape."""
    values = gpflow.utilities.parameter_dict(source)
    for path, parameter in gpflow.utilities.parameter_dict(target).items():
        if path in values and values[path].shape == parameter.shape:
            parameter.assign(values[path])


def _halve(
    task: Task, names: list[str], begin: float, seconds: float | None, report: Any
) -> tuple[Candidate, list[Attempt]]:
    """The winner of successive halving, and the last scores of all candidates and baselines."""
    X, Y = task.dataset.train
    order = np.random.default_rng(task.seed).permutation(len(X))
    count = min(_MOST_HELD_OUT, int(_HELD_OUT * len(X)))
    held_out = X[order[:count]], Y[order[:count]]
    rows = X[order[count:]], Y[order[count:]]
    found = {attempt.method: attempt for attempt in _baselines(rows, held_out, task.num_classes)}
    alive: list[Candidate] = []
    end = begin
    for round_number, (num_steps, fraction) in enumerate(_ROUNDS):
        count = len(alive) or len(names)
        for i in range(count):
            end += 0.0 if seconds is None else fraction * seconds / count
            candidate = alive[i] if round_number else Candidate(task, names[i], rows)
            if seconds is None:
                candidate.train(num_steps)
            else:
                candidate.train_until(end)
            found[candidate.method] = candidate.score(held_out)
            report(
                "{}: held-out NLPD {:.3f}, error {:.3f}, {} steps, {:.1f} s".format(
                    *found[candidate.method]
                )
            )
            alive += [] if round_number else [candidate]
        alive.sort(key=lambda candidate: found[candidate.method].nlpd)
        alive = alive[: -(-len(alive) // 2)]
    return alive[0], list(found.values())


def _scores(model: Any, rows: Rows, num_classes: int | None) -> tuple[float, float]:
    """NLPD and error on held-out rows."""
    X, Y = (tf.convert_to_tensor(values, gpflow.default_float()) for values in rows)
    parts = [slice(i, i + 4096) for i in range(0, len(X), 4096)]
    mean = np.concatenate([model.predict_y(X[p])[0].numpy() for p in parts])
    density = [model.predict_log_density((X[p], Y[p])).numpy() for p in parts]
    nlpd = -float(np.mean(np.concatenate(density)))
    if num_classes is None:
        return nlpd, float(metrics.rmse(rows[1], mean))
    return nlpd, float(metrics.error_rate(rows[1], class_probabilities(mean, num_classes)))


def _baselines(rows: Rows, held_out: Rows, num_classes: int | None) -> list[Attempt]:
    """Scores of a constant and of a linear model, which are reported and never chosen."""
    (X, Y), (X_new, Y_new) = rows, held_out
    begin = time.perf_counter()
    if num_classes is not None:
        labels, new = Y[:, 0].astype(int), Y_new[:, 0].astype(int)
        shares = (np.bincount(labels, minlength=num_classes) + 1.0) / (len(labels) + num_classes)
        linear = LogisticRegression(max_iter=200).fit(X, labels)
        P = np.full((len(new), num_classes), 1e-12)
        P[:, linear.classes_] = linear.predict_proba(X_new)
        found = zip(_BASELINES, (np.tile(shares, (len(new), 1)), P), strict=True)
        return [
            Attempt(
                name,
                -float(np.mean(np.log(P[np.arange(len(new)), new]))),
                float(metrics.error_rate(Y_new, P / P.sum(axis=1, keepdims=True))),
                0,
                time.perf_counter() - begin,
            )
            for name, P in found
        ]
    constant = (np.tile(Y.mean(0), (len(Y_new), 1)), np.tile(Y.var(0), (len(Y_new), 1)))
    fits = [BayesianRidge().fit(X, y).predict(X_new, return_std=True) for y in Y.T]
    linear_moments = (
        np.stack([mean for mean, _ in fits], axis=1),
        np.stack([scale**2 for _, scale in fits], axis=1),
    )
    return [
        Attempt(
            name,
            float(metrics.nlpd(Y_new, *moments)) * Y.shape[1],
            float(metrics.rmse(Y_new, moments[0])),
            0,
            time.perf_counter() - begin,
        )
        for name, moments in zip(_BASELINES, (constant, linear_moments), strict=True)
    ]
