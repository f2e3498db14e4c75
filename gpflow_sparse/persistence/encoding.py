"""Encoding of a model as plain data: a tree of JSON values, and arrays by name."""

import inspect
import json
import math
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_sparse.persistence import names

# The same limits for saving and loading, so that whatever is saved can be loaded.
MAX_DEPTH = 100
MAX_NODES = 100_000
ARRAY_TYPES = frozenset(
    {"bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64"}
    | {"uint8", "uint16", "uint32", "uint64"}
)

_CONSTRUCTED = (tfp.bijectors.Bijector, tfp.distributions.Distribution)
_LOC_SCALE = gpflow.likelihoods.HeteroskedasticTFPConditional


class Encoder:
    """
    Encoder of one model. Values are written in place; objects, which may be shared or form cycles,
    are kept in a table and referred to by their position.
    """

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.classes: set[type] = set()
        self._positions: dict[int, tuple[Any, int]] = {}  # by id; the references keep ids unique
        self._nodes = 0

    def encode_model(self, model: gpflow.models.BayesianModel) -> str:
        """The tree of a whole model as JSON text; its arrays are stored in ``arrays``."""
        tree = {"root": self.encode(model, "model"), "objects": self.objects}
        return json.dumps(tree, allow_nan=False, separators=(",", ":"))

    def encode(self, value: Any, path: str, depth: int = 0) -> Any:
        """
        :param path: path of the value as the user would write it, for errors.
        :return: a JSON value.
        :raises ValueError: naming the path of a value that a file cannot hold.
        """
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise ValueError(
                f"{path} is nested too deeply, or is one value too many: a model file holds at "
                f"most {MAX_DEPTH} levels and {MAX_NODES} values; keep many numbers in one array."
            )
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, tuple | list | dict):
            return self._container(value, path, depth)
        if isinstance(value, slice):
            parts = [value.start, value.stop, value.step]
            return {"slice": [self.encode(part, path, depth + 1) for part in parts]}
        if isinstance(value, tf.TensorShape):
            return {"shape": None if value.rank is None else value.as_list()}
        if (dtype := _dtype(value)) is not None:
            return {"dtype": dtype}
        if (function := names.function_name(value)) is not None:
            return {"function": function}
        return self._reference(value, path, depth)

    def _container(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, list):  # TensorFlow wraps lists in a subclass of list
            return {"list": self._items(value, path, depth)}
        plain = getattr(value, "__wrapped__", value)  # and tuples and dicts in proxies
        if type(plain) is tuple:
            return {"tuple": self._items(plain, path, depth)}
        if type(plain) is dict:
            pairs = ([key, plain[key], f"{path}[{key!r}]"] for key in plain)
            return {
                "dict": [
                    [self.encode(key, where, depth + 1), self.encode(item, where, depth + 1)]
                    for key, item, where in pairs
                ]
            }
        raise _refusal(path, plain)

    def _items(self, values: Any, path: str, depth: int) -> list[Any]:
        return [self.encode(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(values)]

    def _reference(self, value: Any, path: str, depth: int) -> dict[str, int]:
        if id(value) not in self._positions:
            index = len(self.objects)
            self._positions[id(value)] = (value, index)
            self.objects.append({})
            self.objects[index] = self._describe(value, path, depth)
        return {"ref": self._positions[id(value)][1]}

    def _describe(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        kind = type(value)
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
                "shape": self.encode(value.shape, path, depth + 1),
            }
        if kind is gpflow.Parameter:
            return self._parameter(value, path, depth)
        if isinstance(value, tf.Tensor):
            if tf.is_symbolic_tensor(value):
                raise ValueError(
                    f"{path} is a tensor of a tf.function that has ended, which has no value; "
                    "delete it, or set it outside of the function."
                )
            return {"kind": "tensor", "data": self._array(value.numpy(), path)}
        if kind in names.constructed_classes().values():
            return self._constructed(value, path, depth)
        if isinstance(value, _CONSTRUCTED) or not names.can_assemble(kind):
            raise _refusal(path, value)
        return self._assembled(value, path, depth)

    def _parameter(self, value: gpflow.Parameter, path: str, depth: int) -> dict[str, Any]:
        return {
            "kind": "parameter",
            # unconstrained, so that no value passes through the transform
            "variable": self.encode(value.unconstrained_variable, path, depth + 1),
            "transform": self.encode(value.transform, f"{path}.transform", depth + 1),
            "prior": self.encode(value.prior, f"{path}.prior", depth + 1),
            "prior_on": value.prior_on.value,
            "name": value.name,
            "shape": self.encode(value.shape, path, depth + 1),
        }

    def _constructed(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        given = value.parameters if isinstance(value, _CONSTRUCTED) else vars(value)
        # of __init__, since __new__ of TFP's wrapper classes takes any arguments
        signature = inspect.signature(type(value).__init__).parameters
        return {
            "kind": "constructed",
            "class": names.class_name(type(value)),
            "arguments": {
                name: self.encode(given[name], f"{path}.{name}", depth + 1)
                for name, argument in signature.items()
                if name in given and given[name] is not argument.default
            },
        }

    def _assembled(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        kind = type(value)
        name = names.class_name(kind)
        if ":" in name:
            self.classes.add(kind)
        attributes = {}
        for attribute, item in vars(value).items():
            where = f"{path}.{attribute}"
            if isinstance(value, tf.Module) and names.is_bookkeeping(attribute):
                continue
            distribution = _loc_scale_distribution(value, attribute, item)
            attributes[names.attribute_in_files(kind, attribute)] = (
                self.encode(item, where, depth + 1)
                if distribution is None
                else {"loc_scale": names.class_name(distribution)}
            )
        module_name = vars(value).get("_name")  # None after some constructors of GPflow
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


def _dtype(value: Any) -> list[str] | None:
    """A data type as its spelling ("tensorflow", "numpy", "type") and name; None for others."""
    if isinstance(value, tf.DType):
        return ["tensorflow", value.name]
    if isinstance(value, np.dtype) and value.name in ARRAY_TYPES:
        return ["numpy", value.name]
    if isinstance(value, type) and issubclass(value, np.generic):
        return ["type", np.dtype(value).name]
    return None


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
