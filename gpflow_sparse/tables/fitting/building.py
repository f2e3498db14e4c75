"""The untrained model of a recipe, with starting hyperparameters from standardized data."""

import copy
import dataclasses
import math
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_sparse.data import Dataset
from gpflow_sparse.diagnosis.inducing import UnavailableError, nystrom_of, project_rows
from gpflow_sparse.models.regression import noise_parameter
from gpflow_sparse.numerics.linalg import FactorizationError
from gpflow_sparse.tables.fitting.calibration import will_calibrate
from gpflow_sparse.tables.fitting.observations import (
    exposure_map,
    log_rates,
    make_likelihood,
)
from gpflow_sparse.tables.fitting.starts import (
    DEFAULT_NOISE,
    InitialHyperparameters,
    starting_noise,
)
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.fitting.tree_mean import TreeMean, fit_tree_mean, weight_beside
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.options import Points
from gpflow_sparse.tables.methods.registry import AUTO, RECIPES, kind_of
from gpflow_sparse.tables.methods.rows import random_rows
from gpflow_sparse.tables.methods.simple import Simple
from gpflow_sparse.validation import checks

MIN_NOISE = 0.01
"""Least starting value of the noise variance, as a fraction of the variance of the outputs: an
exact GP may fit a few rows almost without noise, with which a sparse model starts at an objective
of minus billions."""
# Rows, and most inducing points, by which the start of the noise variance is judged.
_ROWS, _MAX_POINTS = 1000, 2048


def build_model(
    recipe: Recipe,
    dataset: Dataset,
    *,
    kernel: gpflow.kernels.Kernel | None = None,
    likelihood: Any = None,
    noise_variance: float | None = None,
    start: gpflow.models.GPModel | None = None,
    mean: TreeMean | None = None,
    until: float = math.inf,
) -> gpflow.models.GPModel:
    """
    The model of a recipe, with inducing points and hyperparameters initialized from the data, and
    with the standardizer of the data.

    :param dataset: standardized.
    :param kernel: copied in place of the one that the recipe names.
    :param likelihood: a likelihood to copy, or a name, in place of the one that the recipe names.
    :param noise_variance: start of the noise variance; together with ``kernel`` nothing is fitted,
        see :class:`~gpflow_sparse.tables.fitting.starts.InitialHyperparameters`.
    :param start: a trained model of the same method, whose parameters are the start.
    :param mean: for a recipe with a mean of trees, the one of these rows; None to fit it.
    :param until: value of ``time.perf_counter`` after which no fit of hyperparameters begins.
    :raises ValueError: if there are fewer training rows than inducing points, patches do not fit
        into the images, or the method is for regression and the data set has classes.
    """
    if recipe.for_classes and dataset.num_classes is not None:
        raise ValueError(
            f"method {recipe.name} is for regression, but {dataset.name} has classes; "
            f"{recipe.for_classes} takes them."
        )
    likelihood = likelihood or recipe.likelihood or recipe.usual_likelihood(dataset.num_classes)
    require_unweighted(recipe, dataset)
    if start is not None and isinstance(recipe, Points):  # its points replace the model's
        recipe = dataclasses.replace(recipe, initialization="random")
    if isinstance(recipe, Simple):  # a GP of another kernel is compared with it
        kernel = None
    # in double precision the optimum of exact GPs is not only a start
    single = gpflow.default_float() != np.float64
    is_start = single or recipe.is_trained
    least = MIN_NOISE if is_start and not _makes_kernel(recipe, kernel) else 0.0
    kernel, noise_variance, mean = _start_of(
        recipe, dataset, likelihood, (kernel, noise_variance, mean), start, until
    )
    made = make_likelihood(likelihood, dataset.num_classes, max(noise_variance, least))
    require_gaussian(recipe, made)
    recipe = _with_bound(recipe, dataset, made)
    model = _built(recipe, dataset, kernel, made, mean)
    if start is not None:
        _copy_parameters(start, model)
    elif noise_variance < least and not single and _made_gaussian(made, likelihood):
        _lower_noise(model, noise_variance, dataset.train[0])
    return attach_units(model, dataset)


def _makes_kernel(recipe: Recipe, kernel: gpflow.kernels.Kernel | None) -> bool:
    """Whether the model makes its own kernel."""
    return recipe.takes_images or (recipe.makes_kernel and kernel is None)


