"""Everything a run needs to go on from a step: in memory to roll back, on disk to resume."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.persistence import files

_PATTERN = "checkpoint-*.safetensors"
_KIND = "checkpoint"
# The one before is kept in case the newest is damaged.
_KEPT = 2


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
        return Snapshot(step, values, json.loads(json.dumps(memories)))

    def put(self, snapshot: Snapshot) -> None:
        """
        Bring everything back.

        :raises ValueError: if the snapshot is of another model, optimizer or list of callbacks.
        """
        variables = self._variables()
        # the legacy optimizers make their slots in the first step, so an early snapshot lacks them
        late = {name for name in variables if name.startswith("optimizer.")}
        found = {name: value.shape for name, value in snapshot.variables.items()}
        wanted = {n: tuple(v.shape) for n, v in variables.items() if n in found or n not in late}
        if found != wanted:
            names = sorted(n for n in found | wanted if found.get(n) != wanted.get(n))
            raise ValueError(
                f"the checkpoint is of another model or optimizer: they differ in {names[0]} "
                f"({found.get(names[0], 'absent')} there, {wanted.get(names[0], 'absent')} here)"
                f"{f' and {len(names) - 1} more' if len(names) > 1 else ''}."
            )
        for name, variable in variables.items():
            variable.assign(snapshot.variables.get(name, np.zeros(variable.shape)))
        if len(snapshot.hooks) != len(self.hooks):
            raise ValueError(
                f"the checkpoint has {len(snapshot.hooks)} callbacks, this run {len(self.hooks)}."
            )
        for hook, memory in zip(self.hooks, snapshot.hooks, strict=True):
            if memory is not None:
                hook.set_state(memory)

    def _variables(self) -> dict[str, Any]:
        found = named_variables(self.model)
        slots = self.optimizer.variables
        slots = slots() if callable(slots) else slots
        return found | {f"optimizer.{i}": variable for i, variable in enumerate(slots)}


def named_variables(model: tf.Module) -> dict[str, tf.Variable]:
    """All variables of a model by the path of attributes that leads to them."""
    leaves = model._flatten(predicate=lambda leaf: isinstance(leaf, tf.Variable), with_path=True)
    return {".".join(["model", *map(str, path)]): variable for path, variable in leaves}


class CheckpointFolder:
    """Checkpoints of one run: each is one file, written aside and renamed into place."""

    def __init__(self, directory: Any, settings: dict[str, Any], *, resume: bool) -> None:
        """
        :param settings: what has to be the same for a run to be resumed.
        :raises ValueError: if the folder cannot be one, or holds a run and ``resume`` is false.
        """
        try:
            self.path = Path(directory)
            self.path.mkdir(parents=True, exist_ok=True)
        except (TypeError, OSError) as error:
            raise ValueError(
                f"checkpoint_dir must be a folder, got {directory!r}: {error}."
            ) from error
        self._settings = settings
        for piece in self.path.glob(".saving-*.tmp"):  # of a run killed while it wrote
            piece.unlink(missing_ok=True)
        present = self._files()
        if present and not resume:
            raise ValueError(
                f"checkpoint_dir {self.path} holds a run (its newest is {present[0].name}): pass "
                "resume=True to go on with it, or choose another folder."
            )

    def save(self, snapshot: Snapshot, progress: Progress) -> None:
        """Write a checkpoint; the oldest go once it is safely there."""
        arrays = dict(snapshot.variables)
        arrays["elbo"] = np.array(progress.elbo[: snapshot.step], dtype=np.float64)
        arrays["seconds"] = np.array(progress.seconds[: snapshot.step], dtype=np.float64)
        record = {
            "step": snapshot.step,
            "hooks": snapshot.hooks,
            "scale": progress.scale,
            "jitter": progress.jitter,
            "recoveries": progress.recoveries,
            "stopped": progress.stopped and progress.step == snapshot.step,
            "settings": self._settings,
        }
        path = self.path / f"checkpoint-{snapshot.step:09d}.safetensors"
        files.write(path, arrays, {"kind": _KIND, "run": json.dumps(record)})
        for old in self._files()[_KEPT:]:
            old.unlink(missing_ok=True)

    def newest(self) -> tuple[Snapshot, Progress] | None:
        """
        The newest checkpoint that can be read, or None if there is none.

        :raises ValueError: if it is of a run with other settings, or all are damaged.
        """
        present = self._files()
        for path in present:
            try:
                header, arrays = files.read(path)
            except ValueError as error:
                warnings.warn(f"{error} Looking for the one before.", stacklevel=4)
                continue
            record = json.loads(header["run"])
            self._require_same(record["settings"], path)
            return _unpack(record, arrays)
        if present:
            raise ValueError(f"no checkpoint in {self.path} can be read; start in another folder.")
        return None

    def _files(self) -> list[Path]:
        return sorted(self.path.glob(_PATTERN), reverse=True)

    def _require_same(self, stored: dict[str, Any], path: Path) -> None:
        for name, value in self._settings.items():
            if stored.get(name) != value:
                raise ValueError(
                    f"{path} is of a run with {name}={stored.get(name)}, this one has "
                    f"{name}={value}: resume with the same settings, or choose another folder."
                )


def _unpack(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[Snapshot, Progress]:
    elbo, seconds = arrays.pop("elbo").tolist(), arrays.pop("seconds").tolist()
    names = ("step", "scale", "jitter", "recoveries", "stopped")
    progress = Progress(elbo=elbo, seconds=seconds, **{name: record[name] for name in names})
    return Snapshot(record["step"], arrays, record["hooks"]), progress
