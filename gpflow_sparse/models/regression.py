"""The base class of regression models that hold their data and have q in closed form."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.models import InternalDataTrainingLossMixin

from gpflow_sparse.inference import collapsed
from gpflow_sparse.inference.collapsed import RowSums
from gpflow_sparse.models.base import SparseGPModel, compiled
from gpflow_sparse.models.training_data import columns, keep_training_data, with_rows
from gpflow_sparse.validation import checks, component_checks


class RegressionModel(SparseGPModel, InternalDataTrainingLossMixin):
    """
    A GPflow model that holds its data, once, and has one noise variance.

    Arrays are copied. A ``tf.Variable(X, shape=[None, D])`` is shared: values assigned to it, with
    any number of rows, are used at the next evaluation, compiled or not. It is set to be not
    trainable.

    A subclass provides :meth:`elbo` and :meth:`posterior`.
    """

    bound = "standard"
    """The bound of :meth:`elbo`, where a subclass has several."""
    known_variance: tf.Tensor | None = None
    """Known part of the noise variance of each row ``[N]``; None for 0."""

    has_bound = True
    """Whether the objective is a bound on the log evidence."""

    takes_batches = False
    """Whether data may be a ``tf.data.Dataset`` or memory maps, which every pass reads again."""

    def __init__(
        self,
        data: tuple[Any, Any],
        kernel: Kernel,
        *,
        mean_function: MeanFunction | None = None,
        noise_variance: Any = 1.0,
    ) -> None:
        """See the subclasses for the arguments."""
        held = keep_training_data(data, batches=self.takes_batches)
        super().__init__(
            kernel,
            Gaussian(component_checks.require_noise(noise_variance)),
            mean_function=mean_function,
            num_latent_gps=columns(held)[1],
        )
        self.data = held
        rows = tf.Module()  # an optimizer must not move variables that hold the data
        rows.data = held
        gpflow.set_trainable(rows, False)

    @abstractmethod
    def elbo(self) -> tf.Tensor:
        """A lower bound on the log evidence of all the data: a scalar, in nats."""

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The :meth:`elbo`."""
        return self.elbo()

    def training_loss(self) -> tf.Tensor:
        """Minus the objective, minus the log prior density of the parameters."""
        return self._training_loss()

    def training_loss_closure(self, *, compile: bool = True) -> Callable[[], tf.Tensor]:
        """
        A function without arguments that returns the training loss, for GPflow's optimizers.

        :param compile: wrap the loss in ``tf.function``.
        """
        checks.require_flag(compile, "compile")
        component_checks.validate_components(self)
        return compiled(self.training_loss, compile)

    def _add_rows(self, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        if self.known_variance is not None:
            raise ValueError(
                f"{type(self).__name__} cannot be conditioned on new rows, since their "
                "known_variance is not known here; make a model of all rows."
            )
        self.data = with_rows(self.data, data)

    @property
    def dtype(self) -> tf.DType:
        return noise_parameter(self.likelihood).dtype

    def _noise(self) -> tf.Tensor:
        """The noise variance, a float64 scalar."""
        return noise_variance(self.likelihood, tf.float64)

    def _bounded(self, sums: RowSums, X: tf.Tensor, A: tf.Tensor) -> RowSums:
        """
        The sums of some rows for the bound "log", see
        :mod:`gpflow_sparse.inference.residual_bounds`; for other bounds as they are.

        :param A: features ``[m, n]`` of ``X [n, D]``.
        """
        if self.bound != "log":
            return sums
        return collapsed.with_log_bound(sums, A, self.kernel(X, full_cov=False), self._noise())

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        noise_parameter(self.likelihood)
        if columns(self.data)[1] != self.num_latent_gps:
            raise ValueError(
                f"data must have num_latent_gps={self.num_latent_gps} column(s) in Y, as when the "
                f"model was made; got {columns(self.data)[1]}. Make a new model."
            )


def copies(*parts: Any) -> tuple[Any, ...]:
    """Copies of components of a model, made together because they may share parameters."""
    together = tf.Module()
    together.parts = parts
    return tuple(gpflow.utilities.deepcopy(together).parts)


def noise_variance(likelihood: Gaussian, dtype: tf.DType) -> tf.Tensor:
    """The noise variance of all rows, a scalar."""
    value = tf.reshape(tf.cast(noise_parameter(likelihood), dtype), [])
    return tf.square(value) if likelihood.variance is None else value


def noise_parameter(likelihood: Any) -> gpflow.Parameter:
    """
    The variance or scale parameter of a Gaussian likelihood with one noise variance; a tensor in a
    copy by :func:`gpflow.utilities.freeze`.

    :raises ValueError: for another likelihood.
    """
    value: Any = None
    if isinstance(likelihood, Gaussian):
        value = likelihood.scale if likelihood.variance is None else likelihood.variance
    constant = isinstance(value, gpflow.Parameter) or tf.is_tensor(value)
    if not constant or value.shape.num_elements() != 1:
        raise ValueError(
            "likelihood must be gpflow.likelihoods.Gaussian with one noise variance for all rows, "
            f"got {type(likelihood).__name__}; other noise is for SOLVEGP."
        )
    return value