def _start_of(
    recipe: Recipe,
    dataset: Dataset,
    likelihood: Any,
    given: tuple[gpflow.kernels.Kernel | None, float | None, TreeMean | None],
    start: gpflow.models.GPModel | None,
    until: float,
) -> tuple[gpflow.kernels.Kernel | None, float, TreeMean | None]:
    """Kernel, noise variance and mean of an untrained model, where they are not given."""
    kernel, noise_variance, mean = given
    if _makes_kernel(recipe, kernel):
        if recipe.has_tree_mean and mean is None:
            mean = fit_tree_mean(dataset, recipe.seed)
        return kernel, starting_noise(dataset), mean
    kernel = copy.deepcopy(kernel)
    starts = InitialHyperparameters(
        dataset, likelihood, kernel, until=until, exposure=recipe.exposure
    )
    if recipe.has_tree_mean and mean is None:
        mean = _tree_mean(recipe, dataset, starts, start)
    if mean is not None:
        starts = starts.about(mean)
    if start is not None:  # its values replace kernel and noise
        return starts.untrained_kernel(recipe), starts.noise_variance, mean
    if kernel is None or noise_variance is None:
        kernel, noise_variance = starts.find(recipe)[:2]
    return kernel, noise_variance, mean


def _built(
    recipe: Recipe,
    dataset: Dataset,
    kernel: gpflow.kernels.Kernel | None,
    likelihood: gpflow.likelihoods.Likelihood,
    mean: TreeMean | None,
) -> gpflow.models.GPModel:
    """The model of all rows, with its mean."""
    rows, given = dataset.train, dict[str, Any]()
    if mean is not None:
        rows, given = mean.model_rows(dataset), {"mean_function": mean.function}
        rows = tuple(map(gpflow.utilities.to_default_float, rows))
        mean.remember(rows[0])
    if dataset.weights is not None and recipe.holds_data:
        given["row_weights"] = dataset.weights
    if dataset.noise_variance is not None:
        given["known_variance"] = dataset.noise_variance
    model = recipe.build(rows, kernel, likelihood, **given)
    _complete_mean(model, dataset, mean, recipe.exposure)
    return model


def _with_bound(recipe: Recipe, dataset: Dataset, likelihood: Any) -> Recipe:
    """
    The recipe with the bound that is its default: "log" for Gaussian noise if the model will be
    calibrated, since predictive variances are otherwise too large, and if rows have no weights.
    """
    if getattr(recipe, "bound", "") is not None:
        return recipe
    is_plain = isinstance(likelihood, gpflow.likelihoods.Gaussian) and dataset.weights is None
    changed: dict[str, Any] = {"bound": "standard"}
    if is_plain and will_calibrate(recipe, dataset):
        changed["bound"] = "log"
    return dataclasses.replace(recipe, **changed)


def _complete_mean(
    model: gpflow.models.GPModel, dataset: Dataset, mean: TreeMean | None, exposure: str | None
) -> None:
    """Keep the known values of trees; or for counts and positive outputs set the mean of f."""
    if mean is not None:
        if hasattr(model, "data"):
            mean.remember(model.data[0])
    elif dataset.num_classes is None and isinstance(model.mean_function, gpflow.functions.Zero):
        found = log_rates(model.likelihood, dataset, exposure)
        if found is not None:
            model.mean_function = _mean_of_counts(dataset, found[1], exposure)


def _mean_of_counts(dataset: Dataset, mean: np.ndarray, exposure: str | None) -> Any:
    """A constant, to which the logarithm of the exposure is added."""
    if exposure is None:
        return gpflow.functions.Constant(mean)
    A, constant = exposure_map(dataset, exposure)
    found = gpflow.functions.Linear(A, mean + constant)
    gpflow.set_trainable(found.A, False)
    return found


def _made_gaussian(made: gpflow.likelihoods.Likelihood, likelihood: Any) -> bool:
    """Whether the likelihood is Gaussian, and not a copy of one that the user gave."""
    given = isinstance(likelihood, gpflow.likelihoods.Likelihood)
    return isinstance(made, gpflow.likelihoods.Gaussian) and not given


