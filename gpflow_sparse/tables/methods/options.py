"""Options that several methods have, each with its type, limits and help, written once."""

from typing import Any

from gpflow_sparse.tables.methods.base import option


def kernel(default: str = "matern52", *, compared: bool = True) -> Any:
    """
    Name of the covariance function.

    :param compared: whether "auto" compares kernels before the training.
    """
    names = ["matern12", "matern32", "matern52", "squared_exponential"]
    if not compared:
        return option(default, "Covariance function.", choices=names)
    return option(
        default,
        "Covariance function; on a grid a product over columns, by default squared_exponential. "
        "auto: the one with which the nearest rows predict held-out rows best; for classes and "
        "below 200 rows matern52.",
        choices=["auto", *names],
    )


def ard() -> Any:
    """Whether every input column has a lengthscale."""
    return option(True, "One lengthscale per input column, or one for all.")


def metric() -> Any:
    """Axes of the lengthscales."""
    return option(
        "auto",
        "Lengthscales along the columns of X, or along the axes of the gradients of a model. auto: "
        "those with which the nearest rows predict held-out rows better; columns without "
        "lengthscales of their own, and for an exact GP of at most 1,000 rows.",
        choices=["auto", "columns", "gradients"],
    )


def num_subset(default: int = 500) -> Any:
    """Rows to which starting hyperparameters are fitted."""
    return option(
        default,
        "Rows of the exact GP that gives starting hyperparameters, beside one of local subsets in "
        "long tables; 0 for none.",
        least=0,
    )


def num_inducing(default: int = 256) -> Any:
    """Number of inducing points, M."""
    return option(
        default,
        "M, inducing points, of the base set if there are two sets. Where rows repeat, all "
        "distinct rows if there are at most M.",
        least=1,
    )


def num_orthogonal(default: int = 256, help: str = "") -> Any:
    """Number of points of the orthogonal set, M2."""
    help = help or "M2, points of the orthogonal set; none beside a base set of all distinct rows."
    return option(default, help, least=0)


def bound() -> Any:
    """Name of the objective."""
    return option(
        "standard",
        "The objective; log is tighter at the same cost.",
        choices=["standard", "log"],
    )


def whiten() -> Any:
    """Whether q is relative to the prior."""
    return option(True, "Parametrize q relative to the prior.")


def initialization(default: str = "kmeans") -> Any:
    """How the starting inducing points are chosen."""
    return option(default, "Start of the inducing points.", choices=["kmeans", "greedy", "random"])


def kl_weighting() -> Any:
    """Weights of the KL terms of neighborhoods."""
    return option(
        "counts",
        "Weights of the KL terms of neighborhoods.",
        choices=["counts", "paper", "chain"],
    )


def num_basis(default: int = 1000) -> Any:
    """Number of basis functions."""
    return option(default, "Basis functions, or at most so many of a grid.", least=1)


def basis(default: str = "grid") -> Any:
    """Name of a basis."""
    return option(
        default,
        "Eigenfunctions on a grid, random Fourier features, these beside M inducing points "
        "(hybrid), covariances with training rows, or softmax interpolation between M points.",
        choices=["grid", "fourier", "hybrid", "dictionary", "soft"],
    )


def points_per_dimension() -> Any:
    """Nodes of a grid."""
    return option(10, "Nodes of the grid in each input column.", least=1)


def temperature() -> Any:
    """Start of the temperature of softmax interpolation."""
    return option(
        0.3, "Start of the temperature of softmax interpolation, in lengthscales.", positive=True
    )


def num_layers(default: int, help: str) -> Any:
    """Number of layers."""
    return option(default, help, between=(1, 3))


def num_steps(default: int = 600, help: str = "Training steps.") -> Any:
    """Number of training steps."""
    return option(default, help, least=1)


def batch_size(default: int = 1024) -> Any:
    """Rows of a step."""
    return option(default, "Rows per step.", least=1)


def learning_rate(default: float = 0.02, help: str = "Peak rate of Adam.") -> Any:
    """Learning rate."""
    return option(default, help, positive=True)


def schedule() -> Any:
    """How the learning rate changes in a run."""
    return option(
        "cosine",
        "Decay of the rate to zero over the run, or constant.",
        choices=["cosine", "constant"],
    )


def natural_gradients(default: float = 0.1) -> Any:
    """Step size of natural gradients."""
    return option(
        default,
        "Step size of natural gradients on q; 0 leaves q to Adam.",
        between=(0, 1),
    )


def basis_batch_size() -> Any:
    """Functions of a step."""
    return option(1000, "Functions in each of the two draws of a step.", least=1)


def num_dense_columns() -> Any:
    """Dense columns of a covariance."""
    return option(None, "Dense columns of the covariance.", least=0)


def sampled_covariance() -> Any:
    """Shape of the covariance of the weights of sampled functions."""
    return option(None, "Shape of the covariance of q.", choices=["diag", "block", "chevron"])


def variance_reduction() -> Any:
    """Variance reduction of the gradients of sampled functions."""
    return option("anchored", "Variance reduction of gradients.", choices=["anchored", "none"])


def num_control_rows() -> Any:
    """Rows where the mean is known exactly."""
    return option(
        500,
        "Rows of the control variate, where the mean is known exactly.",
        least=1,
    )


def image_shape() -> Any:
    """Shape of images."""
    return option(
        None, "Shape of the images, H,W or H,W,C; else as the data set has it, or square."
    )
