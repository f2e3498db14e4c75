"""The base class of the posteriors: a GPflow posterior that also gives its KL to the prior."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import tensorflow as tf
from check_shapes import check_shapes, get_check_shapes
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from gpflow_sparse.bases.base import float_type
from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.inference.blocks import (
    Block,
    joint,
    kl_from_standard_normal,
    marginals,
)
from gpflow_sparse.inference.calibration import Calibration, log_density, observations
from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.posteriors.pathwise import FunctionDraws, Paths, Sampler
from gpflow_sparse.validation import component_checks
from gpflow_sparse.validation.public_methods import THREAD, public_method

Cache = Sequence[tf.Tensor]
MeanAndVariance = tuple[tf.Tensor, tf.Tensor]


class SparsePosterior(AbstractPosterior):
    """
    Base class of the posteriors of this package: GPflow's, with the KL divergence to the prior.

    The contract of a posterior has three methods, for f with P outputs at rows X:

        terms(X)           mean [n, P], variance [n, P], KL [] and residual variance [n, P] at
                           ``X [n, D]``, from one factorization: what an ELBO needs
        prior_kl()         the KL alone, where it does not depend on rows
        predict(cache, X)  mean [..., N, P] and (co)variance at ``X [..., N, D]``, calibrated,
                           where a cache has all factorizations: what ``predict_f`` returns

    A subclass writes

        _tensors()            the contents of a cache: all that predictions need but X
        _marginals(cache, X)  mean and variance [n, P] at ``X [n, D]``, mean function excluded; a
                              cache of None stands for the current parameters
        _joint(cache, X)      mean [..., N, P] and covariance [..., P, N, N] at ``X [..., N, D]``,
                              likewise; without it, ``full_cov`` is refused
        prior_kl, terms       where it has a KL, and where ``terms`` can share work
        _draw_paths(sampler)  functions drawn from q, mean function excluded
        _require_parts        refuses components that do not fit each other

    :class:`BlockPosterior` writes most of them for independent whitened variables.
    :class:`~gpflow_sparse.posteriors.MultioutputPosterior` and other mixtures of posteriors write
    GPflow's ``_conditional_with_precompute`` in place of ``_marginals`` and ``_joint``.
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
        :param q_sqrt: factor or standard deviations of q, in the shape that the subclass documents.
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
        if not THREAD.inside:  # a model has checked what it gives its posterior
            self._require_parts(self.input_dim)
        if precompute_cache is not None:
            self.update_cache(precompute_cache)

    def terms(self, X: tf.Tensor) -> Terms:
        """
        Terms of an ELBO at the rows of a batch, without calibration.

        :param X: ``[n, D]``.
        """
        mean, variance = self._conditional_with_precompute(None, X)
        return Terms(self._add_mean_function(X, mean), variance, self.prior_kl(X))

    @check_shapes("return: []")
    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """
        KL divergence from q to the prior, a scalar.

        :param X: rows ``[n, D]``, only where the KL depends on them.
        :param cache: an up-to-date cache, to compute it from; None for the current parameters.
        """
        raise ValueError(f"a {type(self).__name__} has no KL divergence to the prior, nor an ELBO.")

    @check_shapes("X: [N, D]", "return[0]: [N, P]", "return[1]: [N, P]", "return[2]: []")
    def marginals_and_kl(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The first three of :meth:`terms`: mean ``[N, P]``, variance ``[N, P]`` and KL ``[]``."""
        return self.terms(X)[:3]

    @property
    def input_dim(self) -> int | None:
        """D, the number of input columns; None if any number is accepted."""
        return cast(Any, self.X_data).shape[1]  # type: ignore[no-any-return]

    def predict(
        self,
        cache: Cache | None,
        X: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        """
        :meth:`predict_f` for valid inputs.

        :param cache: an up-to-date cache; None computes everything from the current parameters.
        """
        mean, cov = self._conditional_with_precompute(cache, X, full_cov, full_output_cov)
        if self.calibration is not None:
            cov = self.variance_factor * cov
        return self._add_mean_function(X, mean), cov

    @property
    def variance_factor(self) -> float:
        """The factor of (co)variances in predictions."""
        return 1.0 if self.calibration is None else self.calibration.function

    @public_method("the prediction", prediction=True)
    @check_shapes(
        "Xnew: [batch..., N, D]", "return[0]: [batch..., N, P]", "return[1]: [batch..., N, P]"
    )
    def predict_y(self, Xnew: tf.Tensor, likelihood: Likelihood) -> MeanAndVariance:
        """Mean and variance of new observations, ``[N, P]``; from the cache if there is one."""
        moments = self.predict(self.cache, Xnew)
        return observations(self.calibration, likelihood, Xnew, moments)

    @public_method("the log density", prediction=True)
    @check_shapes("data[0]: [batch..., N, D]", "data[1]: [batch..., N, P]", "return: [batch..., N]")
    def predict_log_density(
        self, data: tuple[tf.Tensor, tf.Tensor], likelihood: Likelihood
    ) -> tf.Tensor:
        """Log density of new observations, one per row; from the cache if there is one."""
        X, Y = data
        return log_density(self.calibration, likelihood, X, self.predict(self.cache, X), Y)

    @public_method()
    def update_cache(self, precompute_cache: PrecomputeCacheType | str | None = None) -> None:
        """
        Compute the cache again from the current parameters.

        :param precompute_cache: "tensor", "variable" or "nocache"; None keeps the kind it has.
        """
        super().update_cache(cast(PrecomputeCacheType | None, precompute_cache))

    @public_method("the prediction", prediction=True)
    @get_check_shapes(AbstractPosterior.predict_f)
    def predict_f(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and (co)variance at ``Xnew [..., N, D]`` from the cache; shapes as in GPflow."""
        if self.cache is None:
            raise ValueError(
                "the posterior has no cache: call update_cache() first, or take fused_predict_f."
            )
        return self.predict(self.cache, Xnew, full_cov, full_output_cov)

    @public_method("the prediction", prediction=True)
    @get_check_shapes(AbstractPosterior.fused_predict_f)
    def fused_predict_f(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and (co)variance as :meth:`predict_f`, without the cache, so that gradients flow."""
        return self.predict(None, Xnew, full_cov, full_output_cov)

    @public_method()
    def sample_functions(
        self, num_samples: int, *, num_features: int = 1024, seed: int | None = None
    ) -> FunctionDraws:
        """
        Functions drawn from the current posterior, to be evaluated at any inputs.

        Their mean and covariance equal :meth:`predict_f` with ``full_cov``, whatever
        ``num_features``; :class:`~gpflow_sparse.posteriors.pathwise.FunctionDraws` explains why,
        and the effect of ``num_features``. Wilson et al., "Efficiently Sampling Functions from
        Gaussian Process Posteriors" (2020, arXiv:2002.09309). Two exceptions: with neighbors, mean
        and variance at each x equal :meth:`predict_f` without ``full_cov``, see
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
        :raises ValueError: for a kernel other than SquaredExponential, Matern12, Matern32,
            Matern52, MainEffects, and sums, products and linear maps of these, unless it has a
            method ``draw_frequencies(count, num_columns, generator)``; for inducing variables that
            are neither points nor weights of a basis; inside ``tf.function``, where only calls of
            the result belong; for parameters that are not finite.
        """
        sampler = Sampler.make(num_samples, num_features, seed)
        component_checks.validate_components(self)
        return self._draw_functions(sampler._replace(scale=self.variance_factor**0.5))

    def _draw_functions(self, sampler: Sampler) -> FunctionDraws:
        """:meth:`sample_functions` with valid arguments."""
        return FunctionDraws([self._draw_paths(sampler)], self.mean_function, self.input_dim)

    def _draw_paths(self, sampler: Sampler) -> Paths:
        """The functions without the mean function."""
        raise ValueError(f"{type(self).__name__} does not draw functions; use predict_f_samples.")

    @property
    def dtype(self) -> tf.DType:
        """Float type of predictions: that of the kernel, whatever GPflow's default is now."""
        return float_type(self.kernel)

    def _current_q(self) -> tuple[Any, Any]:
        """``q_mu`` and ``q_sqrt`` as given, or as the function returns them now."""
        return self._q_mu() if callable(self._q_mu) else (self._q_mu, self._q_sqrt)

    @abstractmethod
    def _tensors(self) -> Sequence[tf.Tensor]:
        """The contents of a cache, from the current parameters."""

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        return precomputed(self._tensors())

    def _conditional_with_precompute(
        self,
        cache: Cache | None,
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        """:meth:`predict` without the mean function and calibration."""
        if full_cov:
            mean, cov = self._joint(cache, Xnew)
        elif Xnew.shape.rank == 2:
            mean, cov = self._marginals(cache, Xnew)
        else:
            mean, cov = by_rows(partial(self._marginals, cache), Xnew)
        return mean, spread_outputs(cov, full_cov) if full_output_cov else cov

    def _conditional_fused(self, *arguments: Any, **options: Any) -> MeanAndVariance:
        return self._conditional_with_precompute(None, *arguments, **options)

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        """Mean and variance at each row of ``X [n, D]``, ``[n, P]`` each."""
        raise NotImplementedError

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        """Mean ``[..., N, P]`` and covariance ``[..., P, N, N]`` at ``X [..., N, D]``."""
        raise ValueError(
            f"full_cov must be False for a {type(self).__name__}, which has no joint distribution "
            "of rows."
        )

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
        if getattr(value, "shape", None) != mean.shape:
            value = component_checks.require_mean(value, mean, self.mean_function)
        return mean + value


class BlockPosterior(SparsePosterior):
    """
    A posterior of independent whitened blocks of variables that all rows share.

    A subclass writes :meth:`blocks`, ``block_sizes``, ``prior_kl``, ``_tensors`` and, where the
    prior variance of f is not the kernel's, ``_prior_variances``.
    """

    block_sizes: tuple[int, ...]
    """Number of whitened variables of each of the :meth:`blocks`."""

    @abstractmethod
    def blocks(self, cache: Cache | None, X: tf.Tensor) -> list[Block]:
        """
        The blocks, with their covariances with f at ``X [n, D]``.

        :param cache: as in :meth:`predict`.
        """

    def terms(self, X: tf.Tensor) -> Terms:
        blocks = self.blocks(None, X)
        mean, variance, residual = marginals(self._prior_variances(X, blocks), blocks)
        kl = tf.add_n([kl_from_standard_normal(block.q_mu, block.q_sqrt) for block in blocks])
        mean = self._add_mean_function(X, mean)
        return Terms(mean, variance, kl, residual[:, None] + tf.zeros_like(mean))

    def _marginals(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        blocks = self.blocks(cache, X)
        return marginals(self._prior_variances(X, blocks), blocks)[:2]

    def _joint(self, cache: Cache | None, X: tf.Tensor) -> MeanAndVariance:
        blocks = self.blocks(cache, tf.reshape(X, [-1, X.shape[-1]]))
        shape = tf.shape(X)[:-1]
        return joint(
            covariance(self.kernel, X), [b._replace(A=group_columns(b.A, shape)) for b in blocks]
        )

    def _prior_variances(self, X: tf.Tensor, blocks: Sequence[Block]) -> tf.Tensor:
        """``k(x, x) [n]`` at ``X [n, D]``, whose blocks are given."""
        return self.kernel(X, full_cov=False)


def precomputed(tensors: Sequence[tf.Tensor]) -> tuple[PrecomputedValue, ...]:
    """The contents of a cache, with fixed shapes, as GPflow takes them."""
    return tuple(PrecomputedValue(tensor, (False,) * tensor.shape.rank) for tensor in tensors)


def by_rows(function: Callable[[tf.Tensor], MeanAndVariance], X: tf.Tensor) -> MeanAndVariance:
    """
    ``function`` of all rows of ``X [..., N, D]`` together.

    :param function: from ``[n, D]`` to mean and covariance, ``[n, ...]`` each.
    :return: ``[..., N, ...]`` each.
    """
    mean, cov = function(tf.reshape(X, [-1, X.shape[-1]]))
    return split_rows(mean, tf.shape(X)[:-1]), split_rows(cov, tf.shape(X)[:-1])


def by_batches(function: Callable[[tf.Tensor], MeanAndVariance], X: tf.Tensor) -> MeanAndVariance:
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
