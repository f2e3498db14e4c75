"""What a model with neighbors can set without an optimizer."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel

from gpflow_sparse.models.swsgp_optimum import optimal_q, require_conjugate
from gpflow_sparse.models.swsgp_sites import (
    lumped_sites,
    q_from_sites,
    require_separate_outputs,
    site_posteriors,
)
from gpflow_sparse.posteriors import SitePosterior


class ClosedForms:
    """The part of :class:`~gpflow_sparse.models.SWSGP` that reads all rows and sets q."""

    kernel: Kernel
    mean_function: Any
    q_mu: tf.Variable
    q_log_scale: tf.Variable | None
    num_data: Any
    start: str
    _require_usage: Callable[[], None]

    def update_posterior(self, X: Any, Y: Any = None) -> None:
        """
        Set q to the best one for Gaussian noise and hyperparameters as they are, for "diag".

        A sparse system in the means, O(N H^2) time to add up and memory for as many numbers as
        there are pairs of points that a row sees both of; then conjugate gradients. 36,000 rows,
        M = 10,000, H = 64: 13 to 22 s with two cores to itself, 97 to 146 s beside other work;
        11 million numbers.

        :param X: all training inputs ``[N, D]``, an array or memory map; or a ``tf.data.Dataset``
            of batches ``(X, Y)``, and then
        :param Y: is None; else outputs ``[N, P]``.
        :raises ValueError: for other likelihoods and covariances, and data that do not fit.
        """
        require_conjugate(self)
        self._require_usage()
        means, scales = optimal_q(self, X, Y)
        assert self.q_log_scale is not None
        self.q_mu.assign(means)
        self.q_log_scale.assign(np.log(scales))

    def start_from_sites(self, X: Any, Y: Any = None) -> None:
        """
        Set q near the posterior, by one pass over the data and without an optimizer: each row
        tells its nearest inducing point what it says about f (:meth:`fit_sites`). For "dense" and
        "low_rank" only means and, of "low_rank", the diagonal.

        Training starts much closer than from zero means: unwhitened means are slow to learn.
        `training.fit` calls this before the first step unless the model has ``start="prior"``.

        :param X: as :meth:`update_posterior`; any likelihood.
        :raises ValueError: for data that do not fit the model.
        """
        require_separate_outputs(self)
        means, scales = q_from_sites(self, X, Y)
        self.q_mu.assign(means)
        if self.q_log_scale is not None:
            self.q_log_scale.assign(np.log(scales))

    def start_training(self, data: Any) -> None:
        """
        :meth:`start_from_sites` if the model is to start so and its means are still zero; else
        nothing. `training.fit` calls it before the first step of a run.

        :param data: as `training.fit` was given them. Of a data set that may be endless, the first
            ``num_data`` rows are read.
        """
        mixed = isinstance(self.kernel, LinearCoregionalization)
        if self.start != "sites" or mixed or bool(tf.reduce_any(self.q_mu != 0.0)):
            return
        if isinstance(data, tf.data.Dataset):
            if int(data.cardinality()) < 0:
                data = data.unbatch().take(int(self.num_data)).batch(1024)
            data = (data,)
        try:
            self.start_from_sites(*data)
        except ValueError as error:  # of rows too that no step may come to read
            warnings.warn(f"training starts from the prior: {error}", stacklevel=2)

    def fit_sites(self, X: Any, Y: Any = None) -> SitePosterior:
        """
        A posterior without an optimizer: one Gaussian site for each inducing variable, from one
        pass over the data, O(N) searches. Hyperparameters and points are shared with the model.

        :param X: as :meth:`update_posterior`; any likelihood.
        :raises ValueError: for several kernels, or data that do not fit the model.
        """
        if isinstance(self.kernel, MultioutputKernel):
            raise ValueError(
                f"fit_sites needs one kernel for all outputs, got {type(self.kernel).__name__}."
            )
        found = site_posteriors(self, lumped_sites(self, X, Y))[0]
        found.mean_function = self.mean_function
        found.update_cache("tensor")
        return found
