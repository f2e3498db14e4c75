"""Protocols of the members of a model that `fit` uses beside GPflow's ``training_loss``."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from gpflow_sparse.numerics.replicas import ONE, Replicas

Data = tuple[tf.Tensor, tf.Tensor]


@runtime_checkable
class PartialUpdateModel(Protocol):
    """
    A model with variables so long that a training step updates only some of their rows.

    `fit` calls :meth:`sparse_step` where it would otherwise compute gradients of ``training_loss``
    for all variables, and accepts sparse optimizers only. All other models need only
    GPflow's ``training_loss``.
    """

    @property
    def default_optimizer(self) -> str:
        """The sparse optimizer that `fit` takes by default: "adagrad" or "adam"."""

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """Variables whose rows a step updates only in part."""

    @property
    def dense_variables(self) -> Sequence[tf.Variable]:
        """All other trainable variables."""

    def sparse_step(
        self,
        data: Data,
        optimizer: Any,
        *,
        move: Any = True,
        scale: float = 1.0,
        replicas: Replicas = ONE,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        One training step, compiled by `fit`.

        :param move: whether to change any variable.
        :param scale: fraction of the step that is taken.
        :param replicas: how the batch is divided; losses and gradients are their ``mean``.
        :return: the loss, and whether it and its gradients are finite; if not, nothing is changed.
        """

    def step_gradients(self, data: Data) -> tuple[tf.Tensor, Sequence[tuple[Any, tf.Variable]]]:
        """Loss and gradients of :meth:`sparse_step`, for the diagnosis of a failed step."""


class TrainingHooks(Protocol):
    """
    Optional methods of a model that `fit` calls; a model defines the ones that it needs.

    Nothing has to be inherited. All but :meth:`keep_back` are called outside of compiled code,
    while no other thread reads the parameters, and draw from the seed of the run.
    """

    def keep_back(self, data: Any, seed: int) -> Any:
        """The rows to train on, out of ``data`` as `fit` was given them. Called first."""

    def start_training(self, data: Any) -> None:
        """Set starting values from all data, before the first step of a run."""

    def prepare_data(self, data: Any) -> None:
        """Work that needs all data, before the first step and about once an epoch."""

    def prepare_step(self, step: int, data: Callable[[], Data]) -> None:
        """Work of a step that is not compiled; ``data()`` is the batch."""

    def look_ahead(self, X: tf.Tensor) -> Any:
        """
        Work on the inputs of the next batch, in another thread while a step is taken.

        Called if ``can_look_ahead`` is true and, before the step, ``knows_rows`` is not; it must
        not change any result.
        """
