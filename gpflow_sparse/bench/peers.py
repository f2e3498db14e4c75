"""Other libraries' models, as steps to be timed beside ours; imported only where installed."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree


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

    _share_threads()
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


def gpytorch_neighbor_step(
    Z: np.ndarray, Y: np.ndarray, *, num_neighbors: int, batch_size: int, dtype: tf.DType
) -> Callable[[], Any]:
    """
    One training step of GPyTorch's ``NNVariationalStrategy`` on the CPU: value, gradient, Adam.

    Its inducing points are its training inputs. A step takes a batch of them for the data and for
    the KL alike, each of which sees its nearest predecessors, as the library recommends; q is
    mean-field; squared exponential with one lengthscale per column and a variance, Gaussian noise,
    all of them trained. The library looks for predecessors row by row, which with scikit-learn
    takes hours at 100,000 rows: they come from :func:`preceding` instead. PyTorch gets as many
    threads as TensorFlow has, for the whole process.

    :param Z: ``[M, D]``.
    :param Y: outputs ``[M, 1]``.
    :raises ImportError: if ``gpytorch`` is not installed.
    """
    import gpytorch
    import torch

    _share_threads()
    precision = getattr(torch, dtype.name)
    points, outputs = (torch.tensor(array, dtype=precision) for array in (Z, Y[:, 0]))
    model = _gpytorch_neighbors(points, num_neighbors, batch_size).to(precision)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(precision)
    likelihood.noise = 0.1
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(Z))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.001)

    def step() -> Any:
        optimizer.zero_grad()
        found = model(x=None)
        loss = -bound(found, outputs[model.variational_strategy.current_training_indices])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def preceding(Z: np.ndarray, count: int, block: int = 1024) -> np.ndarray:
    """
    For each row of Z but the first ``count``, the nearest of the rows before it.

    :return: ``[M - count, count]``, nearest first.
    """
    found = np.empty((len(Z) - count, count), np.int64)
    for start in range(count, len(Z), block):
        rows = np.arange(start, min(start + block, len(Z)))
        tree = cKDTree(Z[:start], leafsize=64)
        distances, places = (np.reshape(part, (-1, count)) for part in tree.query(Z[rows], count))
        inside = np.sum((Z[rows, None] - Z[None, rows]) ** 2, axis=2) ** 0.5
        inside[np.triu_indices(len(rows))] = np.inf  # a row, and those after it
        both = np.concatenate([distances, inside], axis=1)
        names = np.concatenate([places, np.tile(rows, (len(rows), 1))], axis=1)
        nearest = np.argsort(both, axis=1)[:, :count]
        found[rows - count] = np.take_along_axis(names, nearest, axis=1)
    return found


def _share_threads() -> None:
    import torch

    # 0 stands for TensorFlow's default, one per core
    threads = tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count() or 1
    torch.set_num_threads(threads)


def _gpytorch_neighbors(points: Any, num_neighbors: int, batch_size: int) -> Any:
    import gpytorch
    import torch
    from gpytorch import variational

    class Strategy(variational.NNVariationalStrategy):
        def _compute_nn(self) -> Any:
            found = preceding(self.inducing_points.numpy(), self.k)
            self.nn_xinduce_idx = torch.from_numpy(found)
            return self

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            q = variational.MeanFieldVariationalDistribution(len(points))
            strategy = Strategy(self, points, q, num_neighbors, min(batch_size, len(points)))
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = _gpytorch_kernel(points.shape[1])

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

        def __call__(self, x: Any, prior: bool = False, **options: Any) -> Any:
            return self.variational_strategy(x=x, prior=prior, **options)

    return Model()


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
            self.covar_module = _gpytorch_kernel(X.shape[1])

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


def _gpytorch_kernel(input_dim: int) -> Any:
    """Squared exponential, everything 1."""
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=input_dim))
    kernel.base_kernel.lengthscale = 1.0
    kernel.outputscale = 1.0
    return kernel
