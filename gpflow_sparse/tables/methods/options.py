"""Groups of options that several methods have, each with its type, limits and help."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from gpflow_sparse.tables.methods.base import Recipe, option
from gpflow_sparse.tables.methods.rows import choose_points, rows_repeat
from gpflow_sparse.tables.methods.steps import evaluate_once

Self = TypeVar("Self", bound="Inducing")
_KERNELS = ["matern12", "matern32", "matern52", "squared_exponential"]


def bound() -> Any:
    """Name of the objective."""
    return option(
        "standard", "The objective; log is tighter at the same cost.", choices=["standard", "log"]
    )


def num_orthogonal(help: str = "") -> Any:
    """Number of points of the orthogonal set, M2."""
    help = help or "M2, points of the orthogonal set; none beside a base set of all distinct rows."
    return option(256, help, least=0)


def whiten() -> Any:
    """Whether q is relative to the prior."""
    return option(True, "Parametrize q relative to the prior.")


def num_layers(default: int, help: str) -> Any:
    """Number of layers."""
    return option(default, help, between=(1, 3))


def num_basis() -> Any:
    """Number of basis functions."""
    return option(1000, "Basis functions, or at most so many of a grid.", least=1)


def points_per_dimension() -> Any:
    """Nodes of a grid."""
    return option(10, "Nodes of the grid in each input column.", least=1)


def temperature() -> Any:
    """Start of the temperature of softmax interpolation."""
    return option(
        0.3, "Start of the temperature of softmax interpolation, in lengthscales.", positive=True
    )


@dataclass(frozen=True)
class KnownNoise(Recipe):
    """The option of models of noise whose variance is known up to a learned one."""

    takes_noise = True

    noise_column: str | None = option(
        None,
        "Column of known variances of the noise of the target in each row, in its units squared, "
        "which is not an input; the method learns what there is beyond them. Intervals of rows to "
        "predict have the variances of this column, where it is there.",
    )


@dataclass(frozen=True)
class OneKernel(Recipe):
    """Options of a kernel of all rows that is not compared with others, for classes."""

    takes_weights = True
    holds_data = True
    makes_kernel = True

    kernel: str = option("matern32", "Covariance function.", choices=_KERNELS)
    ard: bool = option(True, "One lengthscale per input column, or one for all.")


@dataclass(frozen=True)
class Kernel(Recipe):
    """Options of a kernel, and of its starting hyperparameters."""

    kernel: str = option(
        "matern52",
        "Covariance function; on a grid a product over columns, by default squared_exponential. "
        "auto: the one with which the nearest rows predict held-out rows best; for classes and "
        "below 200 rows matern52.",
        choices=["auto", *_KERNELS],
    )
    ard: bool = option(True, "One lengthscale per input column, or one for all.")
    num_subset: int = option(
        500,
        "Rows of the exact GP that gives starting hyperparameters, beside one of local subsets in "
        "long tables; 0 for none.",
        least=0,
    )


@dataclass(frozen=True)
class ComparedKernel(Kernel):
    """Options of a kernel of all rows, whose starting hyperparameters are the final ones."""

    takes_weights = True
    is_trained = False
    holds_data = True

    kernel: str = "auto"
    metric: str = option(
        "auto",
        "Lengthscales along the columns of X, or along the axes of the gradients of a model. auto: "
        "those with which the nearest rows predict held-out rows better; columns without "
        "lengthscales of their own, and for an exact GP of at most 1,000 rows.",
        choices=["auto", "columns", "gradients"],
    )

    def train(self, model: Any, rows: Any, *, until: float = math.inf, **options: Any) -> Any:
        return evaluate_once(model)


@dataclass(frozen=True)
class Inducing(Kernel):
    """Options of a kernel and of the number of inducing points, M."""

    least_orthogonal: ClassVar[int] = 0
    """Least number of points of the orthogonal set."""

    num_inducing: int = option(
        256,
        "M, inducing points, of the base set if there are two sets. Where rows repeat, all "
        "distinct rows if there are at most M.",
        least=1,
    )

    def shrunk_to(self: Self, num_distinct: int, num_rows: int | None = None) -> Self:
        changed: dict[str, Any] = self.shrunk_sizes(num_distinct, num_rows)
        return dataclasses.replace(self, **changed)

    def shrunk_sizes(self, num_distinct: int, num_rows: int | None) -> dict[str, int]:
        """
        Sizes of the inducing sets, each at most a quarter of the distinct training rows.

        Where rows occur twice or more on average and the sets have room for all that are distinct,
        all are points, in the base set first: the approximation is then exact at all rows. With
        fewer repetitions the rows that remain where some are held out may be fewer than the points.

        :param num_rows: all training rows; None if none is repeated.
        :return: sizes by option.
        """
        names = [name for name in ("num_inducing", "num_orthogonal") if hasattr(self, name)]
        sets = {name: getattr(self, name) for name in names}
        if not rows_repeat(num_distinct, num_rows) or num_distinct > sum(sets.values()):
            most = max(1, num_distinct // 4)
            return {name: min(size, most) for name, size in sets.items()}
        base = min(self.num_inducing, num_distinct)
        rest = max(num_distinct - base, self.least_orthogonal)
        return {"num_inducing": base} | ({"num_orthogonal": rest} if len(self.sizes) == 2 else {})


@dataclass(frozen=True)
class Points(Inducing):
    """Options of a kernel and of inducing points."""

    initialization: str = option(
        "kmeans", "Start of the inducing points.", choices=["kmeans", "greedy", "random"]
    )

    def take_sets(self, given: dict[str, Any], X: Any, kernel: Any) -> Any:
        """
        The sets of points, as arrays, that are in the arguments of ``build``, or chosen.

        :param given: the arguments, from which ``sets`` are removed.
        """
        return given.pop("sets", None) or choose_points(self, X, kernel, *self.sizes)
