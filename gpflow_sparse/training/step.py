"""One compiled training step, which changes nothing if loss or gradients are not finite."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import gpflow
import tensorflow as tf

from gpflow_sparse.numerics import linalg, random_draws
from gpflow_sparse.numerics.replicas import ONE, Replicas
from gpflow_sparse.numerics.tracing import compiled
from gpflow_sparse.training.contract import PartialUpdateModel
from gpflow_sparse.training.feed import Data, Feed
from gpflow_sparse.training.optimizers import (
    apply_scaled,
    natural_pairs,
    natural_updates,
    unconstrained_variables,
)

# Operations whose draws follow a counter that is in no checkpoint.
_STATEFUL_DRAWS = ("Random", "TruncatedNormal", "Multinomial", "ParameterizedTruncatedNormal")

# Variables of each optimizer that was built: the error of Keras for others is not clear.
_BUILT_FOR: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()

# Whether steps are compiled with products of the batch in float32.
_MIXED: ContextVar[bool] = ContextVar("gpflow_sparse_mixed_steps", default=False)

Step = Callable[..., tuple[tf.Tensor, tf.Tensor]]


@contextlib.contextmanager
def steps_in(precision: str) -> Iterator[None]:
    """
    Compile steps in this block in "full" or "mixed" precision; what else is computed in it, such as
    predictions of callbacks and the diagnosis of a failed step, is in full precision.
    """
    token = _MIXED.set(precision == "mixed")
    try:
        yield
    finally:
        _MIXED.reset(token)


def compile_step(
    model: gpflow.models.GPModel,
    feed: Feed,
    optimizer: Any,
    gamma: float,
    scale: float = 1.0,
    graph_seed: int = 0,
    replicas: Replicas = ONE,
) -> Step:
    """
    ``step(move, seed, *arguments)``: the loss of a batch, and whether loss and gradients are
    finite.

    Parameters and optimizer change only if ``move`` is true and the loss, all gradients and all
    natural steps are finite. ``seed``, two integers, seeds the model's random draws.

    :param gamma: natural-gradient step size; 0 leaves everything to the optimizer.
    :param scale: fraction of each step that is taken, by the optimizer and in q.
    :param graph_seed: seed of the draws by TensorFlow's stateful operations, which only some of
        GPflow's likelihoods use; they advance from call to call and start again with a new trace.
    :param replicas: how each batch is divided.
    """
    build = _partial_step if isinstance(model, PartialUpdateModel) else _dense_step
    body = build(model, optimizer, gamma, scale, replicas if is_divisible(model) else ONE)

    def step(
        move: tf.Tensor, seed: tf.Tensor, *arguments: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        tf.compat.v1.set_random_seed(graph_seed)  # of the graph being traced, not of the process
        with random_draws.seeded(seed):
            return body(move, feed.lookup(*arguments))

    return compiled(step, reduce_retracing=True)


def is_divisible(model: Any) -> bool:
    """
    Whether the objective of a batch is the mean over parts of the batch of their objectives.

    It is not without ``num_data``, and for the evidence of a batch. Then every process evaluates
    the whole batch.
    """
    sums = getattr(model, "sums_over_rows", True)
    return sums and getattr(model, "num_data", None) is not None


def _dense_step(model: Any, optimizer: Any, gamma: float, scale: float, replicas: Replicas) -> Step:
    """A step that updates all variables."""
    pairs = natural_pairs(model) if gamma else ()
    q = unconstrained_variables(pairs)
    q_refs = {variable.ref() for variable in q}
    variables = [v for v in model.trainable_variables if v.ref() not in q_refs]
    if not (variables or q):
        raise ValueError("nothing to train: all parameters of the model are set not trainable.")
    _build(optimizer, variables)

    def step(move: tf.Tensor, batch: Data | None) -> tuple[tf.Tensor, tf.Tensor]:
        loss, gradients = _mean_gradients(model, batch, [*variables, *q], replicas)
        known = [(g, v) for g, v in zip(gradients, variables, strict=False) if g is not None]
        updates = natural_updates(pairs, gradients[len(variables) :], scale * gamma)
        finite = _all_finite([loss, *(g for g, _ in known), *updates])

        def apply() -> tf.Tensor:
            apply_scaled(optimizer, known, scale)
            for variable, value in zip(q, updates, strict=True):
                variable.assign(value)
            return tf.constant(True)

        tf.cond(tf.logical_and(move, finite), apply, lambda: tf.constant(False))
        return loss, finite

    return step


def _mean_gradients(
    model: Any, batch: Data | None, variables: Sequence[tf.Variable], replicas: Replicas
) -> tuple[tf.Tensor, list[Any]]:
    """The loss of a batch and its gradients, None where it does not depend on a variable."""
    known: list[bool] = []
    is_mixed = _MIXED.get()

    def compute(part: Data | None) -> list[Any]:
        # here, since a strategy computes each part in a thread of its own
        with linalg.mixed_precision(is_mixed):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                loss = model.training_loss(*(() if part is None else (part,)))
            gradients = tape.gradient(loss, variables)
        known[:] = [gradient is not None for gradient in gradients]
        return [loss, *(gradient for gradient in gradients if gradient is not None)]

    loss, *found = replicas.mean(compute, batch)
    rest = iter(found)
    return loss, [next(rest) if is_known else None for is_known in known]


def _partial_step(
    model: PartialUpdateModel, optimizer: Any, gamma: float, scale: float, replicas: Replicas
) -> Step:
    """A step that updates only some rows of row variables."""
    if gamma:
        raise ValueError(
            f"natural_gradients must be False: a {type(model).__name__} has no full covariances."
        )
    if not hasattr(optimizer, "move_rows"):
        raise ValueError(
            f"optimizer must be a sparse one for a {type(model).__name__}, such as "
            "gs.training.SparseAdagrad(0.1): others move all rows in every step; got "
            f"{type(optimizer).__name__}."
        )
    optimizer.build(model.row_variables, model.dense_variables)
    return lambda move, batch: model.sparse_step(
        batch, optimizer, move=move, scale=scale, replicas=replicas
    )


def _build(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """
    Create the optimizer's slots of these variables.

    :raises ValueError: if it has slots of others.
    """
    references = {variable.ref() for variable in variables}
    if _BUILT_FOR.setdefault(optimizer, references) != references:
        raise ValueError(
            "optimizer has been used for other variables, whose memory it keeps: make a new one "
            "for each model, and for each choice of natural_gradients and of trainable parameters."
        )
    if hasattr(optimizer, "build"):  # the legacy optimizers of tf_keras have none and need none
        optimizer.build(variables)


def has_stateful_draws(step: Step, arguments: Sequence[Any]) -> bool:
    """Whether the compiled step, called like this, draws by TensorFlow's stateful operations."""
    concrete = step.get_concrete_function(*arguments)  # type: ignore[attr-defined]
    definition = concrete.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return any(node.op.startswith(_STATEFUL_DRAWS) for node in nodes)


def _all_finite(tensors: Sequence[Any]) -> tf.Tensor:
    values = [t.values if isinstance(t, tf.IndexedSlices) else t for t in tensors]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])
