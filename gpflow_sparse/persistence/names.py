"""The names of classes, attributes and functions in model files.

A file may only name entries of these tables, so that reading it imports no module that it names.
The names of classes and attributes are a part of the file format: with a change of them
``files.FORMAT_VERSION`` grows.
"""

import functools
import importlib
import inspect
import operator
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import gpflow
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.quadrature.base import GaussianQuadrature

from gpflow_sparse.data.standardize import Standardizer
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.inference.priors import ExchangeableNormal
from gpflow_sparse.numerics.tracing import is_bookkeeping

_NAMESPACES = (
    "gpflow.functions",
    "gpflow.inducing_variables",
    "gpflow.kernels",
    "gpflow.kernels.categorical",
    "gpflow.likelihoods",
    "gpflow.models",
    "gpflow.quadrature",
)
# Subpackages that define parts of models; a new class in them needs no entry.
_SUBPACKAGES = ["bases", "inducing_variables", "kernels", "likelihoods", "mean_functions", "models"]

# Rebuilt by their constructors, which check the fields.
_RECORDS = (gpflow.kernels.ActivityCondition, gpflow.kernels.HierarchyNode)

_BIJECTORS = """
AbsoluteValue Ascending Blockwise Chain CholeskyOuterProduct CholeskyToInvCholesky
CorrelationCholesky Cumsum Exp Expm1 FillScaleTriL FillTriangular FrechetCDF GeneralizedPareto
GompertzCDF GumbelCDF Identity Invert IteratedSigmoidCentered KumaraswamyCDF Log Log1p
MatrixInverseTriL MoyalCDF NormalCDF Permute Power PowerTransform RayleighCDF Reciprocal Reshape
Scale ScaleMatvecDiag ScaleMatvecTriL Shift Sigmoid Sinh SinhArcsinh SoftClip Softfloor
SoftmaxCentered Softplus Softsign Square Tanh TransformDiagonal Transpose UnitVector WeibullCDF
"""

_DISTRIBUTIONS = """
Beta Cauchy Chi Chi2 Deterministic Dirichlet DoublesidedMaxwell ExpGamma ExpInverseGamma Exponential
ExponentiallyModifiedGaussian Gamma GammaGamma GeneralizedExtremeValue GeneralizedNormal
GeneralizedPareto Gumbel HalfCauchy HalfNormal HalfStudentT Horseshoe Independent InverseGamma
InverseGaussian JohnsonSU Kumaraswamy Laplace LogLogistic LogNormal Logistic LogitNormal
MixtureSameFamily Categorical Moyal MultivariateNormalDiag MultivariateNormalTriL Normal
NormalInverseGaussian Pareto Sample SinhArcsinh StudentT TransformedDistribution Triangular
TruncatedCauchy TruncatedNormal TwoPieceNormal Uniform VonMises Weibull WishartTriL
"""

_TF_FUNCTIONS = """
abs cos exp identity math.erf math.expm1 math.log math.log1p math.reciprocal nn.elu nn.relu
nn.softmax nn.softplus sigmoid sin sqrt square tanh
"""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gpflow.likelihoods.utils.inv_probit": gpflow.likelihoods.utils.inv_probit
} | {f"tf.{name}": operator.attrgetter(name)(tf) for name in _TF_FUNCTIONS.split()}


def function_name(function: Any) -> str | None:
    """The name in files of a function in :data:`FUNCTIONS`; None for any other value."""
    return next((name for name, known in FUNCTIONS.items() if known is function), None)


@functools.cache
def constructed_classes() -> dict[str, type]:
    """Classes, by name, whose objects are rebuilt from arguments of their constructor."""
    found: dict[str, type] = {f"gpflow.kernels.{kind.__name__}": kind for kind in _RECORDS}
    found["gpflow_sparse.ExchangeableNormal"] = ExchangeableNormal
    for module, names in (("bijectors", _BIJECTORS), ("distributions", _DISTRIBUTIONS)):
        known = vars(getattr(tfp, module))
        found |= {f"tfp.{module}.{name}": known[name] for name in names.split()}
    return found


@functools.cache
def assembled_classes() -> dict[str, type]:
    """Public classes, by name, whose objects are rebuilt attribute by attribute."""
    found: dict[str, type] = {
        "gpflow_sparse.data.Standardizer": Standardizer,
        "gpflow_sparse.Calibration": Calibration,
    }
    for namespace in _NAMESPACES:
        found |= _classes(namespace, [importlib.import_module(namespace)])
    for part in (f"gpflow_sparse.{name}" for name in _SUBPACKAGES):
        package = importlib.import_module(part)
        inside = pkgutil.walk_packages(getattr(package, "__path__", ()), f"{part}.")
        modules = [importlib.import_module(info.name) for info in inside]
        found |= _classes(part, [package, *modules])
    return found


def class_name(kind: type) -> str:
    """The name of a class in files: ``module:qualname`` for a user's class."""
    known = constructed_classes() | assembled_classes()
    own = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, other in known.items() if other is kind), own)


def assembled_class(name: str, classes: Iterable[type]) -> type:
    """
    The class with a name in files, public or one of the user's ``classes``.

    A user's class is found by module and name, or by its name alone if that is unique: the script
    that saved it may have been the main module, and the one that loads it another.

    :raises ValueError: for any other name.
    """
    name = str(name)
    _, own, short = name.rpartition(":")
    if not own and name in assembled_classes():
        return assembled_classes()[name]
    namesakes = [kind for kind in classes if kind.__qualname__ == short] if own else []
    exact = [kind for kind in namesakes if class_name(kind) == name]
    if len(exact or namesakes) == 1:
        return (exact or namesakes)[0]
    if namesakes:
        raise ValueError(
            f"it uses the class {name[:200]!r}, and classes holds several of that name"
        )
    if own:
        raise ValueError(
            f"it uses the class {name[:200]!r}, which is not part of gpflow_sparse; pass "
            f"gs.load(path, classes=[{repr(short[:200])[1:-1]}])"
        )
    raise ValueError(
        f"it names {name[:200]!r}, which is not a known class; a newer gpflow_sparse or GPflow may "
        "have it"
    )


def can_assemble(kind: type) -> bool:
    """Whether objects of a class can be rebuilt by attributes: tf.Module and quadratures."""
    return issubclass(kind, tf.Module | GaussianQuadrature) and not inspect.isabstract(kind)


def require_attribute(kind: type, name: Any) -> None:
    """Refuse attributes that would replace part of a class or of TensorFlow's bookkeeping."""
    own = isinstance(name, str) and name.isidentifier() and not name.startswith("__")
    if not own or is_bookkeeping(name):
        raise ValueError(f"{str(name)[:200]!r} cannot be an attribute of {kind.__name__}")
    of_class = inspect.getattr_static(kind, name, None)
    if callable(of_class) or hasattr(type(of_class), "__get__"):
        raise ValueError(f"{name!r} would replace a method or property of {kind.__name__}")


def _classes(namespace: str, modules: Iterable[ModuleType]) -> dict[str, type]:
    return {
        f"{namespace}.{kind.__name__}": kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__.startswith(namespace) and can_assemble(kind)
    }
