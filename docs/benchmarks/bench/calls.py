"""Files and functions of a package that one call runs, recorded by Python's profiling hook."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import gpflow
import numpy as np

import gpflow_sparse
from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting.building import build_model
from gpflow_sparse.tables.methods.registry import read_options, recipe_of

_PACKAGE = Path(gpflow_sparse.__file__).parent
# Rows of the small models, and their options, as far as a method has them.
_N = 50
_OPTIONS: dict[str, Any] = {
    "num_inducing": 10,
    "num_orthogonal": 10,
    "num_basis": 20,
    "basis_batch_size": 5,
    "basis": "fourier",
    "kernel": "squared_exponential",
    "num_subset": 0,
}


@dataclass
class Calls:
    """
    Calls of a package's functions; frames of other packages between them are not counted.

    Comprehensions, lambdas and generator expressions belong to the function around them.
    """

    functions: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Number of calls of each (file, function, line), in the order of the first calls."""
    tree: list[tuple[int, tuple[str, str, int]]] = field(default_factory=list)
    """Depth and function of each first call."""
    depth: int = 0
    """Largest number of the package's functions on the stack."""

    @property
    def counts(self) -> dict[str, int]:
        """Distinct files and functions, and the depth."""
        files = {file for file, _, _ in self.functions}
        return {"files": len(files), "functions": len(self.functions), "depth": self.depth}

    def listing(self) -> list[str]:
        """One line for each function, indented by the depth of its first call."""
        return [
            f"{'  ' * (depth - 1)}{key[0]}:{key[2]} {key[1]}"
            + (f" x{self.functions[key]}" if self.functions[key] > 1 else "")
            for depth, key in self.tree
        ]


def trace_calls(work: Callable[[], Any], folder: Path) -> Calls:
    """
    Run ``work`` once and record the calls of functions whose source is under ``folder``.

    A profiling function that is already set is put back afterwards.
    """
    calls, depth, root = Calls(), 0, f"{folder}/"
    names: dict[CodeType, tuple[str, str, int]] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        code = frame.f_code
        if not code.co_filename.startswith(root) or code.co_name.startswith("<"):
            return
        if event == "return":
            depth -= 1
        elif event == "call":
            depth += 1
            file = code.co_filename.removeprefix(root)
            name = getattr(code, "co_qualname", code.co_name)  # co_qualname from Python 3.11
            key = names.setdefault(code, (file, name, code.co_firstlineno))
            if key not in calls.functions:
                calls.tree.append((depth, key))
            calls.functions[key] = calls.functions.get(key, 0) + 1
            calls.depth = max(calls.depth, depth)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def prediction_calls(method: str) -> Calls:
    """
    The calls of the second eager ``predict_f`` of a small model; the first fills caches.

    :param method: of the command line, but none of images; "svgp" is GPflow's, and counts GPflow's
        files.
    """
    X: np.ndarray = np.random.default_rng(0).normal(size=(_N, 2))
    pair = X, np.sin(X[:, :1])
    dataset = Dataset("small", pair, pair, ("a", "b"), "y", None).standardized()
    few = {} if method == "deep" else {"num_neighbors": 4}  # a deep GP has all by default
    model = build_model(recipe_of(method, **read_options(method, _OPTIONS | few)), dataset)
    if method == "swsgp":
        model.count_neighbors(dataset.train[0])
    if method == "softki":
        model.fit_posterior(dataset.train)
    model.predict_f(X)
    folder = Path(str(gpflow.__file__)).parent if method == "svgp" else _PACKAGE
    return trace_calls(lambda: model.predict_f(X), folder)
