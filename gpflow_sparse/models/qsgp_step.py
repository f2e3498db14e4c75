"""What a step of a sub-sampled model draws, reads and computes."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.likelihoods import Gaussian

from gpflow_sparse.inference import chevron, subsampling
from gpflow_sparse.inference.chevron import Head, Tail
from gpflow_sparse.inference.subsampling import Anchor, Pair
from gpflow_sparse.models import estimates, literal, rowwise
from gpflow_sparse.models.anchors import Anchors, trained_hyperparameters
from gpflow_sparse.models.estimates import Batch, Drawn, Functions
from gpflow_sparse.models.rowwise import RowUpdate
from gpflow_sparse.validation import component_checks

Draws = Sequence[tf.Tensor]
"""Two draws of functions that do not know of each other ("literal" takes a third): places in the
tail, ``[k]`` each."""


class SubsampledStep(abc.ABC):
    """The part of :class:`~gpflow_sparse.models.QSGP` that sees a draw and not all functions."""

    likelihood: Any
    mean_function: Any
    num_data: Any
    num_latent_gps: int
    num_head: int
    basis_batch_size: int
    variance_reduction: str
    site_estimator: str
    anchors: Anchors | None
    q_mu: tf.Variable
    q_block: Any
    q_log_scale: tf.Variable
    q_columns: tf.Variable | None
    trainable_variables: Sequence[tf.Variable]
    _require_data: Callable[[Any], tuple[tf.Tensor, tf.Tensor]]
    default_optimizer = "adagrad"

    @property
    @abc.abstractmethod
    def basis(self) -> Any:
        """The basis that the weights belong to."""

    @property
    @abc.abstractmethod
    def head(self) -> Head:
        """q of the head."""

    @property
    def num_tail(self) -> int:
        """``m - h``, the functions that are sampled."""
        return int(self.basis.num_basis - self.num_head)

    @property
    def long_variables(self) -> tuple[tf.Variable, ...]:
        found = [self.q_mu, self.q_log_scale]
        if self.q_columns is not None:
            found.append(self.q_columns)
        if self._trains_precision:
            found.append(self.basis.log_precision)
        return tuple(found)

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
    def _trains_precision(self) -> bool:
        """Whether the prior's precision is moved by gradients."""
        return self.basis.precision == "diagonal" and self.basis.log_precision.trainable

    def _draw(self) -> Draws:
        number = 3 if self.variance_reduction == "literal" else 2
        size, count = self.num_tail, self.basis_batch_size
        return [subsampling.draw_indices(size, count) for _ in range(number)]

    def _row_update(self, X: tf.Tensor, Y: tf.Tensor) -> RowUpdate:
        draws = self._draw()
        taken, places = tf.unique(tf.concat(draws, axis=0))
        whole = tf.concat([tf.range(self.num_head), self.num_head + taken], axis=0)
        rows = [(self.q_mu, whole), (self.q_log_scale, taken)]
        if self.q_columns is not None:
            rows.append((self.q_columns, taken))
        if self._trains_precision:
            rows.append((self.basis.log_precision, whole))
        seen: list[Seen] = []

        def loss(values: Sequence[tf.Tensor]) -> tf.Tensor:
            head, precision, drawn = self._from_rows(values, whole, places)
            elbo, found = self._objective(X, Y, draws, head, precision, drawn, anchored=True)
            seen.append(found)
            return -(elbo + self.log_prior_density())  # type: ignore[attr-defined]

        def moved(changes: Sequence[tf.Tensor]) -> None:
            self._follow(changes, taken, places, seen[0])

        return RowUpdate(rows, loss, moved)

    def _from_rows(
        self, values: Sequence[tf.Tensor], whole: tf.Tensor, places: tf.Tensor
    ) -> tuple[Head, tf.Tensor, list[Drawn]]:
        """q of the head and of both draws, from the rows of the long variables that were read."""
        h, count = self.num_head, self.basis_batch_size
        mu, log_c = values[0], values[1]
        D = None if self.q_columns is None else values[2]
        if self._trains_precision:
            precision = tf.exp(values[-1])
        else:
            precision = self.basis.precision_diagonal(whole)
        tail = [mu[h:], log_c, D]
        drawn = []
        for at in tf.split(places, places.shape[0] // count):
            own = Tail(*(None if part is None else tf.gather(part, at) for part in tail))
            drawn.append(Drawn(own, tf.gather(precision[h:], at)))
        return Head(mu[:h], self.head.B), precision[:h], drawn

    def _elbo_from(self, X: tf.Tensor, Y: tf.Tensor, draws: Draws, *, anchored: bool) -> tf.Tensor:
        """The estimate that these draws give."""
        h = self.num_head
        drawn = []
        for places in draws:
            D = None if self.q_columns is None else tf.gather(self.q_columns, places)
            tail = Tail(tf.gather(self.q_mu, h + places), tf.gather(self.q_log_scale, places), D)
            drawn.append(Drawn(tail, self.basis.precision_diagonal(h + places)))
        precision = self.basis.precision_diagonal(tf.range(h))
        return self._objective(X, Y, draws, self.head, precision, drawn, anchored=anchored)[0]

    def _objective(
        self,
        X: tf.Tensor,
        Y: tf.Tensor,
        draws: Draws,
        head: Head,
        head_precision: tf.Tensor,
        drawn: Sequence[Drawn],
        *,
        anchored: bool,
    ) -> tuple[tf.Tensor, "Seen"]:
        """The elbo, and what was computed for it that the end of a step may need."""
        if self.variance_reduction == "literal":
            return literal.elbo(self, X, Y, draws, drawn), Seen(None, None)
        anchors = self.anchors if anchored else None
        if anchors is not None and anchors.is_empty:
            raise ValueError(
                "the support rows have not been taken yet: call "
                "model.prepare_step(0, lambda: data) first, as training.fit does."
            )
        if anchors is not None and self.variance_reduction == "tracked":
            X, Y = anchors.batch(X.shape[1], Y.shape[1])
        Phi, support = self._functions(X, draws, anchors)
        scale = tf.constant(self.num_tail / self.basis_batch_size, X.dtype)
        first, second = (chevron.tail_vectors(draw.tail) for draw in drawn)
        anchor, W = None, None
        if anchors is not None and support is not None:
            W = anchors.weights(X) if self.variance_reduction == "anchored" else None
            anchor = anchors.anchor(support, (first, second), scale, W)
        terms = self._expectations(X, Y, Phi, head, drawn, (first, second), scale, anchor, support)
        batch_weight = self.num_data / tf.cast(tf.shape(X)[0], X.dtype)
        expected = batch_weight * tf.reduce_sum(terms)
        if anchor is not None and self.variance_reduction == "eq3":
            expected = expected + self._printed_control(anchor)
        dense = self.basis.precision == "dense"
        kl = estimates.kl_term(head, head_precision, drawn, scale, dense=dense)
        if dense:
            kl = kl + 0.5 * self._dense_penalty(draws, drawn, scale, anchors, support)
        return expected - kl, Seen(Phi, support)

    def _functions(
        self, X: tf.Tensor, draws: Draws, anchors: Anchors | None
    ) -> tuple[Functions, Pair | None]:
        """Functions of the head and of both draws at X, and of both draws at the anchors' rows."""
        h, count = self.num_head, self.basis_batch_size
        chosen = h + tf.concat(draws, axis=0)
        every = tf.concat([tf.range(h), chosen], axis=0)
        if anchors is None:
            return _split(self.basis(X, every), h, count), None
        own = self.variance_reduction == "tracked"
        if trained_hyperparameters(self.basis):  # the anchors' functions are of another time
            at_rows = anchors.basis(anchors.rows(X.shape[1]), chosen)
            return _split(self.basis(X, every), h, count), (at_rows[:, :count], at_rows[:, count:])
        rows = X if own else tf.concat([X, anchors.rows(X.shape[1])], axis=0)
        values = self.basis(rows, every)
        Phi = _split(values[: tf.shape(X)[0]], h, count)
        at_rows = values[:, h:] if own else values[tf.shape(X)[0] :, h:]
        return Phi, (at_rows[:, :count], at_rows[:, count:])

    def _expectations(
        self,
        X: tf.Tensor,
        Y: tf.Tensor,
        Phi: Functions,
        head: Head,
        drawn: Sequence[Drawn],
        vectors: Pair,
        scale: tf.Tensor,
        anchor: Anchor | None,
        support: Pair | None,
    ) -> tf.Tensor:
        """``E_q[log p(y | f)]`` of each row."""
        batch = Batch(X, Y, self._mean(X))
        corrector = None if self.variance_reduction == "eq3" else anchor
        raw, value = estimates.projections(Phi, head, vectors, scale, corrector)
        spread = estimates.spreads(Phi, drawn, scale)
        if isinstance(self.likelihood, Gaussian):
            return estimates.gaussian_terms(self.likelihood, batch, raw, value, spread)
        if self.site_estimator == "strict":
            inflated = (scale * spread[0], scale * spread[1])
            return estimates.site_terms(self.likelihood, batch, raw, inflated, None)
        excess = None
        if self.site_estimator == "absorbed":
            W = None if anchor is None else anchor.weights
            at_rows = None if anchor is None else support
            excess = estimates.excesses(
                Phi, vectors, self.num_tail, self.num_latent_gps, at_rows, W
            )
        # an anchor's gradient flows through the other draw, which must have no part in the rest
        beside = (spread[1], spread[0]) if corrector is None else spread
        return estimates.site_terms(self.likelihood, batch, value, beside, excess)

    def _mean(self, X: tf.Tensor) -> tf.Tensor:
        """The mean function, ``[n, L]``."""
        latent = tf.zeros([tf.shape(X)[0], self.num_latent_gps], X.dtype)
        value = self.mean_function(X)
        return latent + component_checks.require_mean(value, latent, self.mean_function)

    def _printed_control(self, anchor: Anchor) -> tf.Tensor:
        """Eq. (3) of the paper as it enters the elbo."""
        rows = tf.cast(tf.shape(anchor.exact)[0], anchor.exact.dtype)
        control = tf.reduce_sum(subsampling.printed_control_variate(anchor))
        return -0.5 * self.num_data / (rows * self.likelihood.variance) * control

    def _dense_penalty(
        self,
        draws: Draws,
        drawn: Sequence[Drawn],
        scale: tf.Tensor,
        anchors: Anchors | None,
        support: Pair | None,
    ) -> tf.Tensor:
        """``mu^T S mu``."""
        first, second = (draw.tail.mu for draw in drawn)
        pair = None
        if anchors is not None and support is not None:
            centers = (tf.gather(self.basis.centers, places) for places in draws)
            at_first, at_second = (
                anchors.anchor(support, (first, second), scale, anchors.weights(rows))
                for rows in centers
            )
            pair = (at_second, at_first)
        precision = self.basis.prior_precision(draws[1], draws[0])
        return estimates.dense_penalty(precision, (first, second), scale, pair)

    def _follow(
        self,
        changes: Sequence[tf.Tensor],
        taken: tf.Tensor,
        places: tf.Tensor,
        seen: "Seen",
    ) -> None:
        """Weights have moved: keep what the anchors know of them exact."""
        if self.anchors is None or seen.support is None:
            return
        D = None if self.q_columns is None else changes[2]
        vectors = chevron.tail_vectors(Tail(changes[0][self.num_head :], changes[1], D))
        first = tf.gather(first_places(places, tf.size(taken)), places)
        once = tf.cast(first == tf.range(tf.size(places)), vectors.dtype)[:, None]
        spread = tf.gather(vectors, places) * once  # [2 k, Q], what both draws took counted once
        count = self.basis_batch_size
        self.anchors.follow(seen.support, (spread[:count], spread[count:]))


class Seen(NamedTuple):
    """Functions that a step has computed."""

    batch: Functions | None
    """At the rows of the batch."""
    support: Pair | None
    """Of both draws at the rows of the anchors, ``[p, k]``."""


def first_places(places: tf.Tensor, num_taken: tf.Tensor) -> tf.Tensor:
    """Where in ``places [2 k]`` each of the functions taken comes up first, ``[num_taken]``."""
    return tf.math.unsorted_segment_min(tf.range(tf.size(places)), places, num_taken)


def _split(values: tf.Tensor, h: int, count: int) -> Functions:
    return Functions(values[:, :h], (values[:, h : h + count], values[:, h + count :]))
