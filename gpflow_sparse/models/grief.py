"""GP-GRIEF: regression with grid-structured eigenfunctions."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel

from gpflow_sparse import collapsed, component_checks
from gpflow_sparse.bases import FiniteBasis, GridEigenfunctions, ReweightedBasis
from gpflow_sparse.kernels import Basis, Corrected
from gpflow_sparse.models.basis import BasisSVGP, to_svgp
from gpflow_sparse.models.held_data import hold, some_inputs
from gpflow_sparse.models.weight_space import WeightSpaceModel
from gpflow_sparse.rotation import Rotation, rotate, rotated_log_density

_OBJECTIVES = ("bound", "likelihood", "corrected")
_REWEIGHTED = (None, "original", "rotated")


class GRIEF(WeightSpaceModel):
    """
    Gaussian process regression with the p leading eigenfunctions of a product kernel on a grid of
    any size: 10 nodes in each of 33 columns are 10^33 inducing points.

    Evans and Nair, "Scalable Gaussian Processes with Grid-Structured Eigenfunctions (GP-GRIEF)"
    (2018); see :class:`~gpflow_sparse.bases.GridEigenfunctions` for the functions. ``objective``
    says what is maximized over the hyperparameters, and which prior predictions have:

    - "bound": the collapsed variational bound of the whole kernel, of which the weights are
      inducing variables with ``Kuu = I``. At most the exact log evidence, and larger with more
      eigenfunctions; variances return to the prior's away from the grid. Ours.
    - "likelihood": the log likelihood of the finite sum alone, as in the paper. No bound: it may
      exceed the exact evidence and prefer wrong lengthscales where p is small, and variances
      collapse to zero away from the grid.
    - "corrected": the finite sum plus independent noise of variance ``k(x, x) - |phi(x)|^2``, the
      correction that the paper mentions after eq. (4). Where p is small the noise variance may be
      driven to zero, because the correction stands in for it.

    Every evaluation streams all rows, O(N p^2 + p^3) time and O(p^2) memory, gradients included.
    With ``reweighted`` every eigenfunction has a prior variance of its own to train, the kernel and
    the mean function are fixed, and the data enter once:

    - "original": weights of the eigenfunctions, eq. (11) of the paper; O(p^3) per evaluation for
      any N.
    - "rotated": weights of the combinations of them that are orthogonal on the data; O(p). It is
      another family of kernels, which has only the unit weights in common with the first.

    So many weights overfit when they are maximized: :meth:`sample_posterior` integrates them out.
    ``docs/errata.md`` lists where we depart from the paper and why. The model never standardizes
    Y; its priors and noise are in the units of Y.
    """

    def __init__(
        self,
        data: Any,
        kernel: Kernel,
        *,
        num_eigenfunctions: int = 1000,
        points_per_dimension: int = 10,
        reweighted: str | None = None,
        objective: str = "bound",
        mean_function: MeanFunction | None = None,
        noise_variance: Any = 1.0,
        grid: Sequence[Any] | None = None,
        grid_weights: Any = None,
    ) -> None:
        """
        :param data: ``(X [N, D], Y [N, P])``: arrays, memory maps, or a ``tf.data.Dataset``; see
            :class:`BasisGPR`.
        :param kernel: a product over columns: SquaredExponential, or see
            :func:`gpflow_sparse.kernels.product_of`.
        :param num_eigenfunctions: p, at most.
        :param points_per_dimension: nodes of the grid in each column, at most; at percentiles of X.
        :param reweighted: None, "original" or "rotated"; fixes the parameters of the kernel and of
            the mean function (they are set to be not trainable).
        :param objective: "bound", "likelihood" or "corrected", the last without ``reweighted``.
        :param mean_function: added to the prior mean; zero by default.
        :param noise_variance: start of ``model.likelihood.variance``.
        :param grid: nodes of each column instead; see :class:`GridEigenfunctions`.
        :param grid_weights: see :class:`GridEigenfunctions`.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other, and for a
            kernel that is not a product, naming the part.
        """
        _require_choice(reweighted, "reweighted", _REWEIGHTED)
        _require_choice(objective, "objective", _OBJECTIVES)
        if objective == "corrected" and reweighted is not None:
            raise ValueError(
                "objective must be 'bound' or 'likelihood' with reweighted: the correction depends "
                "on the weights at every row, so each evaluation would read all data."
            )
        held = hold(data, batches=True)
        basis = GridEigenfunctions(
            kernel,
            some_inputs(held),
            num_eigenfunctions,
            points_per_dimension,
            grid=grid,
            grid_weights=grid_weights,
        )
        self.reweighted, self.objective = reweighted, objective
        super().__init__(
            held, kernel, basis, mean_function=mean_function, noise_variance=noise_variance
        )
        self.weights: Parameter | None = None
        """Prior variances ``[p]`` of the functions, with ``reweighted``."""
        if reweighted is not None:
            gpflow.set_trainable(self.kernel, False)
            gpflow.set_trainable(self.mean_function, False)
            self.weights = Parameter(
                np.ones(basis.num_basis),
                transform=gpflow.utilities.positive(),
                dtype=gpflow.default_float(),
            )
            fixed = (self._row_sums(), self._fixed_values())
            self._statistics = tuple(_variable(part) for part in fixed[0])
            self._fixed_at = _variable(fixed[1])
            if reweighted == "rotated":
                self._rotation = tuple(_variable(part) for part in rotate(fixed[0]))

    def elbo(self) -> tf.Tensor:
        """
        The collapsed bound on the log evidence of the whole kernel, whatever ``objective`` is: a
        scalar, in nats.

        With weights W its kernel is ``k + phi^T (W - I) phi``.
        """

        def bound(sums: collapsed.RowSums, noise: tf.Tensor) -> tf.Tensor:
            trace = self.num_latent_gps * sums.residual / (2.0 * noise)
            return self._log_density(sums, noise) - trace

        return self._objective(bound)

    def log_marginal_likelihood(self) -> tf.Tensor:
        """
        The log likelihood of the finite sum of functions, with the correction if ``objective`` is
        "corrected": a scalar, in nats.
        """
        if self.objective == "corrected":
            return self._corrected_log_density()
        return self._objective(self._log_density)

    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """What ``objective`` names."""
        return self.elbo() if self.objective == "bound" else self.log_marginal_likelihood()

    def refresh_basis(self) -> bool:
        """
        Choose the eigenfunctions anew for the kernel as it is now; see
        :meth:`GridEigenfunctions.refresh`. With ``reweighted``, also read the data again and, if
        the functions have changed, start the weights at 1.

        :return: whether the functions, or with ``reweighted`` the fixed parameters, have changed.
        """
        changed = self.basis.refresh()
        if self.weights is None:
            return changed
        values = self._fixed_values()
        changed = changed or not np.array_equal(values, self._fixed_at.numpy())
        if changed:
            sums = self._row_sums()
            _assign(self._statistics, sums)
            if self.reweighted == "rotated":
                _assign(self._rotation, rotate(sums))
            self._fixed_at.assign(values)
            self.weights.assign(np.ones(self.basis.num_basis))
        return changed

    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """See :meth:`WeightSpaceModel.compute_qu`; O(p^2) for rotated weights."""
        if self.reweighted != "rotated":
            return super().compute_qu()
        self._require_all()
        rotation, noise, w = self._rotated(), self._noise(), self._weights()
        D = noise + w * rotation.squares  # [p]
        mean = (tf.sqrt(w) / D)[:, None] * rotation.projections
        factor = tf.linalg.diag(tf.sqrt(noise / D))
        factors = tf.repeat(tf.cast(factor, self.dtype)[None], self.num_latent_gps, 0)
        return tf.cast(mean, self.dtype), factors

    def to_svgp(self, num_data: int | None = None) -> BasisSVGP:
        """
        A :class:`BasisSVGP` at the posterior of this model; see :meth:`BasisGPR.to_svgp`. For
        "bound" its elbo of all the data is the bound.
        """
        return to_svgp(self, num_data, keep_residual=self.objective != "likelihood")

    def _sums(self) -> collapsed.RowSums:
        if self.reweighted is None:
            return self._row_sums()
        sums = collapsed.RowSums(*(tf.convert_to_tensor(part) for part in self._statistics))
        if self.reweighted == "rotated":
            return sums
        return collapsed.reweighted(sums, tf.sqrt(self._weights()))

    def _log_density(self, sums: collapsed.RowSums, noise: tf.Tensor) -> tf.Tensor:
        if self.reweighted == "rotated":
            return rotated_log_density(self._rotated(), noise, self._weights())
        return collapsed.log_density(sums, noise)

    def _corrected_log_density(self) -> tf.Tensor:
        self._require_all()
        with component_checks.blame(self):
            sums, log_noises = self._corrected_sums()
            value = collapsed.log_density(sums, tf.ones([], tf.float64))
            value = tf.cast(value - 0.5 * self.num_latent_gps * log_noises, self.dtype)
        component_checks.require_finite_result(self, "the objective", value)
        return value

    def _corrected_sums(self) -> tuple[collapsed.RowSums, tf.Tensor]:
        """Sums of rows divided by the root of their own noise variance, and the sum of its logs."""

        def sums(blocks: Sequence[tf.Tensor], tables: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            X, errors = self._block(blocks)
            A = self.basis.features(X, tables)
            lost = self._kernel_diagonal(X, A) - tf.reduce_sum(tf.square(A), axis=0)
            noises = self._noise() + tf.cast(tf.maximum(lost, 0.0), tf.float64)  # [n]
            A, errors = tf.cast(A, tf.float64), tf.cast(errors, tf.float64)
            roots = tf.sqrt(noises)
            scaled = collapsed.row_sums(A / roots, errors / roots[:, None], tf.zeros_like(noises))
            return [*scaled, tf.reduce_sum(tf.math.log(noises))]

        *scaled, log_noises = self._streamed(sums)
        return collapsed.RowSums(*scaled), log_noises

    def _posterior_sums(self) -> tuple[collapsed.RowSums, tf.Tensor]:
        if self.objective == "corrected":
            return self._corrected_sums()[0], tf.ones([], tf.float64)
        return super()._posterior_sums()

    def _prior(self) -> tuple[Kernel, FiniteBasis]:
        basis: FiniteBasis = self.basis
        if self.reweighted is not None:
            V = self._rotation[0] if self.reweighted == "rotated" else None
            basis = ReweightedBasis(basis, self.weights, V)
        if self.objective == "likelihood":
            return Basis(basis), basis
        return Corrected(basis) if isinstance(basis, ReweightedBasis) else self.kernel, basis

    def _kernel_diagonal(self, X: tf.Tensor, A: tf.Tensor) -> tf.Tensor:
        return self.kernel(X, full_cov=False)

    def _weights(self) -> tf.Tensor:
        return tf.cast(self.weights, tf.float64)

    def _rotated(self) -> Rotation:
        return Rotation(*(tf.convert_to_tensor(part) for part in self._rotation))

    def _fixed_values(self) -> np.ndarray:
        """The parameters that the statistics were computed with."""
        fixed = [*self.kernel.parameters, *self.mean_function.parameters]
        values = [np.ravel(p.unconstrained_variable.numpy()) for p in fixed]
        return np.concatenate([np.zeros(0), *values]).astype(np.float64)

    def _require_all(self) -> None:
        super()._require_all()
        _require_choice(self.objective, "objective", _OBJECTIVES)
        if self.kernel is not self.basis.kernel:
            raise ValueError(
                "kernel must be the one that the eigenfunctions belong to; make a new GRIEF model "
                "for another."
            )
        if self.reweighted is None or not hasattr(self, "_fixed_at"):
            return
        with tf.init_scope():  # while tracing, the values of now
            if tf.executing_eagerly() and not np.array_equal(
                self._fixed_values(), self._fixed_at.numpy()
            ):
                raise ValueError(
                    "kernel or mean_function has other parameters than when the data were read: "
                    "call refresh_basis(), or leave them as they are while reweighted is on."
                )


def _require_choice(value: Any, name: str, choices: tuple[Any, ...]) -> None:
    if not any(value is choice or value == choice for choice in choices):
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}; got {value!r}.")


def _variable(value: Any) -> tf.Variable:
    return tf.Variable(value, trainable=False)


def _assign(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
