"""Checks of the components of a model: kernel, mean function, values of parameters.

GPflow lets a user assign any of these at any time, so they are checked when a model is built and
again by every public method. Kernels and mean functions of other classes are not checked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import functions, kernels

from gpflow_sparse.numerics.linalg import FactorizationError
from gpflow_sparse.validation import checks

_ARD_PARAMETERS = ("lengthscales", "period", "weight_variances")
_POSITIVE = ("lengthscales", "period", "variance", "scale", "weights")


def require_kind(value: Any, kind: Any, name: str, wanted: str) -> Any:
    """``value``, refused unless it is of the class ``kind``, described in errors as ``wanted``."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {wanted}, got {type(value).__name__}.")
    return value


def require_kernel(kernel: Any, num_columns: int | None, name: str = "kernel") -> None:
    """
    Refuse a kernel that cannot read inputs of ``num_columns`` columns, by static shapes only.

    :param num_columns: D; None where it is not known.
    :param name: name of the kernel in errors.
    :raises ValueError: for another kind of object, for ``active_dims`` that X does not have, an ARD
        parameter of a wrong length, or an image of another size.
    """
    if not isinstance(kernel, kernels.Kernel):
        raise ValueError(
            f"{name} must be a GPflow Kernel, such as gpflow.kernels.SquaredExponential(); got "
            f"{type(kernel).__name__}."
        )
    if num_columns is None:
        return
    if isinstance(kernel, kernels.Combination):
        for i, part in enumerate(kernel.kernels):
            require_kernel(part, num_columns, f"{name}.kernels[{i}]")
        if not isinstance(kernel, kernels.ChangePoints):  # which reads a column itself
            return
    if isinstance(kernel, kernels.SharedIndependent):
        require_kernel(kernel.kernel, num_columns, f"{name}.kernel")
    elif hasattr(kernel, "basis"):  # a kernel of this package over a basis of another kernel
        require_kernel(kernel.basis.kernel, num_columns, f"{name}.basis.kernel")
    elif hasattr(kernel, "image_shape"):  # Convolutional of GPflow or of this package
        # image_shape of GPflow's kernel has no channels
        pixels = int(np.prod(kernel.image_shape)) * getattr(kernel, "colour_channels", 1)
        if pixels != num_columns:
            raise ValueError(
                f"{name}.image_shape {tuple(kernel.image_shape)} has {pixels} values, but X has "
                f"{num_columns} column(s); each row of X is one flattened image."
            )
    elif hasattr(kernel, "mapped"):  # LinearMap of this package
        if kernel.matrix.shape[1] != num_columns:
            raise ValueError(
                f"{name}.matrix has {kernel.matrix.shape[1]} columns, but X has {num_columns}; "
                "make a LinearMap for these inputs."
            )
    else:
        _require_columns(kernel, num_columns, name)
        if isinstance(kernel, kernels.Periodic):
            _require_columns(kernel.base_kernel, num_columns, f"{name}.base_kernel")


def require_single(kernel: Any, num_columns: int | None, name: str = "kernel") -> kernels.Kernel:
    """
    A kernel with one output that can read inputs of ``num_columns`` columns.

    :raises ValueError: for several outputs, and as :func:`require_kernel`.
    """
    if not isinstance(kernel, kernels.Kernel) or isinstance(kernel, kernels.MultioutputKernel):
        raise ValueError(
            f"{name} must be a GPflow kernel with one output, such as "
            f"gpflow.kernels.SquaredExponential(); got {type(kernel).__name__}."
        )
    require_kernel(kernel, num_columns, name)
    return kernel


def require_mean_function(
    function: Any, num_columns: int | None, num_latent_gps: int, name: str = "mean_function"
) -> None:
    """
    Refuse one of GPflow's mean functions whose shapes fit neither the inputs nor the outputs.

    :param num_columns: D; None where it is not known.
    :raises ValueError: for another kind of object, or if it reads another number of columns than D,
        or returns neither one column nor one per latent function.
    """
    if not isinstance(function, functions.Function):
        raise ValueError(
            f"{name} must be a GPflow Function, such as gpflow.functions.Zero(); got "
            f"{type(function).__name__}."
        )
    if isinstance(function, functions.SwitchedFunction):
        # the last column of X chooses the function; the functions read the others
        for i, part in enumerate(function.functions):
            inner = None if num_columns is None else num_columns - 1
            require_mean_function(part, inner, num_latent_gps, f"{name}.functions[{i}]")
        return
    for attribute in ("add_1", "add_2", "prod_1", "prod_2"):
        if hasattr(function, attribute):
            part = getattr(function, attribute)
            require_mean_function(part, num_columns, num_latent_gps, f"{name}.{attribute}")
    columns, outputs = _mean_function_sizes(function, num_columns)
    if None not in (columns, num_columns) and columns != num_columns:
        raise ValueError(
            f"{name} ({type(function).__name__}) reads {columns} column(s), but X has "
            f"{num_columns}; build it for {num_columns}, such as "
            f"gpflow.functions.Linear(np.zeros(({num_columns}, {num_latent_gps})))."
        )
    if outputs not in (None, 1, num_latent_gps):
        raise ValueError(
            f"{name} ({type(function).__name__}) returns {outputs} column(s), expected 1 or "
            f"num_latent_gps={num_latent_gps}; build it for that many."
        )


