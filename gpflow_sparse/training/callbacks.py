"""Callbacks, which `fit` calls after every step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
from gpflow.monitor import Monitor, MonitorTaskGroup
from gpflow.monitor.base import MonitorTask

from gpflow_sparse.persistence.schema import require_type
from gpflow_sparse.training.optimizers import require_rate
from gpflow_sparse.validation.checks import require_count, require_data, require_matrix


class FitState(NamedTuple):
    """State of training that is passed to a callback after a step."""

    step: int
    """Steps done, from 1."""
    elbo: float
    """Objective of the batch of this step, in nats."""
    model: gpflow.models.GPModel


Callback = Callable[[FitState], Any]
# Types in the state of EarlyStopping in a checkpoint.
_STATE_TYPES = {"best": float | None, "stale": int, "recent": list[float]}


class EarlyStopping:
    """
    Stop when the objective, or the log density of held-out rows, no longer rises.

    Every ``every`` steps the score is the mean objective since the last check, or, with
    ``validation``, the mean log density per held-out row.
    """

    def __init__(
        self,
        *,
        validation: tuple[Any, Any] | None = None,
        every: int = 100,
        patience: int = 5,
        min_delta: float = 0.0,
    ) -> None:
        """
        :param validation: held-out ``(X, Y)``; never the test rows.
        :param every: steps between checks.
        :param patience: checks without a rise before stopping.
        :param min_delta: smallest increase that counts as a rise, in nats.
        :raises ValueError: for counts that are not positive, and validation that is not a pair.
        """
        require_count(every, "every")
        require_count(patience, "patience")
        if validation is not None and not (
            isinstance(validation, tuple | list) and len(validation) == 2
        ):
            raise ValueError(
                "validation must be a tuple (X [N, D], Y [N, P]) of held-out rows, got "
                f"{type(validation).__name__}."
            )
        self.validation = validation
        self.every = every
        self.patience = patience
        self.min_delta = require_rate(min_delta, "min_delta")
        self.best = -np.inf
        self._stale = 0
        self._recent: list[float] = []
        self._is_checked = False

    def __call__(self, state: FitState) -> bool:
        """:return: whether to stop."""
        if self.validation is not None and not self._is_checked:
            # wrong rows are refused at the first step, before any time is spent
            require_data(self.validation, missing=True)
            state.model.predict_log_density(tuple(part[:1] for part in self.validation))
            self._is_checked = True
        self._recent.append(state.elbo)
        if state.step % self.every:
            return False
        if self.validation is None:
            score = float(np.mean(self._recent))
        else:
            score = float(np.mean(state.model.predict_log_density(self.validation)))
        self._recent.clear()
        if score > self.best + self.min_delta:
            self.best, self._stale = score, 0
        else:
            self._stale += 1
        return self._stale >= self.patience

    def get_state(self) -> dict[str, Any]:
        """State to be kept in a checkpoint."""
        best = self.best if np.isfinite(self.best) else None
        return {"best": best, "stale": self._stale, "recent": self._recent}

    def set_state(self, state: dict[str, Any]) -> None:
        """
        Restore a state that :meth:`get_state` returned.

        :raises ValueError: for anything else.
        """
        require_type(state, _STATE_TYPES, "the state of EarlyStopping", "start the run again")
        self.best = -np.inf if state["best"] is None else state["best"]
        self._stale = state["stale"]
        self._recent = list(state["recent"])


class KeepBest:
    """
    Keep the parameters at which a score was highest, for models that predict worse when they are
    trained for long. They are not in checkpoints: a resumed run starts without them.
    """

    def __init__(self, score: Callable[[Any], float], *, every: int = 100) -> None:
        """
        :param score: function of the model, such as the log density of held-out rows.
        :param every: steps between evaluations.
        """
        self.score, self.every = score, require_count(every, "every")
        self.best = -np.inf
        self._values: list[Any] = []

    def __call__(self, state: FitState) -> None:
        if state.step % self.every == 0:
            self.update(state.model)

    def update(self, model: gpflow.models.GPModel) -> None:
        """Evaluate the score of the present parameters."""
        found = float(self.score(model))
        if found > self.best:
            self.best = found
            self._values = [variable.numpy() for variable in model.trainable_variables]

    def restore(self, model: gpflow.models.GPModel) -> None:
        """
        Give a model the parameters with the highest score, if any was evaluated.

        :raises ValueError: for a model with other trainable variables than the evaluated one.
        """
        if not self._values:
            return
        shapes = [tuple(variable.shape) for variable in model.trainable_variables]
        kept = [value.shape for value in self._values]
        if shapes != kept:
            raise ValueError(
                f"model must have the trainable variables that were kept, of shapes {kept}, got "
                f"{type(model).__name__} with shapes {shapes}; restore the model that was trained."
            )
        for variable, value in zip(model.trainable_variables, self._values, strict=True):
            variable.assign(value)


class LayerSignals:
    """
    Record the signal-to-noise ratio of each hidden layer of a deep model.

    ``history`` has pairs of a step and the ratios, one for each hidden layer, first to last: the
    ``ratio`` of the entry ``layers`` in :func:`gpflow_sparse.diagnostics`, None without noise. A
    record takes the time of predicting the hidden layers; draws of training stay the same.
    """

    def __init__(self, X: Any, *, every: int = 100) -> None:
        """
        :param X: inputs ``[N, D]`` in the units of the model; some hundred rows are enough.
        :param every: steps between records.
        :raises ValueError: for anything but a finite matrix of two rows or more.
        """
        self.X = require_matrix(X, "X")
        if self.X.shape[0] < 2:
            raise ValueError("X must have two rows or more, got one: the signal varies over rows.")
        self.every = require_count(every, "every")
        self.history: list[tuple[int, list[float | None]]] = []

    def __call__(self, state: FitState) -> None:
        """:raises ValueError: for a model without hidden layers, or of other inputs than X."""
        # not at import: the diagnostics import all models, for which most runs have no use
        from gpflow_sparse.diagnosis.layers import layer_signals
        from gpflow_sparse.diagnosis.parameters import has_hidden_layers

        if not has_hidden_layers(state.model):
            raise ValueError(
                f"LayerSignals needs a DeepGP with hidden layers, got {type(state.model).__name__}."
            )
        if state.step % self.every == 0:
            found = layer_signals(state.model, self.X)
            self.history.append((state.step, [entry["ratio"] for entry in found]))

    def get_state(self) -> dict[str, Any]:
        """State to be kept in a checkpoint."""
        steps, ratios = [step for step, _ in self.history], [list(r) for _, r in self.history]
        return {"steps": steps, "ratios": ratios}

    def set_state(self, state: dict[str, Any]) -> None:
        """
        Restore a state that :meth:`get_state` returned.

        :raises ValueError: for anything else.
        """
        source, remedy = "the state of LayerSignals", "start the run again"
        require_type(state, {"steps": list[int], "ratios": list}, source, remedy)
        for place, ratios in enumerate(state["ratios"]):
            require_type(ratios, list[float | None], f"{source}, ratios[{place}]", remedy)
        self.history = list(zip(state["steps"], map(list, state["ratios"]), strict=True))


def as_callback(callback: Any) -> Callback:
    """
    A GPflow monitor, group or task as a callback; other callables are returned unchanged.

    :raises ValueError: if it is not callable.
    """
    if isinstance(callback, Monitor | MonitorTaskGroup | MonitorTask):
        return lambda state: bool(callback(state.step))
    if isinstance(callback, type):
        raise ValueError(f"callbacks must be objects, got the class {callback.__name__}; call it.")
    if not callable(callback):
        raise ValueError(f"callbacks must be callable, got {type(callback).__name__}.")
    return callback
