"""Sparse within sparse Gaussian processes: each row sees its nearest inducing points."""

from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import swsgp_options
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.models.swsgp_closed import ClosedForms
from gpflow_sparse.models.swsgp_step import NeighborStep
from gpflow_sparse.models.swsgp_usage import CountedUsers
from gpflow_sparse.posteriors import (
    MultioutputPosterior,
    NeighborPosterior,
    SparsePosterior,
    cache_type,
    latent_kernels,
    require_latent_kernels,
)
from gpflow_sparse.posteriors.neighbor import require_not_whitened
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.step_lock import reads_parameters


class SWSGP(CountedUsers, ClosedForms, NeighborStep, VariationalModel):
    r"""
    Variational inference over M inducing variables of which each row of the data sees H, those of
    its nearest inducing points: a step on n rows takes O(n H^3) time, whatever M is, and the search
    for them.

    ``f(x) | u_I`` is the prior's conditional given the neighbors I of x, and ``q(u) = N(q_mu, S)``.
    Tran, Milios, Michiardi and Filippone, "Sparse within Sparse Gaussian Processes using Neighbor
    Information" (2020), algorithm 1, with other weights of its KL terms.

    **What is maximized.** ``sum_i (E_q[log p(y_i | f_i)] - w_i KL[q(u_I) || p(u_I)])``, from a
    minibatch without bias, by ``kl_weighting``:

    - "usage": ``w_i`` is the mean over the neighbors j of ``1 / c_j``, with c_j the number of
      training rows that see j, from :meth:`update_neighbors`: each u_j then pays about once. No
      bound; the default, as "paper" is far too sure and "chain" takes longer.
    - "paper": ``1 / N``, as in eq. (11). The paper says that this is a lower bound; it is not
      (``docs/errata.md``, W1). It learns too little noise and is far too sure of f
      (``docs/sharp-bits.md``); its means were a little better on most data sets tried
      (``docs/benchmarks/swsgp.md``).
    - "chain": one ``KL[q(u) || prod_j p(u_j | its H nearest predecessors)]`` in place of all local
      ones: a lower bound on the evidence of the model with that prior. Terms of as many inducing
      points as the batch has rows are sampled, which about doubles the cost of a step, and more
      with very many points, since predecessors are searched among all.

    All three are SVGP's bound at H = M.

    ==============  ============================================  ==========================
    ``covariance``  S                                             numbers, per latent function
    ==============  ============================================  ==========================
    "diag"          diagonal                                      2 M
    "low_rank"      diagonal plus a product of rank R             (2 + R) M
    "dense"         any                                           M + M^2
    ==============  ============================================  ==========================

    "dense" costs O(n H^2 M) more in a step.

    ``union=m`` is the paper's SWSGP-U (section 4.5): all rows of a batch see the same m points, so
    that training is for joint predictions. How the m are chosen the paper does not say; see
    :meth:`~gpflow_sparse.inducing_variables.NeighborInducingPoints.ranked`. No bound either.

    Inducing variables are not whitened: neighborhoods overlap, and no coordinates are white in all
    of them.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: NeighborInducingPoints,
        *,
        covariance: str = "diag",
        kl_weighting: str = "usage",
        union: int | None = None,
        rank: int = 8,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        q_mu: Any = None,
        q_sqrt: Any = None,
        whiten: bool = False,
        start: str = "sites",
    ) -> None:
        """
        :param kernel: single-output, shared by all latent functions; or SharedIndependent,
            SeparateIndependent or LinearCoregionalization. Each kernel has neighbors of its own.
        :param likelihood: any GPflow likelihood.
        :param inducing_variable: the M points, and H.
        :param covariance: see above; this,
        :param kl_weighting: and
        :param union: too, the number m of active points.
        :param rank: R, of "low_rank".
        :param num_latent_gps: number of latent functions; None as in
            :class:`~gpflow_sparse.models.VariationalModel`.
        :param num_data: number of training rows N, so that a minibatch counts for all of them.
        :param q_mu: starting means ``[M, L]``; zero by default, see ``start``.
        :param q_sqrt: starting standard deviations ``[M, L]``; for "dense" lower factors ``[L, M,
            M]``; for "low_rank" a pair, ``[M, L]`` and ``[L, M, R]``. By default the prior for
            "dense", O(M^3); else the independent variables closest to it as far as the 16 points
            nearest to each tell, O(M 16^3).
        :param whiten: must be False.
        :param start: "sites": before its first step, ``training.fit`` calls
            :meth:`start_from_sites` with the training data, unless ``q_mu`` or ``q_sqrt`` was given
            or the means are no longer zero. "prior": it trains q from where it is.
        :raises ValueError: for arguments of a wrong kind, or that do not go together.
        """
        require_not_whitened(whiten)
        iv = swsgp_options.require_inducing(inducing_variable)
        swsgp_options.require_objective(covariance, kl_weighting, union, iv)
        checks.require_choice(start, "start", ("sites", "prior"))
        if isinstance(kernel, MultioutputKernel):
            require_latent_kernels(kernel)
        super().__init__(
            kernel,
            likelihood,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            num_data=num_data,
        )
        component_checks.require_kernel(kernel, iv.Z.shape[1])
        component_checks.require_dtype(iv, "inducing_variable", gpflow.default_float())
        self.inducing_variable = iv
        self.covariance, self.kl_weighting, self.union = covariance, kl_weighting, union
        self.start = start if q_mu is None and q_sqrt is None else "prior"
        mean, scales, factors = swsgp_options.starting_q(self, covariance, rank, q_mu, q_sqrt)
        self.q_mu = tf.Variable(mean)
        self.q_log_scale = None if scales is None else tf.Variable(np.log(scales))
        self.q_factor = None if factors is None else tf.Variable(factors)
        num_kernels = len(latent_kernels(kernel, self.num_latent_gps))
        counts = np.zeros((iv.Z.shape[0], num_kernels))
        # how many rows of the training data see each point, for each latent kernel
        self.usage = tf.Variable(counts, trainable=False, dtype=gpflow.default_float())
        self._require_parts(self.input_dim)

    @property
    def q_sqrt(self) -> Any:
        """
        Standard deviations ``[M, L]``; for "dense" lower factors ``[L, M, M]``; for "low_rank" a
        pair, ``[M, L]`` and ``[L, M, R]``.
        """
        q = self.rows
        factors = None if q.factors is None else tf.transpose(q.factors, [1, 0, 2])
        if q.scales is None:
            return factors
        return q.scales if factors is None else (q.scales, factors)

    @property
    def input_dim(self) -> int | None:
        if not hasattr(self, "inducing_variable"):  # while it is being made
            return None
        return int(self.inducing_variable.Z.shape[1])

    @property
    def dtype(self) -> tf.DType:
        return getattr(getattr(self, "q_mu", None), "dtype", gpflow.default_float())

    @reads_parameters
    def elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        What is maximized, or its unbiased estimate from a minibatch if ``num_data`` is set; with
        "chain" from other terms of the KL at every call, unless there are M rows or more.

        :param data: ``(X [N, D], Y [N, P])``.
        :return: scalar, in nats.
        :raises ValueError: for data that do not fit the model, eagerly and when tracing; with
            "usage" before :meth:`update_neighbors`.
        """
        X, Y = self._require_data(data)
        self._require_usage()
        with component_checks.blame(self):
            seen = self._look(X)
            elbo = self._objective(X, Y, seen, self.rows, [one.existing() for one in seen])
        component_checks.require_finite_result(self, "the elbo", elbo)
        return elbo

    @reads_parameters
    def prior_kl(self, X: Any = None) -> tf.Tensor:
        """
        What the elbo takes off its expectations.

        :param X: the rows ``[n, D]`` of a batch, whose neighborhoods count. With "chain" it may be
            left out: the terms of all M points then, O(M H^3), which is a KL.
        :raises ValueError: without X, for other weightings.
        """
        if X is None:
            return self._whole_chain()
        X = checks.require_matrix(X, "X", self.dtype)
        X = self._require_inputs(X)
        self._require_usage()
        with component_checks.blame(self):
            seen = self._look(X)
            kl = self._terms(X, seen, self.rows, [one.existing() for one in seen])[2]
        component_checks.require_finite_result(self, "the KL divergence", kl)
        return kl

    def training_loss_closure(
        self, data: tuple[tf.Tensor, tf.Tensor] | Iterator, *, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """
        As :meth:`gpflow_sparse.models.VariationalModel.training_loss_closure`.

        :raises ValueError: with "chain" unless ``data`` are M rows or more: otherwise the loss is
            another number in every call.
        """
        swsgp_options.require_whole_chain(self, data)
        self._require_usage()
        return super().training_loss_closure(data, compile=compile)

    @reads_parameters
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> SparsePosterior:
        """See :meth:`gpflow_sparse.models.GuardedModel.posterior`."""
        cache = cache_type(precompute_cache)
        self._require_parts(self.input_dim, self.dtype)
        q_sqrt = LiveSqrt(self)
        arguments = (self.kernel, self.inducing_variable, self.q_mu, q_sqrt)
        options: dict[str, Any] = {
            "mean_function": self.mean_function,
            "precompute_cache": cache,
            "jitter": self.jitter,
        }
        if isinstance(self.kernel, MultioutputKernel):
            return MultioutputPosterior(*arguments, whiten=False, part=NeighborPosterior, **options)
        return NeighborPosterior(*arguments, **options)

    def _whole_chain(self) -> tf.Tensor:
        if self.kl_weighting != "chain" or self.union is not None:
            raise ValueError(
                f"prior_kl needs X for kl_weighting={self.kl_weighting!r}: each row has a KL of "
                "its own neighbors, and there is none of q(u) as a whole. Call prior_kl(X)."
            )
        self._require_parts(self.input_dim, self.dtype)
        with component_checks.blame(self):
            kl = self._chain_in_blocks()
        component_checks.require_finite_result(self, "the KL divergence", kl)
        return kl

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        if hasattr(self, "usage"):  # once all is there
            swsgp_options.require_own_parts(self)


class LiveSqrt(tf.Module):
    """``q_sqrt`` as it is at each use; a module, so that exports find the variables in it."""

    def __init__(self, model: SWSGP) -> None:
        super().__init__()
        self.q_log_scale, self.q_factor = model.q_log_scale, model.q_factor
        self._compute = lambda: model.q_sqrt

    def __call__(self) -> Any:
        return self._compute()
