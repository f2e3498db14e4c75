"""The weights of a finite basis as inducing variables, which need no factorization."""

from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel

from gpflow_sparse.bases import FiniteBasis
from gpflow_sparse.bases.base import require_basis
from gpflow_sparse.inducing_variables.covariances import Kuv
from gpflow_sparse.kernels import Basis, Corrected, WithMissingVariance
from gpflow_sparse.validation.component_checks import require_kind


class BasisFeatures(InducingVariables):
    """
    Inducing variables ``u = w``, the weights of a basis: ``Kuu = I`` and ``Kuf`` is the basis.

    With a basis that projects its kernel (:class:`~gpflow_sparse.bases.GridEigenfunctions`) and
    that kernel, ``u_j = lam_j^-1/2 q_j^T f(U)``, so stock ``gpflow.models.SGPR`` and ``SVGP`` give
    true lower bounds on the evidence of k itself, with any likelihood; and the basis can be the
    base set of :class:`~gpflow_sparse.inducing_variables.OrthogonalInducingVariables`. With
    ``gpflow_sparse.kernels.Basis(basis)`` as the kernel it works for every basis, and f is
    determined by the weights.

    ``whiten`` makes no difference. The jitter that GPflow adds to Kuu is ignored: an identity needs
    none. Inter-domain GRIEF is new here (Evans and Nair, 2018, use the features alone).
    """

    needs_jitter = False

    def __init__(self, basis: FiniteBasis, name: str | None = None) -> None:
        """
        :param basis: m functions; its kernel, or ``kernels.Basis`` around it, must be the kernel of
            the model.
        :raises ValueError: for something that is not a basis.
        """
        super().__init__(name=name)
        self.basis = require_basis(basis)

    @property
    def num_inducing(self) -> tf.Tensor:
        """m."""
        return tf.constant(self.basis.num_basis)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """``(m, D, 1)``; D is None where any number of input columns is right."""
        return (self.basis.num_basis, self.basis.input_dim, 1)


def require_features(inducing_variable: Any) -> BasisFeatures:
    """:raises ValueError: for inducing variables of another kind."""
    wanted = "BasisFeatures(basis)"
    return require_kind(inducing_variable, BasisFeatures, "inducing_variable", wanted)


def require_own_kernel(inducing_variable: Any, kernel: Any) -> None:
    """
    Refuse inducing variables of another kind, and a kernel for which ``Kuu`` is not the identity.

    :raises ValueError: naming a valid kernel.
    """
    basis = require_features(inducing_variable).basis
    if isinstance(kernel, Basis | Corrected | WithMissingVariance) and kernel.basis is basis:
        return
    if kernel is not basis.kernel:
        raise ValueError(
            f"kernel must be the one that the {type(basis).__name__} was made for (basis.kernel), "
            f"or gs.kernels.Basis(basis); got another {type(kernel).__name__}."
        )
    if not basis.is_projection:
        raise ValueError(
            f"kernel must be gs.kernels.Basis(basis): {type(basis).__name__} only approximates its "
            f"{type(kernel).__name__}, so its weights cannot be inducing variables."
        )


@Kuu.register(BasisFeatures, Kernel)
@check_shapes("inducing_variable: [m, D, 1]", "return: [m, m]")
def _weight_covariance(
    inducing_variable: BasisFeatures, kernel: Kernel, *, jitter: float = 0.0
) -> tf.Tensor:
    require_own_kernel(inducing_variable, kernel)
    return tf.eye(inducing_variable.basis.num_basis, dtype=inducing_variable.basis.dtype)


@Kuf.register(BasisFeatures, Kernel, object)
@check_shapes("inducing_variable: [m, D, 1]", "Xnew: [N, D]", "return: [m, N]")
def _features(inducing_variable: BasisFeatures, kernel: Kernel, Xnew: Any) -> tf.Tensor:
    require_own_kernel(inducing_variable, kernel)
    return inducing_variable.basis.features(Xnew)  # [m, N]


@Kuv.register(BasisFeatures, InducingPoints, Kernel)
@check_shapes("first: [m, D, 1]", "second: [M2, D, 1]", "return: [m, M2]")
def _features_points(first: BasisFeatures, second: InducingPoints, kernel: Kernel) -> tf.Tensor:
    return _features(first, kernel, second.Z)  # [m, M2]
