"""Quadruply stochastic Gaussian processes: steps at a cost free of N and of m."""

from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import triangular

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.inference.chevron import Head, Tail
from gpflow_sparse.kernels import Basis
from gpflow_sparse.models import qsgp_options
from gpflow_sparse.models.anchors import Anchors
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.models.qsgp_covariance import best_covariance
from gpflow_sparse.models.qsgp_step import SubsampledStep
from gpflow_sparse.posteriors import ChevronPosterior, cache_type
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.step_lock import reads_parameters


class QSGP(SubsampledStep, VariationalModel):
    r"""
    Variational inference over the weights of a finite basis of which a step sees only some.

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
    ``covariance``            h      D         numbers, per latent function
    ========================  =====  ========  ======================================
    "diag"                    0                2 m
    "block"                   any    zero      2 m + h^2
    "chevron"                 any    dense     (2 + h) m
    ========================  =====  ========  ======================================

    Time per step of n rows, k sampled functions, p support rows, and features of cost d each:
    O((n + p) (h + k) (d + 1 + h)), with "block" O((n + p) (h + k) (d + 1) + n h^2); nothing grows
    with N or m. Starting, prediction and :meth:`exact_elbo` cost O(m) per row.

    A mean-field q over many random features keeps almost the prior's variance, and learns
    hyperparameters that make up for it: where they are learned, or variances matter, take
    :class:`~gpflow_sparse.bases.Hybrid` (``docs/sharp-bits.md`` has the figures).
    """

    def __init__(
        self,
        basis: FiniteBasis,
        likelihood: Likelihood,
        *,
        num_data: int,
        basis_batch_size: int,
        covariance: str | None = None,
        num_dense_columns: int | None = None,
        variance_reduction: str | None = None,
        site_estimator: str = "split",
        mean_function: MeanFunction | None = None,
        num_latent_gps: int = 1,
        num_support: int = 500,
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
            ``k = m - h`` takes all of them, and nothing is left to chance but the rows. The noise
            of the sampled mean has variance ``|v|^2 (1 / k - 1 / m)`` times the kernel's, v being
            the whitened mean: take k well above ``|v|^2``.
        :param covariance: see above; None for "block" with a basis whose leading functions belong
            in every step, and "diag" with others.
        :param num_dense_columns: h; None for the number of leading functions of the basis.
        :param variance_reduction: of the gradients, see ``docs/methods/qsgp.md``. "anchored": each
            projection is corrected by what is known exactly at the support rows. "eq3": the
            paper's control variate (Gaussian noise). "tracked": a batch is held for
            ``m / (2 k)`` steps, and known exactly (O(n m) at each change). "none". "literal": the
            paper's theorems as printed, for comparison (Gaussian noise, "diag"). None for
            "anchored", and for "none" where "strict" needs it.
        :param site_estimator: for likelihoods that are not Gaussian. "split": mean and variance as
            they are estimated, without anchors from different draws; all but a bound. "absorbed":
            the sampling noise of the mean is taken off the variance, which removes most of the
            bias; no bound. "strict": a lower bound, at a loss that grows with m / k; log-concave
            likelihoods only.
        :param mean_function: added to the prior mean; zero by default.
        :param num_latent_gps: latent functions L, with weights of their own over the same basis.
        :param num_support: how many rows of the first batch become support rows.
        :param support: ``[p, D]``, support rows of your own.
        :param augmentation: ``X [N, D]``, all training inputs: predictions then have one more
            function at each test point, which restores the prior's variance far from the data
            (proposition 4; dense prior precision, Gaussian noise).
        :raises ValueError: for arguments of a wrong kind, or that do not go together.
        """
        checks.require_count(num_data, "num_data")
        super().__init__(
            Basis(basis),
            likelihood,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            num_data=num_data,
        )
        self.covariance, self.num_head = qsgp_options.require_covariance(
            basis, covariance, num_dense_columns
        )
        self.variance_reduction = qsgp_options.require_estimators(
            basis, likelihood, self.covariance, variance_reduction, site_estimator
        )
        self.site_estimator = site_estimator
        self.basis_batch_size = qsgp_options.require_draw_size(
            basis_batch_size, self.num_tail, site_estimator
        )
        qsgp_options.freeze_dense(basis)
        h, tail, L, dtype = self.num_head, self.num_tail, self.num_latent_gps, basis.dtype
        self.q_mu = tf.Variable(tf.zeros([basis.num_basis, L], dtype))
        start = -0.5 * tf.math.log(basis.precision_diagonal(tf.range(h, h + tail)))
        self.q_log_scale = tf.Variable(tf.tile(start[:, None], [1, L]))
        self.q_block, self.q_columns = None, None
        if h:
            root = np.sqrt(1.0 / basis.precision_diagonal(tf.range(h)).numpy())
            blocks = np.repeat(np.diag(root)[None], L, axis=0)
            self.q_block = Parameter(blocks, transform=triangular(), dtype=dtype)
        if self.covariance == "chevron":
            self.q_columns = tf.Variable(tf.zeros([tail, L, h], dtype))
        self.num_support = checks.require_count(num_support, "num_support")
        self.support = qsgp_options.require_rows(support, "support", basis)
        self.augmentation = qsgp_options.require_augmentation(augmentation, basis, likelihood)
        self.anchors = None
        if self.variance_reduction in qsgp_options.ANCHORED:
            num_vectors = L * (1 + h) if self.q_columns is not None else L
            self.anchors = Anchors(basis, h, num_vectors)
        self._require_parts(self.input_dim)

    @property
    def basis(self) -> FiniteBasis:
        """The basis that the weights belong to."""
        return qsgp_options.basis_of(self.kernel)

    @property
    def input_dim(self) -> int | None:
        return self.basis.input_dim

    @property
    def dtype(self) -> tf.DType:
        return getattr(getattr(self, "q_mu", None), "dtype", gpflow.default_float())

    @property
    def small_variables(self) -> list[tf.Variable]:
        """All other trainable variables, but for what is no parameter of the model."""
        held = {variable.ref() for variable in qsgp_options.held_variables(self)}
        return [v for v in super().small_variables if v.ref() not in held]

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

    @reads_parameters
    def elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        Estimate of the evidence lower bound from a batch and two fresh draws of functions.

        Unbiased for Gaussian noise, value and gradient. Without anchors, which hold only where
        every move of the weights is followed: that is in :meth:`sparse_step`.

        :param data: ``(X [n, D], Y [n, P])``.
        :return: scalar, in nats.
        :raises ValueError: for data that do not fit the model, eagerly and when tracing.
        """
        X, Y = self._require_data(data)
        with component_checks.blame(self):
            elbo = self._elbo_from(X, Y, self._draw(), anchored=False)
        component_checks.require_finite_result(self, "the elbo", elbo)
        return elbo

    def exact_elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        The elbo from all functions, O(n m (1 + h)) for n rows; of all rows if ``data`` are all.
        With a dense prior precision it has ``log |S| / 2``, which :meth:`elbo` lacks.

        :raises ValueError: for a dense prior precision of more than 4,096 functions.
        """
        return super().elbo(data)

    def training_loss_closure(
        self, data: tuple[tf.Tensor, tf.Tensor] | Iterator, *, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """
        As :meth:`gpflow_sparse.models.VariationalModel.training_loss_closure`, for models that take
        all functions: otherwise the loss is another number in every call.

        :raises ValueError: if ``basis_batch_size`` is less than the number of functions that can be
            drawn.
        """
        qsgp_options.require_all_functions(self)
        return super().training_loss_closure(data, compile=compile)

    @reads_parameters
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> ChevronPosterior:
        """See :meth:`gpflow_sparse.models.GuardedModel.posterior`."""
        cache = cache_type(precompute_cache)
        self._require_parts(self.input_dim, self.dtype)
        augmentation = None
        if self.augmentation is not None:
            augmentation = (self.augmentation, self.likelihood.variance)
        return ChevronPosterior(
            self.kernel,
            self.q_mu,
            self.q_block,
            self.q_log_scale,
            self.q_columns,
            mean_function=self.mean_function,
            augmentation=augmentation,
            precompute_cache=cache,
        )

    def prepare_step(self, step: int, data: Callable[[], tuple[tf.Tensor, tf.Tensor]]) -> None:
        """
        Take support rows before step 0, and compute again what is known there, O(p m): once the
        hyperparameters have moved by a twentieth (or at all, if they are not trained), every
        10,000 steps against rounding, and of "tracked" with each new batch.

        `training.fit` calls it. After an assignment to the weights, call ``prepare_step(0, data)``.

        :param data: returns the batch of this step.
        :raises ValueError: for a step that is no number of one, or data that do not fit the model.
        """
        qsgp_options.require_call(step, data)
        if self.anchors is None:
            return
        tracked = self.variance_reduction == "tracked"
        hold = -(-self.num_tail // (2 * self.basis_batch_size)) if tracked else 0
        if step == 0 or (tracked and step % hold == 0):
            X, Y = self._require_data(data())
            X = X if tracked else qsgp_options.support_rows(self, X)
            self.anchors.refresh(self.basis, self.tail, X, Y)
        elif qsgp_options.is_due(step, self.anchors, self.basis):
            self._refresh_anchors()

    def update_covariance(self, X: Any) -> None:
        """
        Set C to the best one of its shape, for Gaussian noise; the mean has no part in it.

        Proposition 1 for the diagonal, ``c_r = (phi_r^T phi_r / noise + s_r)^-1/2``; a block is the
        factor of its precision's inverse; the columns of a chevron need that of all m weights, so
        m is limited to 4,096 there. O(n m + n h^2 + h^3) for n rows, or O(n m^2 + m^3).

        :param X: ``[n, D]``, training inputs: all, or a random part of them, each of which then
            stands for ``num_data / n`` rows. A block needs several times h of them.
        :raises ValueError: for another likelihood, or a chevron over too many functions.
        """
        X = qsgp_options.require_inputs(X, "X", self.basis)
        self._require_parts(X.shape[1], self.dtype)
        qsgp_options.require_conjugate(self.likelihood)
        B, columns, log_c = best_covariance(self, X)
        self.q_log_scale.assign(log_c)
        if self.q_block is not None:
            self.q_block.assign(B)
        if self.q_columns is not None:
            self.q_columns.assign(columns)
            self._refresh_anchors()

    def _refresh_anchors(self) -> None:
        """On the rows that there are, if there are any yet."""
        if self.anchors is not None and not self.anchors.is_empty:
            rows, outputs = (tf.convert_to_tensor(v) for v in (self.anchors.X, self.anchors.Y))
            self.anchors.refresh(self.basis, self.tail, rows, outputs)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        if hasattr(self, "anchors"):  # once all is there
            qsgp_options.require_own_parts(self)
            component_checks.require_kernel(self.basis.kernel, num_columns)
