"""What fitting the posterior of SoftKI to many rows takes, in a process of its own."""

import time
from dataclasses import dataclass

from gpflow_sparse.bench.qsgp_memory import in_own_process, megabytes
from gpflow_sparse.runs.session import session


@dataclass(frozen=True)
class PosteriorCost:
    """Memory in units of 2^20 bytes, above a process that has loaded TensorFlow and the data."""

    num_rows: int
    """N."""
    num_inducing: int
    """m."""
    held: float
    """The rows, which are there before."""
    grown: float
    """Resident memory after the fit."""
    peak: float
    """The most on the way."""
    seconds: float
    """Of the fit, tracing included."""


def posterior_cost(
    num_rows: int, *, num_inducing: int, input_dim: int, float32: bool, seed: int = 0
) -> PosteriorCost:
    """
    Fit the posterior of a model at its start to made rows.

    :raises ValueError: where the system does not say how much memory a process has.
    """
    return in_own_process(_measure, num_rows, num_inducing, input_dim, float32, seed)


def _measure(
    num_rows: int, num_inducing: int, input_dim: int, float32: bool, seed: int
) -> PosteriorCost:
    with session(float32, None):
        import gpflow
        import numpy as np

        from gpflow_sparse.models import SoftKI

        rng, kind = np.random.default_rng(seed), gpflow.default_float()
        X = rng.standard_normal((num_rows, input_dim), dtype=kind)
        Y = np.sin(X[:, :1]) + kind(0.1) * rng.standard_normal((num_rows, 1), dtype=kind)
        scales = np.full(input_dim, input_dim**0.5)
        model = SoftKI(
            gpflow.kernels.SquaredExponential(lengthscales=scales),
            X[:num_inducing],
            noise_variance=0.01,
            temperature=0.3,
            tied=True,
        )
        before, start = megabytes("VmRSS"), time.perf_counter()
        model.fit_posterior(X, Y, refit_noise=False)
        seconds = time.perf_counter() - start
        grown, peak = megabytes("VmRSS") - before, megabytes("VmHWM") - before
        held = (X.nbytes + Y.nbytes) / 2**20
        return PosteriorCost(num_rows, num_inducing, held, grown, peak, seconds)
