"""The names of classes, attributes and functions in model files.

A file may only name entries of these tables, so that reading it imports no module that it names.
The name of a class or attribute in files never changes, whatever its name in the
code: a rename is one line in ``RENAMED_CLASSES`` or ``RENAMED_ATTRIBUTES``, files are still
written with the old name, and both older and newer versions of the package can read them.
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
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.quadrature.base import GaussianQuadrature

from gpflow_sparse.data.standardize import Standardizer
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.inference.priors import ExchangeableNormal
from gpflow_sparse.models.snapshot import FixedStatistics, is_bookkeeping
from gpflow_sparse.models.stored_q import Stored

# Renamed classes: the name in files, and the public name or "module:Name" of the class today.
RENAMED_CLASSES: dict[str, str] = {
    "gpflow_sparse.models.Anchors": "gpflow_sparse.models.ControlRows",
    "gpflow_sparse.kernels.Filled": "gpflow_sparse.kernels.WithMissingVariance",
}
# Renamed attributes by the name of their class today, which also holds for its subclasses: the name
# in files, and the name today; None for an attribute that no longer exists.
RENAMED_ATTRIBUTES: dict[str, dict[str, str | None]] = {
    "ODVGP": {"num_columns": "num_penalty_samples"},
    "QSGP": {"site_estimator": None, "num_support": "num_control_rows"},
    "SoftKI": {"probes": None},  # the law of the probes, of which random signs are left
    "ControlRows": {"Y": None},
}
# Names in checkpoints of variables that no longer exist.
REMOVED_VARIABLES = {"model.anchors.Y"}
# For other changes than renames, by the name of the class today: functions from the attributes of
# an older file, by their names today, to the attributes of today.
UPGRADES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "GRIEF": lambda attributes: _with_rows(attributes),
    "QSGP": lambda attributes: _with_variance_reduction(attributes),
    "SWSGP": lambda attributes: _with_present_options(attributes),
    "VariationalModel": lambda attributes: _without_blocks(attributes),
    "WeightSpaceModel": lambda attributes: _without_blocks(attributes),
}

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
    renamed = {}
    for in_files, today in RENAMED_CLASSES.items():
        module, _, name = today.partition(":")
        kind = getattr(importlib.import_module(module), name) if name else found[today]
        renamed[in_files] = kind
    return renamed | found | renamed  # old names first, as `class_name` needs, and with priority


def class_name(kind: type) -> str:
    """The name of a class in files: ``module:qualname`` for a user's class."""
    known = constructed_classes() | assembled_classes()  # the names in older files first
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
        f"it names {name[:200]!r}, which is no known class; a newer gpflow_sparse or GPflow may "
        "have it"
    )


def attribute_in_files(kind: type, name: str) -> str:
    """The name in files of an attribute of a class."""
    renamed = (pair for table in _tables_of(kind, RENAMED_ATTRIBUTES) for pair in table.items())
    return next((in_files for in_files, today in renamed if today == name), name)


def attributes_today(kind: type, attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes by their names in a file, converted to the attributes of the class today."""
    for renamed in _tables_of(kind, RENAMED_ATTRIBUTES):
        names = {name: renamed.get(name, name) for name in attributes}
        attributes = {today: attributes[name] for name, today in names.items() if today is not None}
    for upgrade in _tables_of(kind, UPGRADES):
        attributes = upgrade(attributes)
    return attributes


def _with_rows(attributes: dict[str, Any]) -> dict[str, Any]:
    """Statistics of a GRIEF in its first files do not hold the rows that were summed."""
    statistics, data = attributes.get("_statistics"), attributes.get("data")
    if isinstance(statistics, FixedStatistics) and not hasattr(statistics, "_data"):
        statistics.adopt((attributes["basis"], attributes["mean_function"]), data)
    return attributes


def _with_variance_reduction(attributes: dict[str, Any]) -> dict[str, Any]:
    """The ways of version 0.1 to use support rows that no longer exist are one that does."""
    if attributes.get("variance_reduction") in ("eq3", "tracked"):
        attributes["variance_reduction"] = "anchored"
    return attributes


def _with_present_options(attributes: dict[str, Any]) -> dict[str, Any]:
    """
    Values of today's options of a SWSGP of version 0.1: q of covariance "low_rank",
    ``diag(s) + V V^T``, becomes a dense one, and the weighting "usage" has the name "counts".
    """
    if attributes.get("kl_weighting") == "usage":
        attributes = attributes | {"kl_weighting": "counts"}
    if attributes.get("covariance") != "low_rank":
        return attributes
    scales = np.exp(attributes["q_log_scale"].numpy().T)  # [L, M]
    factor = attributes["q_factor"]
    V = factor.numpy().transpose(1, 2, 0)  # [L, R, M]
    # of R^T R = S without forming S, which may be singular to working precision
    rows = np.concatenate([scales[:, :, None] * np.eye(scales.shape[1]), V], axis=1)
    R = np.asarray(np.linalg.qr(rows, "r"))
    dense = tf.Variable(R.transpose(2, 0, 1), dtype=factor.dtype)  # rows of lower factors
    return attributes | {"covariance": "dense", "q_log_scale": None, "q_factor": dense}


def _without_blocks(attributes: dict[str, Any]) -> dict[str, Any]:
    """The bound "block" of a model that had it is the one below it: predictions are the same."""
    rest = {name: value for name, value in attributes.items() if name != "block_size"}
    return rest | {"bound": "log"} if rest.get("bound") == "block" else rest


def _tables_of(kind: type, tables: dict[str, Any]) -> list[Any]:
    own = [base for base in kind.__mro__ if base.__module__.startswith("gpflow_sparse.")]
    return [tables[base.__name__] for base in own if base.__name__ in tables]


def variable_in_files(model: tf.Module, path: Iterable[Any]) -> str:
    """
    The name in checkpoints of a variable of a model.

    :param path: attributes, keys and positions from the model to the variable.
    """
    part: Any = model
    found = ["model"]
    for key in path:
        if isinstance(part, tf.Module):
            found.append(attribute_in_files(type(part), key))
            part = getattr(part, key)
        else:
            found.append(str(key))
            part = part[key]
    return ".".join(found)


def can_assemble(kind: type) -> bool:
    """Whether objects of a class can be rebuilt by attributes: tf.Module and quadratures."""
    return issubclass(kind, tf.Module | GaussianQuadrature) and not inspect.isabstract(kind)


def require_attribute(kind: type, name: Any) -> None:
    """Refuse attributes that would replace part of a class or of TensorFlow's bookkeeping."""
    own = isinstance(name, str) and name.isidentifier() and not name.startswith("__")
    if not own or is_bookkeeping(name):
        raise ValueError(f"{str(name)[:200]!r} cannot be an attribute of {kind.__name__}")
    of_class = inspect.getattr_static(kind, name, None)
    computed = callable(of_class) or hasattr(type(of_class), "__get__")
    if computed and not isinstance(of_class, Stored):
        raise ValueError(f"{name!r} would replace a method or property of {kind.__name__}")


def _classes(namespace: str, modules: Iterable[ModuleType]) -> dict[str, type]:
    return {
        f"{namespace}.{kind.__name__}": kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__.startswith(namespace) and can_assemble(kind)
    }
