"""Requirements of likelihoods: columns and values of Y, and the number of latent functions."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import likelihoods

_INTEGERS = "integers"


def num_outputs(likelihood: likelihoods.Likelihood, num_latent_gps: int | None) -> int | None:
    """
    Number of columns of ``Y`` for a likelihood; None if not known.

    One per latent function, except that classification has one column of labels, likelihoods
    of several latent functions have ``observation_dim`` columns, and a switched likelihood has the
    index of the likelihood in an additional last column.
    """
    if isinstance(likelihood, likelihoods.MultiClass | likelihoods.Softmax):
        return 1
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        return None if num_latent_gps is None else num_latent_gps + 1
    if likelihood.observation_dim is not None:
        return int(likelihood.observation_dim)
    return num_latent_gps


def require_likelihood(likelihood: Any, num_latent_gps: int) -> None:
    """
    Refuse a likelihood that cannot take these latent functions or cannot be computed.

    :raises ValueError: for another kind of object; for instance, for ten classes and
        ``num_latent_gps=1``; and for GPflow's ``Ordinal`` where the error function of infinity is
        NaN, as in float64 of TensorFlow 2.21 on a CPU: its first and last level would be NaN.
    """
    if not isinstance(likelihood, likelihoods.Likelihood):
        raise ValueError(
            "likelihood must be a GPflow Likelihood, such as gpflow.likelihoods.Gaussian(); got "
            f"{type(likelihood).__name__}."
        )
    wanted = likelihood.latent_dim
    if wanted is not None and int(wanted) != num_latent_gps:
        raise ValueError(
            f"num_latent_gps must be {int(wanted)} for this {type(likelihood).__name__} "
            f"likelihood, got {num_latent_gps}; pass num_latent_gps={int(wanted)}."
        )
    if getattr(type(likelihood), "_make_phi", None) is not likelihoods.Ordinal._make_phi:
        return
    with tf.init_scope():
        if np.isnan(tf.math.erf(tf.constant(np.inf, gpflow.default_float()))):
            raise ValueError(
                "likelihood Ordinal of GPflow is NaN at its first and last level, since this "
                f"TensorFlow's erf(inf) is NaN in {np.dtype(gpflow.default_float()).name}. Use "
                "gs.likelihoods.Ordinal(bin_edges)."
            )


def require_labels(likelihood: likelihoods.Likelihood, Y: tf.Tensor) -> None:
    """
    Refuse values of ``Y`` outside the likelihood's support, where they are known: eagerly, and
    while tracing in what the graph captured.

    :param Y: ``[N, P]``.
    :raises ValueError: naming the first offending values.
    """
    support = _support(likelihood)
    values = tf.get_static_value(Y)  # None for an argument of the function being traced
    if support is None or values is None:
        return
    kind, low, high, text = support
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        values = values[:, -1]
    wrong = (values < low) | (values > high)
    if kind == _INTEGERS:
        wrong |= values != np.round(values)
    if wrong.any():
        found = np.unique(values[wrong])[:5]
        raise ValueError(
            f"Y must hold {text} for {type(likelihood).__name__}, but has {wrong.sum()} other "
            f"value(s), such as {', '.join(f'{v:g}' for v in found)}. Recode Y."
        )


def _support(likelihood: likelihoods.Likelihood) -> tuple[str, float, float, str] | None:
    """Kind, lower and upper limit, and a description of the valid values of an observation."""
    # a chain of ifs, not `match`: AutoGraph cannot read that statement and warns
    if isinstance(likelihood, likelihoods.Bernoulli):
        return _INTEGERS, 0, 1, "labels 0 or 1 (not -1 and 1)"
    if isinstance(likelihood, likelihoods.MultiClass | likelihoods.Softmax):
        last = int(likelihood.latent_dim or 0) - 1
        return _INTEGERS, 0, last, f"integer class labels from 0 to {last}"
    if isinstance(likelihood, likelihoods.Ordinal):
        last = int(likelihood.num_bins) - 1
        return _INTEGERS, 0, last, f"integer levels from 0 to {last}"
    if isinstance(likelihood, likelihoods.SwitchedLikelihood):
        last = len(likelihood.likelihoods) - 1
        return _INTEGERS, 0, last, f"an index from 0 to {last} in the last column"
    if isinstance(likelihood, likelihoods.Poisson):
        return _INTEGERS, 0, np.inf, "counts 0, 1, 2, ..."
    if isinstance(likelihood, likelihoods.Exponential):
        return "reals", 0, np.inf, "non-negative numbers"
    if isinstance(likelihood, likelihoods.Gamma):
        return "reals", float(np.finfo(np.float32).tiny), np.inf, "positive numbers"
    if isinstance(likelihood, likelihoods.Beta):
        below_one = float(np.nextafter(1.0, 0.0))
        return "reals", float(np.finfo(np.float32).tiny), below_one, "numbers inside (0, 1)"
    return None
