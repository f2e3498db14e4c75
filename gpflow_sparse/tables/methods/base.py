"""Base class of the recipes of methods; importing this module does not import TensorFlow."""

import dataclasses
import math
import numbers
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import gpflow

    from gpflow_sparse.tables.methods.rows import Pair
    from gpflow_sparse.training import History

Self = typing.TypeVar("Self", bound="Recipe")

# Values of the option ``mean``.
ZERO, TREES = "zero", "trees"


def option(default: Any, help: str, **limits: Any) -> Any:
    """
    A field of a dataclass that is an option of the command line, of the estimators and in Python.

    :param default: a tuple makes the option repeatable.
    :param help: one sentence for ``--help``.
    :param limits: ``choices``; ``least``, the smallest allowed value, 0 or 1; ``positive=True``;
        ``between``, the smallest and the largest value; ``off``, the flag of the command line for
        false.
    """
    return dataclasses.field(default=default, metadata={"help": help, **limits})


def require_valid(options: Any) -> None:
    """
    Compare the fields of a dataclass with their types and limits.

    :raises ValueError: naming the first field that is out of its limits.
    """
    kinds = typing.get_type_hints(type(options))
    for field in dataclasses.fields(options):
        name, value, given = field.name, getattr(options, field.name), field.metadata
        if value is None and field.default is None:
            continue
        if not _has_type(value, kinds[name]):
            words = str(getattr(kinds[name], "__name__", kinds[name])).replace(" | None", "")
            raise ValueError(f"{name} must be of type {words}, got {value!r}.")
        if value not in given.get("choices", [value]):
            raise ValueError(f"{name} must be one of {', '.join(given['choices'])}; got {value!r}.")
        expected = ""
        if "least" in given and value < given["least"]:
            expected = "positive" if given["least"] else "not negative"
        if "positive" in given and not 0 < value < math.inf:
            expected = "positive"
        if "between" in given and not given["between"][0] <= value <= given["between"][1]:
            expected = "from {} to {}".format(*given["between"])
        if expected:
            raise ValueError(f"{name} must be {expected}, got {value}.")


def _has_type(value: Any, kind: Any) -> bool:
    """Whether a value has a plain type, or one of a union; NumPy's numbers are numbers."""
    if isinstance(kind, types.UnionType):
        return any(_has_type(value, choice) for choice in typing.get_args(kind))
    is_flag = type(value).__name__ in ("bool", "bool_")
    if kind is bool or is_flag:
        return is_flag and kind is bool
    if kind is dict or typing.get_origin(kind) is dict:
        return isinstance(value, dict)
    return isinstance(value, {int: numbers.Integral, float: numbers.Real}.get(kind, kind))


