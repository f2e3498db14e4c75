"""How many rows see each inducing point of a model with neighbors."""

import contextlib
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.inducing_variables import NeighborInducingPoints
from gpflow_sparse.models import swsgp_options
from gpflow_sparse.posteriors import latent_kernels
from gpflow_sparse.validation import component_checks


class _Counted(NamedTuple):
    """What `prepare_data` had counted."""

    state: tuple[Any, ...]
    """What neighbors depended on."""
    X: weakref.ref[Any]


# To be found out again, so that it is no part of a model.
_COUNTED: weakref.WeakKeyDictionary[Any, _Counted] = weakref.WeakKeyDictionary()


class CountedUsers:
    """The part of :class:`~gpflow_sparse.models.SWSGP` that counts, for "usage"."""

    kernel: Kernel
    inducing_variable: NeighborInducingPoints
    num_data: Any
    num_latent_gps: int
    kl_weighting: str
    union: int | None
    usage: tf.Variable
    _require_parts: Callable[..., None]

    @property
    def _inputs(self) -> tuple[int, tf.DType]:
        """Columns and float type of X."""
        return int(self.inducing_variable.Z.shape[1]), self.usage.dtype

    def update_neighbors(self, X: Any) -> None:
        """
        Count how many rows see each inducing point, for "usage".

        `training.fit` calls it, and again when neighbors have changed. O(N) searches in blocks;
        nothing is kept but the counts.

        :param X: all training inputs ``[N, D]``, an array or memory map; or a ``tf.data.Dataset``
            of batches ``(X, Y)`` or ``X``, finite.
        :raises ValueError: for inputs that do not fit the model.
        """
        self._count_users(X, None)

    def _count_users(self, X: Any, most: int | None) -> None:
        """:param most: rows that there are, if X is a data set that may not end."""
        self._require_parts(*self._inputs)
        component_checks.require_sound(self.kernel)
        component_checks.require_sound(self.inducing_variable)
        counts, rows = np.zeros(self.usage.shape), 0
        kernels = latent_kernels(self.kernel, self.num_latent_gps)
        for block in swsgp_options.blocks_of_inputs(X, *self._inputs):
            rows += int(block.shape[0])
            swsgp_options.require_at_most(rows, most)
            for i, (kernel, _) in enumerate(kernels):
                seen = self.inducing_variable.neighbors(block, kernel).numpy()
                counts[:, i] += np.bincount(seen.ravel(), minlength=len(counts))
        if not rows:
            raise ValueError("X is an empty data set.")
        self.usage.assign(counts)

    def set_neighbors(self, num_neighbors: int) -> None:
        """
        Let every row see this many points from now on: to predict from more than in training, say.
        "usage" has to be counted anew before training goes on, and what is compiled already keeps
        the old number.

        :param num_neighbors: H, at most M, more than there are global points.
        :raises ValueError: for other numbers.
        """
        iv = self.inducing_variable
        before, iv.num_neighbors = iv.num_neighbors, num_neighbors
        try:
            iv.require_sound()
        except ValueError:
            iv.num_neighbors = before
            raise
        self.usage.assign(tf.zeros_like(self.usage))
        _COUNTED.pop(self, None)

    def prepare_data(self, data: Any) -> None:
        """:meth:`update_neighbors` if rows or neighbors have changed since the last call."""
        if self.kl_weighting != "usage" or self.union is not None:
            return
        X = data if isinstance(data, tf.data.Dataset) else data[0]
        now, before = swsgp_options.neighbor_state(self), _COUNTED.get(self)
        same = before is not None and before.state == now and before.X() is X
        if same or self._counts_must_do(data):
            return
        if isinstance(data, tf.data.Dataset):
            self._count_users(data, None if self.num_data is None else int(self.num_data))
        else:
            self.update_neighbors(X)
        with contextlib.suppress(TypeError):  # a list, which is counted at every call
            _COUNTED[self] = _Counted(now, weakref.ref(X))

    def _counts_must_do(self, data: Any) -> bool:
        counted = bool(tf.reduce_any(self.usage > 0.0))
        return counted and swsgp_options.is_endless(data)

    def _require_usage(self) -> None:
        if self.kl_weighting != "usage" or self.union is not None:
            return
        with tf.init_scope():  # a compiled elbo cannot look at values: when it is traced
            counted = bool(tf.reduce_any(self.usage > 0.0))
        if not counted:
            raise ValueError(
                "the inducing points' users have not been counted: call "
                "model.update_neighbors(X) with all training inputs, as training.fit does, or "
                "choose another kl_weighting."
            )
