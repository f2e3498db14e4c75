"""The loop itself: step, look, keep what was good, go back when a step fails."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics import linalg, random_draws
from gpflow_sparse.training.ahead import Ahead
from gpflow_sparse.training.callbacks import Callback, FitState
from gpflow_sparse.training.checkpoints import CheckpointFolder
from gpflow_sparse.training.feed import Feed
from gpflow_sparse.training.guard import Diagnosis, TrainingError, diagnose
from gpflow_sparse.training.interrupt import InterruptGuard, TrainingInterrupted
from gpflow_sparse.training.progress import FitProgress
from gpflow_sparse.training.state import Progress, RunState, Snapshot
from gpflow_sparse.training.step import Step, compile_step, has_stateful_draws
from gpflow_sparse.validation.public_methods import between_steps

_MOST_FAILURES = 3
_SHORTER = 0.5
_MORE_JITTER = 10.0
_ADVICE = (
    "If these numbers came about in training, take a smaller learning rate or smaller natural "
    "steps, and standardize the data."
)


class TrainingLoop:
    """
    One run of `fit`.

    A snapshot is taken every ``every`` steps and counts as good once the step after it has met
    finite numbers only. A failed step moves nothing; the run goes back to the good snapshot and
    takes the same batches again, with more jitter if a factorization failed and with half the step
    size. Without a new good snapshot, the third failure ends it.
    """

    def __init__(
        self,
        model: gpflow.models.GPModel,
        feed: Feed | None,
        optimizer: Any,
        gamma: float,
        hooks: Sequence[Callback],
        *,
        seed: int,
        deterministic: bool,
        every: int,
        checkpoints: CheckpointFolder | None = None,
        data: Any = None,
    ) -> None:
        """
        :param data: all of them, for models that look at them all at times.
        """
        self.progress = Progress()
        self._model, self._feed, self._optimizer, self._gamma = model, feed, optimizer, gamma
        self._hooks, self._seed, self._deterministic = hooks, seed, deterministic
        self._every, self._checkpoints, self._data = every, checkpoints, data
        self._epoch = _snapshots_per_epoch(feed, every) * every
        self._state = RunState(model, optimizer, hooks)
        self._good: Snapshot | None = None
        self._pending: Snapshot | None = None
        self._tried: list[str] = []
        self._jitter_then = getattr(model, "jitter", None)
        self._stateful_draws = False
        self._step = self._compile()
        self._ahead = Ahead.of(model, feed)

    def resume(self, total: int) -> None:
        """
        Continue from the newest checkpoint, if there is one.

        :raises ValueError: if it is of another run, or beyond ``total`` steps.
        """
        found = self._checkpoints.newest() if self._checkpoints else None
        if found is None:
            return
        if found[0].step > total:
            raise ValueError(
                f"the checkpoint has done {found[0].step} steps, more than the {total} asked for."
            )
        self._good, self.progress = found
        self._state.put(self._good)
        if self.progress.jitter is not None:
            self._model.jitter = self.progress.jitter
        if self.progress.step < total:  # a run that was stopped here has not looked at its data yet
            self._prepare_data(self.progress.step)
            self._good = self._state.take(self.progress.step)
        self._step = self._compile()

    def run(self, total: int, bar: FitProgress) -> None:
        """
        Train until ``total`` steps are done or a callback says stop.

        :raises TrainingError: if a failure cannot be cured; the model then is in its last good
            state.
        :raises TrainingInterrupted: after Ctrl-C, with everything in place; in the last step too,
            so that the script around it stops.
        """
        start = time.perf_counter() - (self.progress.seconds or [0.0])[-1]
        with InterruptGuard() as interrupt:
            while True:
                complete = self.progress.stopped or self.progress.step >= total
                if not (complete or interrupt.requested):
                    self._advance(start, bar)
                elif self._verify():
                    break
        # stateful draws are repeated from multiples of `every` only: resume from the last of them
        if complete or not (self._deterministic and self._stateful_draws):
            self._keep()
        if interrupt.requested:
            raise TrainingInterrupted(self._how_to_go_on(total, complete))

    def _compile(self) -> Step:
        self._fresh = True
        # a graph's stateful draws start anew when it is traced, from this seed
        seeds = np.random.SeedSequence([self._seed, self.progress.step])
        return compile_step(
            self._model,
            self._feed,
            self._optimizer,
            self._gamma,
            self.progress.scale,
            int(seeds.generate_state(1)[0]),
        )

    def _advance(self, start: float, bar: FitProgress) -> None:
        step = self.progress.step
        if step % self._every == 0 and (self._good is None or self._good.step < step):
            self._prepare_data(step)
            self._pending = self._state.take(step)
            if self._stateful_draws and not self._fresh:
                self._step = self._compile()
        loss = self._evaluate(step, move=True)
        if loss is None:
            self._recover(step)
            return
        if self._pending is not None:
            self._promote(self._pending)
        self.progress.add(-loss, time.perf_counter() - start)
        bar.update(self.progress.step, -loss, self.progress.seconds[-1])
        state = FitState(self.progress.step, -loss, self._model)
        # every hook is called, also after one has asked to stop
        self.progress.stopped = sum(bool(hook(state)) for hook in self._hooks) > 0

    def _verify(self) -> bool:
        """Whether the state is good: no next step has looked at what the last one led to."""
        step = self.progress.step
        if step == 0 or (self._good is not None and self._good.step == step):
            return True
        if self._evaluate(step - 1, move=False) is not None:
            return True
        self._recover(step - 1)
        return False

    def _evaluate(self, step: int, *, move: bool) -> float | None:
        """The loss of a step, or None if a number was not finite."""
        arguments = (tf.constant(move), self._seed_of(step), *self._arguments(step))
        if move and self._feed is not None and hasattr(self._model, "prepare_step"):
            lookup = self._feed.lookup
            self._prepare(
                step, lambda: self._model.prepare_step(step, lambda: lookup(*arguments[2:]))
            )
        if self._ahead is not None and move:
            self._ahead.begin(step + 1)
        try:
            with between_steps(self._model):
                loss, finite = self._step(*arguments)
        except (tf.errors.InvalidArgumentError, linalg.FactorizationError):
            return None
        except tf.errors.ResourceExhaustedError as error:
            raise TrainingError(
                f"step {step + 1} ran out of memory: take a smaller batch_size or fewer inducing "
                "points."
            ) from error
        if self._fresh and self._deterministic:
            self._stateful_draws = has_stateful_draws(self._step, arguments)
        self._fresh = False
        return float(loss) if bool(finite) else None

    def _seed_of(self, step: int) -> tf.Tensor:
        """The seed ``[2]`` of what the model draws in a step."""
        return tf.constant([self._seed, step], tf.int64)

    def _prepare_data(self, step: int) -> None:
        """At the first snapshot of each epoch, so that a look at all rows costs no more than it."""
        due = step % self._epoch == 0 if self._epoch else step == 0
        if due and self._feed is not None and hasattr(self._model, "prepare_data"):
            self._prepare(step, lambda: self._model.prepare_data(self._data))
        if step == 0 and self._feed is not None and hasattr(self._model, "start_training"):
            self._prepare(step, lambda: self._model.start_training(self._data))

    def _prepare(self, step: int, prepare: Callable[[], None]) -> None:
        try:
            with between_steps(self._model), random_draws.seeded(self._seed_of(step)):
                prepare()
        except linalg.FactorizationError as error:
            raise TrainingError(
                f"step {step + 1}: {str(error).rstrip('.')}; {self._go_back()}."
            ) from error

    def _arguments(self, step: int) -> tuple[Any, ...]:
        try:
            return () if self._feed is None else self._feed.at(step)
        except ValueError as error:
            raise TrainingError(
                f"step {step + 1}: in this batch, {str(error).rstrip('.')}; {self._go_back()}."
            ) from error

    def _promote(self, snapshot: Snapshot) -> None:
        self._good, self._pending, self._tried = snapshot, None, []
        self._jitter_then = getattr(self._model, "jitter", None)
        if self._checkpoints is not None:
            self._checkpoints.save(snapshot, self.progress)

    def _keep(self) -> None:
        """The verified state of this moment, on disk."""
        if self._checkpoints is not None:
            self._checkpoints.save(self._state.take(self.progress.step), self.progress)

    def _recover(self, step: int) -> None:
        """
        Find out why ``step`` failed, go back to the good state, and change something.

        :raises TrainingError: if nothing is left to change, or it has not helped.
        """
        batch = None if self._feed is None else self._feed.lookup(*self._arguments(step))
        with random_draws.seeded(self._seed_of(step)):  # what the step drew, drawn again
            found = diagnose(self._model, batch, self.progress.scale * self._gamma)
        text = f"step {step + 1}: {found.text.rstrip('.')}; {self._go_back()}"
        given_up = found.hopeless or len(self._tried) + 1 >= _MOST_FAILURES
        cures = "" if given_up else self._cures(found)
        if not cures:
            if self._tried and hasattr(self._model, "jitter"):
                self._model.jitter = self._jitter_then
            tried = f"; it did not help to go on with {', then '.join(self._tried)}"
            moved = self._good is not None and not found.hopeless
            raise TrainingError(
                f"{text}{tried if self._tried else ''}.{f' {_ADVICE}' if moved else ''}"
            )
        self._tried.append(cures)
        self.progress.recoveries.append(f"{text}, and goes on with {cures}.")
        warnings.warn(self.progress.recoveries[-1], stacklevel=5)
        self._step = self._compile()

    def _go_back(self) -> str:
        """Restore the good state, if there is one; say so."""
        self._pending = None
        if self._good is None:
            return "nothing has moved"
        with between_steps(self._model):
            self._state.put(self._good)
        self.progress.back_to(self._good.step)
        return f"the model is back at step {self._good.step}"

    def _cures(self, found: Diagnosis) -> str:
        """Change what may help; say what was changed."""
        cures = []
        if found.jitter_helps and hasattr(self._model, "jitter"):
            now = linalg.relative_jitter(self._model.dtype, self._model.jitter)
            self._model.jitter = self.progress.jitter = _MORE_JITTER * now
            cures.append(f"model.jitter = {self._model.jitter:.0e}")
        if self._good is not None:
            self.progress.scale *= _SHORTER
            cures.append(f"{self.progress.scale:g} of the step size")
        return " and ".join(cures)

    def _how_to_go_on(self, total: int, complete: bool) -> str:
        done = (
            f"fit was interrupted after step {self.progress.step} of {total}; the model holds it."
        )
        if complete:
            return f"{done} The run is complete."
        if self._checkpoints is None:
            return f"{done} With checkpoint_dir=..., the next run could be resumed exactly."
        return (
            f"{done} The same call with resume=True goes on from the checkpoint in "
            f"{self._checkpoints.path}."
        )


def _snapshots_per_epoch(feed: Feed | None, every: int) -> int:
    """Rounded up; 0 where the source does not say how long an epoch is."""
    if feed is None or feed.num_rows is None or feed.batch_size is None:
        return 0
    return -(-feed.num_rows // (feed.batch_size * every))
