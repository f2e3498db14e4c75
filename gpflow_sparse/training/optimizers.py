"""Natural-gradient steps, and Adam with a schedule, the default optimizer of `fit`."""

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.keras import tf_keras
from tensorflow_probability import bijectors

from gpflow_sparse.numerics import linalg
from gpflow_sparse.validation.checks import require_count


def adam(
    learning_rate: float = 0.01, *, decay_steps: int | None = None, warmup_steps: int = 0
) -> tf_keras.optimizers.Optimizer:
    """
    Adam at a constant rate, or with a linear warm-up followed by a cosine decay to zero.

    :param learning_rate: peak step size.
    :param decay_steps: total steps of the run, warm-up included; None keeps the rate constant.
    :param warmup_steps: steps over which the rate rises from zero.
    :return: an optimizer of the Keras that GPflow uses.
    :raises ValueError: if the warm-up does not fit into the run.
    """
    require_rate(learning_rate)
    if decay_steps is None:
        if warmup_steps:
            raise ValueError("warmup_steps needs decay_steps, the length of the whole run.")
        return tf_keras.optimizers.Adam(learning_rate)
    require_count(decay_steps, "decay_steps")
    if not 0 <= warmup_steps < decay_steps:
        raise ValueError(
            f"warmup_steps must be below decay_steps={decay_steps}, got {warmup_steps}."
        )
    schedule = tf_keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if warmup_steps else learning_rate,
        decay_steps=decay_steps - warmup_steps,
        warmup_target=learning_rate if warmup_steps else None,
        warmup_steps=warmup_steps,
    )
    return tf_keras.optimizers.Adam(schedule)


def require_rate(value: Any, name: str = "learning_rate", below: float = np.inf) -> float:
    """
    ``value`` as a number of at least 0 and below a limit.

    :raises ValueError: for anything else, True and text included.
    """
    number = isinstance(value, int | float | np.number)
    if isinstance(value, bool) or not number or not 0.0 <= value < below:
        limit = "" if below == np.inf else f" and below {below:g}"
        raise ValueError(f"{name} must be a number of at least 0{limit}, got {value!r}.")
    return float(value)


def settings_of(part: Any) -> dict[str, Any]:
    """Class and settings of an optimizer, a learning-rate schedule or a function."""
    try:
        settings = dict(part.get_config())
    except (AttributeError, NotImplementedError):
        settings = {}
    settings.pop("name", None)  # Keras appends a count of the process
    return {"kind": getattr(part, "__qualname__", type(part).__name__), **settings}


def apply_scaled(optimizer: Any, known: Sequence[tuple[Any, tf.Variable]], scale: float) -> None:
    """Apply an optimizer's step, or the fraction ``scale`` of it; its slots take all of it."""
    if not known:
        return
    # Keras cannot change the rate of a schedule: shorten the finished step instead
    before = [tf.identity(v) for _, v in known] if scale != 1.0 else []
    optimizer.apply_gradients(known)
    for old, (_, variable) in zip(before, known, strict=False):
        variable.assign(old + tf.cast(scale, old.dtype) * (variable - old))


