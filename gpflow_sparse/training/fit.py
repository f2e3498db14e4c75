"""The one training loop."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.checks import require_count
from gpflow_sparse.training.callbacks import FitState, as_callback
from gpflow_sparse.training.feed import Feed, data_guard, open_feed
from gpflow_sparse.training.optimizers import adam, apply_natural_step, natural_pairs
from gpflow_sparse.training.progress import FitProgress

_DEFAULT_GAMMA = 0.1


class TrainingError(RuntimeError):
    """Training met a loss that is not finite; the message says where and what to try."""


@dataclass(frozen=True)
class History:
    """What happened, step by step."""

    elbo: np.ndarray
    """Objective of each step's batch, in nats, ``[num_steps]``."""
    seconds: np.ndarray
    """Wall time since the start of the loop at the end of each step, compilation included."""
    stopped_early: bool
    """Whether a callback ended the run."""

    @property
    def num_steps(self) -> int:
        """Steps done."""
        return len(self.elbo)


def fit(
    model: gpflow.models.GPModel,
    data: Any = None,
    *,
    optimizer: Any = None,
    num_steps: int | None = None,
    num_epochs: float | None = None,
    batch_size: int | None = None,
    natural_gradients: bool | float = False,
    callbacks: Sequence[Any] = (),
    seed: int = 0,
    progress: bool = True,
) -> History:
    """
    Maximize a model's objective by compiled stochastic gradient steps.

    Works for every model of this package and for GPflow's own.

    :param model: changed in place.
    :param data: ``(X [N, D], Y [N, P])`` as arrays or ``np.memmap``, a ``tf.data.Dataset`` of
        batches, or None for a model that holds its data.
    :param optimizer: a Keras optimizer of either Keras (only ``apply_gradients`` is used), learning
        rate schedules included; default ``gpflow_sparse.training.adam(0.01)``.
    :param num_steps: how many steps; or give
    :param num_epochs: how many passes over the data.
    :param batch_size: rows per step; default all data up to 1024 rows, else 1024.
    :param natural_gradients: move ``(q_mu, q_sqrt)`` of each inducing set by natural gradients of
        step size 0.1, or of the size given, and only the rest by the optimizer. All steps of an
        iteration share one evaluation of the objective. As with GPflow's ``NaturalGradient``, the
        pairs move whether or not they are set trainable.
    :param callbacks: called as ``callback(FitState)`` after each step, a true return value ends the
        run; GPflow monitors and monitor tasks are called as ``monitor(step)``.
    :param seed: order of the rows.
    :param progress: draw a progress bar if standard error is a terminal.
    :return: the history.
    :raises ValueError: for data or options that do not fit the model, before the first step.
    :raises TrainingError: when the objective is not finite or a factorization fails.
    """
    if not isinstance(model, gpflow.models.BayesianModel):
        raise ValueError(f"model must be a GPflow model, got {type(model).__name__}.")
    holds_data = isinstance(model, gpflow.models.InternalDataTrainingLossMixin)
    feed = None
    if holds_data and data is not None:
        raise ValueError(f"data must be None: {type(model).__name__} holds its data.")
    if data is not None:
        feed = open_feed(data, batch_size, seed, data_guard(model))
        _require_num_data(model, feed)
    elif not holds_data:
        raise ValueError(f"data is needed: {type(model).__name__} does not hold its data.")
    total = _total_steps(num_steps, num_epochs, feed)
    gamma = _DEFAULT_GAMMA if natural_gradients is True else float(natural_gradients)
    if not gamma >= 0.0:
        raise ValueError(f"natural_gradients must be True, False or a step size, got {gamma}.")
    optimizer = adam() if optimizer is None else optimizer
    if isinstance(optimizer, type) or not hasattr(optimizer, "apply_gradients"):
        raise ValueError(f"optimizer must be a Keras optimizer, got {optimizer!r}.")
    step = compile_step(model, feed, optimizer, gamma)
    if not isinstance(callbacks, Sequence):
        raise ValueError(
            f"callbacks must be a list, got {type(callbacks).__name__}; wrap it in []."
        )
    hooks = [as_callback(callback) for callback in callbacks]
    return _run(model, feed, step, total, hooks, progress)


