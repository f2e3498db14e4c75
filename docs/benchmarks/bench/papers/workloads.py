"""Made data sets of the kinds of work for which the methods were invented; a tenth is for tests."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from gpflow_sparse.data import Dataset, load

_NUM_WAVES, _BLOCKS = 2000, 50


def map_of_points(seed: int, side: int = 447) -> Dataset:
    """
    Counts of points in the cells of a map: a log-Gaussian Cox process on a torus.

    The log rate has a Matern 1/2 spectrum in two dimensions, and a correlation length of a
    fifteenth of the map.
    """
    rng = np.random.default_rng(seed)
    waves = 2.0 * np.pi * np.fft.fftfreq(side, d=1.0 / side)
    power = (15.0**2 + waves[:, None] ** 2 + waves**2) ** -1.5
    field = np.fft.ifft2(np.sqrt(power) * np.fft.fft2(rng.normal(size=(side, side)))).real
    rates = np.exp(1.2 * field / field.std() - 0.7).reshape(-1, 1)
    axes = 2 * [np.arange(side) / side]
    X = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    return _split("map_of_points", X, rng.poisson(rates), rng, counts=True)


def smooth_counts(seed: int) -> Dataset:
    """Counts of 100,000 rows whose log rate is a smooth function of six columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100_000, 6))
    return _split("smooth_counts", X, rng.poisson(np.exp(_smooth(X, 2.5, rng))), rng, counts=True)


def many_columns(seed: int) -> Dataset:
    """20,000 rows of a smooth function of twenty columns, with noise of a hundredth."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20_000, 20))
    f = _smooth(X, 6.0, rng)
    return _split("many_columns", X, f + 0.01 * rng.normal(size=f.shape), rng)


def bent_ridges(seed: int) -> Dataset:
    """20,000 rows of steep functions of one smooth function of ten columns, with little noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20_000, 10))
    g = _smooth(X, np.sqrt(10.0), rng)
    Y = np.tanh(6.0 * g) + 0.3 * np.sin(8.0 * g) + 0.05 * rng.normal(size=g.shape)
    return _split("bent_ridges", X, Y, rng)


def noisy_million(seed: int) -> Dataset:
    """
    A million rows of a smooth function of four columns, under noise of twice its deviation; the
    test rows have none, so that errors are those of the function.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(1_000_000, 4))
    f = _smooth(X, 1.0, rng)
    dataset = _split("noisy_million", X, f + 2.0 * rng.normal(size=f.shape), rng, test=f)
    X, f = dataset.test
    return dataclasses.replace(dataset, test=(X[:20_000], f[:20_000]))


def few_digits(seed: int) -> Dataset:
    """1,000 labeled digits of MNIST, and its test images."""
    digits = load("mnist", 0)
    rows = np.random.default_rng(seed).permutation(digits.num_train)[:1000]
    return digits.take(rows).standardized(per_channel=True)


WORKLOADS: Mapping[str, Callable[[int], Dataset]] = {
    made.__name__: made
    for made in (
        *(map_of_points, smooth_counts, many_columns, bent_ridges, noisy_million),
        few_digits,
    )
}


def _smooth(X: np.ndarray, lengthscale: float, rng: np.random.Generator) -> np.ndarray:
    """A draw of a GP with a squared exponential kernel, by random waves ``[N, 1]``."""
    W = rng.normal(size=(X.shape[1], _NUM_WAVES)) / lengthscale
    phases = rng.uniform(0.0, 2.0 * np.pi, _NUM_WAVES)
    weights = rng.normal(size=(_NUM_WAVES, 1)) * np.sqrt(2.0 / _NUM_WAVES)
    parts = np.array_split(X, _BLOCKS)
    return np.concatenate([np.cos(part @ W + phases) @ weights for part in parts])


def _split(
    name: str,
    X: np.ndarray,
    Y: np.ndarray,
    rng: np.random.Generator,
    counts: bool = False,
    test: np.ndarray | None = None,
) -> Dataset:
    """A random tenth of the rows for testing; counts are not standardized."""
    held_out, rows = np.split(rng.permutation(len(X)), [len(X) // 10])
    Y = Y.astype(float)
    truth = Y if test is None else test
    names = tuple(f"x{i}" for i in range(X.shape[1]))
    pairs = (X[rows], Y[rows]), (X[held_out], truth[held_out])
    return Dataset(name, *pairs, names, "y", None).standardized(outputs=not counts)
