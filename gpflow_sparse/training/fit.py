"""The function `fit`: arguments, their checks and defaults, and the history of a run."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gpflow_sparse.numerics.replicas import Replicas
from gpflow_sparse.numerics.tracing import frees_graphs
from gpflow_sparse.training.callbacks import Callback, as_callback
from gpflow_sparse.training.checkpoints import CheckpointFolder
from gpflow_sparse.training.contract import PartialUpdateModel
from gpflow_sparse.training.feed import HELD, Feed, data_guard, open_feed, require_rows
from gpflow_sparse.training.loop import TrainingLoop
from gpflow_sparse.training.optimizers import NaturalGradients, adam, require_rate
from gpflow_sparse.training.sparse import SparseAdagrad, SparseAdam
from gpflow_sparse.training.state import describe_run
from gpflow_sparse.training.step import steps_in
from gpflow_sparse.validation import checks
from gpflow_sparse.validation.public_methods import explain_arguments

_DEFAULT_GAMMA = 0.1
_INSTEAD = {
    **dict.fromkeys(("X", "Y", "x", "y"), "(X, Y)"),
    **dict.fromkeys(("steps", "maxiter", "max_iter", "iterations"), "num_steps"),
    "epochs": "num_epochs",
    "learning_rate": "optimizer=gs.training.adam(learning_rate)",
}


@dataclass(frozen=True)
class History:
    """Objective and time of every step of a training run."""

    elbo: np.ndarray
    """Objective of each step's batch, in nats, ``[num_steps]``."""
    seconds: np.ndarray
    """Wall time since the start of the loop at the end of each step, compilation included."""
    stopped_early: bool
    """Whether a callback ended the run."""
    recoveries: tuple[str, ...] = ()
    """Failures during training and the remedies taken, one sentence each."""

    @property
    def num_steps(self) -> int:
        """Steps done."""
        return len(self.elbo)


