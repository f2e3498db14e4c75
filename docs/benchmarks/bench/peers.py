"""Models of other libraries for comparison; GPyTorch is imported only where it is installed."""

import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree
from sklearn.gaussian_process import kernels as sklearn_kernels

from bench.steps import LeftOutError, Step, num_threads


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


def sklearn_kernel(kernel: Any, noise_variance: float) -> Any:
    """
    scikit-learn's Matern 5/2 kernel plus noise, with bounds that no hyperparameter reaches.

    :param kernel: GPflow's, with one lengthscale for each column.
    """
    wide = (1e-6, 1e6)
    variance = sklearn_kernels.ConstantKernel(float(kernel.variance.numpy()), wide)
    matern = sklearn_kernels.Matern(np.array(kernel.lengthscales), wide, nu=2.5)
    return variance * matern + sklearn_kernels.WhiteKernel(float(noise_variance), wide)


class StochasticGP:
    """GPyTorch's SVGP with a whitened q, a Matern 5/2 kernel and Gaussian noise, on the CPU."""

    def __init__(
        self,
        kernel: Any,
        Z: np.ndarray,
        noise_variance: float,
        *,
        num_data: int,
        dtype: str = "float32",
        jitter: float | None = None,
    ) -> None:
        """
        :param kernel: GPflow's Matern 5/2 kernel with one lengthscale for each column.
        :param Z: points ``[M, D]``.
        :param dtype: "float32", the library's default, or "float64".
        :param jitter: added to covariances; None for the library's default.
        :raises ValueError: where GPyTorch is not installed.
        """
        try:
            import torch  # type: ignore[import-not-found]
            from gpytorch import variational  # type: ignore[import-not-found]
        except ImportError as error:
            raise ValueError(
                "rows with GPyTorch need it: python -m pip install gpytorch; or choose others by "
                f"--rows ({error})."
            ) from error
        torch.set_num_threads(num_threads())
        self._dtype, points = getattr(torch, dtype), self._tensor(Z, dtype)

        def strategy(model: Any) -> Any:
            self.q = variational.CholeskyVariationalDistribution(len(points))
            made = variational.VariationalStrategy(model, points, self.q, jitter_val=jitter)
            made.variational_params_initialized.fill_(1)  # else q is set again at the first call
            return made

        self.model, self.bound = _model(strategy, points, num_data, kernel)
        self.bound.likelihood.noise = float(noise_variance)
        self.num_data = num_data

    def _tensor(self, values: Any, dtype: str | None = None) -> Any:
        import torch

        kind = getattr(torch, dtype) if dtype else self._dtype
        return torch.tensor(np.asarray(values), dtype=kind)

    def set_q(self, q_mu: np.ndarray, q_sqrt: np.ndarray) -> None:
        """Set the whitened mean ``[M, 1]`` and factor ``[1, M, M]`` of q."""
        self.q.variational_mean.data = self._tensor(q_mu[:, 0])
        self.q.chol_variational_covar.data = self._tensor(q_sqrt[0])

    def elbo(self, data: tuple[np.ndarray, np.ndarray]) -> float:
        """The bound on all rows ``[N, D]``, ``[N, 1]``, from those given."""
        X, Y = map(self._tensor, data)
        return self.num_data * float(self.bound(self.model(X), Y[:, 0]).detach())

    def train(
        self,
        data: tuple[np.ndarray, np.ndarray],
        batch_size: int,
        rate: float,
        used: Callable[[int], float],
        seed: int = 0,
    ) -> int:
        """
        Train everything by Adam, at a rate that falls to 0 as a cosine of what is used.

        :param used: fraction of the budget that is used before a step, which ends training at 1.
        :return: number of steps.
        """
        import torch

        X, Y = map(self._tensor, data)
        optimizer = torch.optim.Adam(self.bound.parameters(), lr=rate)
        rng, per_epoch = np.random.default_rng(seed), len(X) // batch_size
        self.bound.train()
        for step in itertools.count():
            fraction = used(step)
            if fraction >= 1.0:
                return step
            if step % per_epoch == 0:
                order = torch.from_numpy(rng.permutation(len(X)))
            start = step % per_epoch * batch_size
            rows = order[start : start + batch_size]
            optimizer.param_groups[0]["lr"] = rate * (0.5 + 0.5 * math.cos(math.pi * fraction))
            optimizer.zero_grad()
            loss = -self.bound(self.model(X[rows]), Y[rows, 0])
            loss.backward()
            optimizer.step()
        raise AssertionError  # the steps are counted without end

    def predict_y(self, X: np.ndarray, chunk_size: int = 4096) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of observations ``[N, 1]``, float64."""
        import torch

        self.bound.eval()
        parts = []
        with torch.no_grad():
            for start in range(0, len(X), chunk_size):
                found = self.model(self._tensor(X[start : start + chunk_size]))
                observed = self.bound.likelihood(found)
                parts.append((observed.mean.numpy(), observed.variance.numpy()))
        mean, variance = (np.concatenate(part)[:, None] for part in zip(*parts, strict=True))
        return mean.astype(np.float64), variance.astype(np.float64)


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


def _model(
    strategy: Callable[[Any], Any], X: Any, num_data: int, kernel: Any = None
) -> tuple[Any, Any]:
    """
    A model with this strategy, and its bound, of which model and likelihood are parts.

    :param X: its number of columns and its type are those of the model.
    :param kernel: GPflow's Matern 5/2 kernel to be copied; None for squared exponential with
        variance and lengthscales 1.
    """
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            super().__init__(strategy(self))
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
            if kernel is not None:
                base = gpytorch.kernels.MaternKernel(2.5, ard_num_dims=X.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(base)

        def forward(self, x: Any) -> Any:
            mean, covariance = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)

        def __call__(self, x: Any, prior: bool = False, **options: Any) -> Any:
            return self.variational_strategy(x=x, prior=prior, **options)

    model, likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data).to(X.dtype)
    variance, lengthscales = 1.0, np.ones(X.shape[1])
    if kernel is not None:
        variance, lengthscales = float(kernel.variance.numpy()), np.asarray(kernel.lengthscales)
    model.covar_module.outputscale = variance
    model.covar_module.base_kernel.lengthscale = X.new_tensor(
        np.broadcast_to(lengthscales, X.shape[1:]).copy()
    )
    likelihood.noise = 0.1
    return model, bound
