"""SOLVE-GP: sparse orthogonal variational inference."""

from typing import Any

import gpflow
import tensorflow as tf

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models.orthogonal import OrthogonalModel
from gpflow_sparse.models.starting import prior_factors


class SOLVEGP(OrthogonalModel):
    """
    Sparse variational GP with orthogonal inducing sets.

    M + M2 inducing points, but two covariance factors of sizes M and M2 in place of one of size
    M + M2: half the variational parameters of SVGP(2M) at M = M2, and a cheaper step. The bound is
    at most that of SVGP on the union of the sets with the best full covariance, and at least that
    of SVGP on Z alone.

    Shi, Titsias and Mnih, "Sparse Orthogonal Variational Inference for Gaussian Processes" (2020,
    arXiv:1910.10596v5), eq. (8). We whiten by default (their appendix F), start un-whitened models
    at the prior, and allow more than one orthogonal set; ``docs/errata.md`` lists where the printed
    formulas are wrong.

    Time per step on a batch of n rows: O(n (M + M2)^2 + (M + M2)^3); see
    ``docs/methods/solvegp.md`` for measured times.
    """

    @property
    def variational_shapes(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        sizes, latents = self.inducing_variable.sizes, self.num_latent_gps
        return [(size, latents) for size in sizes], [(latents, size, size) for size in sizes]

    def with_sets(self, *orthogonal: Any) -> "SOLVEGP":
        """
        A copy of this model with more orthogonal sets, after those it has.

        The new sets start at their prior, so the copy predicts what this model predicts and has its
        bound. (A kernel that is not stationary may have another mean variance on the new sets;
        the jitter, a fraction of it, then moves a little, and all numbers with it.) The copy shares
        nothing with this model.

        :param orthogonal: arrays ``[M, D]`` or GPflow inducing variables; see
            :func:`gpflow_sparse.initialization.greedy_orthogonal` for a good choice.
        :raises ValueError: for sets that do not fit those of the model, and in ``tf.function``.
        """
        if not tf.executing_eagerly():
            raise ValueError("with_sets must be called outside of tf.function: it makes a model.")
        old = gpflow.utilities.deepcopy(self)
        added = OrthogonalInducingVariables(old.inducing_variable.sets[0], *orthogonal).sets[1:]
        new = SOLVEGP(
            old.kernel,
            old.likelihood,
            OrthogonalInducingVariables(*old.inducing_variable.sets, *added),
            mean_function=old.mean_function,
            num_latent_gps=old.num_latent_gps,
            whiten=old.whiten,
            num_data=old.num_data,
        )
        size = len(old.q_mu)
        new.q_mu = (*old.q_mu, *new.q_mu[size:])
        new.q_sqrt = (*old.q_sqrt, *new.q_sqrt[size:])
        new.jitter, new.standardizer = old.jitter, old.standardizer
        for R, factor in zip(new.q_sqrt[size:], prior_factors(new)[size:], strict=True):
            R.assign(factor)  # the prior's with the jitter of this model
        return new
