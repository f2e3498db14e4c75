"""Training steps of other libraries' models for comparison; imported only where installed."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree

from gpflow_sparse.bench.steps import LeftOutError, Step


def decoupled_step(
    Z: np.ndarray, O: np.ndarray, data: tuple[tf.Tensor, tf.Tensor], *, num_data: int
) -> Step:
    """
    One value and gradient of GPyTorch's ``OrthogonallyDecoupledVariationalStrategy``, on the CPU.

    Z carries a whitened full covariance, O the mean only; squared exponential with one lengthscale
    per column and a variance, Gaussian noise, gradient of all parameters.

    :param Z: covariance points ``[M, D]``.
    :param O: mean points ``[M2, D]``.
    :param data: the batch ``[n, D]``, ``[n, 1]``.
    :raises LeftOutError: without GPyTorch, and where TensorFlow runs on another device.
    """
    Z, O, X, Y = _tensors(data[0], Z, O, *data)
    from gpytorch import variational  # type: ignore[import-not-found]

    def strategy(model: Any) -> Any:
        q = variational.CholeskyVariationalDistribution(len(Z))
        base = variational.VariationalStrategy(model, Z, q, learn_inducing_locations=True)
        mean = variational.DeltaVariationalDistribution(len(O))
        return variational.OrthogonallyDecoupledVariationalStrategy(base, O, mean)

    model, bound = _model(strategy, X, num_data)

    def step() -> tuple[Any, list[Any]]:
        bound.zero_grad()
        loss = -bound(model(X), Y[:, 0])
        loss.backward()
        return loss.detach(), [parameter.grad for parameter in bound.parameters()]

    return step


def neighbor_step(data: tuple[tf.Tensor, tf.Tensor], num_neighbors: int, batch_size: int) -> Step:
    """
    One training step of GPyTorch's ``NNVariationalStrategy`` on the CPU: value, gradient, Adam.

    Its inducing points are its training inputs. A step takes a batch of them for the data and for
    the KL, each with its nearest predecessors, as the library recommends; q is mean-field;
    squared exponential with one lengthscale per column and a variance, Gaussian noise, all of them
    trained. The library searches predecessors row by row, which with scikit-learn takes hours at
    100,000 rows: they are computed by :func:`preceding` instead.

    :param data: ``[M, D]``, ``[M, 1]``.
    :raises LeftOutError: without GPyTorch, and where TensorFlow runs on another device.
    """
    points, outputs = _tensors(data[0], *data)
    import torch  # type: ignore[import-not-found]
    from gpytorch import variational

    class Strategy(variational.NNVariationalStrategy):
        def _compute_nn(self) -> Any:
            found = preceding(self.inducing_points.numpy(), self.k)
            self.nn_xinduce_idx = torch.from_numpy(found)
            return self

    def strategy(model: Any) -> Any:
        q = variational.MeanFieldVariationalDistribution(len(points))
        return Strategy(model, points, q, num_neighbors, min(batch_size, len(points)))

    model, bound = _model(strategy, points, len(points))
    optimizer = torch.optim.Adam(bound.parameters(), lr=0.001)

    def step() -> Any:
        optimizer.zero_grad()
        found = model(x=None)
        loss = -bound(found, outputs[model.variational_strategy.current_training_indices, 0])
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


def _tensors(like: tf.Tensor, *arrays: Any) -> list[Any]:
    """The arrays as PyTorch tensors; sets the number of PyTorch's threads to TensorFlow's."""
    if "CPU" not in like.device:
        raise LeftOutError("which is timed on the CPU only")
    try:
        import gpytorch  # noqa: F401, missing is found out here
        import torch
    except ImportError as error:
        raise LeftOutError(str(error)) from error
    # 0 stands for TensorFlow's default, one per core
    threads = tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count() or 1
    torch.set_num_threads(threads)
    return [torch.tensor(np.asarray(a), dtype=getattr(torch, like.dtype.name)) for a in arrays]


def _model(strategy: Callable[[Any], Any], X: Any, num_data: int) -> tuple[Any, Any]:
    """A model with this strategy, and its bound, of which model and likelihood are parts."""
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            super().__init__(strategy(self))
            self.mean_module = gpytorch.means.ZeroMean()
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf)

        def forward(self, x: Any) -> Any:
            mean, covariance = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)

        def __call__(self, x: Any, prior: bool = False, **options: Any) -> Any:
            return self.variational_strategy(x=x, prior=prior, **options)

    model, likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
    model.covar_module.outputscale = model.covar_module.base_kernel.lengthscale = 1.0
    likelihood.noise = 0.1
    return model, gpytorch.mlls.VariationalELBO(likelihood, model, num_data).to(X.dtype)
