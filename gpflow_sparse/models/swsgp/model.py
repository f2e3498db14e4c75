"""Sparse within sparse Gaussian processes: each row depends on its nearest inducing points."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.inducing_variables.shared import without_wrapper
from gpflow_sparse.inference import subsampling
from gpflow_sparse.inference.neighborhoods import GaussianRows, NeighborPrior
from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.models import partial_updates
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.models.swsgp import closed_form, counts, point_sites
from gpflow_sparse.models.swsgp.checks import require_components, require_objective, require_points
from gpflow_sparse.models.swsgp.posterior import NeighborPosterior, chain_kl, require_not_whitened
from gpflow_sparse.models.swsgp.starting import neighbor_q
from gpflow_sparse.models.swsgp.union import active_sets, union_terms
from gpflow_sparse.numerics import random_draws
from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.posteriors.multioutput import MultioutputPosterior, latent_kernels, mixed_terms
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

# For each latent kernel: neighbors [n, H], or [m] with union; with "chain" also links [n_Z, 1 + H].
IndexSets = Sequence[Sequence[tf.Tensor]]


class SWSGP(VariationalModel):
    r"""
    Variational inference over M inducing variables, where each row of the data is conditioned on
    the variables of its H nearest inducing points: a step on n rows takes O(n H^3) time for any M,
    and a search for neighbors.

    ``f(x) | u_I`` is the prior's conditional given the neighbors I of x, and ``q(u) = N(q_mu, S)``.
    Tran, Milios, Michiardi and Filippone, "Sparse within Sparse Gaussian Processes using Neighbor
    Information" (2020), algorithm 1, with other weights of its KL terms.

    **The objective** of a batch of n of N rows, with ``KL_i = KL[q(u_I) || p(u_I)]`` for the
    neighbors I of row i, is

        N / n sum_i E_q[log p(y_i | f_i)]  -  penalty,

        penalty = N / n sum_i w_i KL_i,    w_i = mean over j in I of 1 / max(c_j, 1)    "counts"
                  N / n sum_i w_i KL_i,    w_i = 1 / N                                  "paper"
                  M / n_Z sum_j t_j,       n_Z = min(n, M) inducing points j drawn      "chain"
                  KL[q(u_A) || p(u_A)],    A the m points of the batch                  union=m

    whose average over batches is the objective of all rows, except with ``union``. By
    ``kl_weighting``:

    - "counts": c_j is the number of training rows that have j as a neighbor, from
      :meth:`count_neighbors`, before it from a batch of all rows: the KL terms of each u_j then
      have a total weight of about one. Not a bound; the default, since variances of f are far too
      small with "paper" and "chain" takes longer.
    - "paper": as in eq. (11). The paper says that this is a lower bound; it is not
      (``docs/errata.md``, W1). Trained noise is too small and variances of f far too small
      (``docs/methods/swsgp.md``); its means were a little better on most data sets tried
      (``docs/benchmarks/swsgp.md``).
    - "chain": t_j are terms whose sum over all j is ``KL[q(u) || prod_j p(u_j | its H nearest
      predecessors)]``: a lower bound on the evidence of the model with that prior. It about doubles
      the cost of a step, and more with very many points, since predecessors are searched among all.

    All three are SVGP's bound at H = M.

    ==============  ============================================  ==========================
    ``covariance``  S                                             size of q, per latent function
    ==============  ============================================  ==========================
    "diag"          diagonal                                      2 M
    "dense"         any                                           M + M^2
    ==============  ============================================  ==========================

    "dense" costs O(n H^2 M) more in a step.

    ``union=m`` is the paper's SWSGP-U (section 4.5): all rows of a batch are conditioned on the
    same m points, as joint predictions are. The paper does not say how the m are chosen; see
    :meth:`~gpflow_sparse.inducing_variables.NeighborInducingPoints.ranked`. No bound either.

    Inducing variables are not whitened: neighborhoods overlap, and no coordinates are white in all.

    `training.fit` trains it by row-wise updates (:mod:`gpflow_sparse.models.partial_updates`): a
    step reads and updates only the rows of q that belong to the neighbors of its batch.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: NeighborInducingPoints,
        *,
        covariance: str = "diag",
        kl_weighting: str = "counts",
        union: int | None = None,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        q_mu: Any = None,
        q_sqrt: Any = None,
        whiten: bool = False,
        start: str = "sites",
        bound: str = "standard",
    ) -> None:
        """
        :param kernel: single-output, shared by all latent functions; or SharedIndependent,
            SeparateIndependent or LinearCoregionalization. Each kernel has neighbors of its own.
        :param likelihood: any GPflow likelihood.
        :param inducing_variable: the M inducing points and the number H of neighbors.
        :param covariance: form of the covariance of q: "diag" or "dense", see above.
        :param kl_weighting: weights of the KL terms of the rows: "counts", "paper" or "chain".
        :param union: m, the number of active points of a batch, which all of its rows share; None
            for H neighbors of each row.
        :param num_latent_gps: number of latent functions; None as in
            :class:`~gpflow_sparse.models.VariationalModel`.
        :param num_data: number of training rows N, so that a minibatch counts for all of them.
        :param q_mu: starting means ``[M, L]``; zero by default, see ``start``.
        :param q_sqrt: starting standard deviations ``[M, L]``; for "dense" lower factors ``[L, M,
            M]``. By default the prior for "dense", O(M^3); else the independent variables closest
            to it as far as the 16 points nearest to each determine it, O(M 16^3).
        :param whiten: must be False.
        :param start: "sites": before its first step, ``training.fit`` calls
            :meth:`start_from_sites` with the training data, unless ``q_mu`` or ``q_sqrt`` was given
            or the means are no longer zero. "prior": training starts at the current q.
        :param bound: "standard" or "log", see :class:`VariationalModel`.
        :raises ValueError: for arguments of a wrong kind, or that do not go together.
        """
        require_not_whitened(whiten)
        iv = require_points(without_wrapper(inducing_variable))
        require_objective(covariance, kl_weighting, union, iv)
        checks.require_choice(start, "start", ("sites", "prior"))
        super().__init__(
            kernel,
            likelihood,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            num_data=num_data,
            bound=bound,
        )
        component_checks.require_kernel(kernel, iv.Z.shape[1])
        component_checks.require_dtype(iv, "inducing_variable", gpflow.default_float())
        self.inducing_variable = iv
        self.covariance, self.kl_weighting, self.union = covariance, kl_weighting, union
        self.start = start if q_mu is None and q_sqrt is None else "prior"
        mean, scales, factors = neighbor_q(self, covariance, q_mu, q_sqrt)
        self.q_mu = tf.Variable(mean)
        self.q_log_scale = None if scales is None else tf.Variable(np.log(scales))
        self.q_factor = None if factors is None else tf.Variable(factors)
        # number of training rows that have each point as a neighbor, for each latent kernel
        usage = np.zeros((iv.Z.shape[0], len(self._latents)))
        self.usage = tf.Variable(usage, trainable=False, dtype=gpflow.default_float())
        self._require_parts(self.input_dim)

    @property
    def q_sqrt(self) -> Any:
        """Standard deviations ``[M, L]``; for "dense" lower factors ``[L, M, M]``."""
        if self.q_factor is None:
            return tf.exp(self.q_log_scale)
        return tf.linalg.band_part(tf.transpose(self.q_factor, [1, 0, 2]), -1, 0)

    @property
    def points(self) -> NeighborInducingPoints:
        """
        The inducing points in which each row has its neighbors.

        :raises ValueError: if inducing variables of another kind have been assigned.
        """
        return require_points(self.inducing_variable)

    @property
    def input_dim(self) -> int | None:
        return int(self.points.Z.shape[1])

    @property
    def dtype(self) -> tf.DType:
        return getattr(self.q_mu, "dtype", gpflow.default_float())

    @property
    def sums_over_rows(self) -> bool:
        """Whether the objective is a sum over rows; with ``union`` the active points are of all."""
        return self.union is None

    @property
    def _latents(self) -> list[tuple[Kernel, slice]]:
        """Each single-output kernel, and the latent functions that have it."""
        return latent_kernels(self.kernel, self.num_latent_gps)

    @public_method("the elbo")
    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    def elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        The objective, or its unbiased estimate from a minibatch if ``num_data`` is set; with
        "chain" from other terms of the KL at every call, unless there are M rows or more.

        :param data: ``(X [N, D], Y [N, P])``.
        :return: scalar, in nats.
        :raises ValueError: for data that do not fit the model, eagerly and when tracing; with
            "counts" for a minibatch before :meth:`count_neighbors`.
        """
        X, Y = data
        sets = self._index_sets(X)
        # in q of all points the position of a point is its index
        return self._bound_of((X, Y), self._terms(X, sets, self._whole_q, sets))

    @public_method("the KL divergence")
    @check_shapes("return: []")
    def prior_kl(self, X: Any = None) -> tf.Tensor:
        """
        The KL terms of the objective.

        :param X: the rows ``[n, D]`` of a batch, whose neighborhoods count. With "chain" it may be
            left out: the terms of all M points then, O(M H^3), which is a KL.
        :raises ValueError: without X, for other weightings.
        """
        if X is None and self.kl_weighting != "chain":
            raise ValueError(
                f"prior_kl needs X for kl_weighting={self.kl_weighting!r}: each row has a KL of "
                "its own neighbors, and there is none of q(u) as a whole. Call prior_kl(X)."
            )
        q = self._whole_q
        if X is None:
            return tf.add_n([chain_kl(self.points, prior, q, of) for prior, of in self.priors])
        X = checks.require_matrix(X, "X", self.dtype)
        sets = self._index_sets(X)
        return self._terms(X, sets, q, sets).kl

    def _index_sets(self, X: tf.Tensor) -> IndexSets:
        """The inducing points that a batch is conditioned on, and the terms of a chain drawn."""
        if self.union is not None:
            return active_sets(self, X)
        iv, sets = self.points, []
        for kernel, _ in self._latents:
            sets.append([iv.training_neighbors(X, kernel)])
            if self.kl_weighting == "chain":
                sets[-1].append(iv.links(self._draw(X), kernel))
        return sets

    def _draw(self, X: tf.Tensor) -> tf.Tensor:
        """As many inducing points as the batch has rows, or all."""
        M, n = self.q_mu.shape[0], random_draws.num_rows(X)
        count = tf.minimum(n, M) if tf.is_tensor(n) else min(n, M)
        return subsampling.draw_indices(M, count)[0]

    def _bound_of(self, data: tuple[tf.Tensor, tf.Tensor], terms: Terms) -> tf.Tensor:
        """
        The objective in the docstring of the class, from the :meth:`_terms` of a batch; with
        "paper" and "counts" eq. (11), line 13 of algorithm 1.
        """
        X, _ = data
        prior_mean, function = self.mean_function(X), self.mean_function
        prior_mean = component_checks.require_mean(prior_mean, terms.mean, function)
        total = self._sum_over_rows(data, terms._replace(mean=terms.mean + prior_mean))
        return self._weight(X, X.dtype) * total - terms.kl

    def _terms(self, X: tf.Tensor, sets: IndexSets, q: GaussianRows, positions: IndexSets) -> Terms:
        """
        Terms with the prior mean excluded, and the penalty for the KL; lines 6 to 11 of algorithm 1
        where rows have neighbors of their own.

        :param sets: indices of inducing points, from :meth:`_index_sets`.
        :param q: q of all inducing points, or of the points in ``sets`` alone.
        :param positions: where in ``q`` each point of ``sets`` is.
        """
        parts = []
        for place, (prior, of) in enumerate(self.priors):
            I, *links = sets[place]
            q_I, *q_links = [q.take(indices, of) for indices in positions[place]]
            if self.union is not None:
                parts.append(union_terms(prior, X, I, q_I))
                continue
            if links:  # "chain"
                mean, var, residual = prior.conditional(X, I, q_I)
                scale = tf.cast(self.q_mu.shape[0] / tf.shape(links[0])[0], X.dtype)  # M / n_Z
                penalty = scale * tf.reduce_sum(prior.chain_terms(links[0], q_links[0]))
            else:
                mean, var, residual, kl = prior.conditional_and_kl(X, I, q_I)  # [n]: KL_i
                w = self._kl_weights(I, place, tf.shape(X)[0])
                penalty = self._weight(X, X.dtype) * tf.reduce_sum(w * kl)
            parts.append(Terms(mean, var, penalty, residual[:, None] + tf.zeros_like(mean)))
        return mixed_terms(self.kernel, parts)

    def _kl_weights(self, neighbors: tf.Tensor, latent: int, num_rows: Any) -> tf.Tensor:
        """
        ``w_i [n]`` of "paper" or "counts". Counts below 1 are taken as 1: rows that were not
        counted may have neighbors that none of the counted ones has.

        :param latent: index of the latent kernel.
        :param num_rows: rows in all if the model has no ``num_data``.
        """
        if self.kl_weighting == "paper":
            num_data = num_rows if self.num_data is None else self.num_data
            return tf.fill(tf.shape(neighbors)[:1], 1.0 / tf.cast(num_data, self.dtype))
        usage = counts.counts_at(self, neighbors, latent)  # [n, H]
        return tf.reduce_mean(1.0 / tf.maximum(tf.cast(usage, self.dtype), 1.0), axis=1)

    @property
    def priors(self) -> Sequence[tuple[NeighborPrior, slice]]:
        """The prior of each latent kernel, and the latent functions that have it."""
        Z = self.points.Z
        return [(NeighborPrior(kernel, Z, self.jitter), of) for kernel, of in self._latents]

    @property
    def _whole_q(self) -> GaussianRows:
        """q of all inducing variables."""
        values = [tf.convert_to_tensor(variable) for variable in self.row_variables]
        return self._q(values, tf.range(self.q_mu.shape[0]))

    def _q(self, values: Sequence[tf.Tensor], points: tf.Tensor) -> GaussianRows:
        """q of some points, from their rows of the row variables."""
        mean, second = values
        if self.q_factor is None:
            return GaussianRows(mean, tf.exp(second), None)
        lower = tf.range(second.shape[2]) <= points[:, None]  # rows of lower triangular matrices
        return GaussianRows(mean, None, second * tf.cast(lower, second.dtype)[:, None, :])

    def training_loss_closure(
        self, data: tuple[tf.Tensor, tf.Tensor] | Iterator, *, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """
        As :meth:`gpflow_sparse.models.VariationalModel.training_loss_closure`.

        :raises ValueError: with "chain" unless ``data`` are M rows or more: otherwise every call
            would return an estimate from other terms of the KL.
        """
        is_batch = isinstance(data, Iterator)
        num_rows = None if is_batch else self._require_data(data)[0].shape[0]
        if self.kl_weighting == "chain":
            M = self.q_mu.shape[0]
            if num_rows is None or num_rows < M:
                raise ValueError(
                    f"kl_weighting='chain' draws its terms in every call from fewer than {M} rows, "
                    "one for each inducing point, which an optimizer that compares values cannot "
                    "use: take gs.training.fit, or all rows at once."
                )
        counts.require_counted(self, counts.is_all(self, num_rows))
        return super().training_loss_closure(data, compile=compile)

    def _make_posterior(self, **options: Any) -> SparsePosterior:
        parts = self.kernel, self.inducing_variable, self.q_mu, LiveSqrt(self)
        options |= {"whiten": False, "jitter": self.jitter}
        if isinstance(self.kernel, MultioutputKernel):
            return MultioutputPosterior(*parts, part=NeighborPosterior, **options)
        return NeighborPosterior(*parts, **options)

    default_optimizer = "adam"
    """The row-wise optimizer that `training.fit` takes by default."""

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """Variables whose rows a step updates for some inducing points only."""
        parts = (self.q_mu, self.q_log_scale, self.q_factor)
        return tuple(part for part in parts if part is not None)

    @property
    def dense_variables(self) -> list[tf.Variable]:
        """All trainable variables but the row variables."""
        long = {variable.ref() for variable in self.row_variables}
        return [v for v in self.trainable_variables if v.ref() not in long]

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:  # type: ignore[override]
        """Trainable variables without ``usage``, which is not a parameter."""
        found = super().trainable_variables
        return tuple(variable for variable in found if variable is not self.usage)

    def _row_update(self, X: tf.Tensor, Y: tf.Tensor) -> partial_updates.RowUpdate:
        sets = self._index_sets(X)
        flat = tf.nest.flatten(sets)
        taken, positions = tf.unique(tf.concat([tf.reshape(part, [-1]) for part in flat], axis=0))
        pieces = tf.split(positions, [part.shape.num_elements() or tf.size(part) for part in flat])
        pieces = [
            tf.reshape(piece, tf.shape(part)) for piece, part in zip(pieces, flat, strict=True)
        ]
        positions = tf.nest.pack_sequence_as(sets, pieces)

        def loss(values: Sequence[tf.Tensor]) -> tf.Tensor:
            terms = self._terms(X, sets, self._q(values, taken), positions)
            return -(self._bound_of((X, Y), terms) + self.log_prior_density())

        return partial_updates.RowUpdate([(v, taken) for v in self.row_variables], loss)

    @property
    def can_look_ahead(self) -> bool:
        """Whether the neighbors of a later batch can be found while a step is taken."""
        iv, latents = self.points, self._latents
        return self.sums_over_rows and len(latents) == 1 and iv.searches_outside(latents[0][0])

    @property
    def knows_rows(self) -> bool:
        """Whether the neighbors of all rows of the last batch had been stored."""
        return self.points.knows_rows(self._latents[0][0])

    def look_ahead(self, X: tf.Tensor) -> tf.Tensor:
        """
        Find the neighbors of a later batch; `training.fit` calls it in a thread of its own.

        :param X: ``[n, D]``, the inputs of that batch.
        """
        return self.points.look_ahead(X, self._latents[0][0])

    def prepare_step(self, step: int, data: Any) -> None:
        """No work before a step, as other models with row-wise updates have it."""

    # training steps
    sparse_step = partial_updates.sparse_step
    step_gradients = partial_updates.step_gradients
    variational_parameters = property(partial_updates.variational_parameters)
    # counts of the training rows that have each point as a neighbor
    count_neighbors = counts.count_neighbors
    set_neighbors = counts.set_neighbors
    prepare_data = counts.prepare_data
    # q without an optimizer
    update_posterior = closed_form.update_posterior
    natural_step = closed_form.natural_step  # type: ignore[has-type]
    start_from_sites = closed_form.start_from_sites
    start_training = closed_form.start_training
    _add_rows = point_sites.add_rows

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        require_components(self)


class LiveSqrt(tf.Module):
    """
    The current ``q_sqrt`` of a model; a module, so that exports find its variables.

    No underscore before the name: TensorFlow refuses it for a module that is made in a graph.
    """

    def __init__(self, model: SWSGP) -> None:
        super().__init__()
        self.q_log_scale, self.q_factor = model.q_log_scale, model.q_factor
        self._compute = lambda: model.q_sqrt

    def __call__(self) -> Any:
        return self._compute()
