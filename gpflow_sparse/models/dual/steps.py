"""Steps of an optimizer on the hyperparameters of an exact GP, between solves that start warm."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_sparse.models.dual.gradients import QuadraticForms
from gpflow_sparse.models.dual.solver import ConvergenceError, DualOptions, System
from gpflow_sparse.validation import checks

FEW_PASSES = DualOptions(tolerance=1e-2, max_passes=5)
"""Default options of the solves between steps."""
# Relative residual of weights from which a gradient is not taken.
_TOO_ROUGH = 0.5
_RATE = 0.1


class HyperparameterStep(NamedTuple):
    """One step of :meth:`gpflow_sparse.models.DualGPR.fit_hyperparameters`."""

    num_passes: int
    """Passes of the solve before the gradient."""
    relative_residual: float
    """Relative residual of the weights from which the gradient was estimated."""
    gradient_norm: float
    """Norm of the gradient with respect to all trainable variables, which are unconstrained."""


def fit_hyperparameters(
    model: Any,
    num_steps: int,
    num_rows: int | None,
    optimizer: Any,
    options: DualOptions,
    callback: Callable[[HyperparameterStep], Any] | None,
) -> list[HyperparameterStep]:
    """See :meth:`gpflow_sparse.models.DualGPR.fit_hyperparameters`."""
    checks.require_count(num_steps, "num_steps")
    model = subset(model, num_rows)
    optimizer = tf_keras.optimizers.Adam(_RATE) if optimizer is None else optimizer
    if isinstance(optimizer, type) or not hasattr(optimizer, "apply_gradients"):
        raise ValueError(f"optimizer must be a Keras optimizer, got {optimizer!r}.")
    variables = model.trainable_variables
    if not variables:
        raise ValueError(
            "model must have trainable parameters, got none: see gpflow.set_trainable."
        )
    shape = model.kernel, model.data[0], model.num_columns
    system = System(*shape, options, refine=False)
    forms = QuadraticForms(*shape, options.precision)
    steps: list[HyperparameterStep] = []
    good = [tf.identity(v) for v in variables]
    for number in range(1, num_steps + 1):
        try:
            passes, residual = _solve(model, system)
            gradients = model.find_gradients(forms)
            norm = float(tf.linalg.global_norm([gradient for gradient, _ in gradients]))
            if not norm < float("inf"):
                raise ConvergenceError("The gradient is not finite.")
        except ConvergenceError as error:
            for variable, value in zip(variables, good, strict=True):
                variable.assign(value)
            raise ConvergenceError(
                f"step {number} of the hyperparameters: {error} A lower learning rate helps too. "
                "The model has the parameters of the last step that succeeded."
            ) from error
        good = [tf.identity(v) for v in variables]
        optimizer.apply_gradients([(-gradient, variable) for gradient, variable in gradients])
        steps.append(HyperparameterStep(passes, residual, norm))
        if callback is not None:
            callback(steps[-1])
    return steps


def subset(model: Any, num_rows: int | None) -> Any:
    """
    The model of at most ``num_rows`` of its rows, drawn at random: of the same components, so that
    steps on them are steps of the model; the model itself if it has no more rows, or for None.
    """
    X, Y = model.data
    if num_rows is None or checks.require_count(num_rows, "num_rows") >= len(X):
        return model
    chosen = np.sort(np.random.default_rng(model.seed).permutation(len(X))[:num_rows])
    part = type(model)(
        (tf.gather(X, chosen), tf.gather(Y, chosen)),
        model.kernel,
        noise_variance=1.0,
        row_noise=None if model.row_noise is None else tf.gather(model.row_noise, chosen),
        num_paths=model.num_paths,
        num_features=model.num_features,
        mean_function=model.mean_function,
        seed=model.seed,
    )
    part.likelihood = model.likelihood
    return part


def _solve(model: Any, system: System) -> tuple[int, float]:
    """
    Passes from the present weights, and the relative residual after them.

    :raises ConvergenceError: if the weights are too rough for a gradient.
    """
    options = system.options
    solution = model.find_weights(options, system=system)
    if not solution.relative_residual < _TOO_ROUGH:
        raise ConvergenceError(
            f"the relative residual is {solution.relative_residual:.2g} after "
            f"{options.max_passes} passes, too much for a gradient: take more max_passes than "
            f"{options.max_passes}, or larger blocks than block_size={options.block_size}."
        )
    return solution.state.num_passes, solution.relative_residual
