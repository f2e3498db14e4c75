"""
Models as plain data, a tree of JSON values and arrays by name, and back.

Numbers, texts and containers are written in place; objects, which may be shared or form cycles, are
kept in a list and referred to by their positions. Everything that is read is checked.
"""

import inspect
import json
import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.numerics.tracing import is_bookkeeping
from gpflow_sparse.persistence import names

# The same limits for saving and loading, so that whatever is saved can be loaded.
MAX_DEPTH = 100
MAX_NODES = 100_000
ARRAY_TYPES = frozenset(
    {"bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64"}
    | {"uint8", "uint16", "uint32", "uint64"}
)

_FLOATS = ("nan", "inf", "-inf")
_NO_DEFAULT = object()
# Fields of the description of an object of each kind, and the types of the fields that are not
# nodes.
_ARRAY: dict[str, Any] = {"data": str}
_FIELDS: dict[str, dict[str, Any]] = {
    "scalar": _ARRAY,
    "array": _ARRAY,
    "tensor": _ARRAY,
    "variable": {"data": str, "trainable": bool, "name": str, "shape": object},
    "parameter": {"variable": object, "transform": object, "prior": object, "shape": object}
    | {"prior_on": str, "name": str},
    "constructed": {"class": object, "arguments": dict},
    "assembled": {"class": object, "name": str | None, "attributes": dict},
}
_CONSTRUCTED = (tfp.bijectors.Bijector, tfp.distributions.Distribution)
_LOC_SCALE = gpflow.likelihoods.HeteroskedasticTFPConditional


