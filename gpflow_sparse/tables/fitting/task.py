"""A table to learn from, and the methods that the automatic choice tries for it."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import gpflow

from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.registry import RECIPES, kind_of, read_options, recipe_of
from gpflow_sparse.tables.methods.rows import sized

_WITH = " with "


@dataclasses.dataclass(frozen=True)
class Task:
    """
    A training table and all requested options.

    :param dataset: standardized; only its training rows are used.
    :param kernel: a kernel to copy; None for the one that ``options`` name.
    :param likelihood: a name, a likelihood to copy, or None for the usual one.
    :param options: options of methods by name, see :mod:`gpflow_sparse.tables.methods.registry`.
    """

    dataset: Dataset
    kernel: gpflow.kernels.Kernel | None = None
    likelihood: Any = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    few_rows: ClassVar[int] = 1000
    """Rows of the largest small table, which has an exact GP and no inducing points."""

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        given = self.likelihood
        gaussian = given in (None, "gaussian") or isinstance(given, gpflow.likelihoods.Gaussian)
        return self.dataset.num_classes is None and gaussian

    @property
    def has_labels(self) -> bool:
        """Whether classes are predicted."""
        return self.dataset.num_classes is not None

    @property
    def has_images(self) -> bool:
        """Whether the rows are images with labels, and no kernel was chosen for them."""
        has_kernel = self.kernel is not None or "kernel" in self.options
        return self.has_labels and self.dataset.image_shape is not None and not has_kernel

    @property
    def has_many_classes(self) -> bool:
        """Whether there are more than two classes, and no likelihood was chosen for them."""
        return (self.dataset.num_classes or 0) > 2 and self.likelihood is None

    @property
    def num_rows(self) -> int:
        """Training rows."""
        return len(self.dataset.train[0])

    @property
    def num_columns(self) -> int:
        """Columns of the inputs."""
        return self.dataset.train[0].shape[1]

    @property
    def num_outputs(self) -> int:
        """Columns of the outputs."""
        return self.dataset.train[1].shape[1]

    @property
    def is_long(self) -> bool:
        """Whether there are more rows than a small table has."""
        return self.num_rows > self.few_rows

    def recipe(self, name: str) -> Recipe:
        """
        The recipe of a candidate; by default at most a quarter of the rows are inducing points, or
        all distinct rows where rows occur twice or more on average.

        :param name: a method, or "METHOD with VARIANT", see
            :meth:`~gpflow_sparse.tables.methods.base.Recipe.variants`.
        """
        method, _, variant = name.partition(_WITH)
        given = dict(self.options) | kind_of(method).variants(self)[variant]
        recipe: Recipe = recipe_of(method, **read_options(method, given))
        return sized(recipe, self.dataset.train[0], self.options)

    def on(self, dataset: Dataset) -> "Task":
        """The same task with other training rows."""
        return dataclasses.replace(self, dataset=dataset)


def candidates(task: Task) -> list[str]:
    """The methods that the automatic choice tries for a kind of table, with their variants."""
    suited = [
        kind
        for kind in RECIPES.values()
        if (task.is_gaussian or not kind.for_classes)
        and (task.dataset.weights is None or kind.takes_weights)
        and (task.dataset.noise_variance is None or kind.takes_noise)
        and not kind.reason_against(task)
    ]
    return [
        f"{kind.name}{_WITH}{variant}" if variant else kind.name
        for kind in suited
        for variant in kind.variants(task)
    ]
