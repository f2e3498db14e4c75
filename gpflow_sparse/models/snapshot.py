"""Tensors computed from the data and kept in place of them, for fixed parameters.

A :class:`Snapshot` of the parameters tells whether such tensors are current: GRIEF keeps the sums
over rows of a fixed basis, SoftKI the posterior of its weights, GPnn residuals of left-out rows.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse._version import __version__
from gpflow_sparse.inference.collapsed import RowSums
from gpflow_sparse.inference.rotation import Rotation, rotate
from gpflow_sparse.models.training_data import TrainingData, are_same, fingerprint
from gpflow_sparse.numerics.tracing import is_bookkeeping

_PLAIN = (bool, int, float, str)
# Parts of a model whose class says all that results depend on, beside values of variables.
_OF_PARAMETERS = gpflow.Parameter, tfp.bijectors.Bijector, tfp.distributions.Distribution
# Relative rounding error of a parameter through its transform and back, in float32.
_ROUNDING = 1e-5
_OTHER_BASIS = (
    "kernel or mean_function has other parameters than when the data were read, or the basis other "
    "functions: call refresh_basis(), or leave them as they are while reweighted is on."
)
_OTHER_DATA = (
    "data have been assigned since they were read: call refresh_basis(), which reads them again "
    "and starts the weights at 1."
)
_NOT_FITTED = (
    "the model has no posterior yet: call fit_posterior((X, Y)) with all training rows once the "
    "parameters are trained."
)
_OTHER_PARAMETERS = (
    "parameters or settings of the model, or GPflow's default jitter, have changed since "
    "fit_posterior: call fit_posterior((X, Y)) again with all training rows."
)


class Snapshot(tf.Module):
    """
    Classes and attributes of some modules, the values of their variables, and GPflow's default
    float and jitter, at one time.

    :meth:`read` compares the present values, and compares again when a graph runs.
    """

    def __init__(self, stale: str, modules: Sequence[tf.Module] = ()) -> None:
        """
        :param stale: the error for modules or values that have changed.
        :param modules: modules to :meth:`take` at once, and with as many variables later; none to
            take any later.
        """
        super().__init__()
        self._stale, self._digest, self._frozen_digest = stale, "", ""
        self._signature: tuple[str, ...] = ()
        shape = None if modules else [None]
        self._values = tf.Variable(_values(modules), trainable=False, shape=shape)
        if modules:
            self.take(modules)

    def take(self, modules: Sequence[tf.Module]) -> None:
        """Record these modules and the present values of their variables."""
        self.forget()
        values = _values(modules)
        if not self._values.shape.is_compatible_with(values.shape):  # a deep copy: of a fixed shape
            self._values = tf.Variable(values, trainable=False, shape=[None])
        self._values.assign(values)
        parts = _parts(modules)
        self._digest = _digest(parts)
        frozen = [gpflow.utilities.freeze(module) for module in modules]
        self._frozen_digest = _digest(_parts(frozen))
        self._signature = _signature(parts)  # last: an interrupt before leaves nothing taken

    def forget(self) -> None:
        """Nothing is current until :meth:`take`; to be called before what was computed changes."""
        self._signature = ()

    @property
    def is_taken(self) -> bool:
        """Whether :meth:`take` has been called."""
        return bool(self._signature)

    def is_current(self, modules: Sequence[tf.Module]) -> bool:
        """
        Whether all is as recorded, but for the rounding of transforms. Attributes that a file has
        from other versions are not compared beyond the public plain ones.
        """
        parts = _parts(modules)
        digest = _digest(parts)
        if self._is_frozen:
            return self.is_taken and digest == self._frozen_digest
        same = _signature(parts) == self._signature
        if self._digest.partition(" ")[0] == digest.partition(" ")[0]:
            same = same and self._digest == digest
        return same and bool(self._unchanged(modules).numpy())

    def read(
        self, variables: Sequence[tf.Variable], modules: Sequence[tf.Module]
    ) -> list[tf.Tensor]:
        """
        Values of variables that were computed with the recorded modules, if these are current.

        :raises ValueError: unless :meth:`is_current`, while tracing too; when a graph runs,
            ``tf.errors.InvalidArgumentError``.
        """
        with tf.init_scope():
            if tf.executing_eagerly() and not self.is_current(modules):
                raise ValueError(self._stale)
        if tf.executing_eagerly():
            return [tf.convert_to_tensor(variable) for variable in variables]
        check = tf.debugging.assert_equal(self._unchanged(modules), True, message=self._stale)
        with tf.control_dependencies([check]):
            return [tf.identity(variable) for variable in variables]

    @property
    def _is_frozen(self) -> bool:
        """In a copy by ``gpflow.utilities.freeze``, whose constants the digest covers."""
        return not isinstance(self._values, tf.Variable)

    def _unchanged(self, modules: Sequence[tf.Module]) -> tf.Tensor:
        if self._is_frozen:
            return tf.constant(True)
        now, then = _values(modules), tf.convert_to_tensor(self._values)
        if now.shape != then.shape and tf.executing_eagerly():
            return tf.constant(False)
        return tf.reduce_all(tf.abs(now - then) <= _ROUNDING * (1e-3 + tf.abs(then)))


class FixedStatistics(tf.Module):
    """
    Sums over rows, as variables, and the parameters and data that they were computed with.

    Reading the sums in a graph compares parameters and data when it runs.
    """

    def __init__(
        self, sums: RowSums, *, rotated: bool, fixed: Sequence[tf.Module], data: TrainingData
    ) -> None:
        """
        :param rotated: also keep the rotation that makes the functions orthogonal on the data.
        :param fixed: modules on whose variables the sums depend; set to be not trainable.
        :param data: the rows that were summed.
        """
        super().__init__()
        self._sums = tuple(tf.Variable(part, trainable=False) for part in sums)
        parts = rotate(sums) if rotated else ()
        self._rotation = tuple(tf.Variable(p, trainable=False) for p in parts) or None
        self._snapshot = Snapshot(_OTHER_BASIS)
        self._fingerprint = tf.Variable(fingerprint(data), trainable=False, shape=[None])
        self._fix(fixed, data)

    @property
    def sums(self) -> RowSums:
        """Sums over all rows."""
        return RowSums(*self._guarded(self._sums))

    @property
    def rotation(self) -> Rotation:
        """The rotation of the sums, if ``rotated``."""
        return Rotation(*self._guarded(self._rotation or ()))

    @property
    def is_rotated(self) -> bool:
        """Whether there is a :attr:`rotation`."""
        return self._rotation is not None

    def update(self, sums: RowSums, fixed: Sequence[tf.Module], data: TrainingData) -> None:
        """Replace the sums by the sums of the present modules and data."""
        self._snapshot.forget()
        variables, values = [*self._sums], [*sums]
        if self._rotation is not None:
            variables, values = [*variables, *self._rotation], [*values, *rotate(sums)]
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        self._fix(fixed, data)

    def is_current(self, fixed: Sequence[tf.Module], data: TrainingData) -> bool:
        """Whether the sums are of these modules and data, with the same values."""
        try:
            self.require_current(fixed, data)
        except ValueError:
            return False
        return True

    def require_current(self, fixed: Sequence[tf.Module], data: TrainingData) -> None:
        """:raises ValueError: unless :meth:`is_current`, while tracing too."""
        if not all(mine is given for mine, given in zip(self._fixed, fixed, strict=True)):
            raise ValueError(_OTHER_BASIS)
        with tf.init_scope():
            same = are_same(self._data, data) and self._is_unassigned()
            if tf.executing_eagerly() and not same:
                raise ValueError(_OTHER_DATA)
        self._snapshot.read((), fixed)

    def _is_unassigned(self) -> tf.Tensor:
        return tf.reduce_all(tf.equal(fingerprint(self._data), self._fingerprint))

    def _guarded(self, variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
        """Values of variables; in a graph, parameters and data are compared whenever it runs."""
        if tf.executing_eagerly():
            return [tf.convert_to_tensor(variable) for variable in variables]
        tf.debugging.assert_equal(self._is_unassigned(), True, message=_OTHER_DATA)
        return self._snapshot.read(variables, self._fixed)

    def _fix(self, fixed: Sequence[tf.Module], data: TrainingData) -> None:
        for module in fixed:
            gpflow.set_trainable(module, False)
        self._fixed, self._data = tuple(fixed), data
        self._fingerprint.assign(fingerprint(data))
        self._snapshot.take(fixed)


class FittedWeights(tf.Module):
    """Posterior mean and covariance factor of weights, for the parameters when computed."""

    def __init__(self, num_basis: int, num_outputs: int, dtype: tf.DType) -> None:
        """
        :param num_basis: m.
        :param num_outputs: P, which share the covariance.
        """
        super().__init__()
        self.q_mu = tf.Variable(tf.zeros([num_basis, num_outputs], dtype), trainable=False)
        self.q_sqrt = tf.Variable(tf.eye(num_basis, dtype=dtype), trainable=False)
        self._snapshot = Snapshot(_OTHER_PARAMETERS)

    def update(self, q_mu: tf.Tensor, q_sqrt: tf.Tensor, parts: Sequence[tf.Module]) -> None:
        """
        :param q_mu: ``[m, P]``.
        :param q_sqrt: lower triangular, ``[m, m]``.
        :param parts: modules whose parameters they depend on.
        """
        self._snapshot.forget()
        self.q_mu.assign(tf.cast(q_mu, self.q_mu.dtype))
        self.q_sqrt.assign(tf.cast(q_sqrt, self.q_sqrt.dtype))
        self._snapshot.take(parts)

    def validate_values(self, num_basis: int, num_outputs: int, dtype: tf.DType) -> None:
        """Refuse values from a file of other shapes or types, or not finite."""
        for name, columns in (("q_mu", num_outputs), ("q_sqrt", num_basis)):
            value, shape = getattr(self, name, None), (num_basis, columns)
            found = f"{type(value).__name__} of shape {getattr(value, 'shape', None)}"
            if not isinstance(value, tf.Variable) or value.shape != shape or value.dtype != dtype:
                raise ValueError(
                    f"model.weights.{name} must be a {dtype.name} variable of shape {shape}, got "
                    f"{found}."
                )
            if not bool(tf.reduce_all(tf.math.is_finite(value))):
                raise ValueError(f"model.weights.{name} must be finite.")

    def read(self, parts: Sequence[tf.Module]) -> tuple[tf.Tensor, tf.Tensor]:
        """
        ``q_mu [m, P]`` and ``q_sqrt [m, m]``.

        :raises ValueError: before the first :meth:`update`, or if parts have changed since.
        """
        if not self._snapshot.is_taken:
            raise ValueError(_NOT_FITTED)
        q_mu, q_sqrt = self._snapshot.read((self.q_mu, self.q_sqrt), parts)
        return q_mu, q_sqrt


def _parts(modules: Sequence[tf.Module]) -> list[tf.Module]:
    """The modules and all modules in them."""
    return [part for outer in modules for part in (outer, *outer.submodules)]


def _signature(parts: Sequence[tf.Module]) -> tuple[str, ...]:
    """Classes of modules, with their public plain attributes."""
    found = []
    for module in parts:
        public = ((name, value) for name, value in vars(module).items() if name[0] != "_")
        settings = sorted(pair for pair in public if isinstance(pair[1], bool | int | float | str))
        found.append(f"{type(module).__qualname__}{settings}")
    return tuple(found)


def _digest(parts: Sequence[tf.Module]) -> str:
    """
    Versions, and a hash of GPflow's default float and jitter and of all attributes of modules,
    private ones, arrays and tensors included, but not of the values of variables.
    """
    found = hashlib.sha256()
    _add(found, [np.dtype(gpflow.default_float()).name, gpflow.default_jitter()])
    for module in parts:
        if isinstance(module, _OF_PARAMETERS):
            continue
        for name, value in sorted(vars(module).items()):
            if not is_bookkeeping(name) and not _is_default(module, name, value):
                _add(found, [name, value])
    return f"{__version__}-{gpflow.__version__} {found.hexdigest()}"


def _is_default(module: tf.Module, name: str, value: Any) -> bool:
    """Whether an attribute is the default of its class, which a loaded module may not have."""
    default = getattr(type(module), name, None)
    return value is default or (isinstance(value, _PLAIN) and value == default)


def _add(found: Any, value: Any) -> None:
    """Add the content of a value to a hash; for a module or another object, its class."""
    value = getattr(value, "__wrapped__", value)  # TensorFlow wraps tuples and dictionaries
    if isinstance(value, slice):
        value = [value.start, value.stop, value.step]
    elif isinstance(value, Mapping):
        value = list(value.items())
    if isinstance(value, list | tuple):
        found.update(f"[{len(value)}]".encode())
        for item in value:
            _add(found, item)
    elif isinstance(value, np.ndarray | np.generic | tf.Tensor):
        array = np.asarray(value)
        found.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    elif value is None or isinstance(value, _PLAIN):
        found.update(repr(value).encode())
    else:
        found.update(getattr(value, "__qualname__", type(value).__qualname__).encode())


def _values(modules: Sequence[tf.Module]) -> tf.Tensor:
    """All variables of the modules, flat, in float64: ``[n]``."""
    variables = [v for module in modules for v in module.variables]
    parts = [tf.reshape(tf.cast(v, tf.float64), [-1]) for v in variables]
    return tf.concat([tf.zeros([0], tf.float64), *parts], axis=0)
