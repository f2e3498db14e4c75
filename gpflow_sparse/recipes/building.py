"""The untrained model of a recipe, with starting hyperparameters from standardized data."""

import copy
import dataclasses
from typing import Any

import gpflow
import numpy as np

from gpflow_sparse.data import Dataset
from gpflow_sparse.recipes.base import Recipe
from gpflow_sparse.recipes.observations import make_likelihood
from gpflow_sparse.recipes.starts import DEFAULT_NOISE, InitialHyperparameters
from gpflow_sparse.recipes.tree_mean import TreeMean, fit_tree_mean
from gpflow_sparse.validation import checks


def build_model(
    recipe: Recipe,
    dataset: Dataset,
    *,
    kernel: gpflow.kernels.Kernel | None = None,
    likelihood: Any = None,
    noise_variance: float | None = None,
    start: gpflow.models.GPModel | None = None,
    mean: TreeMean | None = None,
) -> gpflow.models.GPModel:
    """
    The model of a recipe, with inducing points and hyperparameters initialized from the data, and
    with the standardizer of the data.

    :param dataset: standardized.
    :param kernel: copied in place of the one that the recipe names.
    :param likelihood: a likelihood to copy, or a name, in place of the one that the recipe names.
    :param noise_variance: start of the noise variance; together with ``kernel`` nothing is fitted,
        see :class:`~gpflow_sparse.recipes.starts.InitialHyperparameters`.
    :param start: a trained model of the same method, whose parameters are the start.
    :param mean: for a recipe with a mean of trees, the one of these rows; None to fit it.
    :raises ValueError: if there are fewer training rows than inducing points, patches do not fit
        into the images, or the method is for regression and the data set has classes.
    """
    if recipe.for_classes and dataset.num_classes is not None:
        raise ValueError(
            f"method {recipe.name} is for regression, but {dataset.name} has classes; "
            f"{recipe.for_classes} takes them."
        )
    likelihood = likelihood or recipe.likelihood or recipe.usual_likelihood(dataset.num_classes)
    if recipe.takes_images or (recipe.makes_kernel and kernel is None):
        noise_variance = DEFAULT_NOISE
    else:
        kernel = copy.deepcopy(kernel)
        starts = InitialHyperparameters(dataset, likelihood, kernel)
        if recipe.has_tree_mean and mean is None:
            mean = _tree_mean(recipe, dataset, starts, start)
        if mean is not None:
            starts = InitialHyperparameters(mean.residual_data(dataset), likelihood, kernel)
        if start is not None:  # its values replace kernel, noise and inducing points
            recipe = _with_any_points(recipe)
            kernel, noise_variance = starts.untrained_kernel(recipe), DEFAULT_NOISE
        elif kernel is None or noise_variance is None:
            kernel, noise_variance = starts.find(recipe)[:2]
        # in double precision the optimum of exact GPs is not only a start
        single = gpflow.default_float() != np.float64
        noise_variance = max(noise_variance, Recipe.min_noise if single else recipe.min_noise)
    made = make_likelihood(likelihood, dataset.num_classes, noise_variance)
    require_gaussian(recipe, made)
    rows, given = dataset.train, {}
    if mean is not None:
        rows, given = mean.model_rows(dataset), {"mean_function": mean.function}
    model = recipe.for_images(dataset.image_shape).build(rows, kernel, made, **given)
    if start is not None:
        _copy_parameters(start, model)
    return attach_units(model, dataset)


def _tree_mean(
    recipe: Recipe,
    dataset: Dataset,
    starts: InitialHyperparameters,
    start: gpflow.models.GPModel | None,
) -> TreeMean:
    """A mean of trees, with the weight of that of the start if it has one."""
    if start is None:
        return fit_tree_mean(dataset, *starts.find(recipe)[:2], recipe.seed)
    weight = getattr(start.mean_function, "weight", None)
    return fit_tree_mean(dataset, start.kernel, start.likelihood.variance, recipe.seed, weight)


def _with_any_points(recipe: Recipe) -> Recipe:
    """The recipe with random inducing points, which are found in the least time."""
    changed: dict[str, Any] = {"initialization": "random"}
    return dataclasses.replace(recipe, **changed) if hasattr(recipe, "initialization") else recipe


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
    """The model, with the standardizer and the table of its data, which are saved with it."""
    model.standardizer = dataset.standardizer
    if dataset.table is not None:
        model.table = dataset.table.to_json()
    return model
