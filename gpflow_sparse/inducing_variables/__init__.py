"""Inducing variables. Importing this package registers its posteriors with GPflow."""

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.inducing_variables.basis_features import BasisFeatures
from gpflow_sparse.inducing_variables.covariances import Kuv
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inducing_variables.orthogonal import OrthogonalInducingVariables
from gpflow_sparse.inducing_variables.patches import LocatedPatches, Patches

# Last, and upward on purpose: stock `gpflow.models.SVGP` finds a posterior only once it is
# registered, by the models, and users of that model import nothing else.
import gpflow_sparse.models  # isort: skip  # noqa: F401

__all__ = [
    "BasisFeatures",
    "Kuv",
    "LocatedPatches",
    "NeighborInducingPoints",
    "OrthogonalInducingVariables",
    "Patches",
]

restrict_dir(__name__, __all__)