@explain_arguments("fit(model, (X, Y), num_steps=100)", _INSTEAD)
@frees_graphs
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
    checkpoint_dir: Any = None,
    checkpoint_every: int = 100,
    resume: bool = False,
    seed: int = 0,
    deterministic: bool = False,
    progress: bool = True,
    strategy: Any = None,
    strategy_timeout: float = 600.0,
    precision: str = "full",
) -> History:
    """
    Maximize a model's objective by compiled stochastic gradient steps.

    Works for every model of this package and for GPflow's own, but for CGLB, which GPflow itself
    cannot compile.

    A step whose loss, gradients or natural step are not finite changes nothing. The run returns to
    its last good snapshot, raises ``model.jitter`` tenfold if a factorization failed, halves the
    step size, warns, and continues; ``History.recoveries`` lists this. After three failures
    in a row the model is left in its last good state and :class:`TrainingError` names the matrix,
    parameter or data column at fault. The first Ctrl-C takes effect after the step in progress.

    :param model: changed in place.
    :param data: ``(X [N, D], Y [N, P])`` as arrays or ``np.memmap``, such as ``data`` of
        ``gpflow_sparse.data.open_shards``, a ``tf.data.Dataset`` of batches, or None for a model
        that holds its data.
    :param optimizer: a Keras optimizer of either Keras (only ``apply_gradients`` is used), learning
        rate schedules included, or a sparse one of ``gpflow_sparse.training``; default
        ``adam(0.01)``. Models with row-wise updates take sparse ones only; default
        ``SparseAdagrad`` with a rate that falls from 0.1 to 0, for SWSGP ``SparseAdam`` from 0.02.
    :param num_steps: number of steps; exactly one of this and
    :param num_epochs: number of passes over the data.
    :param batch_size: rows per step; default all data up to 1024 rows, else 1024.
    :param natural_gradients: update ``(q_mu, q_sqrt)`` of each inducing set by natural gradients of
        step size 0.1, or of the size given, and only the other parameters by the optimizer. All
        updates of a step share one evaluation of the objective. As with GPflow's
        ``NaturalGradient``, the pairs are updated whether or not they are set trainable.
    :param callbacks: called as ``callback(FitState)`` after each step, a true return value ends the
        run; GPflow monitors and monitor tasks are called as ``monitor(step)``. The state of a
        callback with ``get_state`` and ``set_state`` is checkpointed. Callbacks are called again
        for steps that are repeated after a failure.
    :param checkpoint_dir: folder for checkpoints of parameters, optimizer, step, position in the
        data, callbacks and history; None writes none. Each is one file, written as a whole or not
        at all; the last two are kept.
    :param checkpoint_every: steps between checkpoints, and between snapshots to go back to.
    :param resume: continue from the newest checkpoint of ``checkpoint_dir``, if there is one.
        Everything but the number of steps must be as it was. A ``tf.data.Dataset`` is read up to
        that step, and has the same order only if its own shuffling is seeded.
    :param seed: seed of the order of the rows and of the draws of the model: step ``k`` draws from
        ``(seed, k)``, whatever else the process draws. Some of GPflow's likelihoods, such as
        ``Softmax``, draw by stateful operations; these follow ``seed`` too, but depend on all
        steps before.
    :param deterministic: equal runs end with the same bits, resumed runs included.
        Turns on TensorFlow's op determinism for the whole process, and with it sets TensorFlow's
        global seed, without which random operations would raise. A step whose likelihood has
        stateful draws is traced again every ``checkpoint_every`` steps.
    :param progress: draw a progress bar if standard error is a terminal.
    :param strategy: a ``MirroredStrategy``, ``MultiWorkerMirroredStrategy`` or
        ``OneDeviceStrategy`` of ``tf.distribute``. Each of its replicas computes the gradients of
        its part of every batch; their sum equals the gradient of one process, up to rounding. The
        model, the optimizer and this call belong outside of ``strategy.scope()``. With several
        workers, all make the same call with the same data, callbacks included; the chief writes
        checkpoints, into a folder that all can read, and Ctrl-C in one ends all. Objectives that
        are not sums over rows (SoftKI; without ``num_data``) are computed by every worker from
        the whole batch. Stateful draws, as ``Softmax`` has them, are unbiased but differ from the
        draws of one process.
    :param strategy_timeout: seconds to wait for another worker in a step.
    :param precision: "mixed" computes matrices with a column for each row of the batch, and their
        products, in float32, for about 0.6 of the time of a step: for ``SOLVEGP``. Parameters,
        optimizer, covariances of inducing points, their factors, and predictions stay in float64.
    :return: the history, steps before a resumption included.
    :raises ValueError: for data or options that do not fit the model, before the first step; for a
        checkpoint of another run.
    :raises TrainingError: if NaN or infinity occurs and no remedy helps.
    :raises TrainingInterrupted: (a ``KeyboardInterrupt``) after Ctrl-C; model and checkpoint hold
        the last step.
    """
    checks.require_flag(resume, "resume")
    checks.require_flag(deterministic, "deterministic")
    checks.require_flag(progress, "progress")
    _require_precision(model, precision)
    feed, whole = _open_feed(model, data, batch_size, checks.require_seed(seed))
    replicas = _open_replicas(model, strategy, strategy_timeout)
    feed = require_rows(feed, replicas.count)
    total = _total_steps(num_steps, num_epochs, feed)
    gamma = _step_size(natural_gradients)
    optimizer = _default(model, total) if optimizer is None else _require_optimizer(optimizer)
    hooks = _require_callbacks(callbacks)
    every = checks.require_count(checkpoint_every, "checkpoint_every")
    settings: dict[str, Any] = {
        "seed": int(seed),
        "natural_gradients": gamma,
        "checkpoint_every": every,
        "deterministic": deterministic,
        "precision": precision,
    }
    if deterministic:
        tf.config.experimental.enable_op_determinism()
        tf.random.set_seed(int(seed))
    if resume and checkpoint_dir is None:
        raise ValueError("resume=True needs checkpoint_dir, the folder of the run.")
    folder = None
    if checkpoint_dir is not None:
        settings |= describe_run(model, feed, optimizer)
        chief = replicas.is_chief
        folder = CheckpointFolder(checkpoint_dir, settings, resume=resume, write=chief)
    options = int(seed), deterministic, every
    with steps_in(precision):
        loop = TrainingLoop(model, feed, optimizer, gamma, hooks, *options, folder, whole, replicas)
        if resume:
            loop.resume(total)
        with progress_bar(total, enabled=progress and replicas.is_chief) as show:
            loop.run(total, show)
    done = loop.progress
    return History(
        np.array(done.elbo), np.array(done.seconds), done.stopped, tuple(done.recoveries)
    )


