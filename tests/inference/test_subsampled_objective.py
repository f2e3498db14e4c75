"""The objective of a sub-sampled model at given draws: the oracle's, and right on average."""

from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference import subsampling
from gpflow_sparse.inference.chevron import Head, Tail
from gpflow_sparse.inference.subsampling import Batch, Draw, Functions, KnownProjections
from gpflow_sparse.likelihoods import BernoulliLogit, Laplace
from tests.oracles import qsgp, qsgp_sites

M, MT, N, P, L = 5, 2, 4, 3, 2
NUM_DATA = 11
NOISE = 0.3


class Values(NamedTuple):
    """All that an objective is a function of."""

    mu: np.ndarray  # [M, L]
    B: np.ndarray  # [L, h, h]
    log_c: np.ndarray  # [M - h, L]
    D: np.ndarray  # [M - h, L, h]
    log_s: np.ndarray  # [M]
    noise: np.ndarray
    Phi: np.ndarray  # [N, M]

    @property
    def h(self):
        return self.B.shape[1]

    def C(self, p):
        h, C = self.h, np.zeros((M, M))
        C[:h, :h], C[h:, :h] = self.B[p], self.D[:, p]
        C[range(h, M), range(h, M)] = np.exp(self.log_c[:, p])
        return C


class Problem:
    """Values, and what is fixed: targets, the places of an anchor, a regression of any kind."""

    def __init__(self, rng, h, chevron):
        self.chevron = chevron
        B = np.tril(0.3 * rng.normal(size=(L, h, h))) + 0.5 * np.eye(h)
        D = 0.3 * rng.normal(size=(M - h, L, h))
        self.values = Values(
            rng.normal(size=(M, L)),
            B,
            0.3 * rng.normal(size=(M - h, L)) - 1.0,
            D if chevron else np.zeros_like(D),
            0.3 * rng.normal(size=M),
            np.array(NOISE),
            rng.normal(size=(N, M)),
        )
        self.Y, self.mean = rng.normal(size=(N, L)), rng.normal(size=(N, L))
        self.Phi_p, self.W = rng.normal(size=(P, M)), 0.4 * rng.normal(size=(N, P))
        self.labels = (self.Y > 0).astype(float)

    @property
    def h(self):
        return self.values.h

    def exact_at_places(self, values):
        """``a [P, Q]``, of the tail."""
        vectors = [values.mu[self.h :]]
        if self.chevron:
            vectors.append(values.D.reshape(M - self.h, -1))
        return self.Phi_p[:, self.h :] @ np.hstack(vectors)

    def pairs(self):
        return qsgp.all_pairs(M, MT, self.h)


CASES = {"diagonal": (0, False), "block": (2, False), "chevron": (2, True)}


@pytest.fixture(params=CASES.values(), ids=CASES)
def problem(request, rng):
    return Problem(rng, *request.param)


class Terms(NamedTuple):
    """Parts of an estimate."""

    values: Values
    drawn: tuple
    Phi: Functions
    vectors: tuple
    scale: float
    anchor: KnownProjections | None


def assemble(problem, values, draws, anchors):
    """``values`` as tensors; ``anchors`` is None or "support"."""
    h, scale = problem.h, (M - problem.h) / MT
    tails, drawn = [], []
    for indices in draws:
        rows = indices - h
        D = tf.gather(values.D, rows) if problem.chevron else None
        tail = Tail(tf.gather(values.mu, indices), tf.gather(values.log_c, rows), D)
        drawn.append(Draw(rows, tail, tf.exp(tf.gather(values.log_s, indices))))
        tails.append(tf.gather(values.Phi, indices, axis=1))
    vectors = tuple(
        d.tail.mu
        if d.tail.D is None
        else tf.concat([d.tail.mu, tf.reshape(d.tail.D, [MT, -1])], axis=1)
        for d in drawn
    )
    anchor, support = None, None
    if anchors:
        support = tuple(tf.gather(problem.Phi_p, indices, axis=1) for indices in draws)
        found = tuple(
            scale * tf.linalg.matmul(*pair) for pair in zip(support, vectors, strict=True)
        )
        exact = tf.constant(problem.exact_at_places(problem.values))
        anchor = KnownProjections(partial(tf.linalg.matmul, tf.constant(problem.W)), found, exact)
    return Terms(
        values, tuple(drawn), Functions(values.Phi[:, :h], tuple(tails), support), vectors, scale,
        anchor,
    )  # fmt: skip