def require_mean(value: Any, latent_mean: tf.Tensor, function: Any) -> tf.Tensor:
    """
    The value of a mean function, checked not to broadcast against ``latent_mean [..., N, P]``.

    :raises ValueError: unless its static shape is ``[..., N, P]`` or ``[..., N, 1]``.
    """
    value = tf.convert_to_tensor(value)
    wanted, found = latent_mean.shape, value.shape
    if wanted.rank is None or found.rank is None:
        return value
    single = tf.TensorShape([*wanted[:-1], 1])
    if not (found.is_compatible_with(wanted) or found.is_compatible_with(single)):
        raise ValueError(
            f"mean_function ({type(function).__name__}) must return [N, P] or [N, 1], here shape "
            f"{tuple(wanted)}; it returned shape {tuple(found)}."
        )
    return value


def require_dtype(module: tf.Module, name: str, dtype: tf.DType) -> None:
    """Refuse parameters of another float type than the model's."""
    wanted = tf.as_dtype(dtype)
    for path, parameter in gpflow.utilities.parameter_dict(module).items():
        if parameter.dtype.is_floating and parameter.dtype != wanted:
            raise ValueError(
                f"{name}{path} must be {wanted.name} as the model is, got {parameter.dtype.name}; "
                f"build {name} again after gpflow.config.set_default_float(np.{wanted.name})."
            )


def require_jitter(value: Any) -> None:
    """Refuse a relative jitter other than None or a finite number of at least zero."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if value is not None and not (number and 0.0 <= value < np.inf):
        raise ValueError(f"jitter must be None or a number of at least 0, got {value!r}.")


def require_noise(value: Any) -> Any:
    """:raises ValueError: unless ``value`` is a valid noise variance of GPflow's ``Gaussian``."""
    lowest = gpflow.config.default_likelihood_positive_minimum()
    number = checks.as_tensor(value, "noise_variance")
    if tf.size(number) != 1 or not lowest < float(tf.reshape(number, [])) < np.inf:
        raise ValueError(
            f"noise_variance must be one number above {lowest:g}, the lower bound of GPflow's "
            f"Gaussian likelihood; got {value!r}."
        )
    return value


def has_one_variance(likelihood: Any) -> bool:
    """
    Whether it is a Gaussian likelihood with one noise variance for all rows and outputs: a
    parameter, or a tensor in a copy by :func:`gpflow.utilities.freeze`.
    """
    if not isinstance(likelihood, gpflow.likelihoods.Gaussian):
        return False
    value: Any = likelihood.variance
    is_number = isinstance(value, gpflow.Parameter) or tf.is_tensor(value)
    return is_number and value.shape.num_elements() == 1


def require_one_variance(likelihood: Any, what: str = "this closed form") -> None:
    """:raises ValueError: unless :func:`has_one_variance`."""
    if not has_one_variance(likelihood):
        other = isinstance(likelihood, gpflow.likelihoods.Gaussian)
        raise ValueError(
            f"{what} needs a Gaussian likelihood with one variance for all rows and outputs, got "
            f"{type(likelihood).__name__}{' with other noise' if other else ''}."
        )


def validate_components(module: tf.Module, *, failed: bool = False) -> None:
    """
    Refuse parameters that cannot give finite results. Reads every parameter of ``module``: meant
    for use after a failure, or once per trace.

    :param failed: whether a computation has failed; then also refuse values that are valid in some
        models, such as a variance of zero in one term of a sum.
    :raises ValueError: naming the parameter and its value, for NaN and infinity, for lengthscales
        of zero; after a failure also for lengthscales, periods and variances that are not positive,
        and for a zero on the diagonal of a ``q_sqrt``.
    """
    with tf.init_scope():  # while tracing, the current values
        if not tf.executing_eagerly():
            return
        for name, value in _values(module):
            problem = _problem(name, value, failed)
            if problem:
                raise ValueError(problem)


def require_finite_result(module: tf.Module, name: str, *results: tf.Tensor) -> None:
    """
    Refuse an eager result that is not finite because of an invalid parameter.

    A result that overflowed with valid parameters passes: for an optimizer, infinity is the
    right value after too long a step.

    :raises ValueError: see :func:`validate_components`.
    """
    if not tf.executing_eagerly():
        return
    if not all(bool(tf.reduce_all(tf.math.is_finite(result))) for result in results):
        try:
            validate_components(module, failed=True)
        except ValueError as error:
            raise ValueError(f"{name} is not finite: {error}") from None