@contextlib.contextmanager
def progress_bar(num_steps: int, *, enabled: bool) -> Iterator[Callable[[int, float, float], None]]:
    """
    A bar that shows steps, objective, steps per second and time left, if standard error is a
    terminal; the value is a function of steps done, objective and seconds, which updates it.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("fit"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("ELBO {task.fields[elbo]}"),
        TextColumn("{task.fields[rate]} steps/s, left"),
        TimeRemainingColumn(),
    )
    hidden = not (enabled and console.is_terminal)
    with Progress(*columns, console=console, disable=hidden) as bar:
        task = bar.add_task("fit", total=num_steps, elbo="-", rate="-")

        def show(step: int, elbo: float, seconds: float) -> None:
            rate = f"{step / seconds:.1f}" if seconds > 0 else "-"
            bar.update(task, completed=step, elbo=f"{elbo:.4g}", rate=rate)

        yield show


def _default(model: Any, total: int) -> Any:
    """Adam; for a model with row-wise updates, a sparse optimizer whose rate falls to 0."""
    if not isinstance(model, PartialUpdateModel):
        return adam()
    if model.default_optimizer == "adam":
        return SparseAdam(tf_keras.optimizers.schedules.CosineDecay(0.02, total), dense=adam())
    return SparseAdagrad(tf_keras.optimizers.schedules.CosineDecay(0.1, total))


def _open_replicas(model: Any, strategy: Any, timeout: float) -> Replicas:
    """:raises ValueError: for a model or a call in the scope of a strategy."""
    variables = getattr(model, "variables", ())
    mirrored = any(isinstance(v, tf.distribute.DistributedValues) for v in variables)
    if tf.distribute.has_strategy() or mirrored:
        raise ValueError(
            "strategy must be an argument: build the model and call fit outside of "
            "strategy.scope(), and pass strategy=strategy."
        )
    if require_rate(timeout, "strategy_timeout") == 0.0:
        raise ValueError("strategy_timeout must be positive, got 0.")
    return Replicas(strategy, timeout)


def _step_size(natural_gradients: bool | float) -> float:
    """The size of natural-gradient steps; 0 for none."""
    flag = isinstance(natural_gradients, bool)
    gamma = _DEFAULT_GAMMA * natural_gradients if flag else natural_gradients
    return require_rate(gamma, "natural_gradients")


def _require_precision(model: Any, precision: str) -> None:
    """:raises ValueError: for an unknown precision, or "mixed" with a model that has none."""
    checks.require_choice(precision, "precision", ("full", "mixed"))
    if precision == "full":
        return
    if not getattr(model, "takes_mixed_precision", False):
        raise ValueError(
            f"precision must be 'full' for a {type(model).__name__}; SOLVEGP takes 'mixed'."
        )
    if model.dtype != tf.float64:
        raise ValueError(
            f"precision must be 'full' for a model in {model.dtype.name}; 'mixed' is for float64."
        )


def _open_feed(model: Any, data: Any, batch_size: int | None, seed: int) -> tuple[Feed, Any]:
    """Batches of the rows that the model is trained on, and all data as its hooks take them."""
    kind = type(model).__name__
    if not isinstance(model, gpflow.models.BayesianModel):
        raise ValueError(f"model must be a GPflow model, got {kind}.")
    if isinstance(model, gpflow.models.InternalDataTrainingLossMixin):
        for name, value in (("data", data), ("batch_size", batch_size)):
            if value is not None:
                raise ValueError(f"{name} must be None: {kind} holds its data; call fit(model).")
        return HELD, None
    if data is None:
        raise ValueError(f"data is needed: {kind} does not hold its data.")
    rows = model.keep_back(data, seed) if hasattr(model, "keep_back") else data
    if rows is not data and batch_size is not None:  # may exceed the rows left for training
        batch_size = min(checks.require_count(batch_size, "batch_size"), len(rows[0]))
    feed = open_feed(rows, batch_size, seed, data_guard(model))
    if hasattr(model, "num_data"):
        _require_num_data(model, feed, feed.num_rows if rows is data else len(data[0]))
    return feed, data


def _require_num_data(model: Any, feed: Feed, num_rows: int | None) -> None:
    """
    Require the ``num_data`` by which the objective of a minibatch is scaled to all rows.

    :param num_rows: rows of the data, held-out ones included; None if not known.
    """
    if num_rows is None:
        if model.num_data is None:
            raise ValueError("the model needs num_data, the number of rows behind the dataset.")
    elif (feed.batch_size != feed.num_rows or model.num_data is not None) and (
        model.num_data is None or int(model.num_data) != num_rows
    ):
        raise ValueError(
            f"the model has num_data={model.num_data}, but batches of {feed.batch_size} are drawn "
            f"from {num_rows} rows: build it with num_data={num_rows}."
        )


def _total_steps(num_steps: int | None, num_epochs: float | None, feed: Feed) -> int:
    if (num_steps is None) == (num_epochs is None):
        raise ValueError("give exactly one of num_steps and num_epochs.")
    if num_epochs is None:
        return checks.require_count(num_steps, "num_steps")
    if feed.num_rows is None or feed.batch_size is None:
        raise ValueError(
            "num_epochs needs data in arrays; give num_steps with a tf.data.Dataset, or to a model "
            "that holds its data."
        )
    if not (checks.is_number(num_epochs) and 0.0 < num_epochs < np.inf):
        raise ValueError(f"num_epochs must be one positive number; got {num_epochs!r}.")
    return int(np.ceil(num_epochs * feed.num_rows / feed.batch_size))


def _require_optimizer(optimizer: Any) -> Any:
    if isinstance(optimizer, gpflow.optimizers.NaturalGradient | NaturalGradients):
        raise ValueError(
            "optimizer must be a Keras optimizer or a sparse one of gs.training; for natural "
            "gradients pass natural_gradients=gamma, or call gs.training.NaturalGradients(gamma) "
            "in a loop of your own."
        )
    if isinstance(optimizer, type) or not hasattr(optimizer, "apply_gradients"):
        raise ValueError(
            "optimizer must be a Keras optimizer, or a sparse one such as "
            f"gs.training.SparseAdagrad(0.1); got {optimizer!r}."
        )
    return optimizer


def _require_callbacks(callbacks: Any) -> list[Callback]:
    if not isinstance(callbacks, Sequence):
        raise ValueError(
            f"callbacks must be a list, got {type(callbacks).__name__}; wrap it in []."
        )
    return [as_callback(callback) for callback in callbacks]
