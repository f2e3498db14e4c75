"""Files and functions of a package that one call runs, recorded by Python's profiling hook."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import gpflow
import numpy as np

from gpflow_sparse import bases, models
from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables

_PACKAGE = Path(__file__).parents[1]
# Rows and inducing points of the small models.
_N, _M = 50, 10


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

    :param method: a key of :data:`MODELS`; "svgp" is GPflow's, and counts GPflow's files.
    """
    X = _data()[0]
    model = MODELS[method]()
    model.predict_f(X)
    folder = Path(str(gpflow.__file__)).parent if method == "svgp" else _PACKAGE
    return trace_calls(lambda: model.predict_f(X), folder)


def _data() -> tuple[np.ndarray, np.ndarray]:
    X: np.ndarray = np.random.default_rng(0).normal(size=(_N, 2))
    return X, np.sin(X[:, :1])


def _variational(kind: Any, points: Any) -> gpflow.models.GPModel:
    return kind(_kernel(), gpflow.likelihoods.Gaussian(0.1), points, num_data=_N)


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential()


def _orthogonal_sets() -> OrthogonalInducingVariables:
    X = _data()[0]
    return OrthogonalInducingVariables(X[:_M], X[_M : 2 * _M])


def _swsgp() -> models.SWSGP:
    X = _data()[0]
    model = _variational(models.SWSGP, NeighborInducingPoints(X[:_M], 4))
    model.update_neighbors(X)
    return model


def _softki() -> models.SoftKI:
    X, Y = _data()
    model = models.SoftKI(_kernel(), X[:_M], num_data=_N)
    model.fit_posterior((X, Y))
    return model


def _qsgp() -> models.QSGP:
    basis, likelihood = bases.RandomFourier(_kernel(), 20), gpflow.likelihoods.Gaussian(0.1)
    return models.QSGP(basis, likelihood, num_data=_N, basis_batch_size=5)


def _rvm() -> models.RVM:
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return models.RVM(_data()[0], _kernel(), likelihood, num_data=_N, basis_batch_size=5)


def _basis() -> bases.RandomFourier:
    return bases.RandomFourier(_kernel(), 20)


# Builders of small models.
MODELS: dict[str, Callable[[], Any]] = {
    "solvegp": lambda: _variational(models.SOLVEGP, _orthogonal_sets()),
    "odvgp": lambda: _variational(models.ODVGP, _orthogonal_sets()),
    "solvegpr": lambda: models.SOLVEGPR(_data(), _kernel(), _orthogonal_sets()),
    "swsgp": _swsgp,
    "softki": _softki,
    "qsgp": _qsgp,
    "rvm": _rvm,
    "basis_gpr": lambda: models.BasisGPR(_data(), _basis()),
    "basis_svgp": lambda: models.BasisSVGP(_basis(), gpflow.likelihoods.Gaussian(0.1)),
    "grief": lambda: models.GRIEF(_data(), _kernel(), num_eigenfunctions=30),
    "svgp": lambda: _variational(gpflow.models.SVGP, _data()[0][:_M]),
}
