"""Unbiased estimators of a Gaussian model's objective from some of its data and basis functions.

Evans and Nair, "Quadruply Stochastic Gaussian Processes" (2020), re-derived. A sum over m functions
is the sum over the h of the *head*, which are always taken, plus ``(m - h) / k`` times that over k
functions of the *tail*, drawn without replacement. A square needs two independent draws. All
estimators are functions of given draws.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.likelihoods import Gaussian, Likelihood

from gpflow_sparse.inference import chevron
from gpflow_sparse.inference.chevron import Head, Tail
from gpflow_sparse.numerics import random_draws

# Lower limit of an estimated variance, below which the square root in a quadrature has no gradient.
_MIN_VARIANCE = 1e-10

Pair = tuple[tf.Tensor, tf.Tensor]
"""One tensor for each of two independent draws."""

Regression = Callable[[tf.Tensor], tf.Tensor]
"""The product of a matrix ``W [n, p]`` and ``[p, Q]``, without W being formed."""


class Draw(NamedTuple):
    """One draw of functions of the tail for a step, and q of their weights."""

    indices: tf.Tensor
    """Indices in the tail, ``[k]``."""
    tail: Tail
    """q of their weights."""
    precision: tf.Tensor
    """The diagonal of the prior precision of these weights, ``[k]``."""


class ColumnBlocks(tuple[tf.Tensor, ...]):
    """
    A matrix ``[n, k]`` as blocks of its columns, ``[n, k_b]`` each.

    Tensors of some megabytes stay in a processor's cache, and the allocator keeps their memory,
    where tensors above 32 MB are taken from the system, and set to zero by it, in every step.
    """

    def times(self, vectors: tf.Tensor) -> tf.Tensor:
        """The product with ``[k, Q]``."""
        parts = tf.split(vectors, [tf.shape(block)[1] for block in self], axis=0)
        return tf.add_n(
            [tf.linalg.matmul(block, part) for block, part in zip(self, parts, strict=True)]
        )

    def squared(self) -> "ColumnBlocks":
        """The squares of all entries."""
        return ColumnBlocks(tf.square(block) for block in self)


BlockPair = tuple[ColumnBlocks, ColumnBlocks]
"""The functions of each of two independent draws."""


class Functions(NamedTuple):
    """Values of the basis functions of a step."""

    head: tf.Tensor
    """Functions of the head at the rows of the batch, ``[n, h]``."""
    tails: BlockPair
    """Functions of each draw at the rows of the batch, ``[n, k]``."""
    support: BlockPair | None = None
    """Functions of each draw at the control rows, ``[p, k]``; None without them."""


class Batch(NamedTuple):
    """The batch of rows of a step."""

    X: tf.Tensor
    """``[n, D]``."""
    Y: tf.Tensor
    """``[n, P]``."""
    mean: tf.Tensor
    """The mean function at X, ``[n, L]``."""


def draw_indices(size: int, num_drawn: int | tf.Tensor, num_draws: int = 1) -> list[tf.Tensor]:
    """
    Independent draws of different integers from 0 to ``size - 1``, ``[num_drawn]`` each, all
    subsets equally likely.

    If ``num_drawn`` is ``size``, they are in order and not random.
    """
    if not tf.is_tensor(num_drawn) and num_drawn == size:
        return [tf.range(size)] * num_draws
    return random_draws.different(size, num_drawn, num_draws)


class KnownProjections(NamedTuple):
    """Projections of the tail at the control rows: exact values and estimates of the draws."""

    weights: Regression
    """``W [n, p]``, as a function of what it multiplies: regression coefficients of the sampling
    error at batch rows on the error at control rows."""
    estimates: Pair
    """Estimates ``G [p, Q]`` by each draw."""
    exact: tf.Tensor
    """``a [p, Q]``, the expectation of the estimates."""


def corrected(estimates: Pair, known: KnownProjections | None) -> Pair:
    """
    Both draws' projections of the tail ``F [n, Q]``, each less the part of its sampling error that
    is predicted by the error at the control rows: ``F - W (G - a)``.

    The expectation is the same for any W, as ``E G = a``. The gradient through a, which depends on
    the weights, is taken from the *other* draw: from the same draw, or without it, the gradient
    would be biased. Not in the paper, whose control variate, eq. (3), corrects the square instead.
    """
    if known is None:
        return estimates
    W, (G_i, G_j), a = known.weights, known.estimates, tf.stop_gradient(known.exact)

    def correct(F: tf.Tensor, own: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        return F - W(own - (a + (other - tf.stop_gradient(other))))

    F_i, F_j = estimates
    return correct(F_i, G_i, G_j), correct(F_j, G_j, G_i)


def product(raw: Pair, value: Pair) -> tf.Tensor:
    """
    ``value_i * value_j``, elementwise, with the gradient of ``raw_i value_j + raw_j value_i``
    at fixed values.

    If both estimate f from independent draws, this is ``f^2`` on average, and its gradient the
    gradient of ``f^2``.
    """
    fixed_i, fixed_j = (tf.stop_gradient(part) for part in value)
    slope = raw[0] * fixed_j + raw[1] * fixed_i
    return fixed_i * fixed_j + (slope - tf.stop_gradient(slope))


def projections(
    Phi: Functions, head: Head, vectors: Pair, scale: Any, known: KnownProjections | None
) -> tuple[Pair, Pair]:
    """
    ``Phi [mu, B; mu, D]`` of both draws, plain and corrected, ``[n, L (1 + h)]`` each.

    :param vectors: :func:`gpflow_sparse.inference.chevron.tail_vectors` of each draw.
    :param scale: ``(m - h) / k``.
    """
    of_head = tf.linalg.matmul(Phi.head, chevron.head_vectors(head))

    def with_head(tails: Pair) -> Pair:
        first, second = (chevron.add_projections(of_head, tail) for tail in tails)
        return first, second

    tails = scaled_products(Phi.tails, vectors, scale)
    raw = with_head(tails)
    return raw, raw if known is None else with_head(corrected(tails, known))


def scaled_products(Phi: BlockPair, vectors: Pair, scale: Any) -> Pair:
    """``scale Phi v`` of both draws: their estimates of sums over the tail."""
    first, second = (scale * A.times(v) for A, v in zip(Phi, vectors, strict=True))
    return first, second


def spreads(Phi: Functions, draws: Sequence[Draw], scale: Any) -> Pair:
    """Estimates by each draw of the variance of the diagonal part at each row, ``[n, L]``."""
    first, second = draws
    squares = Phi.tails[0].squared(), Phi.tails[1].squared()
    c2 = tf.exp(2.0 * first.tail.log_c), tf.exp(2.0 * second.tail.log_c)
    return scaled_products(squares, c2, scale)


def gaussian_expectations(
    likelihood: Gaussian, batch: Batch, raw: Pair, value: Pair, spread: Pair
) -> tf.Tensor:
    """
    ``E_q[log N(y | f, noise)]`` of each row, ``[n]``; unbiased, and so is its gradient.

    Eq. (2) of the paper, estimated as in its theorems 1 and 2 but for two changes that reduce the
    variance: y is in both factors of the square, and sums over single functions (here: the
    diagonal part of the variance) are sampled once and not twice.

    :param raw: plain projections ``[n, L (1 + h)]`` of both draws.
    :param value: corrected projections.
    :param spread: variance of the diagonal part, estimated by each draw, ``[n, L]``.
    """
    target = batch.Y - batch.mean
    noise = likelihood.conditional_variance(batch.X, batch.mean)  # [n, L]
    target = tf.pad(target, [[0, 0], [0, raw[0].shape[1] - target.shape[1]]])
    products = product(
        (raw[0] - target, raw[1] - target), (value[0] - target, value[1] - target)
    )  # (F_i - y) (F_j - y), and the squares of the dense columns' projections
    if products.shape[1] > noise.shape[1]:
        products, dense = chevron.split_projections(products, noise.shape[1])
        products += tf.reduce_sum(dense, axis=-1)
    squares = products + 0.5 * (spread[0] + spread[1])  # [n, L]
    each = tf.math.log(2.0 * math.pi * noise) + squares / noise
    return -0.5 * tf.reduce_sum(each, axis=1)


def site_expectations(
    likelihood: Likelihood, batch: Batch, projections: Pair, spread: Pair
) -> tf.Tensor:
    """
    ``E_q[log p(y | f)]`` of each row for any likelihood, ``[n]``, averaged over both draws.

    Theorem 3 of the paper with the standard deviation in place of the variance (as printed it
    is not a bound).

    :param projections: projections of both draws, ``[n, L (1 + h)]``.
    :param spread: variance of the diagonal part for each draw, ``[n, L]``.
    """
    terms = []
    for draw in range(2):
        mean, dense = chevron.split_projections(projections[draw], batch.mean.shape[1])
        variance = spread[draw] + tf.reduce_sum(tf.square(dense), axis=-1)
        variance = tf.maximum(variance, tf.cast(_MIN_VARIANCE, variance.dtype))
        mean = mean + batch.mean
        terms.append(likelihood.variational_expectations(batch.X, mean, variance, batch.Y))
    return 0.5 * (terms[0] + terms[1])


def second_moments(batch: Batch, projections: Pair, spread: Pair) -> Pair:
    """
    Unbiased estimates of ``E_q[f]`` and ``E_q[f^2]`` of each row, ``[n, L]``.

    :param projections: projections of both draws, ``[n, L (1 + h)]``.
    :param spread: variance of the diagonal part for each draw, ``[n, L]``.
    """
    (F_i, D_i), (F_j, D_j) = (
        chevron.split_projections(part, batch.mean.shape[1]) for part in projections
    )
    F_i, F_j = F_i + batch.mean, F_j + batch.mean
    square = F_i * F_j + tf.reduce_sum(D_i * D_j, axis=-1) + 0.5 * (spread[0] + spread[1])
    return 0.5 * (F_i + F_j), square


def logit_bound(Y: tf.Tensor, moments: Pair, square: tf.Tensor) -> tf.Tensor:
    """
    A lower bound on ``E_q[log p(y | f)]`` of each row, ``[n]``, for ``P(y = 1) = 1 / (1 + e^-f)``.

        log p(y | f) >= -log(1 + e^-xi) - xi / 2 + (y - 1/2) f - tanh(xi / 2) (f^2 - xi^2) / (4 xi)

    for every xi; best at ``xi^2 = E_q[f^2]``. Linear in the moments, so that with unbiased ones it
    is a bound on average, if ``square`` does not depend on their draws. Jaakkola and Jordan,
    "Bayesian parameter estimation via variational methods" (2000).

    :param Y: labels 0 and 1, ``[n, L]``.
    :param moments: ``E_q[f]`` and ``E_q[f^2]``, ``[n, L]``.
    :param square: an estimate of ``E_q[f^2]``, which gives xi.
    """
    xi2 = tf.maximum(square, tf.cast(_MIN_VARIANCE, square.dtype))
    xi = tf.sqrt(xi2)
    mean, second = moments
    curved = tf.tanh(0.5 * xi) / (4.0 * xi) * (second - xi2)
    return tf.reduce_sum((Y - 0.5) * mean - curved - tf.nn.softplus(-xi) - 0.5 * xi, axis=1)


def prior_kl(
    head: Head, head_precision: tf.Tensor, draws: Sequence[Draw], scale: Any, *, dense: bool
) -> tf.Tensor:
    """
    KL from q to the prior; the sum over the tail is averaged over both draws.

    :param dense: whether the prior precision is dense; then ``mu^T S mu - log |S|`` is left out.
    """
    kl = chevron.head_kl(head, head_precision)
    for draw in draws:
        terms = chevron.tail_kl(draw.tail, draw.precision, with_mean=not dense)
        kl = kl + 0.5 * scale * tf.reduce_sum(terms)
    return kl


def dense_quadratic(
    precision: tf.Tensor,
    means: Pair,
    scale: Any,
    known: tuple[KnownProjections, KnownProjections] | None,
) -> tf.Tensor:
    """
    ``mu^T S mu`` for a prior precision that is not diagonal, from its rows ``S[jt, it]``.

    ``S mu`` at the functions of one draw is estimated by the other, and corrected as projections
    are: appendix F.2 of the paper, whose indices are printed crossed.

    :param precision: ``S[jt, it] [k, k]``, first draw in columns.
    :param means: means ``[k, L]`` of the first and the second draw.
    :param known: known values of ``S[jt, :] mu`` and ``S[it, :] mu``.
    """
    first, second = means
    at_second = scale * tf.linalg.matmul(precision, first)  # S[jt, :] mu
    at_first = scale * tf.linalg.matmul(precision, second, transpose_a=True)
    if known is not None:
        at_second = corrected((at_second, at_second), known[0])[0]
        at_first = corrected((at_first, at_first), known[1])[1]
    # A quadratic form: half of the sum has its value, and the sum, with S mu fixed, its gradient.
    fixed_first, fixed_second = tf.stop_gradient(at_first), tf.stop_gradient(at_second)
    slope = scale * (tf.reduce_sum(first * fixed_first) + tf.reduce_sum(second * fixed_second))
    return 0.5 * tf.stop_gradient(slope) + (slope - tf.stop_gradient(slope))
