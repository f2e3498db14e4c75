"""Greedy conditional variance selection, with every conditional variance solved for afresh."""

import numpy as np


def conditional_variance(K, kept):
    """
    Variance left at every point given some of them.

    :param K: covariance of all points [N, N].
    :param kept: indices of the points conditioned on, of any number.
    :return: variances [N].
    """
    kept = list(kept)
    if not kept:
        return np.diag(K).copy()
    solved = np.linalg.solve(K[np.ix_(kept, kept)], K[kept])
    return np.diag(K) - np.sum(K[kept] * solved, axis=0)


def greedy_picks(K, count, given=()):
    """
    Indices picked one by one where the variance left is largest.

    :param K: covariance of all points [N, N].
    :param count: number of picks.
    :param given: indices conditioned on from the start and never picked.
    :return: the picks in order.
    """
    picks = []
    for _ in range(count):
        left = conditional_variance(K, [*given, *picks])
        left[[*given, *picks]] = -np.inf
        picks.append(int(np.argmax(left)))
    return picks
