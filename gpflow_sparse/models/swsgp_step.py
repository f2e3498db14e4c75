"""What a step of a model with neighbors sees, reads and computes."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel, MultioutputKernel

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.inference import subsampling
from gpflow_sparse.inference.neighborhoods import Rows
from gpflow_sparse.models import rowwise, swsgp_options
from gpflow_sparse.models.rowwise import RowUpdate
from gpflow_sparse.posteriors import latent_kernels, mixed
from gpflow_sparse.posteriors.neighbor_terms import NeighborTerms
from gpflow_sparse.validation import component_checks

Moments = tuple[tf.Tensor, tf.Tensor]
# Numbers in the neighborhoods of one block of inducing points.
_BLOCK = 2**20


class Seen(NamedTuple):
    """The inducing points, or the rows of q, that a batch reads for one latent kernel; int32."""

    neighbors: tf.Tensor | None
    """``[n, H]``; None for one set."""
    active: tf.Tensor | None
    """``[m]``, the one set of all rows."""
    drawn: tf.Tensor | None
    """``[n_Z]``, whose terms of the chain are taken."""
    before: tf.Tensor | None
    """``[n_Z, H]``, their predecessors."""

    def existing(self) -> "Seen":
        """With the point itself in the place of a predecessor that there is not."""
        if self.drawn is None or self.before is None:
            return self
        return self._replace(before=tf.where(self.before >= 0, self.before, self.drawn[:, None]))

    def mapped(self, places: Callable[[tf.Tensor], tf.Tensor]) -> "Seen":
        """The same with every place replaced."""
        return Seen(*(None if part is None else places(part) for part in self))


class NeighborStep:
    """The part of :class:`~gpflow_sparse.models.SWSGP` that sees some inducing points of many."""

    default_optimizer = "adam"

    kernel: Kernel
    likelihood: Any
    mean_function: Any
    inducing_variable: NeighborInducingPoints
    num_data: Any
    num_latent_gps: int
    kl_weighting: str
    union: int | None
    jitter: float | None
    usage: tf.Variable
    q_mu: tf.Variable
    q_log_scale: tf.Variable | None
    q_factor: tf.Variable | None
    _weight: Callable[[tf.Tensor, tf.DType], tf.Tensor]
    _require_data: Callable[[Any], tuple[tf.Tensor, tf.Tensor]]

    def prepare_step(self, step: int, data: Callable[[], tuple[tf.Tensor, tf.Tensor]]) -> None:
        """Nothing: see :meth:`prepare_data`."""

    @property
    def can_look_ahead(self) -> bool:
        """Whether the neighbors of a later batch can be found while a step is taken."""
        iv, latents = self.inducing_variable, latent_kernels(self.kernel, self.num_latent_gps)
        one = self.union is None and len(latents) == 1 and not iv.num_remembered
        return one and iv.searches_outside(latents[0][0])

    def look_ahead(self, X: tf.Tensor) -> tf.Tensor:
        """
        Find the neighbors of a later batch; `training.fit` does it in a thread of its own.

        :param X: ``[n, D]``, the inputs of that batch.
        """
        return self.inducing_variable.look_ahead(X, latent_kernels(self.kernel)[0][0])

    @property
    def long_variables(self) -> tuple[tf.Variable, ...]:
        return tuple(
            part for part in (self.q_mu, self.q_log_scale, self.q_factor) if part is not None
        )

    @property
    def small_variables(self) -> list[tf.Variable]:
        """All trainable variables but the long ones."""
        long = {variable.ref() for variable in self.long_variables}
        return [v for v in self.trainable_variables if v.ref() not in long]

    def sparse_step(
        self,
        data: tuple[tf.Tensor, tf.Tensor],
        optimizer: Any,
        *,
        move: Any = True,
        scale: float = 1.0,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        One training step on the batch ``(X [n, D], Y [n, P])``; see
        :func:`gpflow_sparse.models.rowwise.sparse_step`.
        """
        update = self._row_update(*self._require_data(data))
        return rowwise.sparse_step(update, self.small_variables, optimizer, move=move, scale=scale)

    def step_gradients(
        self, data: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, rowwise.Gradients]:
        """The loss and the gradients of a step; see ``rowwise.step_gradients``."""
        update = self._row_update(*self._require_data(data))
        return rowwise.step_gradients(update, self.small_variables)

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:  # type: ignore[override]
        """Without the counts of users, which are no parameters, even if all is set trainable."""
        found = super().trainable_variables  # type: ignore[misc]
        return tuple(variable for variable in found if variable is not self.usage)

    @property
    def rows(self) -> Rows:
        """q of all inducing variables."""
        values = [tf.convert_to_tensor(part) for part in self.long_variables]
        return self._rows(values, tf.range(self.q_mu.shape[0]))

    def _rows(self, values: Sequence[tf.Tensor], taken: tf.Tensor) -> Rows:
        """q of the points taken, from these rows of the long variables."""
        found = iter(values)
        mean = next(found)
        scales = None if self.q_log_scale is None else tf.exp(next(found))
        factors = None if self.q_factor is None else next(found)
        if scales is None and factors is not None:  # rows of lower triangular matrices
            lower = tf.range(factors.shape[2]) <= taken[:, None]
            factors = factors * tf.cast(lower, factors.dtype)[:, None, :]
        return Rows(mean, scales, factors)

    def _look(self, X: tf.Tensor) -> list[Seen]:
        """Which points a batch sees, for each latent kernel."""
        iv, found = self.inducing_variable, []
        for kernel, _ in latent_kernels(self.kernel, self.num_latent_gps):
            if self.union is not None:
                found.append(Seen(None, iv.ranked(X, kernel, self.union), None, None))
                continue
            neighbors = iv.neighbors(X, kernel)
            drawn, before = None, None
            if self.kl_weighting == "chain":
                drawn = self._draw(X)
                before = iv.predecessors(drawn, kernel)
            found.append(Seen(neighbors, None, drawn, before))
        return found

    def _draw(self, X: tf.Tensor) -> tf.Tensor:
        """As many inducing points as the batch has rows, or all."""
        num_inducing = self.q_mu.shape[0]
        if X.shape[0] is not None:
            return subsampling.draw_indices(num_inducing, min(X.shape[0], num_inducing))
        return subsampling.draw_indices(num_inducing, tf.minimum(tf.shape(X)[0], num_inducing))

    def _row_update(self, X: tf.Tensor, Y: tf.Tensor) -> RowUpdate:
        seen = self._look(X)
        existing = [one.existing() for one in seen]
        parts = [part for one in existing for part in one if part is not None]
        taken, places = tf.unique(tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0))
        pieces = iter(tf.split(places, [tf.size(part) for part in parts]))
        rows = [
            one.mapped(lambda part: tf.reshape(next(pieces), tf.shape(part))) for one in existing
        ]

        def loss(values: Sequence[tf.Tensor]) -> tf.Tensor:
            elbo = self._objective(X, Y, seen, self._rows(values, taken), rows)
            return -(elbo + self.log_prior_density())  # type: ignore[attr-defined]

        return RowUpdate([(v, taken) for v in self.long_variables], loss)

    def natural_step(self, data: tuple[tf.Tensor, tf.Tensor], gamma: float = 0.1) -> tf.Tensor:
        """
        A natural-gradient step of the means and variances that a batch sees, for "diag".

        With ``W_j`` the sum of the KL weights of the rows that see j, and gradients of the loss,

            1 / s_j <- 1 / s_j + 2 gamma (dLoss/ds_j) / W_j,
            m_j     <- m_j - gamma s_j (dLoss/dm_j) / W_j:

        gamma = 1 on all rows is the closed form of s for Gaussian noise, and a Jacobi step of the
        means, for which gamma of about 0.5 is safe. On a minibatch each row speaks for all rows
        that see its points: take gamma near one over their number in the batch. Where the
        likelihood is not log-concave, 1 / s_j shrinks by at most ``1 - gamma``.

        :param data: ``(X [n, D], Y [n, P])``.
        :param gamma: above 0, at most 1.
        :return: the loss before the step.
        :raises ValueError: for another covariance, "chain" or a union.
        """
        swsgp_options.require_natural(self, gamma)
        X, Y = self._require_data(data)
        assert self.q_log_scale is not None
        with component_checks.blame(self):  # type: ignore[arg-type]
            update = self._row_update(X, Y)
            loss, (by_mean, by_log_scale), _ = update.gradients([])
        taken = update.rows[0][1]
        weights = tf.gather(self._summed_weights(X), taken)
        log_scale = tf.gather(self.q_log_scale, taken)
        # d/dlog sigma = 2 s d/ds
        factor = 1.0 + gamma * tf.maximum(by_log_scale / weights, -1.0)
        log_scale -= 0.5 * tf.math.log(tf.maximum(factor, 1e-6))
        change = gamma * tf.exp(2.0 * log_scale) * by_mean / weights
        component_checks.require_finite_result(self, "the natural step", log_scale, change)
        self.q_log_scale.scatter_update(tf.IndexedSlices(log_scale, taken))
        self.q_mu.scatter_sub(tf.IndexedSlices(change, taken))
        return loss

    def _summed_weights(self, X: tf.Tensor) -> tf.Tensor:
        """``W [M, L]``, a row of the batch counting for all that it stands for."""
        columns = []
        for i, seen in enumerate(self._look(X)):
            w = self._weight(X, X.dtype) * self._kl_weights(X, seen.neighbors, i)
            each = tf.repeat(w, tf.shape(seen.neighbors)[1])
            flat = tf.reshape(seen.neighbors, [-1])
            columns.append(tf.math.unsorted_segment_sum(each, flat, self.q_mu.shape[0]))
        latents = latent_kernels(self.kernel, self.num_latent_gps)
        widths = [of.stop - of.start for _, of in latents]
        return tf.repeat(tf.stack(columns, axis=1), widths, axis=1)

    def _objective(
        self, X: tf.Tensor, Y: tf.Tensor, seen: list[Seen], q: Rows, rows: list[Seen]
    ) -> tf.Tensor:
        """The elbo of a batch."""
        mean, var, penalty = self._terms(X, seen, q, rows)
        prior_mean = self.mean_function(X)
        mean += component_checks.require_mean(prior_mean, mean, self.mean_function)
        expectations = self.likelihood.variational_expectations(X, mean, var, Y)  # [n]
        return self._weight(X, mean.dtype) * tf.reduce_sum(expectations) - penalty

    def _terms(
        self, X: tf.Tensor, seen: list[Seen], q: Rows, rows: list[Seen]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Mean and variance of f, prior mean excluded, and what takes the place of the KL."""
        moments, penalty = [], tf.zeros([], X.dtype)
        latents = latent_kernels(self.kernel, self.num_latent_gps)
        for i, (kernel, columns) in enumerate(latents):
            terms = NeighborTerms(kernel, self.inducing_variable, self.jitter)
            found, more = self._terms_of(terms, X, seen[i], _columns(q, columns), rows[i], i)
            moments.append(found)
            penalty += more
        if isinstance(self.kernel, MultioutputKernel):
            mean, var = mixed(self.kernel, moments, False, False)
        else:
            mean, var = moments[0]
        return mean, var, penalty

    def _terms_of(
        self, terms: NeighborTerms, X: tf.Tensor, seen: Seen, q: Rows, rows: Seen, place: int
    ) -> tuple[Moments, tf.Tensor]:
        """:meth:`_terms` of one latent kernel."""
        if seen.active is not None:
            union = terms.union(X, seen.active, q, rows.active)
            return (union.mean(), union.variances(terms.kernel(X, full_cov=False))), union.kl()
        if seen.drawn is not None:
            scale = self.q_mu.shape[0] / tf.shape(seen.drawn)[0]
            chain = terms.chained(seen.drawn, seen.before, q, (rows.drawn, rows.before))
            penalty = tf.cast(scale, X.dtype) * tf.reduce_sum(chain)
            return terms.moments(X, seen.neighbors, q, rows.neighbors), penalty
        local = terms.local(X, seen.neighbors, q, rows.neighbors)
        weights = self._kl_weights(X, seen.neighbors, place)
        penalty = self._weight(X, X.dtype) * tf.reduce_sum(weights * local.kl)
        return (local.mean, local.var), penalty

    def _chain_in_blocks(self) -> tf.Tensor:
        """All terms of the chain."""
        M, q, total = self.q_mu.shape[0], self.rows, tf.zeros([], self.q_mu.dtype)
        size = max(1, _BLOCK // self.inducing_variable.num_neighbors**2)
        for kernel, columns in latent_kernels(self.kernel, self.num_latent_gps):
            terms = NeighborTerms(kernel, self.inducing_variable, self.jitter)
            of_kernel = _columns(q, columns)
            for start in range(0, M, size):
                drawn = tf.range(start, min(start + size, M))
                seen = Seen(None, None, drawn, self.inducing_variable.predecessors(drawn, kernel))
                rows = seen.existing()
                chain = terms.chained(drawn, seen.before, of_kernel, (drawn, rows.before))
                total += tf.reduce_sum(chain)
        return total

    def _kl_weights(
        self, X: tf.Tensor, neighbors: tf.Tensor, place: int, num_rows: int | None = None
    ) -> tf.Tensor:
        """
        ``w_i [n]``.

        :param num_rows: rows in all if the model has no ``num_data``; None for those of X.
        """
        if self.kl_weighting == "paper":
            batch = tf.shape(X)[0]
            total = batch if num_rows is None else num_rows
            num_data = total if self.num_data is None else self.num_data
            return tf.fill([batch], 1.0 / tf.cast(num_data, X.dtype))
        counts = tf.gather(self.usage[:, place], neighbors)  # [n, H]
        return tf.reduce_mean(1.0 / tf.maximum(tf.cast(counts, X.dtype), 1.0), axis=1)


def _columns(q: Rows, columns: slice) -> Rows:
    """Of some latent functions."""
    return Rows(*(None if part is None else part[:, columns] for part in q))
