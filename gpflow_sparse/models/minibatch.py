"""Models that are given their data, all of them or some at a time."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import ExternalDataTrainingLossMixin

from gpflow_sparse.models.guarded import GuardedModel
from gpflow_sparse.models.held_data import variable_or
from gpflow_sparse.validation import checks, component_checks


class MinibatchModel(GuardedModel, ExternalDataTrainingLossMixin):
    """
    A GPflow model whose objective is a function of data given to it, which may be a minibatch, and
    whose public methods, inherited ones too, refuse bad input before anything broadcasts.

    A subclass provides :meth:`elbo` and :meth:`posterior`.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
    ) -> None:
        """
        :param num_latent_gps: number of latent functions L; None means the number that a
            multi-output kernel has, and 1 for other kernels, which all L share.
        :param num_data: number of training rows N, so that a minibatch counts for all of them;
            None means that every batch is all the data.
        :raises ValueError: if the likelihood cannot take that many latent functions, or num_data is
            not positive.
        """
        if num_data is not None and not tf.is_tensor(num_data):
            checks.require_count(num_data, "num_data")
        super().__init__(
            kernel, likelihood, mean_function=mean_function, num_latent_gps=num_latent_gps
        )
        self.num_data = num_data

    @abstractmethod
    def elbo(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """What is maximized on ``(X [N, D], Y [N, P])``, all the data or a minibatch: a scalar."""

    def maximum_log_likelihood_objective(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """The :meth:`elbo`."""
        return self.elbo(data)

    def training_loss(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Minus the :meth:`elbo`, minus the log prior density of the parameters."""
        return self._training_loss(data)

    def training_loss_closure(
        self, data: tuple[tf.Tensor, tf.Tensor] | Iterator, *, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """
        A function of nothing that returns the training loss, as GPflow's optimizers want it.

        :param data: ``(X [N, D], Y [N, P])``, or an iterator over a ``tf.data.Dataset``. Arrays are
            copied; a ``tf.Variable`` is read at every call.
        :param compile: wrap the loss in ``tf.function``.
        :raises ValueError: as :meth:`elbo`, when made: a compiled loss cannot look at values.
        """
        checks.require_flag(compile, "compile")
        component_checks.require_sound(self)
        if isinstance(data, tf.data.Iterator):
            return super().training_loss_closure(data, compile=compile)
        if isinstance(data, Iterator):
            raise ValueError(
                "data must be arrays or iter(tf.data.Dataset): a compiled closure would freeze the "
                f"first batch of a {type(data).__name__}."
            )
        X, Y = self._require_data(data)
        live = variable_or(X, data[0], "X"), variable_or(Y, data[1], "Y")  # read at every call
        return super().training_loss_closure(live, compile=compile)

    def _require_data(self, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = super()._require_data(data)
        if self.num_data is not None and not tf.is_tensor(self.num_data):
            checks.require_count(self.num_data, "num_data")
        return X, Y

    def _weight(self, X: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """``num_data / batch``: what a row of a minibatch counts for."""
        batch = tf.cast(tf.shape(X)[0], dtype)
        num_data = batch if self.num_data is None else tf.cast(self.num_data, dtype)
        return num_data / batch
