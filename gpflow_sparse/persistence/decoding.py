"""Decoding of plain data into a model; everything that is read is checked."""

from collections.abc import Callable, Iterable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.persistence import names
from gpflow_sparse.persistence.encoding import ARRAY_TYPES, MAX_DEPTH, MAX_NODES

_FLOATS = ("nan", "inf", "-inf")


class Decoder:
    """The inverse of :class:`Encoder`; other errors than ValueError may come from constructors."""

    def __init__(
        self, objects: list[Any], arrays: dict[str, np.ndarray], classes: Iterable[type]
    ) -> None:
        """:param classes: the user's classes that the file may name."""
        self._objects = objects
        self._arrays = arrays
        self._classes = tuple(classes)
        self._made: dict[int, Any] = {}
        self._started: set[int] = set()
        self._used: set[str] = set()
        self._nodes = 0
        self._sizes: dict[int, int] = {}
        self._values: dict[str, Callable[[Any, int], Any]] = {
            "float": self._float,
            "list": self._items,
            "tuple": lambda node, depth: tuple(self._items(node, depth)),
            "dict": lambda node, depth: dict(self._items(pair, depth) for pair in _list(node)),
            "slice": lambda node, depth: slice(*self._items(node, depth)),
            "shape": lambda node, _: tf.TensorShape(node),
            "dtype": lambda node, _: _dtype(*node),
            "function": lambda node, _: _look_up(node, names.FUNCTIONS),
            "ref": self._reference,
        }
        self._kinds: dict[str, Callable[[dict[str, Any], int], Any]] = {
            "scalar": lambda node, _: self._array(node["data"])[()],
            "array": lambda node, _: self._array(node["data"]),
            "tensor": lambda node, _: tf.constant(self._array(node["data"])),
            "variable": self._variable,
            "parameter": self._parameter,
            "constructed": self._constructed,
        }

    def decode(self, node: Any, depth: int = 0) -> Any:
        """
        :param node: a JSON value.
        :raises ValueError: for a node that no encoder writes.
        """
        self._count(1)
        if depth > MAX_DEPTH:
            raise ValueError("its description is too deep or too long")
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if not isinstance(node, dict) or len(node) != 1:
            raise ValueError("its description has a part of an unknown kind")
        ((kind, content),) = node.items()
        return _look_up(kind, self._values)(content, depth + 1)

    def require_all_used(self) -> None:
        """:raises ValueError: if an array of the file belongs to no object."""
        if unused := sorted(set(self._arrays) - self._used):
            raise ValueError(f"its arrays {unused[:3]} belong to nothing")

    def _items(self, nodes: Any, depth: int) -> list[Any]:
        return [self.decode(node, depth) for node in _list(nodes)]

    def _float(self, text: Any, _: int) -> float:
        if text not in _FLOATS:
            raise ValueError("its description has a float other than nan, inf and -inf")
        return float(text)

    def _reference(self, index: Any, depth: int) -> Any:
        if type(index) is not int or not 0 <= index < len(self._objects):
            raise ValueError("its description refers to an object that is not there")
        if index in self._made:
            # once for every use: TensorFlow Probability traverses shared parts every time
            self._count(self._sizes.get(index, 0))
        else:
            if index in self._started:
                raise ValueError("its description has an object that is part of itself")
            self._started.add(index)
            before = self._nodes
            node = self._objects[index]
            if node["kind"] == "assembled":
                self._assemble(index, node, depth)
            else:
                self._made[index] = _look_up(node["kind"], self._kinds)(node, depth)
            self._sizes[index] = self._nodes - before
        return self._made[index]

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise ValueError("its description is too deep or too long")

    def _array(self, key: Any) -> np.ndarray:
        array = _look_up(key, self._arrays)
        if array.dtype.name not in ARRAY_TYPES:
            raise ValueError(f"it has an array of {array.dtype.name}")
        self._used.add(key)
        return array

    def _variable(self, node: dict[str, Any], depth: int) -> tf.Variable:
        return tf.Variable(
            self._array(node["data"]),
            trainable=_require(node["trainable"], bool),
            name=_require(node["name"], str),
            shape=_require(self.decode(node["shape"], depth), tf.TensorShape),
        )

    def _parameter(self, node: dict[str, Any], depth: int) -> gpflow.Parameter:
        """A parameter of the decoded variable; the constructor would transform its value twice."""
        variable = _require(self.decode(node["variable"], depth), tf.Variable)
        transform = _require(self.decode(node["transform"], depth), tfp.bijectors.Bijector)
        prior = self.decode(node["prior"], depth)
        shape = _require(self.decode(node["shape"], depth), tf.TensorShape)
        parameter = gpflow.Parameter.__new__(gpflow.Parameter)
        tfp.util.TransformedVariable.__init__(
            parameter,
            None,
            transform,
            pretransformed_input=variable,
            name=_require(node["name"], str),
        )
        if not parameter.shape.is_compatible_with(shape):
            raise ValueError("it has a parameter of another shape than its value's")
        parameter._shape = shape  # may have unknown axes, as GPflow's constructor allows
        parameter.prior = None if prior is None else _require(prior, tfp.distributions.Distribution)
        parameter.prior_on = node["prior_on"]
        return parameter

    def _constructed(self, node: dict[str, Any], depth: int) -> Any:
        kind = _look_up(node["class"], names.constructed_classes())
        arguments = _require(node["arguments"], dict)
        return kind(**{name: self.decode(part, depth) for name, part in arguments.items()})

    def _assemble(self, index: int, node: dict[str, Any], depth: int) -> None:
        kind = names.assembled_class(node["class"], self._classes)
        attributes = _require(node["attributes"], dict)
        made: Any = kind.__new__(kind)  # type: ignore[call-overload]
        closure = _loc_scale_closure(made, attributes.get("conditional_distribution"))
        if isinstance(made, tf.Module) and node["name"] is not None:
            tf.Module.__init__(made, name=_require(node["name"], str))
        self._made[index] = made  # before its attributes, which may refer to it
        decoded: dict[str, Any] = {}
        for name, part in attributes.items():
            own = name == "conditional_distribution" and closure is not None
            decoded[name] = closure if own else self.decode(part, depth)
        for name, value in names.attributes_today(kind, decoded).items():
            names.require_attribute(kind, name)
            setattr(made, name, value)