@dataclass(frozen=True)
class Recipe:
    """
    A method with values of its options: how its model is started, built and trained on a table.

    A subclass is the only declaration of a method. Its fields are the options, each with type,
    default, limits and help; from them follow the command line, the options of the estimators, and
    the arguments in Python. Its methods say which tables the automatic choice tries it on, and
    what it costs. Recipes are listed in :mod:`gpflow_sparse.tables.methods.registry`.
    """

    name: ClassVar[str]
    """The method on the command line."""
    title: ClassVar[str]
    idea: ClassVar[str]
    """The method in half a sentence."""
    for_classes: ClassVar[str] = ""
    """The method to use for classes, if this one is for regression with Gaussian noise only."""
    takes_images: ClassVar[bool] = False
    """Whether a row is an image, and the kernel one of patches."""
    is_trained: ClassVar[bool] = True
    """False if the starting hyperparameters are the final ones."""
    makes_kernel: ClassVar[bool] = False
    """Whether the model makes its own kernel, with priors, unless one is given."""
    holds_data: ClassVar[bool] = False
    """Whether the model holds its rows, and their weights."""
    takes_weights: ClassVar[bool] = False
    """Whether training rows may have weights."""
    takes_noise: ClassVar[bool] = False
    """Whether the noise of training rows may have known variances."""
    takes_conformal: ClassVar[bool] = True
    """Whether intervals may be taken from held-out residuals."""

    likelihood: str | None = option(
        None,
        "Distribution of Y given f; default gaussian, for two classes bernoulli, for more softmax, "
        "with site_vgp bernoulli_logit and one_versus_rest. multiclass is robust-max. student_t "
        "gives outliers less weight; heteroskedastic is Gaussian noise whose variance depends on "
        "the inputs; poisson, negative_binomial and zero_inflated_poisson are for counts, "
        "exponential and gamma for positive outputs.",
        choices=[
            *("gaussian", "student_t", "laplace", "heteroskedastic"),
            *("poisson", "negative_binomial", "zero_inflated_poisson", "exponential", "gamma"),
            *("bernoulli", "bernoulli_logit", "multiclass", "softmax", "one_versus_rest"),
        ],
    )
    exposure: str | None = option(
        None,
        "Column of the exposures of counts, such as times or populations: rates are relative to "
        "it, by its logarithm in the prior mean.",
    )
    calibrate: bool = option(
        True,
        "On 8,000 rows or more: hold a twentieth of them out, at most 1,000, and correct the "
        "predicted variances, or the probabilities of classes, on them.",
    )
    conformal: bool = option(
        False,
        "Intervals by the quantiles of the residuals of held-out rows, which cover as often as "
        "they say; below 8,000 rows 100 are held out for them, or a twentieth if that is more.",
    )
    seed: int = option(0, "Seed of all random numbers: equal commands give equal bits.", least=0)

    def __init_subclass__(cls) -> None:
        """Give another default of an option of a base class the help and the limits there."""
        fields = [getattr(base, "__dataclass_fields__", {}) for base in cls.__mro__[:0:-1]]
        known = {name: field for each in fields for name, field in each.items()}
        for name in known.keys() & cls.__annotations__.keys():
            if not isinstance(default := cls.__dict__[name], dataclasses.Field):
                field = dataclasses.field(default=default, metadata=known[name].metadata)
                setattr(cls, name, field)

    def __post_init__(self) -> None:
        require_valid(self)

    @classmethod
    def create(cls: type[Self], **chosen: Any) -> Self:
        """
        The recipe with these options, where the defaults of others may depend on them.

        :raises ValueError: for an option out of its limits, or options that exclude each other.
        """
        return cls(**chosen)

    @classmethod
    def own_options(cls) -> list[str]:
        """The options that the method has beside the options of all methods."""
        common = {field.name for field in dataclasses.fields(Recipe)}
        own = [field for field in dataclasses.fields(cls) if "help" in field.metadata]
        return [field.name for field in own if field.name not in common]

    @property
    def on_grid(self) -> bool:
        """Whether the kernel must be a product over input columns."""
        return hasattr(self, "points_per_dimension") and getattr(self, "basis", "grid") == "grid"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of points of each inducing set, or number of basis functions."""
        has_basis = hasattr(self, "num_basis") and getattr(self, "basis", "") != "soft"
        names = ("num_basis",) if has_basis else ("num_inducing", "num_orthogonal")
        return tuple(size for name in names if (size := getattr(self, name, 0)))

    @property
    def has_tree_mean(self) -> bool:
        """Whether the prior mean is one of boosted trees, which are fitted first."""
        return getattr(self, "mean", ZERO) == TREES

    @property
    def num_iterations(self) -> int:
        """Training steps; zero for a method that is not trained."""
        return int(getattr(self, "num_steps", 0))

    @property
    def can_calibrate(self) -> bool:
        """Whether predicted variances are corrected on held-out rows."""
        is_integral = getattr(self, "weights", "optimize") == "integrate"  # which nothing corrects
        return self.calibrate and not self.takes_images and not is_integral

    @property
    def full_title(self) -> str:
        """Method, sizes and layers: "SOLVE-GP(256+256)"."""
        layers = getattr(self, "num_layers", 1)
        sizes = f"({'+'.join(map(str, self.sizes))})" if self.sizes else ""
        trees = " about trees" if self.has_tree_mean else ""
        return f"{self.title}{sizes}{f', {layers} layers' if layers > 1 else ''}{trees}"

    @classmethod
    def reason_against(cls, task: Any) -> str:
        """
        Why the automatic choice does not try the method on a table; empty if it does.

        :param task: a :class:`~gpflow_sparse.tables.fitting.task.Task`.
        """
        return "it is trained only where it is asked for"

    @classmethod
    def variants(cls, task: Any) -> dict[str, dict[str, Any]]:
        """
        Options with which the automatic choice tries the method, by name of the variant, which
        follows "METHOD with"; the name is empty for the method without any.
        """
        return {"": {}}

    def usual_likelihood(self, num_classes: int | None) -> str | None:
        """
        The likelihood where none is chosen; None for the one that all methods have.

        :param num_classes: None for regression.
        """
        return None

    def shrunk_to(self: Self, num_distinct: int, num_rows: int | None = None) -> Self:
        """
        The recipe with fewer inducing points for a short table.

        :param num_distinct: distinct training rows.
        :param num_rows: all training rows; None if none is repeated.
        """
        return self

    def with_steps(self: Self, num_steps: int, learning_rate: float | None = None) -> Self:
        """The recipe with another number of steps, and another learning rate unless None."""
        if not hasattr(self, "num_steps"):
            return self
        changed: dict[str, Any] = {"num_steps": num_steps}
        if learning_rate is not None and hasattr(self, "learning_rate"):
            changed["learning_rate"] = learning_rate
        return dataclasses.replace(self, **changed)

    def build(
        self,
        data: "Pair",
        kernel: "gpflow.kernels.Kernel | None",
        likelihood: "gpflow.likelihoods.Likelihood",
        **given: Any,
    ) -> "gpflow.models.GPModel":
        """
        The untrained model.

        :param data: standardized training rows ``(X [N, D], Y [N, P])``.
        :param kernel: with its starting hyperparameters; None for models of images, which make
            their own.
        :param likelihood: with its starting noise.
        :param given: further arguments of the model's class; for methods with inducing points
            ``sets``, the sets of points, and for methods with a basis ``basis``.
        :raises ValueError: for data that the method does not take.
        """
        raise NotImplementedError

    def train(
        self,
        model: "gpflow.models.GPModel",
        rows: "Pair",
        *,
        until: float = math.inf,
        **options: Any,
    ) -> "History":
        """
        Train the model as the method is trained, with its closed forms before and after the steps.

        :param rows: standardized training rows ``(X, Y)``.
        :param until: value of ``time.perf_counter`` after which no step begins. The number of steps
            is taken to need the time until then.
        :param options: further arguments of :func:`gpflow_sparse.training.fit`.
        """
        raise NotImplementedError

    def finish(
        self, model: "gpflow.models.GPModel", seconds: float = math.inf
    ) -> "gpflow.models.GPModel":
        """
        The model to keep, from the trained one.

        :param seconds: about the time that may be taken.
        """
        return model

    def predictor(self, model: "gpflow.models.GPModel") -> Any:
        """An object with the predictions of the trained model."""
        from gpflow_sparse.tables.methods.cached_model import CachedModel

        return CachedModel(model)
