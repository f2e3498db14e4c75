"""The posterior of which each row sees its neighbors only."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.posteriors import PrecomputeCacheType, PrecomputedValue, get_posterior_class

from gpflow_sparse.inducing_variables.neighbors import NeighborInducingPoints
from gpflow_sparse.inference.neighborhoods import Products, Rows
from gpflow_sparse.posteriors.base import SparsePosterior, spread_outputs
from gpflow_sparse.posteriors.local_paths import NeighborPaths
from gpflow_sparse.posteriors.multioutput import MultioutputPosterior
from gpflow_sparse.posteriors.neighbor_terms import NeighborTerms, marginals_in_blocks
from gpflow_sparse.posteriors.pathwise import FunctionDraws
from gpflow_sparse.validation import checks, component_checks


class NeighborPosterior(SparsePosterior):
    """
    ``f(x) | u_I`` of the prior, with ``q(u) = N(q_mu, S)`` of all M inducing variables and ``I``
    the H neighbors of x.

    Time O(n H^3) for n rows, and that of finding neighbors. Every row is predicted from neighbors
    of its own; rows that are predicted together (``full_cov``) share the union of their neighbors,
    so that their means and variances depend on the company they are in: section 4.5 of Tran,
    Milios, Michiardi and Filippone, "Sparse within Sparse Gaussian Processes using Neighbor
    Information".

    Functions drawn (:meth:`sample_functions`) see at every x its own neighbors, ``f(x) = f_prior(x)
    + a(x)^T (u_I - f_prior(Z_I))`` with one draw of u for each function. Their mean and variance
    are those of :meth:`predict_f` without ``full_cov``; their covariance between two rows is not
    that of ``full_cov``, where each row sees the neighbors of both, unless H = M.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: NeighborInducingPoints,
        q_mu: Any,
        q_sqrt: Any,
        whiten: bool = False,
        mean_function: MeanFunction | None = None,
        *,
        precompute_cache: PrecomputeCacheType | str | None = None,
        jitter: float | None = None,
    ) -> None:
        """
        :param q_mu: ``[M, P]``.
        :param q_sqrt: standard deviations ``[M, P]``; lower factors ``[P, M, M]``; both, as a pair
            with ``[P, M, R]``, for ``S = diag(scales^2) + factors factors^T``; None for a fixed
            mean. Or a function that returns what it is now.
        :param whiten: must be False: neighborhoods overlap, and a variable cannot be relative to
            all of them.
        :param jitter: smallest relative jitter; None leaves it to the float type.
        :raises ValueError: for q of a shape that does not fit the points, and wrong options.
        """
        super().__init__(kernel, inducing_variable, mean_function=mean_function)
        self._refuse_multioutput()
        require_not_whitened(whiten)
        component_checks.require_jitter(jitter)
        self.jitter = jitter
        self._q_mu, self._q_sqrt = q_mu, q_sqrt
        _require_shapes(self._rows(), int(inducing_variable.Z.shape[0]))
        if precompute_cache is not None:
            self.update_cache(precompute_cache)

    @property
    def input_dim(self) -> int | None:
        return self.X_data.Z.shape[1]

    def prior_kl(self, X: tf.Tensor | None = None) -> tf.Tensor:
        """
        The sum over rows of the KL of their neighbors, which is no KL of anything; see SWSGP.

        :raises ValueError: without X.
        """
        if X is None:
            raise ValueError(
                "prior_kl needs X for NeighborInducingPoints, since every row has neighbors of its "
                "own: call model.prior_kl(X) of a gs.models.SWSGP."
            )
        X = checks.require_inputs(X, self.input_dim, name="X")
        checks.require_range(X, "X")
        return self.marginals_and_kl(X)[2]

    def chain_kl(self) -> tf.Tensor:
        """
        ``KL[q(u) || prod_j p(u_j | its H nearest predecessors)]``, which depends on no rows: what a
        layer of a deep model takes, whose inputs are random. Time O(M H^3) and O(M^2 D) for the
        search. See SWSGP, "chain".
        """
        drawn = tf.range(self.X_data.Z.shape[0])
        before = self.X_data.predecessors(drawn, self.kernel)
        existing = tf.where(before >= 0, before, drawn[:, None])
        return tf.reduce_sum(self._terms.chained(drawn, before, self._rows(), (drawn, existing)))

    def layer_terms(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """With :meth:`chain_kl`."""
        mean, var = self._predict_marginals(self._rows(), X, False)
        return self._add_mean_function(X, mean), var, self.chain_kl()

    def cached_kl(self, cache: Sequence[tf.Tensor]) -> tf.Tensor:
        """:meth:`chain_kl`."""
        return self.chain_kl()

    def marginals_and_kl(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        neighbors = self.X_data.neighbors(X, self.kernel)
        local = self._terms.local(X, neighbors, self._rows(), neighbors)
        return self._add_mean_function(X, local.mean), local.var, tf.reduce_sum(local.kl)

    @property
    def _terms(self) -> NeighborTerms:
        return NeighborTerms(self.kernel, self.X_data, self.jitter)

    def _rows(self) -> Rows:
        return as_rows(self._q_mu, self._q_sqrt)

    def _draw_functions(
        self,
        num_samples: int,
        num_features: int,
        generator: np.random.Generator,
        *,
        by_cell: bool = False,
    ) -> FunctionDraws:
        """:param by_cell: a row sees the neighbors of its nearest point in place of its own."""
        options: Any = {"jitter": self.jitter, "by_cell": by_cell}
        shape, parts = (num_samples, num_features), (self.kernel, self.X_data, self._rows())
        paths = NeighborPaths(*parts, *shape, generator, **options)
        return FunctionDraws([paths], self.mean_function, self.input_dim)

    def _conditional_fused(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        q = self._rows()
        if full_cov:
            return self._predict_jointly(q, Xnew, full_output_cov)
        return self._predict_marginals(q, Xnew, full_output_cov)

    def _predict_marginals(
        self, q: Rows | Products, Xnew: tf.Tensor, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:

        def moments(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            neighbors = self.X_data.neighbors(X, self.kernel)
            return self._terms.moments(X, neighbors, q, neighbors)

        return marginals_in_blocks(moments, Xnew, self._numbers_per_row(q), full_output_cov)

    def _numbers_per_row(self, q: Rows | Products) -> int:
        """Of the largest tensors that a prediction makes for each row."""
        H = int(self.X_data.num_neighbors)
        if isinstance(q, Products):
            return H**2 * int(q.S.shape[0])
        columns = 1 if q.factors is None else q.factors.shape[1] * q.factors.shape[2]
        return H * max(H, int(columns))

    def _predict_jointly(
        self, q: Rows, X: tf.Tensor, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """One joint distribution for each batch of rows, over the union of their neighbors."""

        def of_batch(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            active, _ = tf.unique(tf.reshape(self.X_data.neighbors(X, self.kernel), [-1]))
            union = self._terms.union(X, active, q, active)
            return union.mean(), union.covariance(self.kernel(X))

        if X.shape.rank == 2:
            mean, cov = of_batch(X)
        else:
            rows = tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], axis=0))
            # AutoGraph would rewrite GPflow's kernels at every call
            plain = tf.autograph.experimental.do_not_convert(of_batch)
            mean, cov = tf.map_fn(plain, rows, fn_output_signature=(X.dtype, X.dtype))
            lead = tf.shape(X)[:-2]
            mean = tf.reshape(mean, tf.concat([lead, tf.shape(mean)[1:]], axis=0))
            cov = tf.reshape(cov, tf.concat([lead, tf.shape(cov)[1:]], axis=0))
        return mean, spread_outputs(cov, True) if full_output_cov else cov

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        """q as it is now; if its covariance is dense, also in full. The rest depends on the row."""
        q = self._rows()
        parts = [part for part in q if part is not None]
        if q.scales is None:
            parts.append(Products.of(q).S)
        return tuple(PrecomputedValue(part, (False,) * part.shape.rank) for part in parts)

    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        mean, second, *third = cache
        dense = second.shape.rank == 3
        if dense and not full_cov:
            return self._predict_marginals(Products(mean, third[0]), Xnew, full_output_cov)
        q = Rows(mean, None, second) if dense else Rows(mean, second, third[0] if third else None)
        if full_cov:
            return self._predict_jointly(q, Xnew, full_output_cov)
        return self._predict_marginals(q, Xnew, full_output_cov)


def as_rows(q_mu: Any, q_sqrt: Any) -> Rows:
    """
    q by rows.

    :param q_sqrt: as :class:`NeighborPosterior` takes it.
    """
    q_mu = tf.convert_to_tensor(q_mu)
    q_sqrt = q_sqrt() if callable(q_sqrt) else q_sqrt
    if q_sqrt is None:  # a fixed mean
        return Rows(q_mu, tf.zeros_like(q_mu), None)
    if isinstance(q_sqrt, tuple):
        return Rows(q_mu, tf.convert_to_tensor(q_sqrt[0]), tf.transpose(q_sqrt[1], [1, 0, 2]))
    q_sqrt = tf.convert_to_tensor(q_sqrt)
    if q_sqrt.shape.rank == 2:
        return Rows(q_mu, q_sqrt, None)
    return Rows(q_mu, None, tf.transpose(q_sqrt, [1, 0, 2]))


def _require_shapes(q: Rows, num_inducing: int) -> None:
    """:raises ValueError: unless q is one of as many variables, and outputs agree."""
    if q.mean.shape.rank != 2 or q.mean.shape[0] != num_inducing:
        raise ValueError(
            f"q_mu must have shape [M, P] with M = {num_inducing} inducing points, got "
            f"{tuple(q.mean.shape)}."
        )
    shape = tuple(q.mean.shape)
    wrong = [part.shape for part in q[1:] if part is not None and tuple(part.shape[:2]) != shape]
    short = q.scales is None and q.factors is not None and q.factors.shape[2] != num_inducing
    if wrong or short:
        M, P = shape
        raise ValueError(
            f"q_sqrt must be standard deviations [{M}, {P}], lower factors [{P}, {M}, {M}], or a "
            f"pair of [{M}, {P}] and [{P}, {M}, R]."
        )


def require_not_whitened(whiten: Any) -> None:
    """:raises ValueError: for ``whiten=True``."""
    checks.require_flag(whiten, "whiten")
    if whiten:
        raise ValueError(
            "whiten must be False for NeighborInducingPoints: each row has a prior covariance of "
            "its own neighbors, and no coordinates of u are white in all of them."
        )


@get_posterior_class.register(Kernel, NeighborInducingPoints)
def _neighbor_posterior(
    kernel: Kernel, inducing_variable: NeighborInducingPoints
) -> type[NeighborPosterior]:
    return NeighborPosterior


@get_posterior_class.register(MultioutputKernel, NeighborInducingPoints)
def _multioutput_neighbor_posterior(
    kernel: MultioutputKernel, inducing_variable: NeighborInducingPoints
) -> Any:
    return _MultioutputNeighborPosterior


class _MultioutputNeighborPosterior(MultioutputPosterior):
    """As GPflow's dispatch makes it: ``(kernel, inducing_variable, q_mu, q_sqrt, ...)``."""

    def __init__(
        self,
        kernel: MultioutputKernel,
        inducing_variable: NeighborInducingPoints,
        q_mu: Any,
        q_sqrt: Any,
        whiten: bool = False,
        mean_function: MeanFunction | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            kernel,
            inducing_variable,
            q_mu,
            q_sqrt,
            whiten,
            mean_function,
            part=NeighborPosterior,
            **options,
        )