def _loc_scale_closure(likelihood: Any, node: Any) -> Callable[..., Any] | None:
    """The closure that the constructor of one likelihood of GPflow makes; None for others."""
    kind = gpflow.likelihoods.HeteroskedasticTFPConditional
    if not isinstance(likelihood, kind) or not isinstance(node, dict) or "loc_scale" not in node:
        return None
    distribution = _look_up(node["loc_scale"], names.constructed_classes())
    if not issubclass(distribution, tfp.distributions.Distribution):
        raise ValueError("its likelihood is built on something other than a distribution")
    kind.__init__(likelihood, distribution_class=distribution)
    closure = likelihood.conditional_distribution
    likelihood.__dict__.clear()  # as new, bookkeeping included, so that attributes keep their order
    return closure


def _dtype(spelling: Any, name: Any) -> Any:
    if spelling == "tensorflow":
        return tf.as_dtype(_require(name, str))
    if name not in ARRAY_TYPES:
        raise ValueError("its description has an unknown data type")
    return np.dtype(name) if spelling == "numpy" else np.dtype(name).type


def _look_up(name: Any, table: dict[str, Any]) -> Any:
    if not isinstance(name, str) or name not in table:
        raise ValueError(
            f"it names {str(name)[:200]!r}, which a model file may not name; it may be from a "
            "newer gpflow_sparse"
        )
    return table[name]


def _require(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(
            f"its description has a {type(value).__name__} in place of a {kind.__name__}"
        )
    return value


def _list(node: Any) -> list[Any]:
    return _require(node, list)
