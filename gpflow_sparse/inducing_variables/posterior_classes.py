"""The posterior, and its KL, that GPflow finds for each kind of inducing variables of this package.

Its module is imported with the first posterior: imports go downward, and stock
``gpflow.models.SVGP`` needs no more than the inducing variables.
"""

import importlib
from functools import partial
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.kullback_leiblers import prior_kl
from gpflow.posteriors import create_posterior, get_posterior_class

from gpflow_sparse.inducing_variables.basis_features import BasisFeatures
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inducing_variables.orthogonal import OrthogonalInducingVariables

_POSTERIORS = "gpflow_sparse.posteriors"
# In a user's tf.function AutoGraph would try to convert the import of a module, and warn.
_as_it_is = tf.autograph.experimental.do_not_convert
# Posteriors with one kernel, each with whether several kernels have one posterior each of it.
_CLASSES = {
    BasisFeatures: ("BasisPosterior", False),
    NeighborInducingPoints: ("NeighborPosterior", True),
    OrthogonalInducingVariables: ("OrthogonalPosterior", True),
}


def _register(variables: type, name: str, one_for_each_kernel: bool) -> None:
    @get_posterior_class.register(Kernel, variables)
    @_as_it_is
    def posterior_class(kernel: Kernel, inducing_variable: Any) -> Any:
        return getattr(importlib.import_module(_POSTERIORS), name)

    if not one_for_each_kernel:
        return

    @get_posterior_class.register(MultioutputKernel, variables)
    @_as_it_is
    def posterior_class_of_several_kernels(kernel: Kernel, inducing_variable: Any) -> Any:
        posteriors = importlib.import_module(_POSTERIORS)
        return partial(posteriors.MultioutputPosterior, part=getattr(posteriors, name))

    @prior_kl.register(variables, Kernel, object, object)
    @check_shapes("return: []")
    def kl_of_posterior(
        inducing_variable: Any, kernel: Kernel, q_mu: Any, q_sqrt: Any, whiten: bool = False
    ) -> tf.Tensor:
        return create_posterior(
            kernel, inducing_variable, q_mu, q_sqrt, whiten, precompute_cache=None
        ).prior_kl()


for _variables, (_name, _one_for_each_kernel) in _CLASSES.items():
    _register(_variables, _name, _one_for_each_kernel)
