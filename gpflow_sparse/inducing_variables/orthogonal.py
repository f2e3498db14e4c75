"""Orthogonal inducing sets: values of ``f`` at Z, and of its residual process at O."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPatches, InducingPoints, InducingVariables
from gpflow.kernels import Kernel

from gpflow_sparse.inducing_variables.covariances import refuse_joint_covariances
from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inducing_variables.patches import LocatedPatches, Patches, PatchSet
from gpflow_sparse.validation import checks
from gpflow_sparse.validation.component_checks import require_kind


class OrthogonalInducingVariables(InducingVariables):
    """
    A base set Z and one or more sets O, each for the residual process of the sets before it.

    The variables of the base set are ``u = f(Z)``. The variables of the next set are ``v =
    f_perp(O)``, values of the residual process with kernel ``c(x, x') = k(x, x') - k(x, Z) Kuu^-1
    k(Z, x')``, which is independent of ``u``; and so on. The variational distribution factorizes
    over the sets, so its parameters grow with the sum of the squares of their sizes, not with the
    square of the sum.

    Shi, Titsias and Mnih, "Sparse Orthogonal Variational Inference for Gaussian Processes" (2020,
    arXiv:1910.10596v5), section 3.1; more than one orthogonal set is new here.

    The sets are not interchangeable: swapping Z and O changes the bound. Choose them together
    (``gpflow_sparse.initialization.split_orthogonal``): a point of O close to a point of Z adds
    noise, not resolution.
    """

    def __init__(self, base: Any, *orthogonal: Any, name: str | None = None) -> None:
        """
        :param base: Z as an array ``[M, D]`` or a GPflow ``InducingVariables``.
        :param orthogonal: sets O, ..., arrays or inducing variables with the same D. Without any
            the model is SVGP; a set without rows is ignored.
        :raises ValueError: for a wrong rank, NaN, mismatched D, or invalid inducing variables.
        """
        super().__init__(name=name)
        others = [_as_set(value, f"orthogonal[{i}]") for i, value in enumerate(orthogonal)]
        sets = [_as_set(base, "base"), *others]
        rows, widths = zip(*(_rows_and_columns(s) for s in sets), strict=True)
        if len(set(widths)) > 1:
            raise ValueError(
                f"all inducing sets must have the same number of columns, got {list(widths)}."
            )
        kinds = [type(s) for s in sets]
        if len(set(kinds)) > 1 and {InducingPatches, Patches, LocatedPatches} & set(kinds):
            raise ValueError(
                "all inducing sets must be of one kind if one is of patches, got "
                f"{', '.join(kind.__name__ for kind in kinds)}; an array stands for "
                "InducingPoints, inputs of f: wrap each set of patches."
            )
        if rows[0] == 0:
            raise ValueError("base is empty: it needs at least one row.")
        self.sets = tuple(s for s, count in zip(sets, rows, strict=True) if count)

    @property
    def num_inducing(self) -> tf.Tensor:
        """Total number of inducing variables, M + M2 + ..."""
        return tf.add_n([s.num_inducing for s in self.sets])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inducing variables of each set."""
        return tuple(_rows_and_columns(s)[0] for s in self.sets)

    @property
    def input_dim(self) -> int | None:
        """D of the inputs of ``f``; None for inter-domain sets, whose rows are not inputs."""
        points = (s for s in self.sets if type(s) is InducingPoints)
        return next((_rows_and_columns(s)[1] for s in points), None)

    @property
    def shape(self) -> tuple[int, int | None, int]:
        """``(M + M2 + ..., D, 1)``; D is None for inter-domain sets."""
        return (sum(self.sizes), self.input_dim, 1)

    def require_kernel(self, kernel: Kernel) -> None:
        """:raises ValueError: for a kernel that the inducing variables of a set do not fit."""
        for own in self.sets:
            getattr(own, "require_kernel", lambda kernel: None)(kernel)


def require_orthogonal(inducing_variable: Any) -> OrthogonalInducingVariables:
    """Refuse inducing variables of another kind, which can be assigned to a model at any time."""
    kind, wanted = OrthogonalInducingVariables, "OrthogonalInducingVariables(Z, O)"
    found = require_kind(inducing_variable, kind, "inducing_variable", wanted)
    if any(isinstance(own, NeighborInducingPoints) for own in found.sets):
        raise ValueError(
            "inducing_variable holds NeighborInducingPoints, whose rows have neighbors of their "
            "own: take gs.models.SWSGP with these alone, or an array of points."
        )
    return found


def _rows_and_columns(inducing_set: InducingVariables) -> tuple[int, int]:
    patches = isinstance(inducing_set, PatchSet)  # their shape leaves the length of a patch out
    rows, columns = (inducing_set.Z.shape if patches else inducing_set.shape or (None, None))[:2]
    if rows is None or columns is None:
        raise ValueError(f"an inducing set needs a known shape [M, D], got {inducing_set.shape}.")
    return rows, columns


def _as_set(value: Any, label: str) -> InducingVariables:
    if isinstance(value, OrthogonalInducingVariables):
        raise ValueError(f"{label} is itself orthogonal; pass its sets one by one: *{label}.sets.")
    if isinstance(value, gpflow.inducing_variables.MultioutputInducingVariables):
        raise ValueError(f"{label} must be single-output, got {type(value).__name__}.")
    if isinstance(value, InducingVariables):
        _require_values(getattr(value, "Z", None), label)
        return value
    if isinstance(value, gpflow.Parameter | tf.Variable):
        _require_values(value, label)
        return InducingPoints(value)
    tensor = checks.as_tensor(value, label)
    if tensor.shape.rank != 2 or tensor.shape[1] == 0:
        raise ValueError(f"{label} must have shape [M, D], got {tuple(tensor.shape)}.")
    return InducingPoints(tensor)


def _require_values(Z: Any, label: str) -> None:
    """The matrix of an inducing set that is taken as it is, and not converted."""
    if Z is None:
        return
    checks.require_matrix(Z, label)
    if Z.dtype != gpflow.default_float():
        raise ValueError(
            f"{label} must be {np.dtype(gpflow.default_float()).name}, GPflow's default float, "
            f"got {tf.as_dtype(Z.dtype).name}; pass its values as an array."
        )


refuse_joint_covariances(OrthogonalInducingVariables, "gs.models.SOLVEGP")
