"""SOLVE-GP regression: Gaussian noise, q in closed form, all rows at once."""

from collections.abc import Sequence
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel

from gpflow_sparse.covariances.stationary import covariance, in_lengthscales
from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.inducing_variables.orthogonal import require_orthogonal
from gpflow_sparse.inducing_variables.shared import without_wrapper
from gpflow_sparse.inference import collapsed
from gpflow_sparse.likelihoods import GaussianWithKnownVariance
from gpflow_sparse.models.regression import RegressionModel, copies, noise_parameter
from gpflow_sparse.models.solvegp import residual_blocks
from gpflow_sparse.models.solvegp.model import SOLVEGP
from gpflow_sparse.models.solvegp.posterior import OrthogonalPosterior
from gpflow_sparse.models.training_data import count_rows, read
from gpflow_sparse.numerics import devices, linalg
from gpflow_sparse.numerics.streaming import has_all_rows, streamed_sum
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

# Bounds that depend on the rows by sums over them, and all.
_BY_SUMS = ("standard", "log", "block")
_BOUNDS = (*_BY_SUMS, "coupled", "fully_coupled")
# Largest number of rows for the bounds over all pairs of rows: O(N^2 M) time, O(N M) memory.
_MAX_PAIRED_ROWS = 20_000
# Entries of one tensor of a block, 16 MB of float64; and the fewest rows of a block in multiples of
# its columns, so that factorizing once per block stays a small part of the work.
_BLOCK_ENTRIES, _ROWS_PER_COLUMN = 2**21, 2

QMeans = tuple[tf.Tensor, ...]
QFactors = tuple[tf.Tensor, ...]