@contextmanager
def explain_failures(module: tf.Module) -> Iterator[None]:
    """A context in which a FactorizationError names the invalid parameter of ``module``, if any."""
    try:
        yield
    except FactorizationError as error:
        raise explained(module, error) from None


def explained(module: tf.Module, error: FactorizationError) -> FactorizationError:
    """The error, in which the invalid parameter of ``module`` is named if there is one."""
    try:
        validate_components(module, failed=True)
    except ValueError as cause:
        failure = str(error).split(":", maxsplit=1)[0]
        return FactorizationError(f"{failure}: {cause}")
    return error


def _require_columns(kernel: Any, num_columns: int, name: str) -> None:
    """Refuse ``active_dims`` outside of X, and ARD parameters of another length."""
    dims, active = getattr(kernel, "active_dims", None), num_columns
    if dims is not None:
        columns = np.arange(num_columns)
        chosen = columns[dims] if isinstance(dims, slice) else np.asarray(dims).reshape(-1)
        active = len(chosen)
        if not active or chosen.min() < 0 or chosen.max() >= num_columns:
            raise ValueError(
                f"{name}.active_dims must be columns of X, from 0 to {num_columns - 1}; got "
                f"{dims if isinstance(dims, slice) else chosen.tolist()}."
            )
    if isinstance(kernel, kernels.Coregion | kernels.ChangePoints) and active != 1:
        raise ValueError(
            f"{name} ({type(kernel).__name__}) reads one column, got {active}; pass "
            "active_dims=[column], or X with one column."
        )
    if not type(kernel).__module__.startswith("gpflow."):  # a user's class: no convention
        return
    if type(getattr(kernel, "variance", None)) in (int, float):
        raise ValueError(
            f"{name}.variance must be a gpflow.Parameter, got the number {kernel.variance}; use "
            f"{name}.variance.assign, or gpflow.Parameter with a transform."
        )
    # a linear kernel has a variance per column, a stationary one a scalar
    linear = isinstance(kernel, kernels.Linear)
    for attribute in (*_ARD_PARAMETERS, "variance") if linear else _ARD_PARAMETERS:
        shape = tuple(np.shape(getattr(kernel, attribute, 0.0)))
        if len(shape) > 1 or (shape and shape[0] not in (1, active, None)):
            raise ValueError(
                f"{name}.{attribute} must be one number or one per column the kernel reads, "
                f"{active}; got shape {shape}. Build the kernel for X with {num_columns} column(s)."
            )


def _mean_function_sizes(function: Any, num_columns: int | None) -> tuple[int | None, int | None]:
    """Numbers of columns that a mean function reads and returns; None if any or not known."""
    if type(function) is functions.Identity:
        return None, num_columns
    if type(function) is functions.Linear:
        A, b = np.shape(function.A), np.shape(function.b)
        columns = A[0] if len(A) == 2 else None
        widths = [shape[-1] for shape in (A, b) if len(shape) and shape[-1] is not None]
        return columns, max(widths, default=None)
    if type(function) is functions.Zero:
        return None, function.output_dim
    if type(function) is functions.Constant:
        return None, (tuple(np.shape(function.c)) or (1,))[-1]
    if type(function) is functions.Polynomial:
        return np.shape(function.powers)[1], np.shape(function.w)[0]
    return None, None


def _values(module: tf.Module) -> Iterator[tuple[str, np.ndarray]]:
    """Names as a user writes them, and values, of all parameters and plain floats in kernels."""
    for path, parameter in gpflow.utilities.parameter_dict(module).items():
        written = path.lstrip("._").replace("X_data.", "inducing_variable.")
        yield written.replace("].posterior.", "]."), np.asarray(parameter)  # in a deep posterior
    for part in module.submodules:
        for attribute in _POSITIVE:
            value = getattr(part, attribute, None) if isinstance(part, kernels.Kernel) else None
            if isinstance(value, int | float | np.ndarray):
                yield f"kernel.{attribute}", np.asarray(value, dtype=np.float64)


def _problem(name: str, value: np.ndarray, failed: bool) -> str | None:
    """Error message about the value of a parameter; None if the value is valid."""
    if value.dtype.kind != "f" or value.size == 0:
        return None
    last = name.rsplit(".", 1)[-1]
    if not np.isfinite(value).all():
        found = value[~np.isfinite(value)].flat[0]
        return f"{name} must be finite, but holds {found}; assign finite values."
    positive = last in _POSITIVE if failed else last == "lengthscales"
    if positive and (value.min() <= 0.0 if failed else not value.all()):
        return f"{name} must be positive, but holds {value.min():g}; assign a positive value."
    if failed and last.startswith("q_sqrt") and value.ndim == 3:
        diagonal = np.diagonal(value, axis1=-2, axis2=-1)
        if not diagonal.all():
            return f"{name} has a zero on its diagonal; assign factors of full rank."
    return None
