"""The name of a value in which two models, described as in their files, differ."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

# Keys of a description that a user would not write in the path of a value.
_STRUCTURE = ("attributes", "arguments", "list", "tuple", "dict", "data", "variable", "kind")


def first_difference(
    first: tuple[str, dict[str, np.ndarray]], second: tuple[str, dict[str, np.ndarray]]
) -> str:
    """
    The path of the first value in which two models differ, such as ``model.kernel.variance``.

    :param first: the tree of a model as JSON text, and its arrays by name.
    :return: in words what differs, if all values are equal.
    """
    one, other = (dict(_values(json.loads(tree), arrays)) for tree, arrays in (first, second))
    places = (path for path in one | other if one.get(path) != other.get(path))
    return next(places, "the order of the attributes of model")


def _values(tree: Any, arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, Any]]:
    """Paths of all values and what they are compared by; for a shared part its first path."""
    places: dict[int, str] = {}

    def walk(node: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(node, dict) and set(node) == {"ref"}:
            first = places.setdefault(node["ref"], path)
            if first == path:
                yield from walk(tree["objects"][node["ref"]], path)
            else:
                yield path, first
        elif isinstance(node, dict):
            for key, part in node.items():
                if key == "data":
                    array = arrays[part]
                    yield path, (array.dtype, array.shape, array.tobytes())
                else:
                    yield from walk(part, path if key in _STRUCTURE else f"{path}.{key}")
        elif isinstance(node, list):
            yield path, len(node)
            for number, part in enumerate(node):
                yield from walk(part, f"{path}[{number}]")
        else:
            yield path, repr(node)

    return walk(tree["root"], "model")
