"""L-BFGS in rounds, between which a model may choose its basis functions again."""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics.replicas import Replicas
from gpflow_sparse.numerics.searches import OutOfTimeError, warn_if_unmoved, warn_without_time
from gpflow_sparse.numerics.streaming import has_all_rows, totals_by
from gpflow_sparse.numerics.tracing import frees_graphs, with_gradients
from gpflow_sparse.training.fit import History, progress_bar
from gpflow_sparse.training.guard import TrainingError
from gpflow_sparse.validation import checks, component_checks


@contextlib.contextmanager
def rows_of_workers(strategy: Any, timeout: float = 600.0) -> Iterator[None]:
    """
    In this block, models that hold their data have the rows of all workers.

    Each worker builds the same model from rows of its own, and all make the same calls in the same
    order: sums over rows, of the objective and of its gradients, are added over all workers, so
    that :func:`fit_with_basis_refresh`, GPflow's ``Scipy``, :func:`fit` with ``strategy=None`` and
    ``SoftKI.fit_posterior`` take the steps that one process with all rows would, to rounding. All
    workers need the same kernel, basis and inducing points.

    For ``GRIEF``, ``BasisGPR``, ``SOLVEGPR`` (not with a bound over pairs of rows) and ``SoftKI``'s
    posterior. Each evaluation sends O(M^2) elements, M the number of features.

    :param strategy: a ``MultiWorkerMirroredStrategy``; None for a single process.
    :param timeout: seconds to wait for another worker.
    :raises ValueError: for another kind of strategy.
    """
    with totals_by(Replicas(strategy, timeout).total):
        yield


@frees_graphs
def fit_with_basis_refresh(
    model: Any,
    *,
    num_rounds: int = 7,
    num_iterations: int = 10,
    seconds: float | None = None,
    progress: bool = True,
) -> History:
    """
    Maximize a deterministic objective by rounds of L-BFGS, with ``model.refresh_basis()`` between.

    The choice of eigenfunctions in :class:`~gpflow_sparse.models.GRIEF` depends on the
    hyperparameters, and the objective jumps where it changes: by more than a hundred nats with few
    functions, enough to end a line search. So the choice is fixed for a few iterations and then
    made again, until it no longer changes and L-BFGS has converged.

    :param model: a model that holds its data; without a basis to choose, the rounds are L-BFGS
        started again.
    :param num_rounds: largest number of rounds.
    :param num_iterations: largest number of L-BFGS iterations of a round.
    :param seconds: time after which no evaluation of the objective but the first begins; the model
        then has the best parameters so far. None for no limit, as several workers need it.
    :param progress: draw a progress bar if standard error is a terminal.
    :return: the objective and the seconds since the start at the end of every round;
        ``stopped_early`` if it converged before the last round.
    :raises ValueError: for a model of another kind.
    :raises TrainingError: if the objective is not finite at the start of a round; the model then
        has the parameters of the best round so far. A failure within a round ends that round at the
        best point that it evaluated.
    """
    if not isinstance(model, gpflow.models.InternalDataTrainingLossMixin):
        raise ValueError(
            f"model must hold its data, such as GRIEF; got {type(model).__name__}, which is for "
            "fit."
        )
    checks.require_flag(progress, "progress")
    checks.require_count(num_rounds, "num_rounds")
    checks.require_count(num_iterations, "num_iterations")
    component_checks.validate_components(model)
    if seconds is not None:
        seconds = checks.require_positive_number(seconds, "seconds")
        if not has_all_rows():  # a worker that ends alone would leave the others waiting for it
            raise ValueError(
                "seconds must be None in rows_of_workers, as the clocks of workers differ."
            )
    start = time.perf_counter()
    end = math.inf if seconds is None else start + seconds
    objective: list[float] = []
    times: list[float] = []
    stopped = False
    loss = _Loss(model, end)  # one compilation: the choice of functions is in variables
    refresh = getattr(model, "refresh_basis", lambda: False)
    with progress_bar(num_rounds, enabled=progress) as show:
        while len(objective) < num_rounds and not stopped:
            converged = loss.minimize(num_iterations)
            objective.append(-loss.best)
            times.append(time.perf_counter() - start)
            show(len(objective), objective[-1], times[-1])
            if times[-1] > end - start:
                break
            stopped = not refresh() and converged
    return History(np.array(objective), np.array(times), stopped, ())


class _Loss:
    """The training loss, which stores the best point of a round."""

    def __init__(self, model: Any, end: float) -> None:
        """
        :param end: value of ``time.perf_counter`` after which only the first evaluation begins.
        """
        self._variables, self._end = model.trainable_variables, end
        self._loss = with_gradients(model.training_loss, self._variables)
        self.best = np.inf
        self._start = gpflow.optimizers.Scipy.pack_tensors(self._variables).numpy()

    def minimize(self, num_iterations: int) -> bool:
        """:return: whether L-BFGS has converged."""
        self.best, self._values = np.inf, [v.numpy() for v in self._variables]
        try:
            result = gpflow.optimizers.Scipy().minimize(
                self, self._variables, options={"maxiter": num_iterations}, compile=False
            )
            converged = bool(result.success)
            warn_if_unmoved("parameters", self._start, result.x, result.jac)
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            if not np.isfinite(self.best):
                raise TrainingError(f"the objective cannot be computed: {error}") from error
            converged = False
        except OutOfTimeError:
            best = np.concatenate([np.ravel(value) for value in self._values])
            warn_without_time("parameters", self._start, best)
            converged = False
        finally:  # after Ctrl-C too
            for variable, value in zip(self._variables, self._values, strict=True):
                variable.assign(value)
        if not np.isfinite(self.best):
            raise TrainingError("the objective is not finite where the round began.")
        return converged

    def __call__(self) -> tf.Tensor:
        if np.isfinite(self.best) and time.perf_counter() > self._end:
            raise OutOfTimeError
        loss = self._loss()
        value = float(loss)
        if value < self.best:
            self.best, self._values = value, [v.numpy() for v in self._variables]
        return loss