def natural_step(
    q_mu: tf.Tensor, q_sqrt: tf.Tensor, grad_mu: tf.Tensor, grad_sqrt: tf.Tensor, gamma: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    One natural-gradient step on a Gaussian ``N(m, S)``, ``S = R R^T``, down a loss.

    In natural parameters the step is ``theta - gamma dLoss/d(expectation parameters)``, that is
    ``S_new^-1 = S^-1 + 2 gamma dLoss/dS`` and ``m_new = m - gamma S_new dLoss/dm`` (Hensman et al.,
    "Gaussian processes for big data", 2013, section 3.2, in other symbols). We never invert S: with
    ``H = sym(Phi(R^T dLoss/dR))`` (``Phi``: lower triangle, half the diagonal),

        S_new = R (I + 2 gamma H)^-1 R^T,

    whose lower factor follows from one Cholesky factorization of the reversed middle matrix and one
    triangular solve. For a log-concave likelihood the middle matrix is positive definite whenever
    gamma <= 1. Where it is not (robust-max, Student's t), ``I + X + X^2 / 2`` replaces ``I + X``,
    ``X = 2 gamma H``: the same to first order and always positive definite (Lin, Schmidt and Khan,
    "Handling the positive-definite constraint in the Bayesian learning rule", 2020). Time O(M^3 P).

    :param q_mu: ``[M, P]``.
    :param q_sqrt: lower triangular, ``[P, M, M]``.
    :param grad_mu: gradient of the loss at ``q_mu``.
    :param grad_sqrt: gradient of the loss at the lower triangle of ``q_sqrt``.
    :param gamma: step size; 1 solves a conjugate problem in one step.
    :return: new ``q_mu`` and ``q_sqrt``.
    :raises FactorizationError: if the gradients are not finite.
    """
    Phi = linalg.lower_adjoint_product(q_sqrt, grad_sqrt)
    Phi = tf.linalg.set_diag(Phi, 0.5 * tf.linalg.diag_part(Phi))
    H = 0.5 * (Phi + tf.linalg.matrix_transpose(Phi))
    X = tf.reverse(2.0 * gamma * H, axis=[-2, -1])
    exact = X + tf.eye(tf.shape(H)[-1], dtype=H.dtype)
    reversed_factor = linalg.cholesky_or(
        exact,
        lambda: exact + 0.5 * tf.linalg.matmul(X, X),
        "the precision after a natural-gradient step",
    )
    reversed_R = tf.linalg.matrix_transpose(tf.reverse(q_sqrt, axis=[-2, -1]))
    new_R = linalg.solve_lower(reversed_factor, reversed_R)
    new_R = tf.reverse(tf.linalg.matrix_transpose(new_R), axis=[-2, -1])
    g = tf.transpose(grad_mu)[..., None]  # [P, M, 1]
    Sg = tf.linalg.matmul(new_R, tf.linalg.matmul(new_R, g, transpose_a=True))
    return q_mu - gamma * tf.transpose(Sg[..., 0]), new_R


Pairs = Sequence[tuple[Parameter, Parameter]]


def natural_pairs(model_or_pairs: Any) -> Pairs:
    """
    The ``(q_mu, q_sqrt)`` pairs that a natural-gradient step can update.

    :param model_or_pairs: a model, or such pairs.
    :raises ValueError: unless there are pairs, all with a full covariance.
    """
    pairs = model_or_pairs
    if isinstance(pairs, gpflow.models.BayesianModel):
        q_mu = getattr(pairs, "q_mu", None)
        if isinstance(q_mu, Parameter):
            pairs = ((q_mu, pairs.q_sqrt),)
        else:
            pairs = getattr(pairs, "variational_parameters", ())
    if not isinstance(pairs, Sequence) or not pairs or not all(map(_is_full, pairs)):
        raise ValueError(
            "natural gradients need a model with full covariances q_sqrt [P, M, M], or a list of "
            "pairs (q_mu, q_sqrt) of its parameters, such as model.variational_parameters or "
            f"[(model.q_mu, model.q_sqrt)]; {type(model_or_pairs).__name__} has none. Use "
            "natural_gradients=False in fit, or an optimizer of Keras alone."
        )
    return pairs


def _is_full(pair: Any) -> bool:
    """Whether a value is a pair ``(q_mu, q_sqrt)`` of parameters with a full covariance."""
    return (
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and all(isinstance(part, Parameter) for part in pair)
        and isinstance(pair[1].transform, bijectors.FillTriangular)
    )


def unconstrained_variables(pairs: Pairs) -> list[tf.Variable]:
    """The variables of all pairs, in order."""
    return [parameter.unconstrained_variable for pair in pairs for parameter in pair]


def natural_updates(pairs: Pairs, gradients: Sequence[tf.Tensor], gamma: float) -> list[tf.Tensor]:
    """
    Results of a natural-gradient step on every pair.

    :param gradients: gradients of the loss at the pairs' :func:`unconstrained_variables`.
    :return: values for these variables.
    """
    updates = []
    for (q_mu, q_sqrt), grad_mu, grad_free in zip(
        pairs, gradients[::2], gradients[1::2], strict=True
    ):
        triangular: Any = q_sqrt.transform
        # it only permutes entries, so it maps the gradient as it maps the value
        grad_sqrt = triangular.forward(grad_free)
        q = tf.convert_to_tensor(q_mu), tf.convert_to_tensor(q_sqrt)
        new_mu, new_sqrt = natural_step(*q, grad_mu, grad_sqrt, gamma)
        updates += [new_mu, triangular.inverse(new_sqrt)]
    return updates


class NaturalGradients:
    """
    Natural-gradient steps on every ``(q_mu, q_sqrt)`` pair of a model at once, for a training loop
    of your own; ``fit(..., natural_gradients=gamma)`` takes the same steps.

    Unlike ``gpflow.optimizers.NaturalGradient`` it takes pairs of different sizes in one call, from
    one evaluation of the loss, and a ``q_sqrt`` with negative entries on its diagonal, as L-BFGS
    may leave it. On other pairs the two take the same step. For models of GPflow and of this
    package with full covariances; formulas and cost are in :func:`natural_step`. The pairs are
    updated whether or not they are set trainable.
    """

    def __init__(self, gamma: float = 0.1) -> None:
        """
        :param gamma: step size; 1 solves a conjugate problem with one pair in one step.
        :raises ValueError: unless ``gamma`` is a finite number of at least 0.
        """
        self.gamma = require_rate(gamma, "gamma")

    def minimize(self, loss_closure: Callable[[], tf.Tensor], model_or_pairs: Any) -> None:
        """
        Take one step, eagerly or inside ``tf.function``.

        :param loss_closure: such as ``model.training_loss_closure(data)``.
        :param model_or_pairs: a model, all of whose pairs are updated (for ``DeepGP``, the pairs of
            the last layer); or a list of parameters ``(q_mu [M, P], q_sqrt [P, M, M])``, such as
            ``model.variational_parameters``.
        :raises ValueError: for a model without full covariances, for values that are not pairs,
            and for a loss that does not depend on the pairs.
        :raises FactorizationError: if the gradients are not finite; then nothing is changed.
        """
        pairs = natural_pairs(model_or_pairs)
        variables = unconstrained_variables(pairs)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = loss_closure()
        gradients = tape.gradient(loss, variables)
        if any(gradient is None for gradient in gradients):
            raise ValueError(
                "loss_closure must compute the loss from the q_mu and q_sqrt of every pair; got a "
                "loss without a gradient for one of them. Pass the pairs of the model in the loss."
            )
        updates = natural_updates(pairs, gradients, self.gamma)
        for variable, value in zip(variables, updates, strict=True):
            variable.assign(value)
