"""Inducing variables. Importing this package registers their posteriors with GPflow."""

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.inducing_variables.basis_features import BasisFeatures
from gpflow_sparse.inducing_variables.covariances import Kuv
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inducing_variables.orthogonal import OrthogonalInducingVariables
from gpflow_sparse.inducing_variables.patches import LocatedPatches, Patches

# registers; nothing in them is called by name
from gpflow_sparse.inducing_variables import posterior_classes, shared  # isort: skip  # noqa: F401

__all__ = [
    "BasisFeatures",
    "Kuv",
    "LocatedPatches",
    "NeighborInducingPoints",
    "OrthogonalInducingVariables",
    "Patches",
]

restrict_dir(__name__, __all__)
