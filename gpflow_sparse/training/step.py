"""One training step, compiled: it moves everything or, if a number is not finite, nothing."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import tensorflow as tf

from gpflow_sparse.numerics import random_draws
from gpflow_sparse.training.feed import Feed
from gpflow_sparse.training.optimizers import (
    apply_scaled,
    move_pair,
    natural_pairs,
    natural_update,
)

# Operations whose draws follow a counter that no checkpoint holds.
_STATEFUL_DRAWS = ("Random", "TruncatedNormal", "Multinomial", "ParameterizedTruncatedNormal")
_STATELESS_DRAWS = ("RandomIndexShuffle",)

# Which variables an optimizer has seen: Keras itself fails obscurely on others.
_BUILT_FOR: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()

Step = Callable[..., tuple[tf.Tensor, tf.Tensor]]


def compile_step(
    model: gpflow.models.GPModel,
    feed: Feed | None,
    optimizer: Any,
    gamma: float,
    scale: float = 1.0,
    graph_seed: int = 0,
) -> Step:
    """
    ``step(move, seed, *arguments)``: the loss of the batch, and whether it and its gradients were
    finite.

    Parameters and optimizer move only if ``move`` is true and the loss, all gradients and all
    natural steps are finite. ``seed``, two integers, decides what the model draws.

    :param gamma: natural-gradient step size; 0 leaves everything to the optimizer.
    :param scale: fraction of each step that is taken, by the optimizer and on q alike.
    :param graph_seed: seed of the draws by TensorFlow's stateful operations, which only some of
        GPflow's likelihoods use; they advance from call to call and start again with a new trace.
    """
    if feed is not None and hasattr(model, "sparse_step"):
        return _compile_sparse_step(model, feed, optimizer, gamma, scale, graph_seed)
    pairs = natural_pairs(model) if gamma else ()
    q = [parameter.unconstrained_variable for pair in pairs for parameter in pair]
    q_refs = {variable.ref() for variable in q}
    variables = [v for v in model.trainable_variables if v.ref() not in q_refs]
    if not (variables or q):
        raise ValueError("nothing to train: all parameters of the model are set not trainable.")
    _build(optimizer, variables)

    @tf.function(reduce_retracing=True, autograph=False)
    def step(
        move: tf.Tensor, seed: tf.Tensor, *arguments: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        with _seeded(seed, graph_seed), tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*variables, *q])
            loss = model.training_loss(*(() if feed is None else (feed.lookup(*arguments),)))
        gradients = tape.gradient(loss, [*variables, *q])
        # a parameter the objective does not depend on has no gradient
        known = [(g, v) for g, v in zip(gradients, variables, strict=False) if g is not None]
        rest = gradients[len(variables) :]
        updates = [
            natural_update(pair, (rest[2 * i], rest[2 * i + 1]), scale * gamma)
            for i, pair in enumerate(pairs)
        ]
        finite = _all_finite([loss, *(g for g, _ in known), *(t for pair in updates for t in pair)])

        def apply() -> tf.Tensor:
            apply_scaled(optimizer, known, scale)
            for pair, update in zip(pairs, updates, strict=True):
                move_pair(pair, update)
            return tf.constant(True)

        tf.cond(tf.logical_and(move, finite), apply, lambda: tf.constant(False))
        return loss, finite

    return step


def _compile_sparse_step(
    model: Any, feed: Feed, optimizer: Any, gamma: float, scale: float, graph_seed: int
) -> Step:
    """The step of a model that moves only some rows of its long variables, and guards itself."""
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
    optimizer.build(model.long_variables, model.small_variables)

    @tf.function(reduce_retracing=True, autograph=False)
    def step(
        move: tf.Tensor, seed: tf.Tensor, *arguments: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        with _seeded(seed, graph_seed):
            return model.sparse_step(feed.lookup(*arguments), optimizer, move=move, scale=scale)

    return step


def _build(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """
    Make the optimizer's memory for these variables.

    :raises ValueError: if it has been made for others.
    """
    references = {variable.ref() for variable in variables}
    if _BUILT_FOR.setdefault(optimizer, references) != references:
        raise ValueError(
            "optimizer has been used for other variables, whose memory it keeps: make a new one "
            "for each model, and for each choice of natural_gradients and of trainable parameters."
        )
    if hasattr(optimizer, "build"):  # the legacy optimizers of tf_keras have none and need none
        optimizer.build(variables)


@contextlib.contextmanager
def _seeded(seed: tf.Tensor, graph_seed: int) -> Iterator[None]:
    """What is traced in this block draws from these seeds, see :func:`compile_step`."""
    tf.compat.v1.set_random_seed(graph_seed)  # of the graph being traced, not of the process
    with random_draws.seeded(seed):
        yield


def has_stateful_draws(step: Step, arguments: Sequence[Any]) -> bool:
    """Whether the compiled step, called like this, draws by TensorFlow's stateful operations."""
    definition = step.get_concrete_function(*arguments).graph.as_graph_def()  # type: ignore[attr-defined]
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    operations = {node.op for node in nodes} - set(_STATELESS_DRAWS)
    return any(name.startswith(_STATEFUL_DRAWS) for name in operations)


def _all_finite(tensors: Sequence[Any]) -> tf.Tensor:
    values = [t.values if isinstance(t, tf.IndexedSlices) else t for t in tensors]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])
