"""Training of an untrained model as its method is trained."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gpflow
import numpy as np
from gpflow.keras import tf_keras
from gpflow.models import InternalDataTrainingLossMixin

from gpflow_sparse import training
from gpflow_sparse.data.shards import Shards
from gpflow_sparse.inference.chevron import MOST_DENSE
from gpflow_sparse.models import RVM, ResidualNeighborGP, SoftKI
from gpflow_sparse.runs.calibration import LEAST_ROWS
from gpflow_sparse.runs.config import RunConfig
from gpflow_sparse.runs.methods import ROUND_METHODS, SAMPLED_METHODS, UNTRAINED_METHODS
from gpflow_sparse.runs.rows import Pair, watched_rows
from gpflow_sparse.runs.solving import solve
from gpflow_sparse.training.calibration import gain

# Adam's rate for hyperparameters beside Adagrad on weights: their gradients are noisier.
_DENSE_RATE = 0.002
# Evaluations on held-out rows in a run, least steps between them, and least rows for it.
_EVALUATIONS, _LEAST_BETWEEN, _LEAST_WATCHED = 10, 20, 500
# Neighbors on the residual in predictions, as a multiple of those in training, if that is better.
_MORE = 4
# Nats of a row for which predictions may take four times as long.
_LEAST_GAIN = 0.001
# Rows up to which the best q of such a model is found.
_MOST_SOLVED = 50_000
# Iterations of L-BFGS between two choices of the basis functions.
ROUND = 10


class _Plan(NamedTuple):
    """What is done on the way of a training, and the rows for it."""

    callbacks: list[training.KeepBest]
    rows: Pair
    evaluating: float = 0.0
    """Expected seconds of the callbacks in all."""
    closing: float = 0.0
    """Expected seconds of closed forms after the last step."""


def fit_model(
    model: gpflow.models.GPModel,
    config: RunConfig,
    rows: Pair | Shards,
    *,
    until: float = math.inf,
    **options: Any,
) -> training.History:
    """
    Train a model as its method is trained: by steps; grief and basis_gpr by L-BFGS, ten iterations
    a step of the history; exact GPs and gpnn not at all, since their start is the optimum; by dual
    blocks, see :func:`gpflow_sparse.runs.solving.solve`, a pass a step of the history.

    :param rows: standardized training rows ``(X, Y)``; or those of files, with which the methods of
        :data:`gpflow_sparse.runs.folders.METHODS` are trained by steps alone.
    :param until: value of ``time.perf_counter`` after which no step begins. The number of steps is
        taken to need the time until then; neighbors on the residual, whose closed forms before and
        after the steps need much of it, take as many fewer steps, and end about then.
    :param options: further arguments of ``training.fit``.
    """
    if isinstance(rows, Shards):
        return _fit_shards(model, config, rows, **options)
    if config.method in UNTRAINED_METHODS:
        start = time.perf_counter()
        objective = -float(model.training_loss())
        seconds = time.perf_counter() - start
        return training.History(np.array([objective]), np.array([seconds]), False)
    if config.method == "dual":
        names = ("checkpoint_dir", "resume", "progress")
        return solve(model, config, **{name: options[name] for name in names if name in options})
    if config.method in ROUND_METHODS:
        return training.fit_in_rounds(
            model,
            num_rounds=-(-config.num_steps // ROUND),
            num_iterations=ROUND,
            progress=options.get("progress", True),
        )
    return _fit_steps(model, config, rows, until, options)


def _fit_steps(
    model: gpflow.models.GPModel,
    config: RunConfig,
    rows: Pair,
    until: float,
    options: dict[str, Any],
) -> training.History:
    """Train by steps, with the closed forms of the method before and after them."""
    holds_data = isinstance(model, InternalDataTrainingLossMixin)
    unsuited = config.has_neighbors or config.method in ("softki", *SAMPLED_METHODS)
    begin = time.perf_counter()
    with _closed_forms(model, config, rows, until) as plan:
        config, end, rows = _within(config, begin, until, plan), until - plan.closing, plan.rows
        given: list[Any] = [*options.get("callbacks", ()), *plan.callbacks]
        options["callbacks"] = [*given, lambda state: time.perf_counter() > end]
        return training.fit(
            model,
            None if holds_data else rows,
            optimizer=_optimizer(config),
            num_steps=config.num_steps,
            batch_size=None if holds_data else min(config.batch_size, len(rows[0])),
            natural_gradients=False if holds_data or unsuited else config.natural_gradients,
            precision=config.precision,
            seed=config.seed,
            **options,
        )


def _fit_shards(
    model: gpflow.models.GPModel, config: RunConfig, rows: Shards, **options: Any
) -> training.History:
    """Train on minibatches; with SoftKI, then read all rows once more, also after Ctrl-C."""
    model.num_data = rows.num_rows  # it was built from a sample
    unsuited = config.has_neighbors or config.method == "softki"
    try:
        return training.fit(
            model,
            rows,
            optimizer=_optimizer(config),
            num_steps=config.num_steps,
            batch_size=min(config.batch_size, rows.num_rows),
            natural_gradients=False if unsuited else config.natural_gradients,
            precision=config.precision,
            seed=config.seed,
            **options,
        )
    finally:
        if isinstance(model, SoftKI):
            model.fit_posterior(rows.batches())


def _within(config: RunConfig, begin: float, until: float, plan: _Plan) -> RunConfig:
    """The run with as many steps as fit into the time that is left, of those from ``begin`` on."""
    if not plan.closing or math.isinf(until):
        return config
    left = until - time.perf_counter() - plan.evaluating - plan.closing
    num_steps = int(config.num_steps * left / max(until - begin, 1e-9))
    return dataclasses.replace(config, num_steps=max(1, min(config.num_steps, num_steps)))


@contextlib.contextmanager
def _closed_forms(
    model: gpflow.models.GPModel, config: RunConfig, rows: Pair, until: float
) -> Iterator[_Plan]:
    """What is solved for before and after the steps, also after Ctrl-C."""
    every = max(_LEAST_BETWEEN, config.num_steps // _EVALUATIONS)
    if isinstance(model, SoftKI):
        callbacks = []
        if model.held_out and len(rows[0]) >= _LEAST_WATCHED:
            # points and temperature learn the rows of many columns by heart
            callbacks = [training.KeepBest(lambda m: m.held_out_density(rows), every=every)]
        try:
            yield _Plan(callbacks, rows)
        finally:
            for best in callbacks:
                best.update(model)
                best.restore(model)
            model.fit_posterior(rows)
    elif _can_keep_best(model, config, rows):
        with _best_of_neighbors(model, config, rows, every, until) as plan:
            yield plan
    elif _has_best_mean(model):
        model.update_mean(rows)
        try:  # steps alone take thousands to the weights of overlapping functions
            yield _Plan([], rows)
        finally:
            model.refine(rows)
    else:
        yield _Plan([], rows)


@contextlib.contextmanager
def _best_of_neighbors(
    model: ResidualNeighborGP, config: RunConfig, rows: Pair, every: int, until: float
) -> Iterator[_Plan]:
    """
    Train on nine tenths of the rows from the closed form of their q, and keep the parameters that
    predict the others best: those of the start, of a step, or of the end with q in closed form
    again, if there is time for that; and the number of neighbors for predictions that does. Where q
    is in closed form, it is that of all rows in the end.
    """
    watched, rest = ((rows[0][part], rows[1][part]) for part in watched_rows(len(rows[0])))
    best = training.KeepBest(_score_of(watched, config, len(rows[0])), every=every)
    num_data, model.num_data = model.num_data, len(rest[0])
    if config.num_neighbors is not None:  # more, after an earlier call
        model.set_neighbors(min(config.num_neighbors, int(model.q_mu.shape[0])))
    of_form = _seconds(lambda: model.start_from_sites(rest))
    of_score = _seconds(lambda: best.update(model))
    of_counts = _seconds(lambda: model.prepare_data(rest))
    at_start = best.best
    # each of sites, and of the best q, which takes at most as long as they
    closing = 2.0 * (of_form + of_counts) * (1 + _can_solve(rows)) + (3.0 + _MORE) * of_score
    try:
        yield _Plan([best], rest, _EVALUATIONS * of_score, closing)
    finally:
        best.update(model)
        trained, is_solved = best.best, False
        has_time = time.perf_counter() + closing - 0.5 * of_form < until
        if has_time:  # q that is trained by few steps is worse than its start
            _improves(best, model, lambda: model.start_from_sites(rest))
        best.restore(model)
        is_started = best.best > trained or best.best == at_start
        if has_time and _can_solve(rows):
            is_solved = _improves(best, model, lambda: _solve_q(model, rest))
        model.num_data = num_data
        wanted = _neighbors_for_predictions(model, best)
        if is_started:
            model.start_from_sites(rows)
        if is_solved:
            _solve_q(model, rows)
        model.set_neighbors(wanted)
        model.prepare_data(rows)


def _can_solve(rows: Pair) -> bool:
    """Whether the sparse system of the best q, of all pairs of neighbors, is not too large."""
    return len(rows[0]) <= _MOST_SOLVED


def _solve_q(model: ResidualNeighborGP, rows: Pair) -> None:
    """The best q of the residual, where it has a closed form and is found."""
    model.prepare_data(rows)
    with contextlib.suppress(ValueError):
        model.update_posterior(rows)


def _improves(best: training.KeepBest, model: Any, change: Callable[[], Any]) -> bool:
    """Whether the model predicts held-out rows better after a change, which is undone if not."""
    before = best.best
    change()
    best.update(model)
    best.restore(model)
    return best.best > before


def _score_of(watched: Pair, config: RunConfig, num_rows: int) -> Callable[[Any], float]:
    """Mean log density of these rows; as calibrated, where the model will be."""

    def score(model: Any) -> float:
        found = float(np.mean(model.predict_log_density(watched)))
        gaussian = isinstance(model.likelihood, gpflow.likelihoods.Gaussian)
        if config.calibrate and num_rows >= LEAST_ROWS and gaussian and np.isfinite(found):
            found += gain(model, watched)
        return found

    return score


def _neighbors_for_predictions(model: ResidualNeighborGP, best: training.KeepBest) -> int:
    """The number of neighbors, or four times as many if these predict clearly better."""
    few, before = int(model.points.num_neighbors), best.best
    more = min(_MORE * few, int(model.q_mu.shape[0]))
    _improves(best, model, lambda: model.set_neighbors(more))
    model.set_neighbors(few)
    return more if best.best > before + _LEAST_GAIN else few


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _can_keep_best(model: gpflow.models.GPModel, config: RunConfig, rows: Pair) -> bool:
    """Whether the model starts in closed form and may predict worse when it is trained."""
    enough = len(watched_rows(len(rows[0]))[0]) > 0 and config.num_steps >= _LEAST_BETWEEN
    return enough and isinstance(model, ResidualNeighborGP) and model.start == "sites"


def _has_best_mean(model: gpflow.models.GPModel) -> bool:
    if not isinstance(model, RVM):
        return False
    return model.basis.num_basis <= MOST_DENSE and isinstance(
        model.likelihood, gpflow.likelihoods.Gaussian
    )


def _optimizer(config: RunConfig) -> Any:
    rate: Any = config.learning_rate
    steps, constant = config.num_steps, config.schedule == "constant"
    adam = training.adam(rate)
    if not constant:
        adam = training.adam(rate, decay_steps=steps, warmup_steps=min(20, steps - 1))
        rate = tf_keras.optimizers.schedules.CosineDecay(rate, steps)
    if config.has_neighbors:
        return training.SparseAdam(rate, dense=adam)
    if config.method in SAMPLED_METHODS:
        dense = None if constant else training.adam(_DENSE_RATE, decay_steps=steps)
        return training.SparseAdagrad(rate, dense=dense)
    return adam