class Encoder:
    """Encoder of one model."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.classes: set[type] = set()
        self._positions: dict[int, tuple[Any, int]] = {}  # by id; the references keep ids unique
        self._nodes = self._depth = 0

    def encode_model(self, model: gpflow.models.BayesianModel) -> str:
        """The tree of a whole model as JSON text; its arrays are stored in ``arrays``."""
        tree = {"root": self.encode(model, "model"), "objects": self.objects}
        return json.dumps(tree, allow_nan=False, separators=(",", ":"))

    def encode(self, value: Any, path: str) -> Any:
        """
        :param path: path of the value as the user would write it, for errors.
        :return: a JSON value.
        :raises ValueError: naming the path of a value that a file cannot hold.
        """
        self._nodes += 1
        if self._depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise ValueError(
                f"{path} is nested too deeply, or is one value too many: a model file holds at "
                f"most {MAX_DEPTH} levels and {MAX_NODES} values; keep many numbers in one array."
            )
        finite = type(value) is float and math.isfinite(value)
        if finite or value is None or type(value) in (bool, int, str):
            return value
        self._depth += 1
        node = self._in_place(value, path)
        if node is None:
            if id(value) not in self._positions:
                index = len(self.objects)
                self._positions[id(value)] = (value, index)
                self.objects.append({})
                self.objects[index] = self._object(value, path)
            node = {"ref": self._positions[id(value)][1]}
        self._depth -= 1
        return node

    def _in_place(self, value: Any, path: str) -> dict[str, Any] | None:
        """The description of a float, container, or other plain value; None for an object."""
        if type(value) is float:
            return {"float": repr(value)}
        if isinstance(value, list):  # TensorFlow wraps lists in a subclass of list
            return {"list": self._items(value, path)}
        if isinstance(value, tuple | dict):
            value = getattr(value, "__wrapped__", value)  # and tuples and dicts in proxies
            if type(value) is tuple:
                return {"tuple": self._items(value, path)}
            if type(value) is not dict:
                raise _refusal(path, value)
            pairs = [[(part, f"{path}[{key!r}]") for part in (key, value[key])] for key in value]
            return {"dict": [[self.encode(*part) for part in pair] for pair in pairs]}
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return {"slice": [self.encode(part, path) for part in parts]}
        if isinstance(value, tf.TensorShape):
            return {"shape": None if value.rank is None else value.as_list()}
        if isinstance(value, tf.DType):
            return {"dtype": ["tensorflow", value.name]}
        if isinstance(value, np.dtype) and value.name in ARRAY_TYPES:
            return {"dtype": ["numpy", value.name]}
        if isinstance(value, type) and issubclass(value, np.generic):
            return {"dtype": ["type", np.dtype(value).name]}
        function = names.function_name(value)
        return None if function is None else {"function": function}

    def _items(self, values: Iterable[Any], path: str) -> list[Any]:
        return [self.encode(value, f"{path}[{i}]") for i, value in enumerate(values)]

    def _object(self, value: Any, path: str) -> dict[str, Any]:
        if isinstance(value, np.generic):
            return {"kind": "scalar", "data": self._array(np.asarray(value), path)}
        if isinstance(value, np.ndarray):
            return {"kind": "array", "data": self._array(value, path)}
        if isinstance(value, tf.Variable):
            return {
                "kind": "variable",
                "data": self._array(value.numpy(), path),
                "name": value.name.partition(":")[0],
                "trainable": bool(value.trainable),
                "shape": self.encode(value.shape, path),
            }
        if type(value) is gpflow.Parameter:
            return {
                "kind": "parameter",
                # unconstrained, so that no value passes through the transform
                "variable": self.encode(value.unconstrained_variable, path),
                "transform": self.encode(value.transform, f"{path}.transform"),
                "prior": self.encode(value.prior, f"{path}.prior"),
                "prior_on": value.prior_on.value,
                "name": value.name,
                "shape": self.encode(value.shape, path),
            }
        if isinstance(value, tf.Tensor):
            if tf.is_symbolic_tensor(value):
                raise ValueError(
                    f"{path} is a tensor of a tf.function that has ended, which has no value; "
                    "delete it, or set it outside of the function."
                )
            return {"kind": "tensor", "data": self._array(value.numpy(), path)}
        if type(value) in names.constructed_classes().values():
            return self._constructed(value, path)
        if isinstance(value, _CONSTRUCTED) or not names.can_assemble(type(value)):
            raise _refusal(path, value)
        return self._assembled(value, path)

    def _constructed(self, value: Any, path: str) -> dict[str, Any]:
        given = value.parameters if isinstance(value, _CONSTRUCTED) else vars(value)
        # of __init__, since __new__ of TFP's wrapper classes takes any arguments
        signature = inspect.signature(type(value).__init__).parameters
        return {
            "kind": "constructed",
            "class": names.class_name(type(value)),
            "arguments": {
                name: self.encode(given[name], f"{path}.{name}")
                for name, argument in signature.items()
                if name in given and given[name] is not argument.default
            },
        }

    def _assembled(self, value: Any, path: str) -> dict[str, Any]:
        kind = type(value)
        name = names.class_name(kind)
        if ":" in name:
            self.classes.add(kind)
        attributes = {}
        for attribute, item in vars(value).items():
            bookkeeping = isinstance(value, tf.Module) and is_bookkeeping(attribute)
            if bookkeeping or _is_default(kind, attribute, item):
                continue
            distribution = _loc_scale_distribution(value, attribute, item)
            attributes[attribute] = (
                self.encode(item, f"{path}.{attribute}")
                if distribution is None
                else {"loc_scale": names.class_name(distribution)}
            )
        # missing, or None, after some constructors of GPflow
        module_name = getattr(value, "name", None) if isinstance(value, tf.Module) else None
        return {"kind": "assembled", "class": name, "name": module_name, "attributes": attributes}

    def _array(self, value: np.ndarray, path: str) -> str:
        if value.dtype.name not in ARRAY_TYPES:
            raise ValueError(
                f"{path} is an array of {value.dtype.name}, which a model file cannot hold; make "
                "it an array of real numbers."
            )
        key = str(len(self.arrays))
        # asarray, since ascontiguousarray would give a scalar an axis
        self.arrays[key] = np.asarray(value, dtype=value.dtype.newbyteorder("="), order="C")
        return key


class Decoder:
    """The inverse of :class:`Encoder`; other errors than ValueError may come from classes."""

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
        self._nodes = self._depth = 0
        self._sizes: dict[int, int] = {}
        self._in_place: dict[str, Callable[[Any], Any]] = {
            "float": _infinite,
            "list": self._items,
            "tuple": lambda nodes: tuple(self._items(nodes)),
            "dict": lambda pairs: _dict(self._items(pair, 2) for pair in _require(pairs, list)),
            "slice": lambda nodes: slice(*self._items(nodes, 3)),
            "shape": _shape,
            "dtype": lambda content: _dtype(*self._items(content, 2)),
            "function": lambda name: _look_up(name, names.FUNCTIONS),
            "ref": self._object,
        }
        self._kinds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "scalar": lambda node: self._array(node["data"])[()],
            "array": lambda node: self._array(node["data"]),
            "tensor": lambda node: tf.constant(self._array(node["data"])),
            "variable": self._variable,
            "parameter": self._parameter,
            "constructed": self._constructed,
            "assembled": self._empty,
        }

    def decode(self, node: Any) -> Any:
        """
        :param node: a JSON value.
        :raises ValueError: for a node that no encoder writes.
        """
        self._count(1)
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if not isinstance(node, dict) or len(node) != 1:
            raise ValueError("its description has a part of an unknown kind")
        ((kind, content),) = node.items()
        self._depth += 1
        value = _look_up(kind, self._in_place)(content)
        self._depth -= 1
        return value

    @property
    def made(self) -> list[Any]:
        """All objects that were decoded."""
        return list(self._made.values())

    def require_all_used(self) -> None:
        """:raises ValueError: if an array of the file belongs to no object."""
        if unused := sorted(set(self._arrays) - self._used):
            raise ValueError(f"its arrays {unused[:3]} belong to nothing")

    def _items(self, nodes: Any, count: int | None = None) -> list[Any]:
        """:param count: how many there must be; None for any number."""
        if count is not None and len(_require(nodes, list)) != count:
            raise ValueError(f"its description has a list of another length than {count}")
        return [self.decode(node) for node in _require(nodes, list)]

    def _object(self, index: Any) -> Any:
        if type(index) is not int or not 0 <= index < len(self._objects):
            raise ValueError("its description refers to an object that is not there")
        if index in self._made:
            # once for every use: TensorFlow Probability traverses shared parts every time
            self._nodes += self._sizes.get(index, 0)
            return self._made[index]
        if index in self._started:
            raise ValueError("its description has an object that is part of itself")
        self._started.add(index)
        before, node = self._nodes, _require(self._objects[index], dict)
        make = _look_up(node.get("kind"), self._kinds)
        for name, allowed in _FIELDS[node["kind"]].items():
            if name not in node or not isinstance(node[name], allowed):
                raise ValueError(f"its {node['kind']} has no sound {name!r}")
        self._made[index] = made = make(node)
        if node["kind"] == "assembled":
            self._fill(made, node)
        self._sizes[index] = self._nodes - before
        return made

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise ValueError("its description is too deep or too long")

    def _array(self, key: Any) -> np.ndarray:
        array = _look_up(key, self._arrays)
        if array.dtype.name not in ARRAY_TYPES:
            raise ValueError(f"it has an array of {array.dtype.name}")
        self._used.add(key)
        return array

    def _variable(self, node: dict[str, Any]) -> tf.Variable:
        return tf.Variable(
            self._array(node["data"]),
            trainable=node["trainable"],
            name=node["name"],
            shape=_require(self.decode(node["shape"]), tf.TensorShape),
        )

    def _parameter(self, node: dict[str, Any]) -> gpflow.Parameter:
        """A parameter of the decoded variable; the constructor would transform its value twice."""
        variable = _require(self.decode(node["variable"]), tf.Variable)
        transform = _require(self.decode(node["transform"]), tfp.bijectors.Bijector)
        prior = self.decode(node["prior"])
        shape = _require(self.decode(node["shape"]), tf.TensorShape)
        parameter = gpflow.Parameter.__new__(gpflow.Parameter)
        tfp.util.TransformedVariable.__init__(
            parameter, None, transform, pretransformed_input=variable, name=node["name"]
        )
        if not tf.convert_to_tensor(parameter).shape.is_compatible_with(shape):
            raise ValueError("it has a parameter of another shape than its value's")
        parameter._shape = shape  # may have unknown axes, as GPflow's constructor allows
        parameter.prior = None if prior is None else _require(prior, tfp.distributions.Distribution)
        parameter.prior_on = node["prior_on"]
        return parameter

    def _constructed(self, node: dict[str, Any]) -> Any:
        kind = _look_up(node["class"], names.constructed_classes())
        arguments = {name: self.decode(part) for name, part in node["arguments"].items()}
        try:
            return kind(**arguments)
        except Exception as error:  # of any kind, from TensorFlow Probability
            raise ValueError(f"its arguments of {node['class']} do not fit that class") from error

    def _empty(self, node: dict[str, Any]) -> Any:
        kind = names.assembled_class(node["class"], self._classes)
        return kind.__new__(kind)  # type: ignore[call-overload]

    def _fill(self, made: Any, node: dict[str, Any]) -> None:
        """Set the attributes of an empty object, which may refer to the object itself."""
        attributes = node["attributes"]
        closure = _loc_scale_closure(made, attributes.get("conditional_distribution"))
        if isinstance(made, tf.Module) and node["name"] is not None:
            tf.Module.__init__(made, name=node["name"])
        for name, part in attributes.items():
            names.require_attribute(type(made), name)
            own = name == "conditional_distribution" and closure is not None
            setattr(made, name, closure if own else self.decode(part))


def _is_default(kind: type, attribute: str, item: Any) -> bool:
    """
    Whether a value is the default of its class, or a plain value that equals it, so that the
    default stays in force: TensorFlow's modules do not store a value that is identical to the one
    that they return already, so that an attribute that was changed and set back would not be
    restored.
    """
    default = getattr(kind, attribute, _NO_DEFAULT)
    is_plain = isinstance(item, str | bool | int | float)
    return item is default or (is_plain and (type(item), item) == (type(default), default))


def _loc_scale_distribution(owner: Any, attribute: str, item: Any) -> type | None:
    """The distribution class in the closure of GPflow's heteroskedastic likelihood; else None."""
    if not isinstance(owner, _LOC_SCALE) or attribute != "conditional_distribution":
        return None
    function = inspect.unwrap(item) if callable(item) else item
    own = f"{_LOC_SCALE.__qualname__}.__init__.<locals>.conditional_distribution"
    if getattr(function, "__qualname__", "") != own:
        return None
    distribution = inspect.getclosurevars(function).nonlocals.get("distribution_class")
    known = distribution in names.constructed_classes().values()
    return distribution if known else None


