"""Optimizers for variables so long that a training step may update only some of their rows."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from gpflow_sparse.training.optimizers import adam, apply_scaled, require_rate, settings_of

Rate = float | Callable[[tf.Tensor], Any]
Slots = Sequence[tf.Tensor]
Step = tuple[tf.Tensor, Slots]
"""The values to subtract from some rows, and the new slots of these rows."""

# Gradients of hyperparameters from few rows and few functions are much noisier than usual.
_DENSE_RATE = 0.001


class SparseOptimizer(tf.Module):
    """
    Base class of the optimizers that update some rows of a variable, slices along its first axis.

    :meth:`move_rows` reads and writes only the given rows, of the variable and of its optimizer
    slots: its cost does not depend on the number of all rows, and other rows, with their moments
    and step counts, do not change.

    A training step is a number of calls to :meth:`move_rows` and at most one to
    :meth:`move_dense`, in any order, then one to :meth:`advance`: only that advances
    ``iterations``, which the learning rate is a function of. :meth:`apply_gradients` is such a
    step in one call, so that these are ordinary optimizers too, for any model.

    :param learning_rate: a number of at least 0, a Keras learning-rate schedule, or any function of
        the number of steps done.
    :param dense: a Keras optimizer for the dense variables; ``gpflow_sparse.training.adam(0.001)``
        by default.
    :raises ValueError: for another type of rate or optimizer.
    """

    _settings: tuple[str, ...] = ()

    def __init__(self, learning_rate: Rate, *, dense: Any = None) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        if not callable(learning_rate):
            require_rate(learning_rate)
        if dense is not None and (isinstance(dense, type) or not hasattr(dense, "apply_gradients")):
            raise ValueError(f"dense must be a Keras optimizer or None, got {dense!r}.")
        self.dense = adam(_DENSE_RATE) if dense is None else dense
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False, name="iterations")
        self._slots: list[list[tf.Variable]] = []
        # without tf.Module's tracking of attributes, whose dictionaries need strings as keys
        object.__setattr__(self, "_places", {})
        object.__setattr__(self, "_dense_references", set())

    @property
    def variables(self) -> list[tf.Variable]:
        """``iterations``, all slots, and the variables of ``dense`` once it has been built."""
        slots = [slot for slots in self._slots for slot in slots]
        held = self.dense.variables if self._dense_references else []
        return [self.iterations, *slots, *(held() if callable(held) else held)]

    def build(self, rows: Iterable[tf.Variable], dense: Iterable[tf.Variable] = ()) -> None:
        """
        Create the slots of these variables, once.

        :param rows: variables that this optimizer updates.
        :param dense: dense variables, which the optimizer ``dense`` updates.
        :raises ValueError: if there are slots of other variables, or one is not a ``tf.Variable``.
        """
        rows, dense = list(rows), list(dense)
        wanted = {_reference(v) for v in rows}, {_reference(v) for v in dense}
        found = set(self._places), self._dense_references
        if any(found) and found != wanted:
            raise ValueError(
                f"{type(self).__name__} has been built for other variables, whose memory it keeps: "
                "make a new one for each model, and for each choice of trainable parameters."
            )
        for variable in rows:
            self._slots_of(variable)
        self._build_dense(dense)

    def move_rows(
        self,
        variable: tf.Variable,
        indices: tf.Tensor,
        gradient: tf.Tensor,
        scale: float | tf.Tensor = 1.0,
    ) -> tf.Tensor:
        """
        Update some rows of a variable by a step down a loss.

        O(u) time and memory for u rows, whatever the size of the variable.

        :param variable: its slots are created on first use.
        :param indices: different row numbers ``[u]``, which is not checked.
        :param gradient: gradient of the loss at these rows, ``[u, ...]``.
        :param scale: fraction of the step to be taken; the slots take all of it.
        :return: change of these rows, ``[u, ...]``.
        :raises ValueError: for shapes that do not fit each other.
        """
        if not variable.shape.rank:
            raise ValueError("variable must have rows, got a scalar: give it to dense.")
        slots = self._slots_of(variable)
        memory = [tf.gather(slot, indices) for slot in slots]
        step, changed = self._step(memory, gradient, self._rate(variable.dtype))
        delta = -_as_number(scale, variable.dtype) * step
        wanted = tf.convert_to_tensor(indices).shape.concatenate(variable.shape[1:])
        if not delta.shape.is_compatible_with(wanted):  # TensorFlow crashes on an empty update
            raise ValueError(
                f"gradient must have shape {wanted}, one row for each of indices, and scale none; "
                f"together they have shape {delta.shape}."
            )
        for slot, value in zip(slots, changed, strict=True):
            slot.scatter_update(tf.IndexedSlices(value, indices))
        variable.scatter_add(tf.IndexedSlices(delta, indices))
        return delta

    def move_dense(self, pairs: Iterable[tuple[Any, tf.Variable]], scale: float = 1.0) -> None:
        """
        Update dense variables by the optimizer ``dense``, which counts each call as a step.

        :param pairs: gradients and variables.
        :param scale: fraction of the step to be taken.
        """
        known = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        if not self._dense_references:
            self._build_dense([variable for _, variable in known])
        apply_scaled(self.dense, known, scale)

    def advance(self) -> None:
        """Count one training step; to be called once, after all variables have been updated."""
        self.iterations.assign_add(1)

    def apply_gradients(self, pairs: Iterable[tuple[Any, tf.Variable]]) -> None:
        """
        One whole step, as a Keras optimizer takes it.

        Gradients of a row that an ``IndexedSlices`` names more than once are summed; a
        dense gradient updates all rows. Variables built as ``dense`` are left to that optimizer,
        pairs without a gradient are skipped, and slots of new variables are created.

        :param pairs: gradients and variables.
        """
        small = []
        for gradient, variable in pairs:
            if gradient is None:
                continue
            if variable.ref() in self._dense_references:
                small.append((gradient, variable))
            elif isinstance(gradient, tf.IndexedSlices):
                indices, places = tf.unique(gradient.indices)
                total = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(indices))
                self.move_rows(variable, indices, total)
            else:
                self._move_all(variable, gradient)
        if small:
            self.move_dense(small)
        self.advance()

    def get_config(self) -> dict[str, Any]:
        """Settings as plain values; a schedule by its class and its own settings."""
        rate = self.learning_rate
        return {
            "learning_rate": settings_of(rate) if callable(rate) else float(rate),
            "dense": settings_of(self.dense),
            **{name: getattr(self, name) for name in self._settings},
        }

    @abstractmethod
    def _new_slots(self, variable: tf.Variable) -> list[tf.Tensor]:
        """Initial slots of a variable, with one entry per row along their first axis."""

    @abstractmethod
    def _step(self, memory: Slots, gradient: tf.Tensor, rate: tf.Tensor) -> Step:
        """The step of rows with these slots and gradients."""

    def _move_all(self, variable: tf.Variable, gradient: tf.Tensor) -> None:
        slots = self._slots_of(variable)
        memory = [tf.convert_to_tensor(slot) for slot in slots]
        step, changed = self._step(memory, gradient, self._rate(variable.dtype))
        for slot, value in zip(slots, changed, strict=True):
            slot.assign(value)
        variable.assign_sub(step)

    def _rate(self, dtype: tf.DType) -> tf.Tensor:
        rate = self.learning_rate
        return _as_number(rate(self.iterations) if callable(rate) else rate, dtype)

    def _slots_of(self, variable: tf.Variable) -> list[tf.Variable]:
        place = self._places.get(_reference(variable))
        if place is None:
            with tf.init_scope():  # outside of any function that is being traced
                new = [tf.Variable(slot, trainable=False) for slot in self._new_slots(variable)]
            place = self._places[variable.ref()] = len(self._slots)
            self._slots.append(new)
        return self._slots[place]

    def _build_dense(self, variables: Sequence[tf.Variable]) -> None:
        if variables and not self._dense_references:
            self._dense_references.update(variable.ref() for variable in variables)
            if hasattr(self.dense, "build"):
                with tf.init_scope():
                    self.dense.build(variables)


class SparseSGD(SparseOptimizer):
    """Gradient steps ``v <- v - rate g`` on the given rows; see :class:`SparseOptimizer`."""

    def _new_slots(self, variable: tf.Variable) -> list[tf.Tensor]:
        return []

    def _step(self, memory: Slots, gradient: tf.Tensor, rate: tf.Tensor) -> Step:
        return rate * gradient, memory


class SparseAdagrad(SparseOptimizer):
    """
    Adagrad: ``a <- a + g^2``, ``v <- v - rate g / (sqrt(a) + epsilon)``.

    The steps of a row shrink with its own gradients, as in Adagrad on all rows at once if the
    others have gradient zero (Duchi, Hazan and Singer, "Adaptive subgradient methods for online
    learning and stochastic optimization", 2011).

    :param learning_rate: see :class:`SparseOptimizer`.
    :param initial_accumulator: ``a`` at the start; 0 makes a row's first step as long as the rate,
        whatever the size of its gradient.
    :param epsilon: avoids 0 / 0 for a row whose gradients were all zero.
    :param dense: see :class:`SparseOptimizer`.
    :raises ValueError: for another type of rate or optimizer, or negative settings.
    """

    _settings = ("initial_accumulator", "epsilon")

    def __init__(
        self,
        learning_rate: Rate = 0.1,
        *,
        initial_accumulator: float = 0.0,
        epsilon: float = 1e-10,
        dense: Any = None,
    ) -> None:
        super().__init__(learning_rate, dense=dense)
        self.initial_accumulator = require_rate(initial_accumulator, "initial_accumulator")
        self.epsilon = require_rate(epsilon, "epsilon")

    def _new_slots(self, variable: tf.Variable) -> list[tf.Tensor]:
        return [tf.fill(variable.shape, tf.constant(self.initial_accumulator, variable.dtype))]

    def _step(self, memory: Slots, gradient: tf.Tensor, rate: tf.Tensor) -> Step:
        a = memory[0] + tf.square(gradient)
        return rate * gradient / (tf.sqrt(a) + self.epsilon), [a]


class SparseAdam(SparseOptimizer):
    """
    "Lazy" Adam: each row has its own moments and step count, changed by its own updates only.

    With ``t`` a row's own count of steps, ``p <- beta_1 p + (1 - beta_1) g``, ``s <- beta_2 s +
    (1 - beta_2) g^2`` and ``v <- v - rate sqrt(1 - beta_2^t) / (1 - beta_1^t) p / (sqrt(s) +
    epsilon)``: for rows that every step updates this is the Adam of Keras. Adam would also move
    all other rows and let their moments decay; this optimizer does not.

    :param learning_rate: see :class:`SparseOptimizer`.
    :param beta_1: decay of the first moments, in [0, 1).
    :param beta_2: decay of the second moments, in [0, 1).
    :param epsilon: added to the root of the second moment.
    :param dense: see :class:`SparseOptimizer`.
    :raises ValueError: for another type of rate or optimizer, or settings out of range.
    """

    _settings = ("beta_1", "beta_2", "epsilon")

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        *,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        dense: Any = None,
    ) -> None:
        super().__init__(learning_rate, dense=dense)
        self.beta_1 = require_rate(beta_1, "beta_1", below=1.0)
        self.beta_2 = require_rate(beta_2, "beta_2", below=1.0)
        self.epsilon = require_rate(epsilon, "epsilon")

    def _new_slots(self, variable: tf.Variable) -> list[tf.Tensor]:
        counts = tf.zeros(variable.shape[:1], variable.dtype)
        return [tf.zeros(variable.shape, variable.dtype) for _ in range(2)] + [counts]

    def _step(self, memory: Slots, gradient: tf.Tensor, rate: tf.Tensor) -> Step:
        p, s, t = memory
        p = self.beta_1 * p + (1.0 - self.beta_1) * gradient
        s = self.beta_2 * s + (1.0 - self.beta_2) * tf.square(gradient)
        t = t + 1.0
        rates = rate * tf.sqrt(_decayed(self.beta_2, t)) / _decayed(self.beta_1, t)
        trailing = tf.ones(tf.rank(p) - tf.rank(t), tf.int32)
        rates = tf.reshape(rates, tf.concat([tf.shape(t), trailing], axis=0))
        return rates * p / (tf.sqrt(s) + self.epsilon), [p, s, t]


def _as_number(value: Any, dtype: tf.DType) -> tf.Tensor:
    # without the hint a Python float would be rounded to float32
    return tf.cast(tf.convert_to_tensor(value, dtype_hint=dtype), dtype)


def _reference(variable: Any) -> Any:
    if not isinstance(variable, tf.Variable):
        raise ValueError(
            f"only a tf.Variable can be moved, got {type(variable).__name__}; of a "
            "gpflow.Parameter give unconstrained_variable."
        )
    return variable.ref()


def _decayed(beta: float, t: tf.Tensor) -> tf.Tensor:
    """``1 - beta^t`` without cancellation."""
    return -tf.math.expm1(t * math.log(beta)) if beta else tf.ones_like(t)
