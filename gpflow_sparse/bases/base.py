"""Finite bases: m functions whose weighted sum is a Gaussian process."""

import abc
from collections.abc import Sequence
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.kernels import Kernel

from gpflow_sparse.bases.preconditioner import Preconditioner
from gpflow_sparse.validation import checks, component_checks


class FiniteBasis(tf.Module, metaclass=abc.ABCMeta):
    """
    Functions ``phi(x) [m]`` whose weighted sum is ``f(x) = phi(x)^T w``, ``w ~ N(0, S^-1)``.

    S is the prior precision, see :meth:`prior_precision`. Where it is the identity the basis is
    *whitened*, and ``basis(X) basis(X')^T`` approximates ``k(X, X')``. :meth:`features` is the
    whitened form of any basis, which models of all m functions use; models that sample functions
    call the basis and read entries of S.

    A subclass provides :meth:`_columns` and sets ``kernel`` and ``num_basis``; one that is not
    whitened sets ``precision`` and overrides :meth:`_features` and :meth:`_precision_diagonal`, and
    :meth:`_prior_precision` if S is dense. QSGP also reads ``num_leading``, ``log_precision`` and
    ``centers``.

    All that changes after ``__init__`` must be in variables or parameters: QSGP keeps a copy of the
    basis, to which it copies the values of ``variables`` and nothing else.
    """

    kernel: Kernel
    """
    The kernel that the basis approximates; its parameters are read at every call.

    For a prior that is none of GPflow's kernels, a subclass of ``gpflow.kernels.Kernel`` with ``K``
    and ``K_diag`` near the prior covariance and variance of f. With any other kernel QSGP's
    estimates have no bias, but more variance; with ``variance_reduction="none"`` QSGP does not
    evaluate it.
    """
    num_basis: int
    """m, the number of functions."""
    precision: str = "identity"
    """Structure of the prior precision S of the weights: "identity", "diagonal" or "dense"; fixed
    when the basis is constructed."""
    num_leading: int = 0
    """
    h, the number of leading functions, which QSGP takes in every step by default.

    Above 0, ``k(X, X) - phi_h(X) phi_h(X)^T`` of these columns of :meth:`_columns` must be a
    covariance for any inputs: QSGP factorizes it at its control rows.
    """
    is_projection: bool = False
    """
    Whether ``k(x, x') - phi(x)^T phi(x')``, with the whitened functions of :meth:`_features`, is a
    covariance for any inputs: they are orthonormal in the function space of k, so that their
    weights are linear functionals of ``f ~ k``.
    """
    log_precision: tf.Variable
    """
    ``log s [m]`` of S = diag(s); needed with ``precision="diagonal"``, and by QSGP alone.

    If it is ``trainable``, QSGP trains the entries of the functions in a step. The result of
    :meth:`__call__` must not depend on it.
    """
    centers: gpflow.Parameter
    """
    Points ``z [m, D]`` with ``S[i, j] = phi_j(z_i)``; needed with ``precision="dense"`` by QSGP,
    unless ``variance_reduction="none"``: rows of ``S mu`` are then projections at these points.
    """

    def __call__(self, X: Any, indices: Any = None) -> tf.Tensor:
        """
        :param X: ``[N, D]``.
        :param indices: functions, as integers ``[k]`` from 0 to m - 1; all by default. No other
            column is computed.
        :return: ``[N, m]`` or ``[N, k]``.
        :raises ValueError: for inputs of another rank or D, not finite, and indices out of range.
        """
        X = self._require_inputs(X)
        return self._columns(X, None if indices is None else self._require_indices(indices))

    def of_sets(self, X: Any, sets: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """
        The functions of several sets of indices, ``[N, k]`` for each.

        :param X: ``[N, D]``.
        :param sets: indices ``[k]`` of each set.
        :raises ValueError: as :meth:`__call__`, and for other sets than a list or a tuple.
        """
        if not isinstance(sets, list | tuple):
            raise ValueError(f"sets must be a list of indices [k], got {type(sets).__name__}.")
        chosen = [self._require_indices(indices, "each of sets") for indices in sets]
        return self._of_sets(self._require_inputs(X), chosen)

    def features(self, X: Any, precomputed: Sequence[tf.Tensor] | None = None) -> tf.Tensor:
        """
        The whitened form, one row per function: ``A [m, N]`` with ``f(X) = A^T w``, ``w ~ N(0,
        I)``. The layout of ``gpflow_sparse.inference.blocks`` and ``.collapsed``.

        :param X: ``[N, D]``.
        :param precomputed: the result of :meth:`precompute`, for inputs that are valid already;
            None validates X and computes it.
        """
        if precomputed is None:
            X, precomputed = self._require_inputs(X), self.precompute()
        return self._features(X, precomputed)

    def precompute(self) -> tuple[tf.Tensor, ...]:
        """Tensors of :meth:`features` that are the same for all X; gradients flow through them."""
        return ()

    def mixing(self, precomputed: Sequence[tf.Tensor]) -> tf.Tensor | None:
        """
        ``L [m, m]``, lower triangular, if :meth:`features` are ``L^T`` times
        :meth:`plain_features`; else None.

        :param precomputed: the result of :meth:`precompute`, which may be followed by others.
        """
        return None

    def plain_features(self, X: tf.Tensor) -> tf.Tensor:
        """``[m, N]``, of valid inputs, see :meth:`mixing`."""
        raise NotImplementedError(f"{type(self).__name__} has no mixing.")

    def preconditioner(self, X: Any, noise_variance: Any) -> Preconditioner:
        """
        ``Q^-1``, ``Q = basis(X) S^-1 basis(X)^T + noise_variance I``, for conjugate gradients on
        ``k(X, X) + noise_variance I``.

        It is called with vectors ``v [B, N]`` and returns ``v Q^-1`` and the sum of ``v Q^-1 v^T``,
        as ``cglb_conjugate_gradient`` of ``gpflow.models.cglb`` expects. Parameters have their
        present values.

        :param X: ``[N, D]``.
        :param noise_variance: positive, in units of Y squared; a number, tensor or parameter.
        :raises ValueError: for X that the basis does not take, noise that is not positive, and
            inside ``tf.function``.
        :raises FactorizationError: if the matrix of the inversion lemma has no Cholesky factor.
        """
        if not tf.executing_eagerly():
            raise ValueError("preconditioner must be called outside of tf.function.")
        noise = checks.require_positive_number(noise_variance, "noise_variance")
        return Preconditioner(self.features(X), noise)

    def refresh(self) -> bool:
        """
        Choose the functions again for the current kernel, if the basis has such a choice.

        :return: whether they have changed; False unless a subclass overrides this.
        """
        return False

    def prior_precision(self, i: Any = None, j: Any = None) -> tf.Tensor:
        """
        Rows ``i [k]`` and columns ``j [l]`` of the prior precision S of the weights, all by
        default. No other entry is computed.

        :return: ``[k, l]``, of the identity unless a subclass overrides this.
        :raises ValueError: for indices that are not integers from 0 to m - 1.
        """
        return self._prior_precision(self._require_indices(i, "i"), self._require_indices(j, "j"))

    def precision_diagonal(self, indices: Any = None) -> tf.Tensor:
        """
        The diagonal of the prior precision S, ``[m]``, or the entries ``indices [k]`` of it alone.

        :raises ValueError: for indices that are not integers from 0 to m - 1.
        """
        return self._precision_diagonal(self._require_indices(indices))

    @property
    def numbers_per_row(self) -> int:
        """Approximate number of elements that :meth:`features` computes for one row of X."""
        return 2 * self.num_basis

    @property
    def input_dim(self) -> int | None:
        """D, the number of input columns; None if any number is accepted."""
        return None

    @property
    def dtype(self) -> tf.DType:
        """Float type of the functions and of the kernel."""
        return float_type(self.kernel)

    @abc.abstractmethod
    def _columns(self, X: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
        """
        :meth:`__call__` for checked inputs.

        :param X: ``[N, D]`` of :attr:`dtype`; N may be unknown while tracing.
        :param indices: ``[k]`` of int64, in any order and with repeats (QSGP joins two draws); k
            may be unknown while tracing. None for all functions in order.
        :return: ``[N, k]`` or ``[N, m]`` of :attr:`dtype`, at a cost that does not grow with m if
            there are indices.
        """

    def _of_sets(self, X: tf.Tensor, sets: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """
        :meth:`of_sets` for checked inputs: one call for all, split.

        A subclass whose functions share no work overrides this by a call for each set, whose
        tensors are small enough to stay in a processor's cache.
        """
        sizes = [tf.size(chosen) for chosen in sets]
        return list(tf.split(self._columns(X, tf.concat(sets, axis=0)), sizes, axis=1))

    def _features(self, X: tf.Tensor, precomputed: Sequence[tf.Tensor]) -> tf.Tensor:
        """:meth:`features`, ``[m, N]``, for checked ``X [N, D]``."""
        return tf.transpose(self._columns(X, None))

    def _prior_precision(self, i: tf.Tensor, j: tf.Tensor) -> tf.Tensor:
        """:meth:`prior_precision` for checked ``i [k]`` and ``j [l]`` of int64."""
        diagonal = self._precision_diagonal(i)[:, None]  # [k, 1]
        return tf.where(i[:, None] == j[None, :], diagonal, tf.zeros_like(diagonal))

    def _precision_diagonal(self, indices: tf.Tensor) -> tf.Tensor:
        """:meth:`precision_diagonal` for checked ``indices [k]`` of int64."""
        return tf.ones(tf.shape(indices), self.dtype)

    def _require_indices(self, value: Any, name: str = "indices") -> tf.Tensor:
        """
        Indices of functions, ``[k]`` of int64; all of them for None. Values that are unknown while
        tracing are checked when the graph runs.
        """
        if value is None:
            return tf.range(self.num_basis, dtype=tf.int64)
        try:
            indices = tf.convert_to_tensor(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must be integers of shape [k]: {error}") from error
        if not indices.dtype.is_integer or indices.shape.rank != 1:
            raise ValueError(
                f"{name} must be integers of shape [k], got "
                f"{indices.dtype.name} of shape {tuple(indices.shape)}."
            )
        m, known = self.num_basis, tf.get_static_value(indices)
        message = f"{name} must be from 0 to {m - 1}, the number of functions less one"
        if known is not None and known.size and not 0 <= known.min() <= known.max() < m:
            raise ValueError(f"{message}; got {known.min()} to {known.max()}.")
        indices = tf.cast(indices, tf.int64)
        if known is None:
            inside = tf.reduce_all((indices >= 0) & (indices < m))
            with tf.control_dependencies([tf.debugging.assert_equal(inside, True, message)]):
                return tf.identity(indices)
        return indices

    def _require_inputs(self, X: Any) -> tf.Tensor:
        X = checks.require_matrix(X, "X", self.dtype)
        if self.input_dim is not None and X.shape[1] not in (None, self.input_dim):
            raise ValueError(
                f"X must have {self.input_dim} column(s), as the inputs that the basis was made "
                f"for; got shape {tuple(X.shape)}."
            )
        component_checks.require_kernel(self.kernel, X.shape[1])
        return X


def require_basis(value: Any, name: str = "basis") -> FiniteBasis:
    """:raises ValueError: if ``value`` is not a finite basis."""
    if not isinstance(value, FiniteBasis):
        raise ValueError(
            f"{name} must be a finite basis, such as gs.bases.Hybrid, RandomFourier or "
            f"GridEigenfunctions; got {type(value).__name__}."
        )
    return value


def float_type(kernel: Kernel) -> tf.DType:
    """
    Float type of the parameters of a kernel, which are tensors in a frozen one; GPflow's default
    for a kernel without any.
    """
    modules = (kernel, *kernel.submodules)
    frozen = (part for module in modules for part in vars(module).values() if tf.is_tensor(part))
    types = (part.dtype for part in kernel.parameters or frozen if part.dtype.is_floating)
    return tf.as_dtype(next(types, gpflow.default_float()))
