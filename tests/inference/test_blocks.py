"""Block posteriors against naive sums."""

import numpy as np
import tensorflow as tf

from gpflow_sparse.inference.blocks import Block, joint, kl_from_standard_normal, marginals
from tests.oracles.solvegp import gaussian_kl


def make_blocks(rng, sizes=(4, 3), N=6, P=2):
    return [
        Block(
            tf.constant(0.3 * rng.normal(size=(M, N))),
            tf.constant(rng.normal(size=(M, P))),
            tf.constant(np.tril(rng.normal(size=(P, M, M)))),
        )
        for M in sizes
    ]


def naive_joint(K, blocks, p):
    mean, cov = 0.0, K.copy()
    for A, m, R in ((b.A.numpy(), b.q_mu.numpy(), b.q_sqrt.numpy()) for b in blocks):
        mean = mean + A.T @ m[:, p]
        cov = cov - A.T @ (np.eye(len(A)) - R[p] @ R[p].T) @ A
    return mean, cov


def test_joint_and_marginals_equal_naive_sums(rng):
    blocks = make_blocks(rng)
    B = rng.normal(size=(6, 6))
    K = B @ B.T + 3.0 * np.eye(6)
    mean, cov = joint(tf.constant(K), blocks)
    mean_diag, var, _ = marginals(tf.constant(np.diag(K)), blocks)
    for p in range(2):
        naive_mean, naive_cov = naive_joint(K, blocks, p)
        np.testing.assert_allclose(mean[:, p], naive_mean, atol=1e-12)
        np.testing.assert_allclose(mean_diag[:, p], naive_mean, atol=1e-12)
        np.testing.assert_allclose(cov[p], naive_cov, atol=1e-12)
        np.testing.assert_allclose(var[:, p], np.diag(naive_cov), atol=1e-12)


def test_a_residual_below_zero_is_clipped_before_the_rest_is_added(rng):
    (block,) = make_blocks(rng, sizes=(4,))
    Kff_diag = tf.reduce_sum(block.A**2, axis=0) - 1e-3  # rounding gone wrong
    _, var, _ = marginals(Kff_diag, [block])
    RA = tf.linalg.matmul(block.q_sqrt, block.A[None], transpose_a=True)
    np.testing.assert_allclose(var, tf.transpose(tf.reduce_sum(RA**2, axis=1)), atol=1e-14)


def test_without_q_sqrt_the_variables_are_fixed_at_their_mean(rng):
    (block,) = make_blocks(rng, sizes=(4,))
    fixed = block._replace(q_sqrt=None)
    zero = block._replace(q_sqrt=tf.zeros_like(block.q_sqrt))
    for function, K in ((marginals, 5.0 * np.ones(6)), (joint, 5.0 * np.eye(6))):
        for a, b in zip(
            function(tf.constant(K), [fixed]), function(tf.constant(K), [zero]), strict=True
        ):
            np.testing.assert_allclose(a, b, atol=1e-14)


def test_kl_equals_the_dense_formula(rng):
    (block,) = make_blocks(rng, sizes=(4,))
    naive = sum(
        gaussian_kl(m, R @ R.T, np.eye(4))
        for m, R in zip(block.q_mu.numpy().T, block.q_sqrt.numpy(), strict=True)
    )
    np.testing.assert_allclose(kl_from_standard_normal(block.q_mu, block.q_sqrt), naive, rtol=1e-12)
