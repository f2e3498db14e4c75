"""The sparse relevance vector machine, at a constant cost per step."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood

from gpflow_sparse.bases import KernelDictionary
from gpflow_sparse.inference.subsampling import Functions
from gpflow_sparse.models.qsgp.model import QSGP
from gpflow_sparse.models.qsgp.step import SubsampledStep
from gpflow_sparse.models.regression import copies
from gpflow_sparse.validation import checks, component_checks

# Limits of precisions, for float32 and Cholesky factorizations.
_MIN_LOG, _MAX_LOG = np.log(1e-6), np.log(1e8)


class RVM(QSGP):
    """
    Sparse Bayesian learning: ``f(x) = sum_i w_i k(x, z_i) + w_0``, ``w_i ~ N(0, 1 / s_i)``, each
    precision s_i learned. Most grow without bound, which leaves few *relevance vectors* z_i.

    Tipping, "Sparse Bayesian Learning and the Relevance Vector Machine" (2001), by the sub-sampled
    steps of Evans and Nair, "Quadruply Stochastic Gaussian Processes" (2020), appendix I.3. They
    train s by gradients. Here s of each function drawn is set to its maximizer given q after every
    step, ``s_i = 1 / (mu_i^2 + Sigma_ii)``, in O(1).

    Precisions are relative to the size of the functions: center and scale Y, and leave the
    kernel's variance at 1.
    """

    def __init__(
        self,
        centers: Any,
        kernel: Kernel,
        likelihood: Likelihood | None = None,
        *,
        num_data: int,
        basis_batch_size: int,
        constant: bool = True,
        **options: Any,
    ) -> None:
        """
        :param centers: ``[M, D]``, usually the training inputs.
        :param kernel: ``k(x, z_i)`` need not be positive definite as a function of both, but GPflow
            kernels are.
        :param likelihood: see :class:`QSGP`; Gaussian by default.
        :param constant: whether to add a constant function.
        :param options: further arguments of :class:`QSGP`.
        :raises ValueError: as :class:`QSGP` and :class:`~gpflow_sparse.bases.KernelDictionary`.
        """
        basis = KernelDictionary(
            kernel,
            centers,
            precision="diagonal",
            constant=constant,
        )
        # not trained by gradients but computed from q, see _after_step
        basis.log_precision = tf.Variable(basis.log_precision, trainable=False)
        likelihood = Gaussian() if likelihood is None else likelihood
        super().__init__(
            basis, likelihood, num_data=num_data, basis_batch_size=basis_batch_size, **options
        )

    def refine(self, data: tuple[Any, Any], num_rounds: int = 10) -> None:
        """
        Rounds of closed forms for Gaussian noise: mean, covariance and all precisions in turn, and
        the mean at the end.

        They follow steps, whose noise leaves variances in q that keep precisions low: with dense
        columns most of all. Each round takes as long as :meth:`update_mean` and
        :meth:`update_covariance`.

        :param data: training rows ``(X [n, D], Y [n, P])``, all or a random subset.
        :raises ValueError: as these, for another likelihood or more than 4,096 functions.
        """
        for _ in range(checks.require_count(num_rounds, "num_rounds")):
            self.update_mean(data)
            self.update_covariance(data[0])
            log_s = _best_log_precisions(self.q_mu, self._variances(tf.range(self.num_tail)))
            self.basis.log_precision.assign(log_s)
        self.update_mean(data)

    def relevance_vectors(self, threshold: float = 1e4) -> np.ndarray:
        """Centers ``[r, D]`` whose weights have a prior precision below the threshold."""
        return self.basis.centers.numpy()[self._relevant(threshold)[: self.basis.centers.shape[0]]]

    def prune(self, threshold: float = 1e4) -> "RVM":
        """
        A new model with the relevant functions only (and the head and the constant), and with the
        calibration, standardizer and jitter of this one.

        :raises ValueError: if no function would be left to sample.
        """
        h, M = self.num_head, self.basis.centers.shape[0]
        keep = self._relevant(threshold)
        keep[:h] = True
        keep[M:] = True  # the constant, if there is one
        centers, tail = np.flatnonzero(keep[:M]), np.flatnonzero(keep[h:])
        if not len(tail) or not len(centers):
            raise ValueError(
                f"threshold must leave at least one center; none has a precision below {threshold}."
            )
        kernel, likelihood, mean_function, standardizer = copies(
            self.basis.kernel, self.likelihood, self.mean_function, self.standardizer
        )
        options = ["num_data", "covariance", "variance_reduction"]
        options += ["num_latent_gps", "num_control_rows", "support"]
        small = RVM(
            self.basis.centers.numpy()[centers],
            kernel,
            likelihood,
            basis_batch_size=min(self.basis_batch_size, len(tail)),
            constant=self.basis.constant,
            num_dense_columns=h or None,
            mean_function=mean_function,
            **{name: getattr(self, name) for name in options},
        )
        small.basis.log_precision.assign(self.basis.log_precision.numpy()[keep])
        for name, kept in {"q_mu": keep, "q_log_scale": tail, "q_columns": tail}.items():
            if (part := getattr(self, name)) is not None:
                setattr(small, name, tf.Variable(part.numpy()[kept], trainable=part.trainable))
        if small.q_block is not None and self.q_block is not None:
            small.q_block.assign(self.q_block)
            gpflow.set_trainable(small.q_block, self.q_block.trainable)
        small.jitter, small.standardizer = self.jitter, standardizer
        small.calibration = self.calibration
        return small

    def _relevant(self, threshold: Any) -> np.ndarray:
        """Mask of the relevant functions."""
        if not checks.is_number(threshold) or not threshold > 0:
            raise ValueError(f"threshold must be a positive number, got {threshold!r}.")
        return self.basis.log_precision.numpy() < np.log(float(threshold))

    @property
    def trains_precision(self) -> bool:
        """False, even if all is set trainable: the precisions follow from q."""
        return False

    @property
    def dense_variables(self) -> list[tf.Variable]:
        """All trainable variables but the row variables and the precisions."""
        return [v for v in super().dense_variables if v is not self.basis.log_precision]

    def _variances(self, places: tf.Tensor) -> tf.Tensor:
        """``Sigma_ii [h + k, L]`` of the head and of k places in the tail."""
        variances = tf.exp(2.0 * tf.gather(self.q_log_scale, places))  # [k, L]
        if self.q_columns is not None:
            D = tf.gather(self.q_columns, places)  # [k, L, h]
            variances += tf.reduce_sum(tf.square(D), axis=-1)
        of_head = tf.transpose(tf.reduce_sum(tf.square(self.head.B), axis=-1))  # [h, L]
        return tf.concat([of_head, variances], axis=0)

    @property
    def _sets_covariance(self) -> bool:
        """Whether c is set to its maximizer, for one noise variance."""
        return component_checks.has_one_variance(self.likelihood) and self.q_log_scale.trainable

    def _averages(self, Phi: Functions) -> Sequence[tf.Tensor]:
        """Mean squares of the functions of both draws, ``[2 k]``, for Gaussian noise."""
        if not self._sets_covariance:
            return []
        squares = [tf.reduce_mean(block, axis=0) for A in Phi.tails for block in A.squared()]
        return [tf.concat(squares, axis=0)]

    def _after_step(
        self,
        step: SubsampledStep,
        changes: Sequence[tf.Tensor],
        Phi: Functions,
        averages: Sequence[tf.Tensor],
    ) -> None:
        """
        Set c, for Gaussian noise, and then s of the functions drawn to their maximizers.

        Only later steps use them: the objective of the same batch would be biased upward.
        """
        super()._after_step(step, changes, Phi, averages)
        if self._sets_covariance:
            # c_r = (N / n sum_l phi_lr^2 / noise + s_r)^-1/2 over the batch: proposition 1
            squares = self.num_data * tf.gather(averages[0], step.first_places())
            s = self.basis.precision_diagonal(self.num_head + step.taken)
            log_c = -0.5 * tf.math.log(squares / self.likelihood.variance + s)
            log_c = tf.tile(log_c[:, None], [1, self.num_latent_gps])
            self.q_log_scale.scatter_update(tf.IndexedSlices(log_c, step.taken))
        variances = self._variances(step.taken)
        log_s = _best_log_precisions(tf.gather(self.q_mu, step.indices), variances)
        self.basis.log_precision.scatter_update(tf.IndexedSlices(log_s, step.indices))


def _best_log_precisions(mu: tf.Tensor, variances: tf.Tensor) -> tf.Tensor:
    """``log s_i = -log(mu_i^2 + Sigma_ii)``, ``[k]``, of means and variances ``[k, L]``."""
    log_s = -tf.math.log(tf.reduce_mean(tf.square(mu) + variances, axis=1))
    return tf.clip_by_value(log_s, _MIN_LOG, _MAX_LOG)
