"""Covariances with few dense columns, against the whole matrices they stand for."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.inference import chevron
from gpflow_sparse.numerics import linalg
from tests.oracles import qsgp

M, L, N = 7, 2, 5


class Case(NamedTuple):
    """Both forms of one q."""

    head: chevron.Head
    tail: chevron.Tail
    mu: np.ndarray  # [M, L]
    C: np.ndarray  # [L, M, M]


def make(rng, h, dense_tail, dtype=np.float64):
    """``dense_tail``: with D. Diagonals of B of both signs."""
    mu, C = rng.normal(size=(M, L)), np.zeros((L, M, M))
    C[:, :h, :h] = np.tril(rng.normal(size=(L, h, h)))
    log_c = 0.5 * rng.normal(size=(M - h, L))
    for p in range(L):
        C[p, range(h, M), range(h, M)] = np.exp(log_c[:, p])
        if dense_tail:
            C[p, h:, :h] = rng.normal(size=(M - h, h))
    D = tf.constant(C[:, h:, :h].transpose(1, 0, 2), dtype) if dense_tail else None
    return Case(
        chevron.Head(tf.constant(mu[:h], dtype), tf.constant(C[:, :h, :h], dtype)),
        chevron.Tail(tf.constant(mu[h:], dtype), tf.constant(log_c, dtype), D),
        mu,
        C,
    )


@pytest.fixture(params=[(0, False), (3, False), (3, True), (M, True)], ids=str)
def case(request, rng):
    return make(rng, *request.param)


def close(actual, expected, **kwargs):
    np.testing.assert_allclose(actual, expected, **({"rtol": 1e-10, "atol": 1e-12} | kwargs))


def test_projections_are_those_of_the_mean_and_of_the_dense_columns(case, rng):
    h = case.head.mu.shape[0]
    Phi = rng.normal(size=(N, M))
    head = Phi[:, :h] @ chevron.head_vectors(case.head).numpy()
    tail = Phi[:, h:] @ chevron.tail_vectors(case.tail).numpy()
    both = chevron.add_projections(tf.constant(head), tf.constant(tail))
    mean, dense = chevron.split_projections(both, L)
    close(mean, Phi @ case.mu)
    assert dense.shape == (N, L, h)
    for p in range(L):
        close(dense[:, p], Phi @ case.C[p][:, :h])


def test_kl_is_the_sum_of_head_and_tail(case, rng):
    h, s = case.head.mu.shape[0], rng.uniform(0.3, 3.0, size=M)
    found = chevron.head_kl(case.head, tf.constant(s[:h])) + tf.reduce_sum(
        chevron.tail_kl(case.tail, tf.constant(s[h:]))
    )
    close(found, sum(qsgp.prior_kl(case.mu[:, p], case.C[p], s) for p in range(L)))


def test_each_weight_of_the_tail_has_its_own_share_of_the_kl(case, rng):
    h, s = case.head.mu.shape[0], rng.uniform(0.3, 3.0, size=M)
    found = chevron.tail_kl(case.tail, tf.constant(s[h:]))
    expected = np.zeros(M - h)
    for i in range(h, M):
        for p in range(L):
            c = case.C[p, i, i]
            squares = case.mu[i, p] ** 2 + np.sum(case.C[p, i] ** 2)
            expected[i - h] += 0.5 * (s[i] * squares - np.log(s[i]) - 2.0 * np.log(c) - 1.0)
    close(found, expected)


def test_a_dense_precision_counts_the_mean_elsewhere(rng):
    """``tail_kl`` without its mean, plus ``(mu^T S mu - log|S|) / 2``, is the KL."""
    case = make(rng, 0, False)
    S = np.cov(rng.normal(size=(M, 40))) + np.eye(M)
    found = tf.reduce_sum(chevron.tail_kl(case.tail, tf.constant(np.diag(S)), with_mean=False))
    expected = 0.0
    for p in range(L):
        fixed = case.mu[:, p] @ S @ case.mu[:, p] - np.linalg.slogdet(S)[1]
        expected += qsgp.prior_kl(case.mu[:, p], case.C[p], S) - 0.5 * fixed
    close(found, expected)


def test_the_factor_of_the_inverse_holds_the_best_chevron_of_every_width(rng):
    A = qsgp.precision(rng.normal(size=(9, M)), rng.uniform(0.5, 2.0, size=M), 0.3)
    G = linalg.inverse_factor(tf.constant(A), "A").numpy()
    close(G @ G.T, np.linalg.inv(A))
    assert np.all(np.triu(G, 1) == 0.0)
    for k in range(M + 1):
        best = qsgp.optimal_chevron(A, k)
        close(G[:, :k], best[:, :k])
    h = 3
    block = linalg.inverse_factor(tf.constant(A[:h, :h]), "A").numpy()
    close(block @ block.T, (lambda B: B @ B.T)(qsgp.optimal_block(A, h)[:h, :h]))


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_moments_in_chunks_are_those_of_the_whole_matrix(case, rng, monkeypatch, chunk):
    monkeypatch.setattr(chevron, "chunk_size", lambda num_rows: chunk)
    Phi = rng.normal(size=(N, M))
    widths = []

    def columns(indices):
        widths.append(int(tf.size(indices)))
        return tf.gather(tf.constant(Phi), indices, axis=1)

    h = case.head.mu.shape[0]
    expected = [qsgp.predict(Phi, case.mu[:, p], case.C[p]) for p in range(L)]
    for full_cov in (False, True):
        mean, cov = chevron.moments(columns, *case[:2], N, full_cov=full_cov)
        for p in range(L):
            close(mean[:, p], expected[p][0])
            if full_cov:
                close(cov[p], expected[p][1])
            else:
                close(cov[:, p], np.diag(expected[p][1]))
    assert max(widths) <= max(chunk, h)


def test_moments_compiled_and_in_float32(rng, monkeypatch):
    monkeypatch.setattr(chevron, "chunk_size", lambda num_rows: 2)
    case = make(np.random.default_rng(3), 3, True, np.float32)
    Phi = rng.normal(size=(N, M))

    @tf.function(autograph=False)
    def moments(Phi):
        def columns(indices):
            return tf.gather(Phi, indices, axis=1)

        return chevron.moments(columns, *case[:2], tf.shape(Phi)[0], full_cov=False)

    mean, var = moments(tf.constant(Phi, tf.float32))
    for p in range(L):
        terms = np.abs(Phi) @ np.abs(case.mu[:, p])
        assert np.all(np.abs(mean[:, p] - Phi @ case.mu[:, p]) <= 1e-5 * terms)
        exact = np.sum((Phi @ case.C[p]) ** 2, axis=1)
        terms = np.sum((np.abs(Phi) @ np.abs(case.C[p])) ** 2, axis=1)
        assert np.all(np.abs(var[:, p] - exact) <= 1e-5 * terms)


def test_gradients_flow_through_the_chunks(rng, monkeypatch):
    case, Phi = make(rng, 2, True), tf.constant(rng.normal(size=(N, M)))
    weights = tf.constant(rng.normal(size=(2, N, L)))

    def total(chunk):
        monkeypatch.setattr(chevron, "chunk_size", lambda num_rows: chunk)
        with tf.GradientTape() as tape:
            variables = [case.head.mu, case.head.B, case.tail.mu, case.tail.log_c, case.tail.D, Phi]
            tape.watch(variables)
            parts = chevron.moments(
                lambda i: tf.gather(Phi, i, axis=1), *case[:2], N, full_cov=False
            )
            loss = tf.reduce_sum(weights * tf.stack(parts))
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    for chunked, whole in zip(total(2), total(M), strict=True):
        close(chunked, whole)
    dPhi = total(3)[-1].numpy()
    C = case.C
    expected = sum(
        np.outer(weights[0][:, p], case.mu[:, p])
        + 2.0 * weights[1][:, p].numpy()[:, None] * (Phi.numpy() @ C[p] @ C[p].T)
        for p in range(L)
    )
    close(dPhi, expected)
