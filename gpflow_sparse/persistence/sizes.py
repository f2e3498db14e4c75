"""Checks that integers in a loaded model fit its arrays, before anything is computed from them."""

from collections.abc import Callable, Iterable
from typing import Any

from gpflow import likelihoods
from gpflow.functions import Function
from gpflow.kernels import Kernel
from gpflow.quadrature import GaussianQuadrature, NDiagGHQuadrature

from gpflow_sparse.bases import (
    FiniteBasis,
    GridEigenfunctions,
    Hybrid,
    KernelDictionary,
    ReweightedBasis,
    SoftInterpolation,
)
from gpflow_sparse.likelihoods import OneVersusRest
from gpflow_sparse.models import DeepGP
from gpflow_sparse.numerics.tracing import is_bookkeeping

# Classes in which integers are limited, and attributes that are not, nor are they sizes of arrays.
_PARTS = (Kernel, likelihoods.Likelihood, Function, GaussianQuadrature, FiniteBasis, DeepGP)
_OTHERS = ("seed", "num_data")
# Nodes of a quadrature in one dimension, whose computation takes the cube of their number; and
# functions of an exact regression, which factorizes a matrix of them.
_MAX, _MAX_NODES, _MAX_EXACT = 1_000_000, 1_000, 100_000
_NODES = ("n_gh", "num_gauss_hermite_points", "num_nodes")
# Integers that follow from arrays or from other parts.
_FOLLOWING: list[tuple[Any, str, Callable[[Any], Any]]] = [
    (GridEigenfunctions, "num_basis", lambda basis: basis.indices.shape[0]),
    (Hybrid, "num_leading", lambda basis: basis.Z.shape[0]),
    (Hybrid, "num_basis", lambda basis: basis.Z.shape[0] + basis.fourier.num_basis),
    (KernelDictionary, "num_basis", lambda basis: basis.centers.shape[0] + basis.constant),
    (ReweightedBasis, "num_basis", lambda basis: basis.basis.num_basis),
    (SoftInterpolation, "num_basis", lambda basis: basis.Z.shape[0]),
    (NDiagGHQuadrature, "dim", lambda rule: rule.Z.shape[1]),
    (NDiagGHQuadrature, "n_gh_total", lambda rule: rule.Z.shape[0]),
    (likelihoods.MultiClass, "num_classes", lambda own: own.invlink.num_classes),
    (likelihoods.Ordinal, "num_bins", lambda own: own.bin_edges.shape[0] + 1),
    *(
        (kind, "num_classes", lambda own: own.latent_dim)
        for kind in (likelihoods.MultiClass, likelihoods.Softmax, OneVersusRest)
    ),
]


def require_sizes(parts: Iterable[Any]) -> None:
    """
    Refuse integers of loaded objects that are negative, far too large, or do not fit their arrays.
    Attributes of a user's classes may be anything.

    :raises ValueError: naming the class and the attribute.
    """
    for part in parts:
        kind = type(part)
        if not kind.__module__.startswith("gpflow"):  # GPflow's, or of this package
            continue
        for name, value in vars(part).items():
            for number in value if isinstance(value, list | tuple) else [value]:
                if type(number) is int and name not in _OTHERS and not is_bookkeeping(name):
                    _require(0 <= number <= _most(part, name), kind, name, number)
        for owner, name, expected in _FOLLOWING:
            if isinstance(part, owner):
                number = getattr(part, name)
                _require(number == expected(part), kind, name, number)
        if (count := getattr(part, "num_factorized", 0)) > _MAX_EXACT:
            _require(False, type(part.basis), "num_basis", count)


def _most(part: Any, name: str) -> float:
    if not isinstance(part, _PARTS) or name == "num_basis":  # there may be as many as entries of q
        return float("inf")
    return _MAX_NODES if name in _NODES else _MAX


def _require(sound: Any, kind: type, name: str, number: Any) -> None:
    if not sound:
        raise ValueError(
            f"its {kind.__name__} has {name}={str(number)[:50]}, which is negative, too large, or "
            "does not fit its arrays"
        )
