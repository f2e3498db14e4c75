"""Other libraries' models, as steps to be timed beside ours; imported only where installed."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def gpytorch_decoupled_step(
    Z: np.ndarray, O: np.ndarray, X: np.ndarray, Y: np.ndarray, *, num_data: int, dtype: tf.DType
) -> Callable[[], Any]:
    """
    One value and gradient of GPyTorch's ``OrthogonallyDecoupledVariationalStrategy``, on the CPU.

    Z carries a whitened full covariance, O the mean only; squared exponential with one lengthscale
    per column and a variance, Gaussian noise, gradient of all parameters. PyTorch gets as many
    threads as TensorFlow has, for the whole process.

    :param Z: covariance points ``[M, D]``.
    :param O: mean points ``[M2, D]``.
    :param X: batch ``[n, D]``, and
    :param Y: its outputs ``[n, 1]``.
    :raises ImportError: if ``gpytorch`` is not installed.
    """
    import gpytorch  # type: ignore[import-not-found]  # noqa: F401, missing is found out here
    import torch  # type: ignore[import-not-found]

    # 0 stands for TensorFlow's default, one per core
    threads = tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count() or 1
    torch.set_num_threads(threads)
    precision = getattr(torch, dtype.name)
    tensors = [torch.tensor(array, dtype=precision) for array in (Z, O, X, Y[:, 0])]
    loss = _gpytorch_loss(*tensors, num_data=num_data)
    parameters = list(loss.parameters())

    def step() -> tuple[Any, list[Any]]:
        loss.zero_grad()
        value = loss()
        value.backward()
        return value.detach(), [parameter.grad for parameter in parameters]

    return step


def _gpytorch_loss(Z: Any, O: Any, X: Any, Y: Any, *, num_data: int) -> Any:
    """A module whose call is the negative bound; its parameters are the model's."""
    import gpytorch
    import torch
    from gpytorch import variational

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            base = variational.VariationalStrategy(
                self,
                Z,
                variational.CholeskyVariationalDistribution(len(Z)),
                learn_inducing_locations=True,
            )
            strategy = variational.OrthogonallyDecoupledVariationalStrategy(
                base, O, variational.DeltaVariationalDistribution(len(O))
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
            )
            self.covar_module.base_kernel.lengthscale = 1.0
            self.covar_module.outputscale = 1.0

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
            self.likelihood.noise = 0.1
            self.bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data)

        def forward(self) -> Any:
            return -self.bound(self.model(X), Y)

    return Loss().to(X.dtype)
