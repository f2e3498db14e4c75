"""Starting values from the data: inducing inputs, lengthscales, kernel hyperparameters."""

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.initialization.gradient_axes import gradient_axes
from gpflow_sparse.initialization.hyperparameters import (
    local_hyperparameters,
    neighbor_log_density,
    posterior_mode,
    subset_hyperparameters,
)
from gpflow_sparse.initialization.inducing_inputs import (
    greedy_orthogonal,
    greedy_variance,
    kmeans,
    median_lengthscales,
    random_subset,
    split_orthogonal,
)

__all__ = [
    "gradient_axes",
    "greedy_orthogonal",
    "greedy_variance",
    "kmeans",
    "local_hyperparameters",
    "median_lengthscales",
    "neighbor_log_density",
    "posterior_mode",
    "random_subset",
    "split_orthogonal",
    "subset_hyperparameters",
]

restrict_dir(__name__, __all__)