def head_of(values):
    h = values.B.shape[1]
    return Head(values.mu[:h], values.B)


def kl_of(parts):
    h = parts.values.B.shape[1]
    precision = tf.exp(parts.values.log_s[:h])
    return subsampling.prior_kl(
        head_of(parts.values), precision, parts.drawn, parts.scale, dense=False
    )


def gaussian_elbo(problem, values, draws, anchors=None):
    parts = assemble(problem, values, draws, anchors)
    likelihood = SimpleNamespace(variance_at=lambda X: tf.reshape(values.noise, [1, 1]))
    raw, value = subsampling.projections(
        parts.Phi, head_of(values), parts.vectors, parts.scale, parts.anchor
    )
    batch = Batch(tf.zeros([N, 1], tf.float64), tf.constant(problem.Y), tf.constant(problem.mean))
    spread = subsampling.spreads(parts.Phi, parts.drawn, parts.scale)
    terms = subsampling.gaussian_expectations(likelihood, batch, raw, value, spread)
    return NUM_DATA / N * tf.reduce_sum(terms) - kl_of(parts)


SITES = {
    "logit": (BernoulliLogit, qsgp_sites.expect_logit),
    "laplace": (lambda: Laplace(0.5), qsgp_sites.expect_laplace),
    "gaussian": (lambda: gpflow.likelihoods.Gaussian(NOISE), qsgp_sites.expect_gaussian),
}


def site_elbo(problem, values, draws, anchors=None, *, site, likelihood):
    """Sites as models put them together."""
    parts = assemble(problem, values, draws, anchors)
    _, value = subsampling.projections(
        parts.Phi, head_of(values), parts.vectors, parts.scale, parts.anchor
    )
    Y = problem.labels if site == "logit" else problem.Y
    batch = Batch(tf.zeros([N, 1], tf.float64), tf.constant(Y), tf.constant(problem.mean))
    first, second = subsampling.spreads(parts.Phi, parts.drawn, parts.scale)
    spread = (second, first) if anchors is None else (first, second)
    terms = subsampling.site_expectations(likelihood, batch, value, spread)
    return NUM_DATA / N * tf.reduce_sum(terms) - kl_of(parts)


def averages(problem, function, **options):
    """Value and gradients of an estimate on average over all pairs of draws."""
    start = Values(*(tf.constant(value) for value in problem.values))

    @tf.function(autograph=False)
    def one(it, jt):
        with tf.GradientTape() as tape:
            tape.watch(start)
            value = function(problem, start, (it, jt), **options)
        gradients = tape.gradient(value, list(start), unconnected_gradients="zero")
        return value, [tf.convert_to_tensor(g) for g in gradients]

    found = [one(*(tf.constant(part) for part in pair)) for pair in problem.pairs()]
    values = [value.numpy() for value, _ in found]
    gradients = [
        np.mean([part.numpy() for part in parts], axis=0)
        for parts in zip(*(parts for _, parts in found), strict=True)
    ]
    return np.mean(values), Values(*gradients), values


def exact_gaussian(problem, values):
    """Of the batch repeated ``NUM_DATA / N`` times."""
    total = 0.0
    for p in range(L):
        s, C, y = np.exp(values.log_s), values.C(p), problem.Y[:, p] - problem.mean[:, p]
        expected = qsgp.expectation_minus_kl(values.Phi, y, values.mu[:, p], C, s, values.noise)
        kl = qsgp.prior_kl(values.mu[:, p], C, s)
        total += NUM_DATA / N * (expected + kl) - kl
    return total


def directional(function, values, name, rng, step=1e-5):
    """A derivative along a random direction of one of the values, and that direction."""
    value = getattr(values, name)
    direction = rng.normal(size=value.shape)
    if name == "B":
        direction = np.tril(direction)
    ends = [function(values._replace(**{name: value + t * direction})) for t in (step, -step)]
    return (ends[0] - ends[1]) / (2.0 * step), direction


def check_gradients(problem, gradients, function, rng, rtol=1e-6):
    for name in Values._fields:
        if name == "D" and not problem.chevron:
            continue
        slope, direction = directional(function, problem.values, name, rng)
        found = np.sum(getattr(gradients, name) * direction)
        np.testing.assert_allclose(found, slope, rtol=rtol, atol=1e-6, err_msg=name)


