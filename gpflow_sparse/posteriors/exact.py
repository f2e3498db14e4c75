"""Posteriors of GPflow's exact regression in less memory."""

from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPR, GPModel

from gpflow_sparse.initialization.exact_likelihood import exact_gp, lower_factor
from gpflow_sparse.initialization.repeated_rows import Rows
from gpflow_sparse.numerics.threads import threads_for
from gpflow_sparse.validation.component_checks import has_one_variance


def posterior_of(model: GPModel) -> Any:
    """
    ``model.posterior()``; for a GPR in memory for less than three matrices ``[N, N]`` rather than
    six, where the kernel has a closed form in NumPy. For GPflow's models without this method, such
    as GPRFITC, an object with the model's ``predict_f``.
    """
    if not hasattr(model, "posterior"):
        return SimpleNamespace(predict_f=model.predict_f)
    is_usual = type(model) is GPR and has_one_variance(model.likelihood)
    if not is_usual or not tf.executing_eagerly():
        return model.posterior()
    rows = _errors(model)
    try:
        L = lower_factor(model.kernel, rows, model.likelihood.variance)
    except np.linalg.LinAlgError:  # GPflow says so in its own words
        L = None
    if L is None:
        return model.posterior()
    posterior = model.posterior(gpflow.posteriors.PrecomputeCacheType.NOCACHE)
    posterior.cache = rows.Y, L
    return posterior


def log_marginal_likelihood(model: GPR) -> float:
    """The log density of the outputs, in one matrix ``[N, N]`` rather than six; in nats."""
    found = None
    if has_one_variance(model.likelihood):
        found = exact_gp(model.kernel, _errors(model), model.likelihood.variance)
    if found is None:
        return float(model.log_marginal_likelihood())
    gp, at = found
    with threads_for(len(gp.Y)):
        return gp.log_density(at, np.empty((len(gp.Y), len(gp.Y))))


def _errors(model: GPR) -> Rows:
    """Rows with outputs less the prior mean."""
    X, Y = map(tf.convert_to_tensor, model.data)
    return Rows(X, Y - model.mean_function(X))
