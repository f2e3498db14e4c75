"""Quadruply stochastic Gaussian processes: training steps at a cost independent of N and of m."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.utilities import triangular

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.inference import chevron, subsampling
from gpflow_sparse.inference.chevron import Head, Tail
from gpflow_sparse.inference.subsampling import Batch, Draw, Functions, KnownProjections, Pair
from gpflow_sparse.kernels import Basis
from gpflow_sparse.models import partial_updates
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.models.qsgp import closed_form, options
from gpflow_sparse.models.qsgp.posterior import ChevronPosterior
from gpflow_sparse.models.qsgp.step import ControlRows, SubsampledStep, functions_at
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method


class QSGP(VariationalModel):
    r"""
    Variational inference over the weights of a finite basis, with steps on a sample of functions.

    ``f(x) = phi(x)^T w``, ``w ~ N(0, S^-1)`` with S the basis's prior precision, and ``q(w) =
    N(mu, C C^T)``. The objective is a sum over rows and, in its square, over pairs of functions:
    sampling ``batch_size`` rows and twice ``basis_batch_size`` functions estimates it, and its
    gradient, without bias for Gaussian noise. Evans and Nair, "Quadruply Stochastic Gaussian
    Processes" (2020), theorems 1 and 2, in the forms with less variance that
    ``gpflow_sparse.inference.subsampling`` and ``docs/methods/qsgp.md`` explain; other likelihoods
    by their theorem 3, corrected.

    The covariance factor is ``C = [[B, 0], [D, diag(c)]]``. The first h functions, the *head*, are
    taken in every step and have a dense B; the rest, the *tail*, is sampled.

    ========================  =====  ========  ======================================
    ``covariance``            h      D         elements, per latent function
    ========================  =====  ========  ======================================
    "diag"                    0                2 m
    "block"                   any    zero      2 m + h^2
    "chevron"                 any    dense     (2 + h) m
    ========================  =====  ========  ======================================

    Time per step of n rows, k sampled functions, p control rows, and features of cost d each:
    O((n + p) (h + k) (d + 1 + h)), with "block" O((n + p) (h + k) (d + 1) + n h^2); nothing grows
    with N or m. Starting, prediction and :meth:`exact_elbo` cost O(m) per row.

    **A step** (:func:`~gpflow_sparse.models.partial_updates.sparse_step`, after
    :meth:`prepare_step`) takes two fresh draws of k functions of the tail each. It reads and writes
    the rows of the head and of the functions drawn in ``q_mu``, the rows of the functions drawn in
    ``q_log_scale`` and ``q_columns``, the rows of both in ``basis.log_precision`` if it is trained,
    :attr:`dense_variables` in full (``q_block`` and the trainable parameters of basis, likelihood
    and mean function), and the optimizer's slots of all these and its ``iterations``. It writes
    ``values`` of the control rows, ``anchors``, and reads their ``X`` and ``factor``, and if
    hyperparameters are trained the copy of the basis. The draws of functions are the only random
    ones, by :func:`~gpflow_sparse.inference.subsampling.draw_indices`.

    A mean-field q over many random features has almost the prior's variance, which biases learned
    hyperparameters: where they are learned, or variances matter, take
    :class:`~gpflow_sparse.bases.Hybrid` (``docs/methods/qsgp.md``).
    """

    _takes_no_rows = "its q has no covariance of all pairs of weights"
    default_optimizer = "adagrad"
    num_data: Any  # always an integer here

    def __init__(
        self,
        basis: FiniteBasis,
        likelihood: Likelihood,
        *,
        num_data: int,
        basis_batch_size: int,
        covariance: str | None = None,
        num_dense_columns: int | None = None,
        variance_reduction: str = "anchored",
        mean_function: MeanFunction | None = None,
        num_latent_gps: int = 1,
        num_control_rows: int = 500,
        support: Any = None,
        augmentation: Any = None,
    ) -> None:
        """
        :param basis: m functions. With a dense prior precision
            (:class:`~gpflow_sparse.bases.KernelDictionary`) its hyperparameters are set not
            trainable, ``covariance`` is "diag", and :meth:`elbo` lacks ``log |S| / 2``.
        :param likelihood: any GPflow likelihood.
        :param num_data: N, the number of training rows.
        :param basis_batch_size: k, the functions in each of a step's two draws from the tail.
            ``k = m - h`` takes all of them, so that only the rows are random. The noise
            of the sampled mean has variance ``|v|^2 (1 / k - 1 / m)`` times the kernel's, v being
            the whitened mean: take k well above ``|v|^2``.
        :param covariance: see above; None for "block" with a basis whose leading functions belong
            in every step, and "diag" with others.
        :param num_dense_columns: h; None for the number of leading functions of the basis.
        :param variance_reduction: variance reduction of the gradients, see
            ``docs/methods/qsgp.md``. "anchored": each projection is corrected by its known error at
            the control rows. "none".
        :param mean_function: added to the prior mean; zero by default.
        :param num_latent_gps: number of latent functions L, each with its own weights.
        :param num_control_rows: number of rows of the first batch that become control rows.
        :param support: given control rows ``[p, D]``.
        :param augmentation: ``X [N, D]``, all training inputs: predictions then have one more
            function at each test point, which restores the prior's variance far from the data
            (proposition 4; dense prior precision, Gaussian noise).
        :raises ValueError: for arguments of a wrong kind, or that exclude each other.
        """
        checks.require_count(num_data, "num_data")
        super().__init__(
            Basis(basis),
            likelihood,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            num_data=num_data,
        )
        self.covariance, self.num_head = options.require_covariance(
            basis, covariance, num_dense_columns
        )
        self.variance_reduction = options.require_variance_reduction(variance_reduction)
        self.basis_batch_size = options.require_draw_size(basis_batch_size, self.num_tail)
        if basis.precision == "dense":
            gpflow.utilities.set_trainable(basis, False)
        h, L, dtype = self.num_head, self.num_latent_gps, basis.dtype
        prior_sd = tf.sqrt(1.0 / basis.precision_diagonal())  # [m]
        self.q_mu = tf.Variable(tf.zeros([basis.num_basis, L], dtype))
        self.q_log_scale = tf.Variable(tf.tile(tf.math.log(prior_sd[h:])[:, None], [1, L]))
        self.q_block, self.q_columns = None, None
        if h:
            blocks = np.repeat(np.diag(prior_sd[:h].numpy())[None], L, axis=0)
            self.q_block = Parameter(blocks, transform=triangular(), dtype=dtype)
        if self.covariance == "chevron":
            self.q_columns = tf.Variable(tf.zeros([self.num_tail, L, h], dtype))
        self.num_control_rows = checks.require_count(num_control_rows, "num_control_rows")
        self.support = options.require_rows(support, "support", basis)
        options.require_augmentation(augmentation, basis, likelihood)
        self.augmentation = options.require_rows(augmentation, "augmentation", basis)
        self.anchors = None
        if self.variance_reduction == "anchored":
            num_vectors = L * (1 + h) if self.q_columns is not None else L
            self.anchors = ControlRows(basis, h, num_vectors)
        self._require_parts(self.input_dim)

    @property
    def basis(self) -> FiniteBasis:
        """The basis that the weights belong to."""
        if not isinstance(self.kernel, Basis):
            raise ValueError(
                "kernel must be the one the model was built with, gs.kernels.Basis(basis); got "
                f"{type(self.kernel).__name__}. Build a new model for another kernel."
            )
        return self.kernel.basis

    @property
    def input_dim(self) -> int | None:
        return self.basis.input_dim

    @property
    def dtype(self) -> tf.DType:
        return getattr(self.q_mu, "dtype", gpflow.default_float())

    @property
    def num_tail(self) -> int:
        """``m - h``, the number of functions that are sampled."""
        return int(self.basis.num_basis - self.num_head)

    @property
    def num_determinant(self) -> int:
        """Number of functions over which the KL has a determinant: all or none."""
        return int(self.basis.num_basis) if self.basis.precision == "dense" else 0

    @property
    def head(self) -> Head:
        """q of the head."""
        empty = tf.zeros([self.num_latent_gps, 0, 0], self.dtype)
        B = empty if self.q_block is None else tf.convert_to_tensor(self.q_block)
        return Head(self.q_mu[: self.num_head], B)

    @property
    def tail(self) -> Tail:
        """q of the whole tail."""
        D = None if self.q_columns is None else tf.convert_to_tensor(self.q_columns)
        return Tail(self.q_mu[self.num_head :], tf.convert_to_tensor(self.q_log_scale), D)

    @property
    def trains_precision(self) -> bool:
        """Whether the prior precision of the weights is trained by gradients."""
        return self.basis.precision == "diagonal" and self.basis.log_precision.trainable

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """The variables whose rows a step updates only in part."""
        precision = self.basis.log_precision if self.trains_precision else None
        found = (self.q_mu, self.q_log_scale, self.q_columns, precision)
        return tuple(variable for variable in found if variable is not None)

    @property
    def dense_variables(self) -> list[tf.Variable]:
        """All other trainable variables, without the rows of data that the model keeps."""
        rows = [value for value in (self.support, self.augmentation) if value is not None]
        rows += [] if self.anchors is None else self.anchors.variables
        others = {variable.ref() for variable in (*self.row_variables, *rows)}
        return [v for v in self.trainable_variables if v.ref() not in others]

    @public_method("the elbo")
    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    def elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        Estimate of the evidence lower bound from a batch and two fresh draws of functions.

        Value and gradient are unbiased for Gaussian noise. ``variance_reduction`` is not used: it
        has to follow every change of the weights, as in :meth:`sparse_step`.

        :param data: ``(X [n, D], Y [n, P])``.
        :return: scalar, in nats.
        :raises ValueError: for data that do not fit the model, eagerly and when tracing.
        """
        step = SubsampledStep(self, self._draw(), unique=False)
        values = [tf.gather(variable, indices) for variable, indices in step.row_indices]
        X, Y = data
        return self._estimate(X, Y, *step.read(values), None)[0]

    def _draw(self) -> Sequence[tf.Tensor]:
        """Two independent draws of k functions of the tail, i and j in the paper."""
        return subsampling.draw_indices(self.num_tail, self.basis_batch_size, 2)

    def _estimate(
        self,
        X: tf.Tensor,
        Y: tf.Tensor,
        head: Head,
        head_precision: tf.Tensor,
        draws: Sequence[Draw],
        anchors: ControlRows | None,
    ) -> tuple[tf.Tensor, Functions]:
        """
        Estimate of the elbo from n rows and two draws of k functions; theorems 1 and 2.

            N/n sum_batch E[log p(y | f)]  -  KL of the head  -  (m - h)/k sum_drawn KL,
            F = Phi_head mu_head + (m - h)/k Phi_drawn mu_drawn

        with F, and the projections of the dense columns of C, from each draw, so that a product of
        both estimates a square.

        :return: the estimate, and the functions that it was computed from.
        """
        Phi = functions_at(self.basis, self.num_head, X, draws, anchors)
        tail_scale = tf.constant(self.num_tail / self.basis_batch_size, X.dtype)  # (m - h) / k
        V = tuple(chevron.tail_vectors(draw.tail) for draw in draws)  # [mu, D]  [k, L (1 + h)]
        known = None
        if anchors is not None:
            W = anchors.regression(X)
            known = anchors.projections(Phi.support, V, tail_scale, W)  # type: ignore[arg-type]
        terms = self._expectations(X, Y, Phi, head, draws, V, tail_scale, known)  # [n]
        elbo = self.num_data / tf.cast(tf.shape(X)[0], X.dtype) * tf.reduce_sum(terms)
        dense = self.basis.precision == "dense"
        elbo -= subsampling.prior_kl(head, head_precision, draws, tail_scale, dense=dense)
        if dense:
            elbo -= 0.5 * self._dense_quadratic(draws, tail_scale, anchors, Phi)
        return elbo, Phi

    def _expectations(
        self,
        X: tf.Tensor,
        Y: tf.Tensor,
        Phi: Functions,
        head: Head,
        draws: Sequence[Draw],
        V: Pair,
        tail_scale: tf.Tensor,
        known: KnownProjections | None,
    ) -> tf.Tensor:
        """``E_q[log p(y | f)]`` of each row; for non-Gaussian noise by theorem 3, corrected."""
        batch = self._batch(X, Y)
        raw, F = subsampling.projections(Phi, head, V, tail_scale, known)
        spread = subsampling.spreads(Phi, draws, tail_scale)  # Phi^2 c^2
        if isinstance(self.likelihood, Gaussian):
            return subsampling.gaussian_expectations(self.likelihood, batch, raw, F, spread)
        if known is None:
            # Mean and variance of a row from different draws, so that the gradient of their
            # product is unbiased. A corrected mean has its gradient from the other draw already.
            spread = (spread[1], spread[0])
        return subsampling.site_expectations(self.likelihood, batch, F, spread)

    def _batch(self, X: tf.Tensor, Y: tf.Tensor) -> Batch:
        latent = tf.zeros([tf.shape(X)[0], self.num_latent_gps], X.dtype)
        mean = component_checks.require_mean(self.mean_function(X), latent, self.mean_function)
        return Batch(X, Y, latent + mean)

    def _dense_quadratic(
        self,
        draws: Sequence[Draw],
        tail_scale: tf.Tensor,
        anchors: ControlRows | None,
        Phi: Functions,
    ) -> tf.Tensor:
        """``mu^T S mu`` for a prior precision that is not diagonal."""
        # places in the tail are indices of the basis here: a dense precision goes with h = 0
        it, jt = (draw.indices for draw in draws)
        means = draws[0].tail.mu, draws[1].tail.mu
        pair = None
        if anchors is not None:
            # S[i, :] mu is the tail at center i
            centers = (tf.gather(self.basis.centers, indices) for indices in (jt, it))
            pair = tuple(
                anchors.projections(Phi.support, means, tail_scale, anchors.regression(Z))  # type: ignore[arg-type]
                for Z in centers
            )
        S = self.basis.prior_precision(jt, it)
        return subsampling.dense_quadratic(S, means, tail_scale, pair)  # type: ignore[arg-type]

    sparse_step = partial_updates.sparse_step
    step_gradients = partial_updates.step_gradients
    variational_parameters = property(partial_updates.variational_parameters)
    update_covariance = closed_form.update_covariance
    update_mean = closed_form.update_mean

    def _row_update(self, X: tf.Tensor, Y: tf.Tensor) -> partial_updates.RowUpdate:
        step, computed = SubsampledStep(self, self._draw()), []

        def loss(values: Sequence[tf.Tensor]) -> tf.Tensor:
            elbo, Phi = self._estimate(X, Y, *step.read(values), self.anchors)
            computed.append(Phi)
            return -(elbo + self.log_prior_density())

        def after(changes: Sequence[tf.Tensor], averages: Sequence[tf.Tensor]) -> None:
            self._after_step(step, changes, computed[0], averages)

        def averages() -> Sequence[tf.Tensor]:
            return self._averages(computed[0])

        return partial_updates.RowUpdate(step.row_indices, loss, after, averages)

    def _averages(self, Phi: Functions) -> Sequence[tf.Tensor]:
        """Means over the rows of the batch that :meth:`_after_step` needs."""
        return []

    def _after_step(
        self,
        step: SubsampledStep,
        changes: Sequence[tf.Tensor],
        Phi: Functions,
        averages: Sequence[tf.Tensor],
    ) -> None:
        """Update the projections at the control rows after a change of the weights."""
        if self.anchors is not None and Phi.support is not None:
            self.anchors.follow(Phi.support, step.tail_changes(changes))

    def prepare_step(self, step: int, data: Callable[[], tuple[tf.Tensor, tf.Tensor]]) -> None:
        """
        Take control rows before step 0, or before the first call. Compute their projections again,
        O(p m), once the hyperparameters have changed by a twentieth (or at all, if they are not
        trained), and every 10,000 steps against rounding.

        `training.fit` calls it. After an assignment to the weights, call ``prepare_step(0, data)``.

        :param data: returns the batch of this step.
        :raises ValueError: for a step that is not a number of at least 0, or data that do not fit
            the model.
        """
        options.require_call(step, data)
        if self.anchors is None:
            return
        if step == 0 or self.anchors.is_empty:
            self._require_parts(self.input_dim, self.dtype)
            X, _ = self._require_data(data())
            self._require_parts(int(X.shape[1]), self.dtype)
            options.require_support(self.support, X)
            X = X[: self.num_control_rows] if self.support is None else self.support
            self.anchors.refresh(self.basis, self.tail, X)
        elif self.anchors.is_due(step, self.basis):
            self.anchors.refresh(self.basis, self.tail)

    def exact_elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        The elbo from all functions, O(n m (1 + h)) for n rows, which may be a minibatch: a bound
        with any likelihood, where :meth:`elbo` is one for Gaussian noise only (and on average).
        With a dense prior precision it includes ``log |S| / 2``, unlike :meth:`elbo`.

        :raises ValueError: for a dense prior precision of more than 4,096 functions.
        """
        return super().elbo(data)

    @public_method("the bound")
    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    def logit_bound(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        Unbiased estimate of a lower bound on :meth:`exact_elbo`, and so on the log evidence, for a
        logit: at the cost of two calls of :meth:`elbo`, whatever m is.

        Rows have the quadratic bound of Jaakkola and Jordan
        (:func:`gpflow_sparse.inference.subsampling.logit_bound`), whose place xi comes from two
        draws and whose moments from two others. For reports, not for steps.

        :param data: ``(X [n, D], Y [n, P])``; rows of a minibatch stand for all data.
        :return: scalar, in nats.
        :raises ValueError: for another likelihood, or a dense prior precision.
        """
        options.require_logit(self.likelihood, self.basis)
        batch = self._batch(*data)
        one, other = self._moments_and_kl(batch), self._moments_and_kl(batch)
        terms = subsampling.logit_bound(batch.Y, one[0], other[0][1])
        terms += subsampling.logit_bound(batch.Y, other[0], one[0][1])
        weight = self.num_data / tf.cast(tf.shape(terms)[0], terms.dtype)
        return 0.5 * (weight * tf.reduce_sum(terms) - one[1] - other[1])

    def _moments_and_kl(self, batch: Batch) -> tuple[Pair, tf.Tensor]:
        """Unbiased moments of f at the rows of a batch, and the KL, from two fresh draws."""
        step = SubsampledStep(self, self._draw(), unique=False)
        values = [tf.gather(variable, indices) for variable, indices in step.row_indices]
        head, precision, draws = step.read(values)
        scale = tf.constant(self.num_tail / self.basis_batch_size, self.dtype)  # (m - h) / k
        Phi = functions_at(self.basis, self.num_head, batch.X, draws, None)
        first, second = (chevron.tail_vectors(draw.tail) for draw in draws)
        F = subsampling.projections(Phi, head, (first, second), scale, None)[0]
        spread = subsampling.spreads(Phi, draws, scale)
        kl = subsampling.prior_kl(head, precision, draws, scale, dense=False)
        return subsampling.second_moments(batch, F, spread), kl

    def training_loss_closure(
        self, data: tuple[tf.Tensor, tf.Tensor] | Iterator, *, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """
        As :meth:`gpflow_sparse.models.VariationalModel.training_loss_closure`, for models that take
        all functions: otherwise the loss is random in every call.

        :raises ValueError: if ``basis_batch_size`` is less than the number of functions in the
            tail.
        """
        if self.basis_batch_size < self.num_tail:
            raise ValueError(
                "training_loss_closure needs a loss that is the same in every call; with "
                f"basis_batch_size={self.basis_batch_size} each call draws other functions, and an "
                f"optimizer would update q of all {self.num_tail}, not of the drawn ones. Train "
                f"with gs.training.fit, or build the model with basis_batch_size={self.num_tail}."
            )
        return super().training_loss_closure(data, compile=compile)

    def _make_posterior(self, **options: Any) -> ChevronPosterior:
        augmentation = None
        if self.augmentation is not None:
            augmentation = (self.augmentation, self.likelihood.variance)
        q = self.q_mu, self.q_block, self.q_log_scale, self.q_columns
        return ChevronPosterior(self.kernel, *q, augmentation=augmentation, **options)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        options.require_parts(self)