def compile_step(
    model: gpflow.models.GPModel, feed: Feed | None, optimizer: Any, gamma: float
) -> Callable[..., tf.Tensor]:
    """
    One compiled training step: arguments of the feed in, loss out.

    :param gamma: natural-gradient step size; 0 leaves everything to the optimizer.
    """
    pairs = natural_pairs(model) if gamma else ()
    q = [parameter.unconstrained_variable for pair in pairs for parameter in pair]
    q_refs = {variable.ref() for variable in q}
    variables = [v for v in model.trainable_variables if v.ref() not in q_refs]
    if hasattr(optimizer, "build"):  # the legacy optimizers of tf_keras have none and need none
        optimizer.build(variables)

    @tf.function(reduce_retracing=True, autograph=False)
    def step(*arguments: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*variables, *q])
            loss = model.training_loss(*(() if feed is None else (feed.lookup(*arguments),)))
        gradients = tape.gradient(loss, [*variables, *q])
        # a parameter the objective does not depend on has no gradient
        known = [(g, v) for g, v in zip(gradients, variables, strict=False) if g is not None]
        if known:
            optimizer.apply_gradients(known)
        rest = gradients[len(variables) :]
        for i, pair in enumerate(pairs):
            apply_natural_step(pair, (rest[2 * i], rest[2 * i + 1]), gamma)
        return loss

    return step


def _run(
    model: gpflow.models.GPModel,
    feed: Feed | None,
    step: Callable[..., tf.Tensor],
    total: int,
    hooks: Sequence[Callable[[FitState], Any]],
    progress: bool,
) -> History:
    elbo: list[float] = []
    seconds: list[float] = []
    stop = False
    start = time.perf_counter()
    with FitProgress(total, enabled=progress) as bar:
        while len(elbo) < total and not stop:
            number = len(elbo) + 1
            arguments = () if feed is None else next(feed.draw)
            elbo.append(-_finite_loss(step, arguments, number))
            seconds.append(time.perf_counter() - start)
            bar.update(number, elbo[-1], seconds[-1])
            state = FitState(number, elbo[-1], model)
            # every hook is called, also after one has asked to stop
            stop = sum(bool(hook(state)) for hook in hooks) > 0
    return History(np.array(elbo), np.array(seconds), stop)


def _finite_loss(step: Callable[..., tf.Tensor], arguments: Any, number: int) -> float:
    try:
        loss = float(step(*arguments))
    except tf.errors.InvalidArgumentError as error:
        raise TrainingError(f"step {number}: {_first_line(error)}") from error
    if not np.isfinite(loss):
        raise TrainingError(
            f"step {number}: the objective is {loss}. Likely causes: NaN or infinity in this "
            "batch, a learning rate that is too large, data that are not "
            "standardized, float32 with a tiny noise variance."
        )
    return loss


def _first_line(error: tf.errors.InvalidArgumentError) -> str:
    """The message of the failed check, without TensorFlow's node listing."""
    lines = error.message.splitlines()
    text = next((line for line in lines if "Cholesky factorization of" in line), "")
    return text.split(" : Tensor had")[0] or error.message


def _total_steps(num_steps: int | None, num_epochs: float | None, feed: Feed | None) -> int:
    if (num_steps is None) == (num_epochs is None):
        raise ValueError("give exactly one of num_steps and num_epochs.")
    if num_epochs is None:
        return require_count(num_steps, "num_steps")
    if feed is None:
        raise ValueError("num_epochs needs data; a model that holds its data takes num_steps.")
    if feed.num_rows is None or feed.batch_size is None:
        raise ValueError("num_epochs needs arrays; give num_steps with a tf.data.Dataset.")
    if not num_epochs > 0:
        raise ValueError(f"num_epochs must be positive, got {num_epochs}.")
    return int(np.ceil(num_epochs * feed.num_rows / feed.batch_size))


def _require_num_data(model: gpflow.models.GPModel, feed: Feed) -> None:
    """Minibatches count for all the data only if the model knows how many rows there are."""
    if not hasattr(model, "num_data"):
        return
    if feed.num_rows is None:
        if model.num_data is None:
            raise ValueError("the model needs num_data, the number of rows behind the dataset.")
    elif (feed.batch_size != feed.num_rows or model.num_data is not None) and (
        model.num_data is None or int(model.num_data) != feed.num_rows
    ):
        raise ValueError(
            f"the model has num_data={model.num_data}, but batches of {feed.batch_size} are drawn "
            f"from {feed.num_rows} rows: build it with num_data={feed.num_rows}."
        )
