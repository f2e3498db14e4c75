"""The largest products of one number from each of several lists, without forming all products."""

from collections.abc import Sequence

import numpy as np

# Logarithms are compared as integers, in units of 1e-9: exact sums, so that ties are ties.
_RESOLUTION = 1e9


def top_products(log_spectra: Sequence[np.ndarray], count: int) -> np.ndarray:
    r"""
    Which factors make the ``count`` largest products ``prod_i lam_i[index_i]``, largest first.

    Exact: dropping a prefix takes ``count`` better ones, each of which beats it with the same
    suffix. Ties, which equal grids and lengthscales make massively, are broken by the smaller index
    in lexicographic order, so the result does not depend on rounding. Evans and Nair, "Scalable
    Gaussian Processes with Grid-Structured Eigenfunctions" (2018), algorithm 1, whose indices
    assume lists of one length and whose logarithms assume positive numbers.

    Time O(count sum_i m_i).

    :param log_spectra: ``log lam_i [m_i]``, each in descending order; ``-inf`` at its end marks
        what does not exist.
    :return: indices ``[min(count, all that exist), d]``.
    """
    values = np.zeros(1, np.int64)
    parents: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    for spectrum in _as_integers(log_spectra):
        if len(values) == count:
            # all of these with the leading entry are `count` products already
            spectrum = spectrum[spectrum >= values.min() - values.max()]
        products = (values[:, None] + spectrum[None, :]).ravel()
        kept = _largest(products, count)  # prefixes in lexicographic order, and so are these
        values = products[kept]
        parents.append(kept // len(spectrum))
        columns.append(kept % len(spectrum))
    rows = np.argsort(-values, kind="stable")
    indices = np.empty((len(rows), len(columns)), np.int32)
    for i in range(len(columns) - 1, -1, -1):
        indices[:, i] = columns[i][rows]
        rows = parents[i][rows]
    return indices


def whole_groups(log_spectra: Sequence[np.ndarray], count: int) -> int:
    """
    The most products, at most ``count``, that can be taken without cutting through a tie.

    :return: from 0 (the largest products tie, more than ``count`` of them) to ``count``.
    """
    indices = top_products(log_spectra, count + 1)
    if len(indices) <= count:
        return len(indices)
    spectra = _as_integers(log_spectra)
    values = sum(spectrum[indices[:, i]] for i, spectrum in enumerate(spectra))
    steps = np.flatnonzero(np.diff(values))  # a group ends here
    return int(steps[-1]) + 1 if len(steps) else 0


def prefix_plan(indices: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """
    How to make all products with every distinct prefix multiplied once.

    :param indices: ``[p, d]``.
    :return: for each of the d factors ``(parent, column)``: the products up to it are ``previous[
        parent] * factor[column]``; the last ones in the order of ``indices``.
    """
    num_products, num_factors = indices.shape
    order = np.lexsort(indices.T[::-1])
    rows = indices[order]
    identity = np.zeros(num_products, np.int32)  # of each row's prefix so far
    fresh = np.zeros(num_products, bool)
    fresh[0] = True
    plan = []
    for i in range(num_factors - 1):
        fresh[1:] |= rows[1:, i] != rows[:-1, i]
        first = np.flatnonzero(fresh)
        plan.append((identity[first], rows[first, i].astype(np.int32)))
        identity = (np.cumsum(fresh) - 1).astype(np.int32)
    parent = np.empty(num_products, np.int32)
    parent[order] = identity
    plan.append((parent, indices[:, -1].astype(np.int32)))
    return plan


def _as_integers(log_spectra: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Relative to the leading entry, in whole units; without those that do not exist."""
    kept = [np.asarray(s)[np.isfinite(s)] for s in log_spectra]
    return [np.rint((s - s[0]) * _RESOLUTION).astype(np.int64) for s in kept]


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Positions of the ``count`` largest values in ascending order; of ties, the first ones."""
    if len(values) <= count:
        return np.arange(len(values))
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > threshold)
    ties = np.flatnonzero(values == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, ties]))
