"""The base class of the posteriors: a GPflow posterior that also gives its KL to the prior."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import gpflow
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inference.blocks import (
    Block,
    joint,
    kl_from_standard_normal,
    marginals,
)
from gpflow_sparse.inference.calibration import Calibration, observed
from gpflow_sparse.inference.residual_bounds import ElboTerms
from gpflow_sparse.posteriors.pathwise import FunctionDraws, Paths, Sampler
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

Cache = Sequence[tf.Tensor]
Moments = tuple[tf.Tensor, tf.Tensor]
# Mean [N, P], variance [N, P] and KL [].
Terms = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class SparsePosterior(AbstractPosterior):
    """
    Base class of the posteriors of this package, which adds the KL divergence to GPflow's.

    ``predict_f`` and ``fused_predict_f`` are GPflow's. ``prior_kl`` takes X because there are
    posteriors whose KL depends on the batch. ``elbo_terms`` is what a model's ``elbo`` calls.
    Public methods validate their arguments and the components.

    A subclass implements ``prior_kl``; ``_tensors``, the contents of a cache; and the moments:
    ``blocks`` for independent whitened blocks of variables, otherwise ``_marginals`` and
    ``_joint``.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: Any,
        q_mu: Any = None,
        q_sqrt: Any = None,
        whiten: bool = True,
        mean_function: MeanFunction | None = None,
        *,
        precompute_cache: PrecomputeCacheType | str | None = None,
        jitter: float | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """
        :param q_mu: mean of q, in the shape that the subclass documents; or a function that returns
            ``q_mu`` and ``q_sqrt``, which is called whenever q is needed.
        :param q_sqrt: factor or standard deviations of q, likewise.
        :param whiten: whether q is relative to the prior.
        :param mean_function: added to the prior mean; None for zero.
        :param precompute_cache: kind of the cache; None for no cache.
        :param jitter: smallest relative jitter of factorizations; None leaves it to
            :func:`gpflow_sparse.numerics.linalg.jitter`.
        :param calibration: factors of variances, applied in all predictions and draws, and not in
            :meth:`marginals_and_kl`; None for the variances of q.
        """
        super().__init__(kernel, inducing_variable, mean_function=mean_function)
        self._q_mu, self._q_sqrt = q_mu, q_sqrt
        self.whiten = whiten
        self.jitter = jitter
        self.calibration = calibration
        self._require_parts(self.input_dim)
        if precompute_cache is not None:
            self.update_cache(precompute_cache)

    @abstractmethod
    def prior_kl(self, X: tf.Tensor | None = None) -> tf.Tensor:
        """KL divergence from q to the prior, a scalar; X only where it depends on the batch."""

    def marginals_and_kl(self, X: tf.Tensor) -> Terms:
        """
        :param X: ``[N, D]``.
        :return: mean ``[N, P]`` (mean function included), variance ``[N, P]``, KL ``[]``.
        """
        return *self.moments_from(None, X), self.prior_kl(X)

    def elbo_terms(self, X: tf.Tensor) -> ElboTerms:
        """
        The terms of :meth:`marginals_and_kl`, and the residual process given the variables of q.

        :param X: ``[n, D]``.
        """
        blocks = self.blocks(None, X)
        mean, var, residual = marginals(self._prior_variances(X, blocks), blocks)
        kl = tf.add_n([kl_from_standard_normal(block.q_mu, block.q_sqrt) for block in blocks])
        mean = self._add_mean_function(X, mean)
        return ElboTerms(mean, var, kl, residual[:, None] + tf.zeros_like(mean))

    def layer_terms(self, X: tf.Tensor) -> ElboTerms:
        """The terms of :meth:`elbo_terms` in a deep model: the KL must not depend on X."""
        return self.elbo_terms(X)

    def cached_kl(self, cache: Cache) -> tf.Tensor:
        """The KL divergence to the prior from an up-to-date ``cache``, a scalar."""
        return self.prior_kl()

    @property
    def input_dim(self) -> int | None:
        """D, the number of input columns; None where any number is right."""
        return cast(Any, self.X_data).shape[1]  # type: ignore[no-any-return]

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Number of whitened variables of each of the :meth:`blocks`."""
        raise ValueError(
            f"sampling must be 'marginal' or 'joint' with a {type(self).__name__} in a layer: it "
            "has no variables that all patches of an image share."
        )

    def blocks(self, cache: Cache | None, X: tf.Tensor) -> list[Block]:
        """
        Blocks of the whitened variables that all rows share.

        :param cache: as of :meth:`predict_from`.
        :param X: ``[n, D]``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no blocks.")

    def predict_from(
        self,
        cache: Cache | None,
        X: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> Moments:
        """
        :meth:`predict_f` for valid inputs, calibrated.

        :param cache: an up-to-date cache; None computes everything from the current parameters.
        """
        mean, cov = self.moments_from(cache, X, full_cov, full_output_cov)
        return mean, cov if self.variance_factor == 1.0 else self.variance_factor * cov

    def moments_from(
        self,
        cache: Cache | None,
        X: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> Moments:
        """The moments of q without calibration, of which objectives are made; as predict_from."""
        mean, cov = self._conditional_with_precompute(cache, X, full_cov, full_output_cov)
        return self._add_mean_function(X, mean), cov

    @property
    def variance_factor(self) -> float:
        """The factor of (co)variances in predictions."""
        return 1.0 if self.calibration is None else self.calibration.function

    @public_method("the prediction", prediction=True)
    def predict_y(self, Xnew: tf.Tensor, likelihood: Likelihood) -> Moments:
        """Mean and variance of new observations, ``[N, P]``; from the cache if there is one."""
        moments = self.predict_from(self.cache, Xnew)
        return likelihood.predict_mean_and_var(
            Xnew, *observed(self.calibration, likelihood, Xnew, moments)
        )

    @public_method("the log density", prediction=True)
    def predict_log_density(
        self, data: tuple[tf.Tensor, tf.Tensor], likelihood: Likelihood
    ) -> tf.Tensor:
        """Log density of new observations, one per row; from the cache if there is one."""
        X, Y = data
        moments = observed(self.calibration, likelihood, X, self.predict_from(self.cache, X))
        return likelihood.predict_log_density(X, *moments, Y)

    @public_method()
    def update_cache(self, precompute_cache: PrecomputeCacheType | str | None = None) -> None:
        """
        Compute the cache anew from the current parameters.

        :param precompute_cache: "tensor", "variable" or "nocache"; None keeps the kind it has.
        """
        super().update_cache(cast(PrecomputeCacheType | None, precompute_cache))

    @public_method("the prediction", prediction=True)
    def predict_f(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> Moments:
        """Mean and (co)variance at ``Xnew [..., N, D]`` from the cache; shapes as in GPflow."""
        if self.cache is None:
            raise ValueError(
                "the posterior has no cache: call update_cache() first, or take fused_predict_f."
            )
        return self.predict_from(self.cache, Xnew, full_cov, full_output_cov)

    @public_method("the prediction", prediction=True)
    def fused_predict_f(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> Moments:
        """Mean and (co)variance as :meth:`predict_f`, without the cache, so that gradients flow."""
        return self.predict_from(None, Xnew, full_cov, full_output_cov)

    @public_method()
    def sample_functions(
        self, num_samples: int, *, num_features: int = 1024, seed: int | None = None
    ) -> FunctionDraws:
        """
        Functions drawn from the current posterior, to be evaluated at any inputs.

        Their mean and covariance are those of :meth:`predict_f` with ``full_cov``, whatever
        ``num_features``; :class:`~gpflow_sparse.posteriors.pathwise.FunctionDraws` explains why,
        and the effect of ``num_features``. Wilson et al., "Efficiently Sampling Functions from
        Gaussian Process Posteriors" (2020, arXiv:2002.09309). Two exceptions: with neighbors, mean
        and variance at each x are those of :meth:`predict_f` without ``full_cov``, see
        :class:`~gpflow_sparse.posteriors.NeighborPosterior`; and functions of a deep posterior are
        composed of fresh draws of all layers, while :meth:`predict_f` averages over a few frozen
        draws of the hidden ones.

        Time O(M^3 + M^2 S P + M S P num_features D), memory O(M^2 + S P (num_features D + M)) with
        M inducing points in all: once, after which a point costs O(S P (num_features D + M)).

        :param num_samples: S.
        :param num_features: random Fourier features of each draw of the prior, even.
        :param seed: from 0 to 2^32 - 1; None draws one from TensorFlow's global generator, so that
            ``tf.random.set_seed`` decides.
        :return: a function of ``X [N, D]`` that returns ``[S, N, P]``, mean function included.
        :raises ValueError: for a kernel other than SquaredExponential, Matern12, Matern32, Matern52
            and products of these; for inducing variables that are neither points nor weights of a
            basis; inside ``tf.function``, where only calls of the result belong; for parameters
            that are not finite.
        """
        sampler = Sampler.make(num_samples, num_features, seed)
        component_checks.require_sound(self)
        return self._draw_functions(sampler._replace(scale=self.variance_factor**0.5))

    def _draw_functions(self, sampler: Sampler) -> FunctionDraws:
        """:meth:`sample_functions` with valid arguments."""
        return FunctionDraws([self._draw_paths(sampler)], self.mean_function, self.input_dim)

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """The functions without the mean function."""
        raise ValueError(f"{type(self).__name__} does not draw functions; use predict_f_samples.")

    @property
    def dtype(self) -> tf.DType:
        """Float type of predictions."""
        return gpflow.default_float()

    def _current_q(self) -> tuple[Any, Any]:
        """``q_mu`` and ``q_sqrt`` as given, or as the function returns them now."""
        return self._q_mu() if callable(self._q_mu) else (self._q_mu, self._q_sqrt)

    @abstractmethod
    def _tensors(self) -> Sequence[tf.Tensor]:
        """The contents of a cache, from the current parameters."""

    def _tensors_to_keep(self) -> Sequence[tf.Tensor]:
        """Those of :meth:`_tensors`, or others from which predictions take less time."""
        return self._tensors()

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        return tuple(PrecomputedValue(t, (False,) * t.shape.rank) for t in self._tensors_to_keep())

    def _conditional_with_precompute(
        self,
        cache: Cache | None,
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> Moments:
        """:meth:`predict_from` without the mean function."""
        if full_cov:
            mean, cov = self._joint(cache, Xnew)
        else:
            mean, cov = by_rows(partial(self._marginals, cache), Xnew)
        return mean, spread_outputs(cov, full_cov) if full_output_cov else cov

    def _conditional_fused(self, *arguments: Any, **options: Any) -> Moments:
        return self._conditional_with_precompute(None, *arguments, **options)

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> Moments:
        """Mean and variance at each row of ``X [n, D]``, ``[n, P]`` each."""
        blocks = self.blocks(cache, X)
        return marginals(self._prior_variances(X, blocks), blocks)[:2]

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> Moments:
        """Mean ``[..., N, P]`` and covariance ``[..., P, N, N]`` at ``X [..., N, D]``."""
        blocks = self.blocks(cache, tf.reshape(X, [-1, X.shape[-1]]))
        shape = tf.shape(X)[:-1]
        return joint(
            covariance(self.kernel, X), [b._replace(A=group_columns(b.A, shape)) for b in blocks]
        )

    def _prior_variances(self, X: tf.Tensor, blocks: Sequence[Block]) -> tf.Tensor:
        """``k(x, x) [n]`` at ``X [n, D]``, whose blocks are given."""
        return self.kernel(X, full_cov=False)

    def _require_inputs(self, X: Any, name: str = "Xnew") -> tf.Tensor:
        """Inputs ``[..., N, D]``."""
        return checks.require_inputs(X, self.input_dim, self.dtype, name)

    def _require_data(self, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """The pair ``(X [N, D], Y [N, P])``."""
        return checks.require_data(data, input_dim=self.input_dim, dtype=self.dtype)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        """Refuse components that do not fit each other, in a subclass also q and its sets."""
        if isinstance(self.kernel, MultioutputKernel):
            raise ValueError(
                f"{type(self).__name__} takes a single-output kernel shared by all outputs, got "
                f"{type(self.kernel).__name__}; pass one kernel and num_latent_gps instead."
            )
        component_checks.require_kernel(self.kernel, num_columns)
        component_checks.require_jitter(self.jitter)

    def _add_mean_function(self, Xnew: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        if self.mean_function is None:
            return mean
        value = self.mean_function(Xnew)
        return mean + component_checks.require_mean(value, mean, self.mean_function)


def by_rows(function: Callable[[tf.Tensor], Moments], X: tf.Tensor) -> Moments:
    """
    ``function`` of all rows of ``X [..., N, D]`` together.

    :param function: from ``[n, D]`` to mean and covariance, ``[n, ...]`` each.
    :return: ``[..., N, ...]`` each.
    """
    if X.shape.rank == 2:
        return function(X)
    mean, cov = function(tf.reshape(X, [-1, X.shape[-1]]))
    return split_rows(mean, tf.shape(X)[:-1]), split_rows(cov, tf.shape(X)[:-1])


def by_batches(function: Callable[[tf.Tensor], Moments], X: tf.Tensor) -> Moments:
    """
    ``function`` of each batch of rows of ``X [..., N, D]`` by itself.

    :param function: from ``[N, D]`` to mean and covariance, of any shapes.
    """
    if X.shape.rank == 2:
        return function(X)
    mean, cov = tf.map_fn(
        # AutoGraph would rewrite GPflow's kernels at every call
        tf.autograph.experimental.do_not_convert(function),
        tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], axis=0)),
        fn_output_signature=(X.dtype, X.dtype),
        parallel_iterations=1,  # the memory of one batch
    )
    return split_rows(mean, tf.shape(X)[:-2]), split_rows(cov, tf.shape(X)[:-2])


def split_rows(value: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """``[n, ...]`` as ``[*shape, ...]``."""
    return tf.reshape(value, tf.concat([shape, tf.shape(value)[1:]], axis=0))


def group_columns(A: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """``A [M, n]`` as ``[..., M, N]``, for rows of the shape ``[..., N]``."""
    return tf.linalg.matrix_transpose(split_rows(tf.transpose(A), shape))


def spread_outputs(cov: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """Independent outputs as a full output covariance: zeros off the diagonal over P."""
    if not full_cov:
        return tf.linalg.diag(cov)  # [..., N, P, P]
    eye = tf.eye(tf.shape(cov)[-3], dtype=cov.dtype)
    return tf.einsum("...pnm,pq->...npmq", cov, eye)  # [..., N, P, N, P]
