"""The objective of a sub-sampled model for given draws, from its parts' values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf

from gpflow_sparse.inference import chevron, subsampling
from gpflow_sparse.inference.chevron import Head, Tail
from gpflow_sparse.inference.subsampling import Anchor, Pair


class Drawn(NamedTuple):
    """q of the functions that one draw took."""

    tail: Tail
    """``k`` of them."""
    precision: tf.Tensor
    """The diagonal of their prior precision, ``[k]``."""


class Functions(NamedTuple):
    """Values of the functions taken, at n rows."""

    head: tf.Tensor
    """``[n, h]``."""
    tails: Pair
    """``[n, k]`` of each draw."""


class Batch(NamedTuple):
    """The rows that an expectation is taken at."""

    X: tf.Tensor
    Y: tf.Tensor
    mean: tf.Tensor
    """The mean function there, ``[n, L]``."""


def gaussian_terms(
    likelihood: gpflow.likelihoods.Gaussian,
    batch: Batch,
    raw: Pair,
    value: Pair,
    spread: Pair,
) -> tf.Tensor:
    """
    ``E_q[log p(y | f)]`` of each row for Gaussian noise; unbiased, and so is its gradient.

    :param raw: projections ``[n, L (1 + h)]`` of both draws as they are.
    :param value: the same, anchored.
    :param spread: variance of the diagonal part, from either draw, ``[n, L]``.
    """
    target = batch.Y - batch.mean
    target = tf.pad(target, [[0, 0], [0, raw[0].shape[1] - target.shape[1]]])
    products = subsampling.product(_minus(raw, target), _minus(value, target))
    variance = 0.5 * (spread[0] + spread[1])
    noise = likelihood.variance_at(batch.X)
    return subsampling.gaussian_expectations(products, variance, noise)


def site_terms(
    likelihood: gpflow.likelihoods.Likelihood,
    batch: Batch,
    projections: Pair,
    spread: Pair,
    excess: Pair | None,
) -> tf.Tensor:
    """
    ``E_q[log p(y | f)]`` of each row for any likelihood.

    Theorem 3 of the paper with the standard deviation where it prints the variance (without that
    it is no bound).

    :param projections: of both draws, ``[n, L (1 + h)]``.
    :param spread: what goes with them of the diagonal part's variance, ``[n, L]``.
    :param excess: estimates of the sampling variance of the projections, ``[n, L]``, taken off
        the variance; None for zero.
    """
    num_latent = batch.mean.shape[1]
    means, variances = [], []
    for draw in range(2):
        mean, dense = chevron.split_projections(projections[draw], num_latent)
        variance = spread[draw] + tf.reduce_sum(tf.square(dense), axis=-1)
        means.append(mean + batch.mean)
        variances.append(variance if excess is None else variance - excess[draw])

    def expectation(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        return likelihood.variational_expectations(batch.X, mean, variance, batch.Y)

    return subsampling.site_expectations(expectation, tuple(means), tuple(variances))


def projections(
    Phi: Functions, head: Head, vectors: Pair, scale: Any, anchor: Anchor | None
) -> tuple[Pair, Pair]:
    """Of both draws as they are, and anchored, ``[n, L (1 + h)]``."""
    base = tf.linalg.matmul(Phi.head, chevron.head_vectors(head))
    first, second = (
        scale * tf.linalg.matmul(part, v) for part, v in zip(Phi.tails, vectors, strict=True)
    )
    raw = _plus(base, (first, second))
    if anchor is None:
        return raw, raw
    return raw, _plus(base, subsampling.anchored((first, second), anchor))


def spreads(Phi: Functions, drawn: Sequence[Drawn], scale: Any) -> Pair:
    """Variance of the diagonal part at each row, ``[n, L]``, as each draw estimates it."""
    first, second = (
        scale * tf.linalg.matmul(tf.square(part), tf.exp(2.0 * draw.tail.log_c))
        for part, draw in zip(Phi.tails, drawn, strict=True)
    )
    return first, second


def excesses(
    Phi: Functions, vectors: Pair, size: int, num_latent: int, support: Pair | None, W: Any
) -> Pair:
    """
    Sampling variance of each draw's mean and dense columns together, ``[n, L]``.

    :param support: the functions at the rows of an anchor, ``[p, k]``; None without one.
    """
    found = []
    for draw in range(2):
        part = Phi.tails[draw]
        if support is not None:
            shared = support[draw]
            part = part - (shared if W is None else tf.linalg.matmul(W, shared))
        variances = subsampling.sampling_variance(part, vectors[draw], size)  # [n, Q]
        dense = tf.reshape(variances[:, num_latent:], [tf.shape(part)[0], num_latent, -1])
        found.append(variances[:, :num_latent] + tf.reduce_sum(dense, axis=-1))
    return found[0], found[1]


def kl_term(
    head: Head, head_precision: tf.Tensor, drawn: Sequence[Drawn], scale: Any, *, dense: bool
) -> tf.Tensor:
    """
    KL from prior to q; both draws take part in the sum over the tail.

    :param dense: the prior precision is no diagonal: without ``mu^T S mu - log |S|``.
    """
    kl = chevron.head_kl(head, head_precision)
    for draw in drawn:
        terms = chevron.tail_kl(draw.tail, draw.precision, with_mean=not dense)
        kl = kl + 0.5 * scale * tf.reduce_sum(terms)
    return kl


def dense_penalty(
    precision: tf.Tensor, means: Pair, scale: Any, anchors: tuple[Anchor, Anchor] | None
) -> tf.Tensor:
    """
    ``mu^T S mu`` for a precision that is no diagonal, from its rows ``S[jt, it]``.

    ``S mu`` at the functions of one draw is estimated by the other, and anchored as projections
    are: appendix F.2 of the paper, whose indices are printed crossed.

    :param precision: ``S[jt, it] [k, k]``, first draw in columns.
    :param means: ``[k, L]`` of the first and the second draw.
    :param anchors: of ``S[jt, :] mu`` and of ``S[it, :] mu``.
    """
    first, second = means
    at_second = scale * tf.linalg.matmul(precision, first)  # S[jt, :] mu
    at_first = scale * tf.linalg.matmul(precision, second, transpose_a=True)
    if anchors is not None:
        at_second = subsampling.anchored((at_second, at_second), anchors[0])[0]
        at_first = subsampling.anchored((at_first, at_first), anchors[1])[1]
    known_first, known_second = tf.stop_gradient(at_first), tf.stop_gradient(at_second)
    slope = scale * (tf.reduce_sum(first * known_first) + tf.reduce_sum(second * known_second))
    return 0.5 * tf.stop_gradient(slope) + (slope - tf.stop_gradient(slope))


def _plus(base: tf.Tensor, tails: Pair) -> Pair:
    first, second = (chevron.add_projections(base, tail) for tail in tails)
    return first, second


def _minus(pair: Pair, target: tf.Tensor) -> Pair:
    return pair[0] - target, pair[1] - target
