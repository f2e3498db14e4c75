"""The training loop: snapshots, steps, and the return to the last good snapshot after a failure."""

import contextlib
import dataclasses
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics import linalg, random_draws
from gpflow_sparse.numerics.replicas import ONE, Replicas
from gpflow_sparse.training.callbacks import Callback, FitState
from gpflow_sparse.training.checkpoints import CheckpointFolder
from gpflow_sparse.training.feed import HELD, Feed, Prefetch
from gpflow_sparse.training.guard import Diagnosis, TrainingError, diagnose
from gpflow_sparse.training.starting import start_from_rows
from gpflow_sparse.training.state import Progress, RunState, Snapshot
from gpflow_sparse.training.step import Step, compile_step, has_stateful_draws
from gpflow_sparse.validation.public_methods import between_steps

_MAX_FAILURES = 3
# Errors of a sum over workers to which one does not contribute.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
)
_SHORTER = 0.5
_MORE_JITTER = 10.0
_ADVICE = (
    "If this happened during training, take a smaller learning rate or smaller natural "
    "steps, and standardize the data."
)


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a run; the message says after which step, and how to resume."""


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[threading.Event]:
    """
    Hold the first Ctrl-C back, which sets the event of this context; a second one acts at once.

    Nothing is held outside of the main thread, where Python delivers no signals; nor where SIGINT
    is ignored, as in the background of a shell script, or handled by other code than Python.
    """
    requested, previous = threading.Event(), signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or previous in (signal.SIG_IGN, None):
        yield requested
        return

    def hold(*_: Any) -> None:
        requested.set()
        signal.signal(signal.SIGINT, previous)
        print("stopping after this step; Ctrl-C again to stop at once", file=sys.stderr)

    signal.signal(signal.SIGINT, hold)
    try:
        yield requested
    finally:
        signal.signal(signal.SIGINT, previous)


@dataclasses.dataclass
class TrainingLoop:
    """
    One run of `fit`.

    A snapshot is taken every ``every`` steps and counts as good once the step after it has been
    finite. A failed step changes nothing; the run goes back to the good snapshot and
    takes the same batches again, with more jitter if a factorization failed and with half the step
    size. The third failure without a new good snapshot ends the run.
    """

    model: gpflow.models.GPModel
    feed: Feed
    optimizer: Any
    gamma: float
    callbacks: Sequence[Callback]
    seed: int
    deterministic: bool
    every: int
    checkpoints: CheckpointFolder | None
    data: Any
    """All data that were passed to `fit`."""
    replicas: Replicas = ONE

    def __post_init__(self) -> None:
        self.progress = Progress()
        self._state = RunState(self.model, self.optimizer, self.callbacks)
        self._good: Snapshot | None = None
        self._pending: Snapshot | None = None
        self._tried: list[str] = []
        self._good_jitter = getattr(self.model, "jitter", None)
        self._stateful_draws = False
        self._step = self._compile()
        alone = self.replicas.count == 1  # replicas search for their own rows
        self._prefetch = Prefetch.of(self.model, self.feed) if alone else None

    def resume(self, total: int) -> None:
        """
        Continue from the newest checkpoint, if there is one.

        :raises ValueError: if it belongs to another run, or has more than ``total`` steps.
        """
        found = self.checkpoints.newest() if self.checkpoints else None
        with self._workers_needed():
            steps = self.replicas.of_each_worker([-1 if found is None else found[0].step])
        if len(set(steps.ravel())) > 1:
            raise ValueError(
                "checkpoint_dir must be one folder that all workers can read; their newest "
                f"checkpoints are of steps {[int(step) for step in steps.ravel()]} (-1: none)."
            )
        if found is None:
            return
        if found[0].step > total:
            raise ValueError(
                f"the checkpoint has done {found[0].step} steps, more than the {total} asked for."
            )
        self._good, self.progress = found
        self._state.put(self._good)
        if self.progress.jitter is not None:
            self.model.jitter = self.progress.jitter  # type: ignore[attr-defined]
        if self.progress.step < total:  # a run that ended here has not prepared its data yet
            self._prepare_data(self.progress.step)
            self._good = self._state.take(self.progress.step)
        self._step = self._compile()

    def run(self, total: int, show: Callable[[int, float, float], None]) -> None:
        """
        Train until ``total`` steps are done or a callback asks to stop.

        :param show: called after every step with steps done, objective and seconds.
        :raises TrainingError: if a failure remains; the model then is in its last good state.
        :raises TrainingInterrupted: after Ctrl-C, with checkpoint and model complete; in the last
            step too, so that the calling script stops.
        """
        start = time.perf_counter() - (self.progress.seconds or [0.0])[-1]
        with _ctrl_c_held() as interrupted, self._workers_needed():
            while True:
                flags = [self.progress.stopped, interrupted.is_set()]
                self.progress.stopped, is_interrupted = self.replicas.any_of(flags)
                complete = self.progress.stopped or self.progress.step >= total
                if not (complete or is_interrupted):
                    self._advance(start, show)
                elif self._verify():
                    break
        # stateful draws are repeated from multiples of `every` only: resume from the last of them
        if self.checkpoints and (complete or not (self.deterministic and self._stateful_draws)):
            self.checkpoints.save(self._state.take(self.progress.step), self.progress)
        if is_interrupted:
            raise TrainingInterrupted(self._interruption_message(total, complete))

    @contextlib.contextmanager
    def _workers_needed(self) -> Iterator[None]:
        """:raises TrainingError: if another worker does not take part in a sum."""
        try:
            yield
        except _LOST as error:
            if self.replicas.num_workers == 1:
                raise
            raise TrainingError(
                f"step {self.progress.step + 1}: another worker has ended or does not answer "
                f"({type(error).__name__}). Start all workers again, with resume=True to continue "
                "from the newest checkpoint."
            ) from error

    def _compile(self) -> Step:
        self._fresh = True
        # a graph's stateful draws start again when it is traced, from this seed
        (seed,) = np.random.SeedSequence([self.seed, self.progress.step]).generate_state(1)
        scale = self.progress.scale
        options = scale, int(seed), self.replicas
        return compile_step(self.model, self.feed, self.optimizer, self.gamma, *options)

    def _advance(self, start: float, show: Callable[[int, float, float], None]) -> None:
        step = self.progress.step
        if step % self.every == 0 and (self._good is None or self._good.step < step):
            self._prepare_data(step)
            self._state.agree(self.replicas)
            self._pending = self._state.take(step)
            if self._stateful_draws and not self._fresh:
                self._step = self._compile()
        loss = self._evaluate(step, move=True)
        if loss is None:
            self._recover(step)
            return
        if self._pending is not None:
            self._promote(self._pending)
        self.progress.step += 1
        self.progress.elbo.append(-loss)
        self.progress.seconds.append(time.perf_counter() - start)
        show(self.progress.step, -loss, self.progress.seconds[-1])
        state = FitState(self.progress.step, -loss, self.model)
        # every callback is called, also after one has asked to stop
        self.progress.stopped = sum(bool(callback(state)) for callback in self.callbacks) > 0

    def _verify(self) -> bool:
        """Whether the loss is finite at the current parameters, which no step has evaluated."""
        step = self.progress.step
        if step == 0 or (self._good is not None and self._good.step == step):
            return True
        if self._evaluate(step - 1, move=False) is not None:
            return True
        self._recover(step - 1)
        return False

    def _evaluate(self, step: int, *, move: bool) -> float | None:
        """The loss of a step, or None if it or its gradients were not finite."""
        arguments = self._arguments(step)
        if move:
            self._prepare("prepare_step", step, step, lambda: self.feed.lookup(*arguments))
        if move and self._prefetch is not None:
            self._prefetch.begin(step + 1)
        inputs = (tf.constant(move), self._seed_of(step), *arguments)
        try:
            with between_steps(self.model):
                loss, finite = self._step(*inputs)
        except (tf.errors.InvalidArgumentError, linalg.FactorizationError):
            return None
        except tf.errors.ResourceExhaustedError as error:
            raise TrainingError(
                f"step {step + 1} ran out of memory: take a smaller batch_size or fewer inducing "
                "points."
            ) from error
        if self._fresh and self.deterministic:
            self._stateful_draws = has_stateful_draws(self._step, inputs)
        self._fresh = False
        return float(loss) if bool(finite) else None

    def _seed_of(self, step: int) -> tf.Tensor:
        """The seed ``[2]`` of the draws of the model in a step."""
        return tf.constant([self.seed, step], tf.int64)

    def _prepare_data(self, step: int) -> None:
        """Call the hooks that need all rows, at the first snapshot of an epoch."""
        num_rows, batch_size = self.feed.num_rows, self.feed.batch_size
        due = step == 0
        if num_rows is not None and batch_size is not None:
            snapshots = -(-num_rows // (batch_size * self.every))  # in an epoch, rounded up
            due = step % (snapshots * self.every) == 0
        if due:
            self._prepare("prepare_data", step, self.data)
        if step == 0:
            self._prepare("start_training", step, self.data)
            if self.gamma:
                batch = self.feed.lookup(*self._arguments(step))
                try:
                    with between_steps(self.model):
                        start_from_rows(self.model, batch, self._seed_of(step))
                except ValueError as error:
                    raise self._failed(step, f"in this batch, {error}") from error

    def _prepare(self, hook: str, step: int, *arguments: Any) -> None:
        """Call a method of `TrainingHooks`, if the model has it, with the seed of the step."""
        if self.feed is HELD or getattr(self.model, hook, None) is None:
            return
        try:
            with between_steps(self.model), random_draws.seeded(self._seed_of(step)):
                getattr(self.model, hook)(*arguments)
        except linalg.FactorizationError as error:
            raise self._failed(step, str(error)) from error

    def _arguments(self, step: int) -> tuple[Any, ...]:
        try:
            return self.feed.at(step)
        except ValueError as error:
            raise self._failed(step, f"in this batch, {error}") from error

    def _failed(self, step: int, reason: str) -> TrainingError:
        """The error of a step that cannot be taken, after going back to the good state."""
        return TrainingError(f"step {step + 1}: {reason.rstrip('.')}; {self._go_back()}.")

    def _promote(self, snapshot: Snapshot) -> None:
        self._good, self._pending, self._tried = snapshot, None, []
        self._good_jitter = getattr(self.model, "jitter", None)
        if self.checkpoints is not None:
            self.checkpoints.save(snapshot, self.progress)

    def _recover(self, step: int) -> None:
        """
        Find out why ``step`` failed, go back to the good state, and change something.

        :raises TrainingError: if nothing is left to change, or it has not helped.
        """
        batch = self.feed.lookup(*self._arguments(step))
        with random_draws.seeded(self._seed_of(step)):  # the same draws as in the step
            found = diagnose(self.model, batch, self.progress.scale * self.gamma)
        text = f"step {step + 1}: {found.text.rstrip('.')}; {self._go_back()}"
        given_up = found.data_at_fault or len(self._tried) + 1 >= _MAX_FAILURES
        cures = "" if given_up else self._cures(found)
        if not cures:
            if self._tried and hasattr(self.model, "jitter"):
                self.model.jitter = self._good_jitter
            tried = f"; it did not help to continue with {', then '.join(self._tried)}"
            moved = self._good is not None and not found.data_at_fault
            raise TrainingError(
                f"{text}{tried if self._tried else ''}.{f' {_ADVICE}' if moved else ''}"
            )
        self._tried.append(cures)
        self.progress.recoveries.append(f"{text}, and continues with {cures}.")
        warnings.warn(self.progress.recoveries[-1], stacklevel=5)
        self._step = self._compile()

    def _go_back(self) -> str:
        """Restore the last good snapshot, if there is one; return a description."""
        self._pending = None
        if self._good is None:
            return "nothing has moved"
        with between_steps(self.model):
            self._state.put(self._good)
        step = self.progress.step = self._good.step
        del self.progress.elbo[step:], self.progress.seconds[step:]
        self.progress.stopped = False
        return f"the model is back at step {step}"

    def _cures(self, found: Diagnosis) -> str:
        """Raise the jitter and shorten the steps where this may help; return a description."""
        cures = []
        if found.jitter_helps and hasattr(self.model, "jitter"):
            now = linalg.relative_jitter(self.model.dtype, self.model.jitter)
            self.model.jitter = self.progress.jitter = _MORE_JITTER * now
            cures.append(f"model.jitter = {self.model.jitter:.0e}")
        if self._good is not None:
            self.progress.scale *= _SHORTER
            cures.append(f"{self.progress.scale:g} of the step size")
        return " and ".join(cures)

    def _interruption_message(self, total: int, complete: bool) -> str:
        step = self.progress.step
        done = f"fit was interrupted after step {step} of {total}; the model holds it."
        if complete:
            return f"{done} The run is complete."
        if self.checkpoints is None:
            return f"{done} With checkpoint_dir=..., the next run could be resumed exactly."
        return (
            f"{done} The same call with resume=True continues from the checkpoint in "
            f"{self.checkpoints.path}."
        )
