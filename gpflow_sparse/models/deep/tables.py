"""Deep models of tables, which start near the model of one layer."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
from gpflow.kernels import Kernel, Matern52, SquaredExponential
from gpflow.likelihoods import Likelihood

from gpflow_sparse import initialization, mean_functions
from gpflow_sparse.inducing_variables import NeighborInducingPoints, OrthogonalInducingVariables
from gpflow_sparse.initialization.inducing_inputs import input_scale
from gpflow_sparse.initialization.repeated_rows import distinct_rows
from gpflow_sparse.models.deep.layers import GPLayer, layer_sizes
from gpflow_sparse.models.deep.model import DeepGP
from gpflow_sparse.models.solvegp import SOLVEGP
from gpflow_sparse.validation import checks, component_checks

# Prior standard deviation of hidden functions, relative to the geometric mean of the lengthscales,
# and standard deviations of their q relative to the prior. On validation rows of kin8nm NLPD was
# 0.052; with a scale of 1e-2 0.080, with a tenfold variance 0.072.
_SHARE, _SCALE = 0.05, 1e-4
# Columns of hidden layers of wide tables, and layers.
_MAX_HIDDEN, _MAX_LAYERS = 30, 10


def deep(
    X: Any,
    likelihood: Likelihood,
    *,
    num_inducing: int | Sequence[int],
    num_orthogonal: int | Sequence[int] = 0,
    num_layers: int = 2,
    num_hidden: int | None = None,
    num_neighbors: int | None = None,
    kernel: Kernel | None = None,
    num_data: int | None = None,
    num_samples: int = 1,
    num_prediction_samples: int = 10,
    bound: str = "standard",
    seed: int = 0,
) -> SOLVEGP | DeepGP:
    """
    A deep Gaussian process for the rows of a table, ready to be trained.

    Hidden layers start near the identity, as in Salimbeni and Deisenroth (2017, arXiv:1705.08933):
    their mean function is :func:`gpflow_sparse.mean_functions.pca`, their kernel is squared
    exponential of small variance, and q has mean zero and small variance. So the predictions start
    near the predictions of one layer with the same, possibly trained kernel.

    Inducing points are k-means centers of the inputs of a layer: X after the mean functions of
    earlier layers. In a step, operations on q take G times as long for G outputs of a layer as for
    one.

    :param X: training inputs ``[N, D]``, each column standardized.
    :param likelihood: any GPflow likelihood; it determines the functions of the last layer.
    :param num_inducing: M of every layer, or one number for each, first to last.
    :param num_orthogonal: M2 of every layer, or one number for each; 0 for none, which is SVGP.
    :param num_layers: number of layers, 1 to 10.
    :param num_hidden: G, columns of hidden layers; by default D, without a kernel at most 30, as in
        the paper.
    :param num_neighbors: H, inducing points that a row uses in each of two or more layers, with
        independent Gaussians for q, as in SWSGP; None for all.
    :param kernel: kernel of the last layer, used as it is; by default Matern 5/2 with one
        lengthscale per column, the medians of distances. Hidden layers start at its lengthscales.
    :param num_data: N; None for the rows of X.
    :param num_samples: draws of the hidden layers in a step, see :class:`DeepGP`.
    :param num_prediction_samples: draws of the hidden layers in predictions.
    :param bound: "standard", or "log" for the last layer.
    :param seed: seed of the choice of inducing points.
    :return: :class:`DeepGP`; :class:`SOLVEGP` for one layer.
    :raises ValueError: for inputs, counts or a kernel that do not fit each other.
    """
    rows = np.asarray(checks.require_matrix(X, "X"), dtype=np.float64)
    if not 1 <= checks.require_whole(num_layers, "num_layers") <= _MAX_LAYERS:
        raise ValueError(f"num_layers must be from 1 to {_MAX_LAYERS}, got {num_layers}.")
    latents = int(getattr(likelihood, "latent_dim", None) or 1)
    checks.require_likelihood(likelihood, latents)
    sizes = layer_sizes(num_inducing, num_orthogonal, num_layers)
    _require_neighbors(num_neighbors, sizes)
    checks.require_seed(seed)
    num_data = len(rows) if num_data is None else num_data
    if num_hidden is None:
        num_hidden = rows.shape[1] if kernel is not None else min(_MAX_HIDDEN, rows.shape[1])
    checks.require_count(num_hidden, "num_hidden")
    layers = []
    for size in sizes[:-1]:
        layer, rows = _hidden(rows, size, num_hidden, num_neighbors, kernel, seed)
        layers.append(layer)
    if kernel is None:
        kernel = Matern52(lengthscales=initialization.median_lengthscales(rows, seed=seed))
    component_checks.require_kernel(kernel, rows.shape[1])
    points = _points(rows, sizes[-1], num_neighbors, kernel, seed)
    options: dict[str, Any] = {"num_data": num_data, "bound": bound}
    if not layers:
        return SOLVEGP(kernel, likelihood, points, num_latent_gps=latents, **options)
    return DeepGP(
        [*layers, GPLayer(kernel, points, num_latent_gps=latents)],
        likelihood,
        num_samples=num_samples,
        num_prediction_samples=num_prediction_samples,
        **options,
    )


def _hidden(
    rows: np.ndarray,
    size: tuple[int, ...],
    num_outputs: int,
    num_neighbors: int | None,
    last: Kernel | None,
    seed: int,
) -> tuple[GPLayer, np.ndarray]:
    """A hidden layer, and inputs of the next layer: the values of its mean function."""
    scales = initialization.median_lengthscales(rows, seed=seed)
    if last is not None and np.size(getattr(last, "lengthscales", ())) in (1, rows.shape[1]):
        scales = input_scale(last, rows.shape[1])
    variance = (_SHARE * np.exp(np.mean(np.log(scales)))) ** 2
    kernel = SquaredExponential(variance=variance, lengthscales=scales)
    layer = GPLayer(
        kernel,
        _points(rows, size, num_neighbors, kernel, seed),
        num_latent_gps=num_outputs,
        mean_function=mean_functions.pca(rows, num_outputs),
    )
    for R in layer.q_sqrt:
        R.assign(_SCALE * R)
    return layer, layer.mean_function(rows.astype(gpflow.default_float())).numpy()


def _points(
    rows: np.ndarray, size: tuple[int, ...], num_neighbors: int | None, kernel: Kernel, seed: int
) -> OrthogonalInducingVariables | NeighborInducingPoints:
    """Inducing variables of a layer with these inputs."""
    if sum(size) > len(rows) == len(distinct_rows(rows)):
        raise ValueError(
            f"num_inducing + num_orthogonal must be at most the {len(rows)} rows of X, got "
            f"{sum(size)}."
        )
    sets = initialization.split_orthogonal(rows, *size, kernel=kernel, seed=seed)
    if num_neighbors is None:
        return OrthogonalInducingVariables(*sets)
    if len(sets[0]) < size[0]:  # all distinct rows
        num_neighbors = min(num_neighbors, len(sets[0]))
    return NeighborInducingPoints(sets[0], num_neighbors)


def _require_neighbors(num_neighbors: int | None, sizes: Sequence[tuple[int, ...]]) -> None:
    if num_neighbors is None:
        return
    if len(sizes) == 1:
        raise ValueError(
            "num_layers must be at least 2 with num_neighbors; of one layer gs.models.SWSGP is "
            "such a model."
        )
    if any(len(size) > 1 for size in sizes):
        raise ValueError("num_orthogonal must be 0 with num_neighbors, which are of one set.")