def _lower_noise(model: gpflow.models.GPModel, noise_variance: float, X: np.ndarray) -> None:
    """
    Lower the starting noise variance of a model with inducing points to that of the exact GP, or to
    the variance of f that the points leave at an average row, whichever is higher: data without
    noise do not start with the least noise of other data, which training takes long to leave.
    """
    inducing = getattr(model, "inducing_variable", None)
    if inducing is None or int(inducing.num_inducing) > _MAX_POINTS:
        return
    rows = tf.constant(random_rows(X, _ROWS, 0))
    try:
        found = project_rows(nystrom_of(model), rows, rows[:, :0])
    except (UnavailableError, FactorizationError):
        return
    left = float(np.mean(found.unexplained * model.kernel(rows, full_cov=False)))
    variance = noise_parameter(model.likelihood)
    variance.assign(min(max(noise_variance, left), float(variance.numpy())))


def _tree_mean(
    recipe: Recipe,
    dataset: Dataset,
    starts: InitialHyperparameters,
    start: gpflow.models.GPModel | None,
) -> TreeMean:
    """
    A mean of trees, with the weight of that of the start if it has one.

    :raises ValueError: for regression in minibatches, whose rows are not the residuals of trees
        that were fitted to other rows.
    """
    if dataset.num_classes is None and not recipe.holds_data:
        raise ValueError(f"mean must be zero for regression with {recipe.name}; take gpnn.")
    if start is None or dataset.num_classes is not None:
        mean = fit_tree_mean(dataset, recipe.seed)
        if dataset.num_classes is not None:
            return mean
        hyperparameters = starts.find(recipe)[:2]
        return mean.weighted(weight_beside(dataset, mean, *hyperparameters, recipe.seed))
    weight = getattr(start.mean_function, "weight", 1.0)
    return fit_tree_mean(dataset, recipe.seed, weight)


def require_unweighted(recipe: Recipe, dataset: Dataset) -> None:
    """:raises ValueError: for weights of rows, if the method does not take them."""
    if dataset.weights is not None and not recipe.takes_weights:
        raise ValueError(
            f"weights of rows must be 1 for method {recipe.name}, which cannot weigh rows; take "
            "auto or solvegp."
        )


def require_known_noise(task: Task, method: str) -> None:
    """:raises ValueError: for known noise variances that the method or the noise does not take."""
    if task.dataset.noise_variance is None:
        if task.options.get("noise_column"):
            raise ValueError(
                "noise_column is for regression with the estimators and the command line; leave it "
                "out."
            )
        return
    if not task.is_gaussian:
        raise ValueError("noise_variance is for Gaussian noise: leave out the likelihood.")
    if not kind_of(method).takes_noise:
        takers = ", ".join(name for name, kind in RECIPES.items() if kind.takes_noise)
        raise ValueError(
            f"noise_variance must be None for method {method}, whose noise has one variance; take "
            f"one of {AUTO}, {takers}."
        )


def require_gaussian(recipe: Recipe, likelihood: gpflow.likelihoods.Likelihood) -> None:
    """:raises ValueError: for another likelihood, if the method is for Gaussian noise only."""
    if recipe.for_classes and not isinstance(likelihood, gpflow.likelihoods.Gaussian):
        raise ValueError(
            f"likelihood must be gaussian for method {recipe.name}, got "
            f"{type(likelihood).__name__}; {recipe.for_classes} takes any."
        )


def require_outputs(dataset: Dataset, likelihood: Any) -> None:
    """
    Refuse training outputs that the likelihood does not have, before anything is trained.

    :param likelihood: a likelihood, its name, or None for the usual one.
    :raises ValueError: for these, such as negative counts, or for an unknown name.
    """
    made = make_likelihood(likelihood, dataset.num_classes, DEFAULT_NOISE)
    checks.require_data(dataset.train, likelihood=made)


def _copy_parameters(source: gpflow.models.GPModel, target: gpflow.models.GPModel) -> None:
    """Give a model all parameters of another one that have the same path and shape."""
    values = gpflow.utilities.parameter_dict(source)
    for path, parameter in gpflow.utilities.parameter_dict(target).items():
        if path in values and values[path].shape == parameter.shape:
            parameter.assign(values[path])


def attach_units(model: gpflow.models.GPModel, dataset: Dataset) -> gpflow.models.GPModel:
    """The model, with the standardizer of its data, which is saved with it."""
    model.standardizer = dataset.standardizer
    return model