class SOLVEGPR(RegressionModel):
    """
    SOLVE-GP for regression with Gaussian noise, with the best q in closed form.

    Only kernel, mean function, noise and inducing inputs are trained, on all rows at every
    step. ``bound`` chooses the objective:

    - "standard": the bound of :class:`SOLVEGP` with the best q, eq. (30) of Shi, Titsias and Mnih,
      "Sparse Orthogonal Variational Inference for Gaussian Processes" (2020, arXiv:1910.10596v5),
      rearranged so that no N x N matrix appears (``gpflow_sparse.inference.collapsed``). Time O(N
      (M + M2)^2), and memory O((M + M2)^2) and one block of rows, gradients included, for any N.
      More than one orthogonal set is new here.
    - "log" and "block": as "standard", but q also shrinks the residual process at the data, row by
      row or in blocks of neighboring rows: see :mod:`gpflow_sparse.inference.residual_bounds`. At
      the cost of "standard"; "block" takes O(N s (M + M2 + s)) more with blocks of s rows.
    - "coupled": as "standard", but ``u`` may depend on the residual process, ``q(u | f_perp,
      y)``. All orthogonal sets together are ``v``, with a full covariance. Ours.
    - "fully_coupled": eq. (14) of the paper with all inducing inputs as Z.

    standard <= Titsias' bound for all inducing inputs <= coupled <= fully_coupled <= log evidence,
    and standard <= log <= block <= log evidence. "coupled" and "fully_coupled" take O(N^2 (M +
    M2)) time and O(N (M + M2)) memory, not the O(N^2) that the paper's appendix A states; they
    refuse more than 20,000 rows.

    The data are held as tensors, once. Every output has its own f, all with the same kernel.

    A known noise variance s2 of each row is added to the learned one: bounds are computed from
    rows multiplied by ``sqrt(variance / (variance + s2))``, which all have the same noise.
    """

    def __init__(
        self,
        data: tuple[Any, Any],
        kernel: Kernel,
        inducing_variable: OrthogonalInducingVariables,
        *,
        mean_function: MeanFunction | None = None,
        noise_variance: Any = 1.0,
        bound: str = "standard",
        block_size: int = 32,
        known_variance: Any = None,
    ) -> None:
        """
        :param data: ``(X [N, D], Y [N, P])``.
        :param kernel: a single-output kernel, shared by all outputs.
        :param inducing_variable: the base set and the orthogonal sets.
        :param mean_function: added to the prior mean; zero by default.
        :param noise_variance: start of ``model.likelihood.variance``.
        :param bound: one of the names above.
        :param block_size: largest number of rows in a block of "block".
        :param known_variance: of the noise of each row, at least 0 ``[N]``, to which
            ``model.likelihood.variance`` is added; None for 0.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other, and for
            more than 20,000 rows with "coupled" and "fully_coupled".
        """
        super().__init__(data, kernel, mean_function=mean_function, noise_variance=noise_variance)
        self.inducing_variable = without_wrapper(inducing_variable)
        self.bound, self.block_size = bound, block_size
        self.known_variance = checks.require_known_variance(known_variance, self.data[0])
        self._require_parts(self.input_dim, self.dtype)
        self._require_data(self.data)

    @public_method("the elbo")
    @check_shapes("return: []")
    def elbo(self) -> tf.Tensor:
        """
        The bound chosen by ``bound``, for all rows: a scalar, in nats.

        :raises ValueError: for a part that was exchanged for one that does not fit.
        """
        if self.bound in _BY_SUMS:
            sizes = self.inducing_variable.sizes
            elbo = collapsed.collapsed_bound(self._row_sums(), self._noise(), sizes)
        else:
            elbo = self._bound_over_pairs()
        if self.known_variance is not None:
            elbo += self._log_scales()
        return tf.cast(elbo, self.dtype)

    @public_method()
    @check_shapes("return: []")
    def structured_gap(self) -> tf.Tensor:
        """
        The loss by independence of the sets, in nats: Titsias' bound for all inducing inputs minus
        the standard bound, for any ``bound``. At least 0.
        """
        sizes = self.inducing_variable.sizes
        gap = collapsed.factorization_gap(self._row_sums(), self._noise(), sizes)
        return tf.cast(gap, self.dtype)

    @public_method()
    @check_shapes("return[0][all]: [., P]", "return[1][all]: [P, ., .]")
    def compute_qu(self) -> tuple[QMeans, QFactors]:
        """
        The best q with independent sets, whitened: ``q_mu`` and ``q_sqrt`` as :class:`SOLVEGP`
        takes them. One pass over the rows.

        Its bound under SOLVEGP is the standard bound, or the bound of "log": q(u) is the same for
        these and for "block". The optimal q of "coupled" and "fully_coupled" has the same means,
        but a covariance with the residual process at the data, which this posterior cannot
        represent, so the q of "standard" is used for them too. The marginal covariances of the sets
        under the optimal q made variances of f too large: 1.2 to 4.0 times the variances of the
        exact process on average in five synthetic examples, where this q had 1.1 to 2.4 times.

        :return: one mean ``[M_b, P]`` per set, and one lower factor ``[P, M_b, M_b]`` per set.
        """
        sizes = self.inducing_variable.sizes
        means, factors = collapsed.optimal_q(self._row_sums(), self._noise(), sizes)
        return (
            tuple(tf.cast(mean, self.dtype) for mean in means),
            tuple(tf.repeat(tf.cast(R, self.dtype)[None], self.num_latent_gps, 0) for R in factors),
        )

    def _make_posterior(self, **options: Any) -> OrthogonalPosterior:
        """A posterior with the q of :meth:`compute_qu`, whatever ``bound`` is."""
        parts = self.kernel, self.inducing_variable, self.compute_qu
        return OrthogonalPosterior(*parts, jitter=self.jitter, **options)

    def to_solvegp(self, num_data: int | None = None) -> SOLVEGP:
        """
        A :class:`SOLVEGP` that starts at the best q, to be trained on minibatches from here.

        It shares no parameters with this model. Its ``elbo`` of all the data is the standard
        bound, or "log" if that is the bound of this model. "block" has no minibatches. With a known
        variance of rows its Y has additional columns, see
        :class:`gpflow_sparse.likelihoods.GaussianWithKnownVariance`, and its bound is "standard".

        :param num_data: its ``num_data``; None means the N of this model.
        """
        q_mu, q_sqrt = self.compute_qu()
        kernel, likelihood, sets, mean_function, standardizer = copies(
            self.kernel,
            self.likelihood,
            self.inducing_variable,
            self.mean_function,
            self.standardizer,
        )
        bound = "log" if self.bound == "log" else "standard"
        if self.known_variance is not None:
            learned = noise_parameter(likelihood)
            likelihood, bound = GaussianWithKnownVariance(float(self._noise())), "standard"
            gpflow.set_trainable(likelihood.variance, learned.trainable)
            if self.likelihood.variance is not None:  # else the prior is of its root
                likelihood.variance.prior = learned.prior
        model = SOLVEGP(
            kernel,
            likelihood,
            sets,
            mean_function=mean_function,
            num_latent_gps=self.num_latent_gps,
            q_mu=q_mu,
            q_sqrt=q_sqrt,
            num_data=count_rows(self.data[0]) if num_data is None else num_data,
            bound=bound,
        )
        model.jitter, model.standardizer = self.jitter, standardizer
        model.calibration = self.calibration
        return model

    @property
    def input_dim(self) -> int | None:
        return require_orthogonal(self.inducing_variable).input_dim

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        if isinstance(self.kernel, MultioutputKernel):
            raise ValueError(
                "kernel must be single-output (SOLVEGPR shares it among all outputs), got "
                f"{type(self.kernel).__name__}."
            )
        super()._require_parts(num_columns, dtype)
        checks.require_count(self.block_size, "block_size")
        checks.require_known_variance(self.known_variance, self.data[0])
        _require_bound(self.bound, self.data[0])

    def _features(self, X: tf.Tensor) -> tf.Tensor:
        """``A = chol(K([Z; O; ...]))^-1 k([Z; O; ...], X) [M', n]`` by block elimination."""
        sizes = self.inducing_variable.sizes
        # a posterior without a q, for its projection: with means of zero, which are not used
        means = [tf.zeros([size, 1], self.dtype) for size in sizes]
        posterior = OrthogonalPosterior(
            self.kernel, self.inducing_variable, means, [None] * len(sizes), jitter=self.jitter
        )
        return tf.concat([block.A for block in posterior.blocks(None, X)], axis=0)

    def _sums_of(
        self, X: tf.Tensor, Y: tf.Tensor, A: tf.Tensor, scale: tf.Tensor | None
    ) -> collapsed.RowSums:
        """:param scale: factors of rows ``[n]``, which A ``[M', n]`` has already; None for 1."""
        errors = Y - component_checks.require_mean(self.mean_function(X), Y, self.mean_function)
        diagonal = _times(scale, _times(scale, self.kernel(X, full_cov=False)))
        errors = errors if scale is None else scale[:, None] * errors
        sums = collapsed.row_sums(A, errors, diagonal)
        if self.bound == "log":
            return collapsed.with_log_bound(sums, A, diagonal, self._noise())
        if self.bound != "block":
            return sums
        groups = residual_blocks.neighbor_groups(self._places(X), self.block_size)
        Kff = covariance(self.kernel, tf.gather(X, groups.rows))
        if scale is not None:
            factors = tf.gather(scale, groups.rows)
            Kff *= factors[:, :, None] * factors[:, None]
        return residual_blocks.with_block_bound(sums, A, Kff, groups, self._noise())

    def _scale(self, known: tf.Tensor | None) -> tf.Tensor | None:
        """Factors of rows ``[n]`` with which all have the noise variance of the likelihood."""
        if known is None:
            return None
        noise = tf.cast(self._noise(), known.dtype)
        return tf.sqrt(noise / (noise + known))

    def _log_scales(self) -> tf.Tensor:
        """What the log density of rows exceeds that of scaled rows by, a float64 scalar."""
        if not has_all_rows():
            raise ValueError("known_variance must be None where rows are on several workers.")
        scale = tf.cast(self._scale(self.known_variance), tf.float64)
        return tf.cast(self.num_latent_gps, tf.float64) * tf.reduce_sum(tf.math.log(scale))

    def _places(self, X: tf.Tensor) -> tf.Tensor:
        """Places ``[n, .]`` of rows; rows near each other form a block."""
        return in_lengthscales(self.kernel, X)

    def _row_sums(self) -> collapsed.RowSums:
        """Streamed over all rows; gradients flow to all parameters."""

        def sums(blocks: Sequence[tf.Tensor], _: Sequence[tf.Tensor]) -> collapsed.RowSums:
            X, Y, *known = blocks
            scale = self._scale(*(known or [None]))
            return self._sums_of(X, Y, _times(scale, self._features(X)), scale)

        columns = sum(self.inducing_variable.sizes)
        block_rows = max(
            _ROWS_PER_COLUMN * columns, devices.block_entries(_BLOCK_ENTRIES) // columns
        )
        data = read(self.data, self.dtype)
        if self.known_variance is not None:
            data = (*data, self.known_variance)
        return collapsed.RowSums(*streamed_sum(sums, data, block_rows=block_rows))

    def _bound_over_pairs(self) -> tf.Tensor:
        """The bound "coupled" or "fully_coupled"."""
        if not has_all_rows():
            raise ValueError(
                f"bound={self.bound!r} takes pairs of rows, which no worker has: use 'standard'."
            )
        X, Y = read(self.data, self.dtype)
        sizes, noise = self.inducing_variable.sizes, self._noise()
        inner = sizes[0] if self.bound == "coupled" else sum(sizes)
        scale = self._scale(self.known_variance)
        A = tf.cast(_times(scale, self._features(X)), tf.float64)
        sums = self._sums_of(X, Y, A, scale)
        L = collapsed.inner_factor(sums, noise, inner)
        P = linalg.solve_triangular(L, A[:inner]) / tf.sqrt(noise)  # [inner, N]
        if scale is not None:  # in place of scaled rows and columns of Kff
            P *= tf.cast(scale, tf.float64)
        return collapsed.tighter_bound(sums, noise, inner, self._projected_trace(P, X))

    def _projected_trace(self, P: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
        """``tr(P Kff P^T)`` for ``P [inner, N]``, by blocks of rows of ``Kff``."""

        def traces(blocks: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            (rows, X_block), (PT,) = blocks, tensors
            Kff = tf.cast(self.kernel(X_block, X), tf.float64)  # [n, N]
            return [tf.reduce_sum(tf.linalg.matmul(Kff, PT) * tf.gather(PT, rows))]

        # the number of rows of a variable is not known while tracing
        block_rows = max(
            1, devices.block_entries(2 * _BLOCK_ENTRIES) // (X.shape[0] or _MAX_PAIRED_ROWS)
        )
        data = (tf.range(tf.shape(X)[0]), X)
        (trace,) = streamed_sum(traces, data, (tf.transpose(P),), block_rows=block_rows)
        return trace


def _require_bound(bound: Any, X: Any) -> None:
    """:param X: inputs of the data, a tensor or a variable."""
    checks.require_choice(bound, "bound", _BOUNDS)
    if bound in _BY_SUMS:
        return
    limit = (
        f"bound={bound!r} takes at most {_MAX_PAIRED_ROWS} rows, since it sums over all pairs of "
        "rows, O(N^2 M) time"
    )
    num_rows = X.shape[0]
    if num_rows is None:  # of a variable; as it is now, and again when the graph runs
        with tf.init_scope():
            num_rows = count_rows(X)
        if not tf.executing_eagerly():
            tf.debugging.assert_less_equal(tf.shape(X)[0], _MAX_PAIRED_ROWS, limit)
    if num_rows > _MAX_PAIRED_ROWS:
        raise ValueError(f"{limit}; data has {num_rows}. Use bound='standard', or fewer rows.")


def _times(scale: tf.Tensor | None, value: tf.Tensor) -> tf.Tensor:
    """Values ``[..., n]`` times factors of rows ``[n]``; None for 1."""
    return value if scale is None else scale * value
