"""Conjugate gradients on the covariance of an exact GP, with preconditioners of one rank."""

import time
from typing import Any

import click
import gpflow
import numpy as np
import tensorflow as tf
from scipy.sparse.linalg import LinearOperator, cg

from bench.steps import Row, Tables
from gpflow_sparse.bases import FiniteBasis, GridEigenfunctions, KernelDictionary
from gpflow_sparse.data import load
from gpflow_sparse.initialization import median_lengthscales, random_subset
from gpflow_sparse.initialization.hyperparameters import subset_hyperparameters

_DATASETS = ("kin8nm", "elevators")
# Residual over the size of y at which a system counts as solved.
_TOLERANCE = 1e-6


def solves(num_basis: int, num_rows: int) -> Tables:
    """
    Iterations and seconds to solve ``(k(X, X) + noise I) v = y``: without a preconditioner, with
    the Nystrom covariance of random training rows, and with the eigenfunctions of GP-GRIEF.

    Hyperparameters are those of an exact GP on 1,000 of the rows, standardized.

    :param num_basis: rank of both preconditioners.
    :param num_rows: N, at most.
    """
    return {"rows": [row for name in _DATASETS for row in _solves(name, num_basis, num_rows)]}


def _solves(name: str, num_basis: int, num_rows: int) -> list[Row]:
    X, Y = (part[:num_rows] for part in load(name).standardized().train)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=median_lengthscales(X, seed=0))
    noise = subset_hyperparameters(X, Y, kernel, seed=0)
    click.echo(f"{name}: noise variance {noise:.3g}", err=True)
    K = kernel(X).numpy() + noise * np.eye(len(X))
    bases = {
        "none": lambda: None,
        "Nystrom": lambda: KernelDictionary(kernel, random_subset(X, num_basis)),
        "GP-GRIEF": lambda: GridEigenfunctions(kernel, X, num_basis),
    }
    rows = []
    for title, make in bases.items():
        counted: list[np.ndarray] = []
        start = time.perf_counter()
        operator = _operator(make(), X, noise)
        made = time.perf_counter()
        cg(K, Y[:, 0], rtol=_TOLERANCE, M=operator, callback=counted.append)
        parts = {"making_s": made - start, "solving_s": time.perf_counter() - made}
        row: Row = {"data": name, "rows": len(X), "preconditioner": title}
        rows.append(row | {"iterations": len(counted)} | parts)
    return rows


def _operator(basis: FiniteBasis | None, X: np.ndarray, noise: float) -> LinearOperator | None:
    """The preconditioner as SciPy takes it."""
    if basis is None:
        return None
    apply = basis.preconditioner(X, noise)

    def product(v: np.ndarray) -> Any:
        return apply(tf.constant(v.reshape(1, -1)))[0].numpy()[0]

    return LinearOperator((len(X), len(X)), matvec=product)
