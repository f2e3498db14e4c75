"""The state of a run, kept to go back to a step or to resume, and the settings that identify it."""

import copy
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.numerics.replicas import Replicas
from gpflow_sparse.numerics.tracing import variables_with_paths
from gpflow_sparse.persistence.codec import Encoder
from gpflow_sparse.training.feed import Feed
from gpflow_sparse.training.optimizers import settings_of

# Attributes of a model that a run may set, and names, to which TensorFlow appends counts.
_NOT_COMPARED = ("jitter", "_kept_back", "name")


@dataclass
class Progress:
    """Steps and objective of a run, and its changes of step size and jitter after failures."""

    step: int = 0
    """Steps done."""
    elbo: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    scale: float = 1.0
    """Fraction of each step that is taken."""
    jitter: float | None = None
    """The model's jitter, if this run raised it."""
    recoveries: list[str] = field(default_factory=list)
    """Failures and the remedies taken, one sentence each."""
    stopped: bool = False
    """Whether a callback has ended the run."""


@dataclass(frozen=True)
class Snapshot:
    """All variables of model and optimizer, and the states of the callbacks, at one step."""

    step: int
    variables: dict[str, np.ndarray]
    hooks: list[Any]


class RunState:
    """State of a model, its optimizer and its callbacks, with snapshots to go back to."""

    def __init__(self, model: gpflow.models.GPModel, optimizer: Any, hooks: Sequence[Any]) -> None:
        self.model, self.optimizer, self.hooks = model, optimizer, hooks

    def take(self, step: int) -> Snapshot:
        """A copy of the state after ``step`` steps."""
        values = {name: np.array(v.numpy()) for name, v in self.variables.items()}
        memories = [h.get_state() if hasattr(h, "get_state") else None for h in self.hooks]
        return Snapshot(step, values, copy.deepcopy(memories))

    def agree(self, replicas: Replicas) -> None:
        """
        Give all processes the variables of the chief if they differ.

        They do not, unless the processes began with different models or if operations round
        differently in each run, as some do on a GPU.
        """
        if replicas.num_workers == 1:
            return
        values = {name: np.array(v.numpy()) for name, v in self.variables.items()}
        checksum = 0
        for value in values.values():
            checksum = zlib.crc32(value.tobytes(), checksum)
        if len(np.unique(replicas.of_each_worker([checksum]))) == 1:
            return
        for name, variable in self.variables.items():
            value = values[name] if replicas.is_chief else np.zeros_like(values[name])
            variable.assign(replicas.over_workers(value).astype(value.dtype))

    def put(self, snapshot: Snapshot) -> None:
        """
        Restore a snapshot.

        :raises ValueError: if the snapshot belongs to another model, optimizer or callbacks.
        """
        variables = self.variables
        found = {name: value.shape for name, value in snapshot.variables.items()}
        # the legacy optimizers make their slots in the first step, so an early snapshot lacks them
        wanted = {
            name: tf.TensorShape(variable.shape)
            for name, variable in variables.items()
            if name in found or not name.startswith("optimizer.")
        }
        for name in sorted(found | wanted):
            there, here = found.get(name, "absent"), wanted.get(name, "absent")
            # a basis that can choose other functions has variables of unknown shape
            if "absent" in (there, here) or not here.is_compatible_with(there):
                raise ValueError(
                    f"the checkpoint is of another model or optimizer: they differ in {name} "
                    f"({there} there, {here} here)."
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
                    f"({error!r}): resume with the same callbacks, or start again."
                ) from error

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of model and optimizer by their names in checkpoints."""
        slots = self.optimizer.variables
        slots = slots() if callable(slots) else slots
        numbered = {f"optimizer.{i}": variable for i, variable in enumerate(slots)}
        return named_variables(self.model) | numbered


def named_variables(model: tf.Module) -> dict[str, tf.Variable]:
    """All variables of a model by their paths, as named in checkpoints."""
    return {
        ".".join(["model", *map(str, path)]): variable
        for path, variable in variables_with_paths(model)
    }


def describe_run(model: gpflow.models.GPModel, feed: Feed, optimizer: Any) -> dict[str, Any]:
    """
    Model, data and optimizer of a run as plain values, to be compared with a checkpoint.

    :raises ValueError: for an optimizer whose slots cannot be restored.
    """
    if not hasattr(optimizer, "build"):
        raise ValueError(
            f"a run with the legacy optimizer {type(optimizer).__name__} cannot be resumed: it "
            "makes its memory only as it goes. Use gpflow_sparse.training.adam()."
        )
    return {
        "model": describe_model(model),
        "data": feed.fingerprint,
        "batch_size": feed.batch_size,
        # through JSON, as in a file; a value that is not plain is described by its class
        "optimizer": json.loads(json.dumps(settings_of(optimizer), default=_plain)),
    }


def describe_model(model: gpflow.models.GPModel) -> dict[str, Any]:
    """
    Description of a model without the values of its variables: classes and settings of its parts,
    columns, transforms, priors, trainable flags, sizes of inducing sets.
    """
    kind, encoder = type(model).__name__, Encoder()
    try:
        tree = json.loads(encoder.encode_model(model))
    except ValueError:  # a part of it, such as a lambda, cannot be in a file
        kinds = [type(part).__name__ for part in model.submodules]
        return {"kind": kind, "parts": ", ".join(kinds)}
    order: dict[int, int] = {}  # of first references to objects, with attributes sorted by name

    def canonical(node: Any) -> Any:
        if isinstance(node, list):
            return [canonical(part) for part in node]
        if not isinstance(node, dict):
            return node
        if node.keys() == {"ref"}:
            known = node["ref"] in order
            number = order.setdefault(node["ref"], len(order))
            return {"ref": number} if known else canonical(tree["objects"][node["ref"]])
        if isinstance(node.get("data"), str):  # an array; a model may have an attribute `data`
            array = encoder.arrays[node["data"]]
            moves = node["kind"] == "variable"
            data = "" if moves else hashlib.sha256(array.tobytes()).hexdigest()
            node = {**node, "data": [str(array.dtype), list(array.shape), data]}
        return {key: canonical(node[key]) for key in sorted(node) if key not in _NOT_COMPARED}

    text = json.dumps(canonical(tree["root"]))
    return {"kind": kind, "structure": hashlib.sha256(text.encode()).hexdigest()[:16]}


def _plain(value: Any) -> Any:
    """A NumPy or TensorFlow scalar as a Python number; the class name of any other value."""
    array = np.asarray(value)
    return array.item() if array.size == 1 and array.dtype.kind in "fiub" else type(value).__name__
