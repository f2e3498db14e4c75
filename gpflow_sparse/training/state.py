"""Everything a run needs to go on from a step: in memory to roll back, on disk to resume."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.persistence import names


@dataclass
class Progress:
    """How far a run has come, and what it changed about itself on the way."""

    step: int = 0
    """Steps done."""
    elbo: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    scale: float = 1.0
    """Fraction of each step that is taken."""
    jitter: float | None = None
    """The model's jitter, if this run raised it."""
    recoveries: list[str] = field(default_factory=list)
    """What failed, and what was done about it."""
    stopped: bool = False
    """Whether a callback has ended the run."""

    def add(self, elbo: float, seconds: float) -> None:
        """One more step."""
        self.step += 1
        self.elbo.append(elbo)
        self.seconds.append(seconds)

    def back_to(self, step: int) -> None:
        """Forget the steps after ``step``; what was learned from failures stays."""
        self.step, self.stopped = step, False
        del self.elbo[step:], self.seconds[step:]


@dataclass(frozen=True)
class Snapshot:
    """All variables of model and optimizer, and the memory of the callbacks, at one step."""

    step: int
    variables: dict[str, np.ndarray]
    hooks: list[Any]


class RunState:
    """What a snapshot is taken from and goes back to: a model, its optimizer, its callbacks."""

    def __init__(self, model: gpflow.models.GPModel, optimizer: Any, hooks: Sequence[Any]) -> None:
        self.model, self.optimizer, self.hooks = model, optimizer, hooks

    def take(self, step: int) -> Snapshot:
        """Copies of everything, as it is after ``step`` steps."""
        values = {name: np.array(v.numpy()) for name, v in self._variables().items()}
        memories = [h.get_state() if hasattr(h, "get_state") else None for h in self.hooks]
        return Snapshot(step, values, copy.deepcopy(memories))

    def put(self, snapshot: Snapshot) -> None:
        """
        Bring everything back.

        :raises ValueError: if the snapshot is of another model, optimizer or list of callbacks.
        """
        variables = self._variables()
        # the legacy optimizers make their slots in the first step, so an early snapshot lacks them
        late = {name for name in variables if name.startswith("optimizer.")}
        found = {name: value.shape for name, value in snapshot.variables.items()}
        wanted = {
            n: tf.TensorShape(v.shape) for n, v in variables.items() if n in found or n not in late
        }
        names = sorted(
            name
            for name in found | wanted
            # the variables of a basis that chooses its functions anew know no size
            if None in (found.get(name), wanted.get(name))
            or not wanted[name].is_compatible_with(found[name])
        )
        if names:
            raise ValueError(
                f"the checkpoint is of another model or optimizer: they differ in {names[0]} "
                f"({found.get(names[0], 'absent')} there, {wanted.get(names[0], 'absent')} here)"
                f"{f' and {len(names) - 1} more' if len(names) > 1 else ''}."
            )
        if len(snapshot.hooks) != len(self.hooks):
            raise ValueError(
                f"the checkpoint has {len(snapshot.hooks)} callbacks, this run {len(self.hooks)}."
            )
        for name, variable in variables.items():
            value = snapshot.variables.get(name)
            variable.assign(np.zeros(variable.shape) if value is None else value)
        for hook, memory in zip(self.hooks, snapshot.hooks, strict=True):
            if memory is None:
                continue
            try:
                hook.set_state(memory)
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise ValueError(
                    f"the checkpoint holds nothing that {type(hook).__name__}.set_state can take "
                    f"({error!r}): resume with the same callbacks, or start anew."
                ) from error

    def _variables(self) -> dict[str, Any]:
        found = named_variables(self.model)
        slots = self.optimizer.variables
        slots = slots() if callable(slots) else slots
        return found | {f"optimizer.{i}": variable for i, variable in enumerate(slots)}


def named_variables(model: tf.Module) -> dict[str, tf.Variable]:
    """All variables of a model by the path that leads to them, as checkpoints name it."""
    leaves = model._flatten(predicate=lambda leaf: isinstance(leaf, tf.Variable), with_path=True)
    return {names.variable_in_files(model, path): variable for path, variable in leaves}
