"""GPflow's wrapper for outputs that share inducing variables of this package.

``SharedIndependentInducingVariables(Z)`` adds nothing to inducing variables that every output
shares anyhow, so that the posterior is the posterior of ``Z`` itself. For all other inducing
variables the wrapper keeps GPflow's posterior.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.inducing_variables import (
    FallbackSharedIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    IndependentLatent,
    Kernel,
    LinearCoregionalization,
    SeparateIndependent,
    SharedIndependent,
)
from gpflow.posteriors import get_posterior_class

from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inducing_variables.orthogonal import OrthogonalInducingVariables

_OURS = OrthogonalInducingVariables | NeighborInducingPoints
_KERNELS = (
    Kernel,
    IndependentLatent,
    SharedIndependent,
    SeparateIndependent,
    LinearCoregionalization,
)
_WRAPPERS = (FallbackSharedIndependentInducingVariables, SharedIndependentInducingVariables)


def without_wrapper(inducing_variable: Any) -> Any:
    """Inducing variables of this package without GPflow's wrapper; any others as they are."""
    inner = getattr(inducing_variable, "inducing_variable", None)
    wrapped = isinstance(inducing_variable, _WRAPPERS) and isinstance(inner, _OURS)
    return inner if wrapped else inducing_variable


def _unwrapped(stock: Callable[..., Any]) -> Callable[..., Any]:
    def posterior_class(kernel: Kernel, wrapped: Any) -> Callable[..., Any]:
        inner = wrapped.inducing_variable
        if not isinstance(inner, _OURS):
            return stock(kernel, wrapped)
        own = get_posterior_class(kernel, inner)
        return lambda kernel, _, *args, **options: own(kernel, inner, *args, **options)

    return posterior_class


# all are looked up before the first is replaced, since some pairs are ambiguous in between
_STOCK = {
    pair: get_posterior_class.dispatch_or_raise(*pair) for pair in product(_KERNELS, _WRAPPERS)
}
for _pair, _posterior_class in _STOCK.items():
    get_posterior_class.register(*_pair)(_unwrapped(_posterior_class))

_stock_prior_kl = gpflow.kullback_leiblers.prior_kl.dispatch_or_raise(
    _WRAPPERS[0], Kernel, object, object
)


@gpflow.kullback_leiblers.prior_kl.register(_WRAPPERS[0], Kernel, object, object)
@check_shapes("return: []")
def _prior_kl(
    wrapped: Any, kernel: Kernel, q_mu: Any, q_sqrt: Any, whiten: bool = False
) -> tf.Tensor:
    if not isinstance(wrapped.inducing_variable, _OURS):
        return _stock_prior_kl(wrapped, kernel, q_mu, q_sqrt, whiten=whiten)
    return gpflow.kullback_leiblers.prior_kl(
        wrapped.inducing_variable, kernel, q_mu, q_sqrt, whiten=whiten
    )