def oracle_at(problem, it, jt, anchors=None):
    """The elbo's estimate from the oracle's parts."""
    v, h, total = problem.values, problem.h, 0.0
    s, W, n = np.exp(v.log_s), problem.W, NUM_DATA
    for p in range(L):
        y, mu, C = problem.Y[:, p] - problem.mean[:, p], v.mu[:, p], v.C(p)
        if anchors == "support":
            a = problem.Phi_p @ mu
            L_mu = qsgp.l_mu_estimate_anchored(
                v.Phi, problem.Phi_p, a, W, y, mu, s, NOISE, it, jt, h, n
            )
        else:
            L_mu = qsgp.l_mu_estimate_diagonal(v.Phi, y, mu, s, NOISE, it, jt, h, n)
        L_sigma = np.mean(
            [qsgp.l_sigma_estimate_chevron(v.Phi, C, s, NOISE, it, jt, q, h, n=n) for q in (it, jt)]
        )
        if anchors == "support":
            for c in C[:, :h].T:
                raw = [v.Phi @ (qsgp.weights(M, i, h) * c) for i in (it, jt)]
                better = qsgp.anchored_pair(
                    v.Phi, problem.Phi_p, problem.Phi_p @ c, W, c, it, jt, h
                )
                L_sigma += n / N / NOISE * (better[0] @ better[1] - raw[0] @ raw[1])
        L_const = np.mean([qsgp.l_const_estimate(y, s, NOISE, i, h, n) for i in (it, jt)])
        total -= 0.5 * (L_mu + L_sigma + L_const)
    return total


@pytest.mark.parametrize("anchors", [None, "support"])
def test_gaussian_estimates_are_the_oracles_and_unbiased(problem, rng, anchors):
    value, gradients, found = averages(problem, gaussian_elbo, anchors=anchors)
    expected = [oracle_at(problem, *pair, anchors) for pair in problem.pairs()]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    exact = exact_gaussian(problem, problem.values)
    np.testing.assert_allclose(value, exact, rtol=1e-10)
    check_gradients(problem, gradients, lambda v: exact_gaussian(problem, v), rng)


def oracle_site(problem, values, it, jt, *, site, anchors=None):
    """One pair's estimate of the sites, each draw's moments in turn."""
    h, total = problem.h, 0.0
    for own, other in ((it, jt), (jt, it)):
        for p in range(L):
            mu, C = values.mu[:, p], values.C(p)
            if anchors:
                mean, var = anchored_moments(problem, values, p, own)
            else:
                mean, var = qsgp_sites.site_moments_split(values.Phi, mu, C, own, other, h)
            y = problem.Y[:, p] if site != "logit" else 2.0 * problem.labels[:, p] - 1.0
            var = np.maximum(var, 1e-10)
            total += 0.5 * np.sum(SITES[site][1](mean + problem.mean[:, p], var, y))
    return NUM_DATA / N * total


def anchored_moments(problem, values, p, own):
    """With the mean and every dense column corrected by what the places know."""
    h, Phi, Phi_p, W = problem.h, values.Phi, problem.Phi_p, problem.W
    w, C = qsgp.weights(M, own, h), values.C(p)

    def corrected(v):
        return qsgp.corrected_projection(Phi @ (w * v), Phi_p @ (w * v), Phi_p @ v, W)

    mean = corrected(values.mu[:, p])
    var = sum((corrected(c) ** 2 for c in C[:, :h].T), np.zeros(N))
    return mean, var + qsgp_sites.diagonal_variance(Phi, C, own, h)


def average_site(problem, values, **options):
    kl = sum(qsgp.prior_kl(values.mu[:, p], values.C(p), np.exp(values.log_s)) for p in range(L))
    return np.mean([oracle_site(problem, values, *d, **options) for d in problem.pairs()]) - kl


@pytest.mark.parametrize("anchors", [None, "support"])
@pytest.mark.parametrize("site", SITES)
def test_site_estimates_are_the_oracles_and_gradients_those_of_their_average(
    problem, rng, site, anchors
):
    options = {"site": site, "anchors": anchors}
    likelihood = SITES[site][0]()
    value, gradients, _ = averages(problem, site_elbo, likelihood=likelihood, **options)
    np.testing.assert_allclose(value, average_site(problem, problem.values, **options), rtol=1e-9)
    check_gradients(problem, gradients, lambda v: average_site(problem, v, **options), rng)
