"""Layers of deep models: a prior, inducing variables and a variational distribution."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.functions import MeanFunction, Zero
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel
from gpflow.utilities import positive, triangular

from gpflow_sparse.covariances.patch_grids import PatchGrid, make_grid
from gpflow_sparse.inducing_variables import (
    BasisFeatures,
    NeighborInducingPoints,
    OrthogonalInducingVariables,
)
from gpflow_sparse.inducing_variables.basis_features import require_own_kernel
from gpflow_sparse.inducing_variables.shared import without_wrapper
from gpflow_sparse.inference.calibration import Calibration
from gpflow_sparse.inference.neighborhoods import NeighborPrior
from gpflow_sparse.models.base import require_num_latents
from gpflow_sparse.models.deep.layer_posterior import LayerPosterior
from gpflow_sparse.models.solvegp import OrthogonalPosterior, prior_factors
from gpflow_sparse.models.starting import parameters
from gpflow_sparse.models.swsgp import NeighborPosterior, closest_scales
from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.posteriors.basis import BasisPosterior
from gpflow_sparse.posteriors.multioutput import MultioutputPosterior, latent_kernels
from gpflow_sparse.validation import checks, component_checks

Inducing = OrthogonalInducingVariables | NeighborInducingPoints | BasisFeatures


class GPLayer(tf.Module):
    """
    One layer: G functions of a row, with any kernel and inducing variables of this package.

    q is a Gaussian for each set of points or patches, and for the weights of a basis; points with
    neighbors have independent Gaussians and the "chain" KL of :class:`SWSGP`, which does not depend
    on the random inputs of the layer.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: Any,
        *,
        num_latent_gps: int | None = None,
        mean_function: MeanFunction | None = None,
        whiten: bool = True,
        q_mu: Sequence[Any] | None = None,
        q_sqrt: Sequence[Any] | None = None,
    ) -> None:
        """
        :param kernel: a single-output kernel, shared by all G functions; or SharedIndependent,
            SeparateIndependent or LinearCoregionalization.
        :param inducing_variable: an array ``[M, D]``, ``InducingPoints``, ``Patches`` or
            ``LocatedPatches``; several of them in ``OrthogonalInducingVariables``;
            ``NeighborInducingPoints``; or ``BasisFeatures``.
        :param num_latent_gps: number of latent functions; by default 1 or the kernel's own number.
        :param mean_function: added to f; zero by default.
        :param whiten: parametrize q relative to the prior; not for neighbors, where it is ignored.
        :param q_mu: starting means, one ``[M_b, L]`` per set; by default zero.
        :param q_sqrt: starting lower factors, one ``[L, M_b, M_b]`` per set, standard deviations
            ``[M, L]`` for neighbors; by default the prior, or the closest q.
        :raises ValueError: for arguments of a wrong kind, or of shapes that do not match.
        """
        super().__init__()
        if num_latent_gps is None:
            num_latent_gps = int(getattr(kernel, "num_latent_gps", 1) or 1)
        self.num_latent_gps = checks.require_count(num_latent_gps, "num_latent_gps")
        checks.require_flag(whiten, "whiten")
        self.kernel = kernel
        self.inducing_variable: Inducing = as_inducing(inducing_variable)
        self.mean_function = Zero() if mean_function is None else mean_function
        self.whiten = whiten and not isinstance(self.inducing_variable, NeighborInducingPoints)
        # smallest jitter relative to the kernel's variance; the model's applies if it is larger
        self.jitter: float | None = None
        self._require_parts()
        mean_shapes, sqrt_shapes = self.variational_shapes
        transform = (
            positive if isinstance(self.inducing_variable, NeighborInducingPoints) else triangular
        )
        sqrts = _prior_factors(self) if q_sqrt is None else q_sqrt
        self.q_mu = parameters(q_mu, mean_shapes, "q_mu")
        self.q_sqrt = parameters(sqrts, sqrt_shapes, "q_sqrt", transform)

    @property
    def input_dim(self) -> int | None:
        """Columns of an input; None if any number is accepted."""
        return self._row_length

    @property
    def output_dim(self) -> int:
        """Columns of an output."""
        return self.num_outputs

    @property
    def num_outputs(self) -> int:
        """G, the number of functions of the layer."""
        if isinstance(self.kernel, LinearCoregionalization):
            return int(self.kernel.W.shape[0])
        return self.num_latent_gps

    @property
    def grid(self) -> PatchGrid | None:
        """Grid of patches if every patch of an input is a row of the layer; else None."""
        return None

    @property
    def dtype(self) -> tf.DType:
        """Float type of the parameters."""
        self._require_shapes()
        return self.q_mu[0].dtype

    @property
    def variational_shapes(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Shapes of the entries of ``q_mu``, and of the entries of ``q_sqrt``."""
        iv, L = _require_inducing(self.inducing_variable), self.num_latent_gps
        if isinstance(iv, NeighborInducingPoints):
            shape = (int(iv.Z.shape[0]), L)
            return [shape], [shape]
        sizes = (int(iv.basis.num_basis),) if isinstance(iv, BasisFeatures) else iv.sizes
        return [(size, L) for size in sizes], [(L, size, size) for size in sizes]

    @property
    def variational_parameters(self) -> tuple[tuple[Parameter, Parameter], ...]:
        """Pairs ``(q_mu, q_sqrt)``, one per set."""
        return tuple(zip(self.q_mu, self.q_sqrt, strict=True))

    def posterior(
        self, jitter: float | None = None, calibration: Calibration | None = None
    ) -> LayerPosterior:
        """
        The posterior process of the layer, without a cache.

        :param jitter: smallest relative jitter.
        :param calibration: factors of predictive variances, of the last layer of a model.
        """
        self._require_parts()
        self._require_shapes()
        for value in (jitter, self.jitter):
            component_checks.require_jitter(value)
        amounts = [value for value in (jitter, self.jitter) if value is not None]
        made = self._make(max(amounts, default=None), calibration)
        return LayerPosterior(made, self.num_outputs, self.grid)

    def start_at(self, filters: Any, scale: float = 1e-3) -> None:
        """
        Start a layer at a linear map of its rows, with small variance: with the prior for q and
        no mean function, the outputs of a hidden layer do not depend on its inputs.

        In the paper random filters are only used to find inducing patches of deeper layers
        (appendix G.2); starting the layer itself there is an addition.

        :param filters: ``[D, L]``, or ``[h w C, L]`` for patches: f starts near ``row @ filters``.
        :param scale: factor of the current standard deviations of q.
        :raises ValueError: for another shape, or a layer without inducing points.
        """
        iv = self.inducing_variable
        points = iv.sets if isinstance(iv, OrthogonalInducingVariables) else [iv]
        if not all(type(s) is InducingPoints or (s is iv and hasattr(s, "Z")) for s in points):
            raise ValueError(
                "start_at needs inducing points, at which f can be set to values; got "
                f"{[type(s).__name__ for s in points]}. Give q_mu instead."
            )
        F = checks.require_matrix(filters, "filters")
        wanted = (int(points[0].Z.shape[1]), self.num_latent_gps)
        if tuple(F.shape) != wanted:
            raise ValueError(f"filters must have shape {wanted}, got {tuple(F.shape)}.")
        values = [tf.linalg.matmul(s.Z, F) for s in points]
        if isinstance(iv, OrthogonalInducingVariables):
            values = self._through(values)
        for m, R, value in zip(self.q_mu, self.q_sqrt, values, strict=True):
            m.assign(value)
            R.assign(tf.constant(scale, F.dtype) * R)

    def _through(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Means of q for which E[f] has these values at the inducing points."""
        found = []
        for kernel, columns in latent_kernels(self.kernel, self.num_latent_gps):
            nothing = [None] * len(values)
            one = OrthogonalPosterior(
                kernel, self.inducing_variable, nothing, nothing, self.whiten, jitter=self.jitter
            )
            found.append(one.mean_through([value[:, columns] for value in values]))
        return [tf.concat(per_set, axis=1) for per_set in zip(*found, strict=True)]

    def _make(self, jitter: float | None, calibration: Calibration | None) -> SparsePosterior:
        iv = self.inducing_variable
        options: dict[str, Any] = {"mean_function": self.mean_function, "calibration": calibration}
        if isinstance(iv, BasisFeatures):
            return BasisPosterior(self.kernel, iv, self.q_mu[0], self.q_sqrt[0], **options)
        part: Any = OrthogonalPosterior
        q_mu, q_sqrt = self.q_mu, self.q_sqrt
        if isinstance(iv, NeighborInducingPoints):
            part = partial(NeighborPosterior, chain=True)  # its inputs are random
            q_mu, q_sqrt = self.q_mu[0], self.q_sqrt[0]
        options |= {"whiten": self.whiten, "jitter": jitter}
        if isinstance(self.kernel, MultioutputKernel):
            return MultioutputPosterior(self.kernel, iv, q_mu, q_sqrt, part=part, **options)
        return part(self.kernel, iv, q_mu, q_sqrt, **options)

    @property
    def _row_length(self) -> int | None:
        """Columns of a row of f's domain."""
        iv = _require_inducing(self.inducing_variable)
        if isinstance(iv, BasisFeatures):
            return iv.basis.input_dim
        if isinstance(iv, NeighborInducingPoints):
            return int(iv.Z.shape[1])
        known = iv.input_dim
        grid = getattr(self.kernel, "grid", None)
        return known if known is not None or grid is None else int(grid.num_pixels)

    def _require_parts(self) -> None:
        """Refuse components that do not fit each other; users may assign them at any time."""
        checks.require_flag(self.whiten, "whiten")
        component_checks.require_kernel(self.kernel, None)
        require_num_latents(self.kernel, self.num_latent_gps)
        if isinstance(self.inducing_variable, BasisFeatures):
            require_own_kernel(self.inducing_variable, self.kernel)
        columns = self._row_length
        component_checks.require_kernel(self.kernel, columns)
        component_checks.require_mean_function(self.mean_function, columns, self.num_outputs)
        if isinstance(self.inducing_variable, OrthogonalInducingVariables):
            for kernel, _ in latent_kernels(self.kernel, self.num_latent_gps):
                self.inducing_variable.require_kernel(kernel)

    def _require_shapes(self) -> None:
        for name, shapes in zip(("q_mu", "q_sqrt"), self.variational_shapes, strict=True):
            values = getattr(self, name)
            found: Any = type(values).__name__
            if isinstance(values, Sequence):
                found = [tuple(getattr(value, "shape", ())) for value in values]
            if found != shapes:
                raise ValueError(f"{name} must have entries of shapes {shapes}, got {found}.")


class ConvLayer(GPLayer):
    """
    A hidden layer over images: G functions of every patch, which make an image of G channels.

    Kernel, inducing inputs and mean function are on patches ``[., h w C]``, row by row, channels
    last. The output ``[N, H' W' G]`` is an image ``(H', W', G)`` for the next layer. The KL is one
    per function, whatever the number of patches. Blomqvist, Kaski and Heinonen, "Deep
    convolutional Gaussian processes" (arXiv:1810.03052), and section 4 of Shi, Titsias and Mnih.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: Any,
        image_shape: Any,
        patch_shape: Any,
        *,
        stride: int = 1,
        **options: Any,
    ) -> None:
        """
        :param image_shape: ``(H, W)`` or ``(H, W, C)`` of the input.
        :param patch_shape: ``(h, w)``.
        :param stride: pixels from one patch to the next.
        :param options: further arguments of :class:`GPLayer`.
        :raises ValueError: for shapes that do not fit each other.
        """
        self.image_shape, self.patch_shape, self.stride = make_grid(
            image_shape, patch_shape, stride
        )
        super().__init__(kernel, inducing_variable, **options)

    @property
    def grid(self) -> PatchGrid:
        return make_grid(self.image_shape, self.patch_shape, self.stride)

    @property
    def input_dim(self) -> int:
        return self.grid.num_pixels

    @property
    def output_dim(self) -> int:
        return self.grid.num_patches * self.num_outputs

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """``(H', W', G)``."""
        return (*self.grid.shape, self.num_outputs)

    def _require_parts(self) -> None:
        columns = self._row_length
        if columns not in (None, self.grid.patch_length):
            raise ValueError(
                f"inducing_variable must have {self.grid.patch_length} columns, the entries of a "
                f"patch of {self.patch_shape} pixels and {self.image_shape[2]} channel(s); got "
                f"{columns}."
            )
        super()._require_parts()


def as_inducing(value: Any) -> Inducing:
    """Inducing variables of a layer; arrays and single sets become a base set."""
    value = without_wrapper(value)
    if isinstance(value, Inducing):
        return value
    return OrthogonalInducingVariables(value)


def _require_inducing(value: Any) -> Inducing:
    """Refuse inducing variables of another kind, which may have been assigned to the layer."""
    wanted = "OrthogonalInducingVariables(Z), NeighborInducingPoints or BasisFeatures"
    return component_checks.require_kind(value, Inducing, "inducing_variable", wanted)


def _prior_factors(layer: Any) -> list[Any]:
    """Factors with which q is the prior; for neighbors the closest standard deviations."""
    iv, L = layer.inducing_variable, layer.num_latent_gps
    if isinstance(iv, NeighborInducingPoints):
        pairs = latent_kernels(layer.kernel, L)
        return [closest_scales(iv, [(NeighborPrior(k, iv.Z, layer.jitter), of) for k, of in pairs])]
    if isinstance(iv, BasisFeatures):
        return [np.eye(iv.basis.num_basis)[None].repeat(L, axis=0)]
    return prior_factors(layer)


def layer_sizes(num_inducing: Any, num_orthogonal: Any, count: int) -> list[tuple[int, ...]]:
    """
    Sizes of the inducing sets of every layer, first to last.

    :param num_inducing: M of every layer, or one number for each.
    :param num_orthogonal: M2 of every layer, or one number for each; 0 for none.
    :param count: number of layers.
    :raises ValueError: for other numbers.
    """
    given = {"num_inducing": num_inducing, "num_orthogonal": num_orthogonal}
    columns = []
    for name, value in given.items():
        several = isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim)
        numbers = list(value) if several else [value] * count
        least = 1 if name == "num_inducing" else 0
        if len(numbers) != count or min(checks.require_whole(n, name) for n in numbers) < least:
            raise ValueError(
                f"{name} must be a number of at least {least}, or one for each of {count} "
                f"layer(s); got {value!r}."
            )
        columns.append(numbers)
    return [(M, M2) if M2 else (M,) for M, M2 in zip(*columns, strict=True)]
