"""Files damaged by accident and on purpose: each loads as the saved model, or is refused."""

import json
import math
import re
import warnings
from pathlib import Path

import numpy as np

from gpflow_sparse import persistence
from gpflow_sparse.persistence import files
from tests.persistence import zoo

JUNK = (None, True, -1, 0, 10**30, 1e308, "", "x" * 1000, "os.system", "__class__", [], {}, [[]])
JUNK_NODES = (
    {"ref": 0},
    {"ref": 3},
    {"ref": -1},
    {"float": "nan"},
    {"tuple": [1, 2]},
    {"dict": [["a", 1]]},
    {"shape": [10**12, 10**12]},
    {"function": "tf.exp"},
    {"function": "builtins.eval"},
    {"dtype": ["tensorflow", "resource"]},
    {"slice": [None, None, None]},
)


def flip(content, rng):
    content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))


def flip_in_header(content, rng):
    content[rng.integers(min(len(content), 2000))] = rng.integers(256)


def truncate(content, rng):
    del content[rng.integers(len(content)) :]


def insert(content, rng):
    where = rng.integers(len(content))
    content[where:where] = rng.bytes(int(rng.integers(1, 64)))


def delete(content, rng):
    start, stop = some_range(content, rng)
    del content[start:stop]


def zero(content, rng):
    start, stop = some_range(content, rng)
    content[start:stop] = bytes(stop - start)


def swap(content, rng):
    start, stop = some_range(content, rng)
    middle = (start + stop) // 2
    content[start:stop] = content[middle:stop] + content[start:middle]


def length_of_header(content, rng):
    content[:8] = int(rng.integers(2**63)).to_bytes(8, "little")


def some_range(content, rng):
    start = int(rng.integers(len(content)))
    return start, min(len(content), start + int(rng.integers(1, 400)))


ACCIDENTS = (flip, flip_in_header, truncate, insert, delete, zero, swap, length_of_header)


def forge(path, rng):
    """Change the description or the arrays of a good file and give it a valid checksum."""
    header, arrays = files.read(path)
    arrays = dict(arrays)
    for _ in range(int(rng.integers(1, 4))):
        rng.choice([forge_tree, forge_tree, forge_tree, forge_header, forge_arrays])(
            header, arrays, rng
        )
    files.write(path, arrays, header)


def forge_tree(header, arrays, rng):
    try:
        tree = json.loads(header["tree"])
    except (KeyError, ValueError, RecursionError):
        return
    places = list(walk(tree))
    if not places:
        return
    holder, key = places[rng.integers(len(places))]
    other, other_key = places[rng.integers(len(places))]
    action = rng.integers(6)
    if action == 0:
        del holder[key]
    elif action == 1:
        holder[key] = other[other_key]
    elif action == 2:
        holder[key] = JUNK_NODES[rng.integers(len(JUNK_NODES))]
    elif action == 3 and isinstance(holder, dict):
        names = ("__class__", "predict_f", "_self_setattr_tracking", "parameters", "x y", "kind")
        holder[names[rng.integers(len(names))]] = holder.pop(key)
    elif action == 4:
        holder[key] = [holder[key]]
    else:
        holder[key] = JUNK[rng.integers(len(JUNK))]
    try:
        header["tree"] = json.dumps(tree)
    except (ValueError, RecursionError):  # a circle
        return


def walk(node):
    """Every place in a JSON value, as the container and the key."""
    if isinstance(node, dict | list):
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            yield node, key
            yield from walk(value)


def forge_header(header, arrays, rng):
    name = list(header)[rng.integers(len(header))]
    texts = ("", "nan", "null", "[]", "{}", "1e999", "float32", "9" * 5000, "[" * 3000, "é")
    header[name] = texts[rng.integers(len(texts))]


def forge_arrays(header, arrays, rng):
    if not arrays:
        return
    key = list(arrays)[rng.integers(len(arrays))]
    array = arrays.pop(key)
    action = rng.integers(5)
    if action == 0:
        arrays["other"] = array
    elif action == 1:
        arrays[key] = array.reshape(-1)
    elif action == 2:
        arrays[key] = array.astype(np.float32)
    elif action == 3:
        arrays[key] = np.full_like(array, math.nan)
    else:
        arrays[key] = np.zeros((0, 3))


# Words of Python and of other packages that are no part of a plain sentence.
UNPLAIN = re.compile(r"\b\w*(Error|Exception)\b|\n|<class|object at 0x|__init__|subscriptable")


class Trial:
    """One good file, and what becomes of changed copies of it."""

    def __init__(self, folder, build=zoo.decorated):
        self.path = Path(folder) / "model.gp"
        self.model = build()
        persistence.save(self.model, self.path)
        self.content = self.path.read_bytes()
        self.expected = self.values(self.model)

    @staticmethod
    def values(model):
        return [v.numpy() for v in model.variables]

    def outcome(self, seed):
        """
        :return: how the file was changed; and "equal", "refused", "another model", or what else
            was raised.
        """
        rng = np.random.default_rng(seed)
        kind = int(rng.integers(len(ACCIDENTS) + 3))
        if kind < len(ACCIDENTS):
            content = bytearray(self.content)
            for _ in range(int(rng.integers(1, 4))):
                if content:
                    ACCIDENTS[kind](content, rng)
            name = ACCIDENTS[kind].__name__
            self.path.write_bytes(content)
        else:
            self.path.write_bytes(self.content)
            forge(self.path, rng)
            name = "forge"
        return name, self.load()

    def load(self):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = self.values(persistence.load(self.path))
        except ValueError as error:
            plain = type(error) is ValueError or type(error).__module__.startswith("gpflow_sparse")
            if UNPLAIN.search(str(error)):
                return f"refused in words of others: {error}"
            return "refused" if plain else f"raised {type(error).__name__}"
        except BaseException as error:
            return f"raised {type(error).__name__}"
        same = len(values) == len(self.expected) and all(
            np.array_equal(a, b) for a, b in zip(values, self.expected, strict=True)
        )
        return "equal" if same else "another model"


def acceptable(name, outcome):
    """With a valid checksum, another model may come out: who signs a file decides what is in it."""
    return outcome in ("equal", "refused") or (name == "forge" and outcome == "another model")