def _loc_scale_closure(likelihood: Any, node: Any) -> Callable[..., Any] | None:
    """The closure that the constructor of one likelihood of GPflow makes; None for others."""
    is_named = isinstance(node, dict) and "loc_scale" in node
    if not (is_named and isinstance(likelihood, _LOC_SCALE)):
        return None
    distribution = _look_up(node["loc_scale"], names.constructed_classes())
    if not issubclass(distribution, tfp.distributions.Distribution):
        raise ValueError("its likelihood is built on something other than a distribution")
    _LOC_SCALE.__init__(likelihood, distribution_class=distribution)
    closure = likelihood.conditional_distribution
    likelihood.__dict__.clear()  # as new, bookkeeping included, so that attributes keep their order
    return closure


def _infinite(text: Any) -> float:
    if text not in _FLOATS:
        raise ValueError("its description has a float other than nan, inf and -inf")
    return float(text)


def _dict(pairs: Iterable[list[Any]]) -> dict[Any, Any]:
    found = list(pairs)
    if not all(isinstance(key, Hashable) for key, _ in found):
        raise ValueError("its description has a list in place of a key")
    return dict(found)


def _shape(sizes: Any) -> tf.TensorShape:
    known = sizes is None or all(
        size is None or (type(size) is int and 0 <= size < 2**63) for size in _require(sizes, list)
    )
    if not known:
        raise ValueError("its description has a shape of other things than sizes")
    return tf.TensorShape(sizes)


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


def _refusal(path: str, value: Any) -> ValueError:
    if isinstance(value, tf.data.Dataset):
        return ValueError(
            f"{path} is read from files or a tf.data.Dataset in every pass, which a model file "
            "cannot hold: save model.to_svgp(), which predicts the same and holds no data."
        )
    if isinstance(value, _CONSTRUCTED):
        return ValueError(
            f"{path} is a {type(value).__name__}, which a model file cannot hold; use one that "
            "TensorFlow Probability provides, without functions as arguments."
        )
    if hasattr(value, "get_concrete_function"):
        return ValueError(
            f"{path} is a compiled function, which a model should not own; delete it."
        )
    if callable(value) and hasattr(value, "__name__") and not isinstance(value, type):
        what = "a lambda" if value.__name__ == "<lambda>" else f"the function {value.__name__}"
        return ValueError(
            f"{path} is {what}, and a model file holds no code; use a function or bijector of "
            f"TensorFlow's ({', '.join(names.FUNCTIONS)}), or make it a method of a class of "
            "your own and pass that to gs.load(path, classes=[...])."
        )
    kind = type(value)
    return ValueError(
        f"{path} is a {kind.__module__}.{kind.__qualname__}, which a model file cannot hold; "
        "delete it, or keep it in numbers, arrays, or a tf.Module of your own."
    )
