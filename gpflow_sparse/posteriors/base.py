"""The base class of the posteriors: a GPflow posterior that also gives its KL to the prior."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType

from gpflow_sparse.inference.blocks import Block, joint, marginals
from gpflow_sparse.posteriors.pathwise import FunctionDraws, require_arguments
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import _cache_type, public_method


class SparsePosterior(AbstractPosterior):
    """
    Base class of the posteriors of this package, which adds the KL divergence to GPflow's.

    ``predict_f`` and ``fused_predict_f`` are GPflow's. ``prior_kl`` takes X because there are
    posteriors whose KL depends on the batch. ``marginals_and_kl`` is what a model's ``elbo`` calls:
    both terms from one factorization.

    Public methods validate their arguments and the components; ``_require_parts`` of a subclass
    refuses components that do not fit each other. A subclass implements ``_conditional``, the
    moments with and without a cache, and ``_precompute``, the tensors in the cache.
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
    ) -> None:
        """
        :param q_mu: mean of q, in the shape that the subclass documents.
        :param q_sqrt: factor or standard deviations of q, likewise.
        :param whiten: whether q is relative to the prior.
        :param mean_function: added to the prior mean; None for zero.
        :param precompute_cache: kind of the cache; None for no cache.
        :param jitter: smallest relative jitter of factorizations; None leaves it to
            :func:`gpflow_sparse.numerics.linalg.jitter`.
        """
        super().__init__(kernel, inducing_variable, mean_function=mean_function)
        self._q_mu, self._q_sqrt = q_mu, q_sqrt
        self.whiten = whiten
        self.jitter = jitter
        self._require_parts(self.input_dim)
        if precompute_cache is not None:
            self.update_cache(precompute_cache)

    @abstractmethod
    def prior_kl(self, X: tf.Tensor | None = None) -> tf.Tensor:
        """KL divergence from q to the prior, a scalar; X only where it depends on the batch."""

    @abstractmethod
    def marginals_and_kl(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        :param X: ``[N, D]``.
        :return: mean ``[N, P]`` (mean function included), variance ``[N, P]``, KL ``[]``.
        """

    @property
    def input_dim(self) -> int | None:
        """D, the number of input columns; None where any number is right."""
        return None

    def layer_terms(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The terms of :meth:`marginals_and_kl` in a deep model: the KL must not depend on X."""
        return self.marginals_and_kl(X)

    def cached_kl(self, cache: Sequence[tf.Tensor]) -> tf.Tensor:
        """The KL divergence to the prior from an up-to-date ``cache``, a scalar."""
        return self.prior_kl()

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Number of whitened variables of each of the :meth:`cached_blocks`."""
        raise ValueError(
            f"sampling must be 'marginal' or 'joint' with a {type(self).__name__} in a layer: it "
            "has no variables that all patches of an image share."
        )

    def cached_blocks(self, cache: Sequence[tf.Tensor], X: tf.Tensor) -> list[Block]:
        """
        Blocks of the whitened variables that all rows share, from the cache.

        :param X: ``[n, D]``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no block_sizes either.")

    @public_method("the prediction", prediction=True)
    def predict_y(self, Xnew: tf.Tensor, likelihood: Likelihood) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of new observations from the cache, ``[N, P]`` each."""
        return likelihood.predict_mean_and_var(Xnew, *self.predict_f(Xnew))

    @public_method("the log density", prediction=True)
    def predict_log_density(
        self, data: tuple[tf.Tensor, tf.Tensor], likelihood: Likelihood
    ) -> tf.Tensor:
        """Log density of new observations from the cache, one per row."""
        X, Y = data
        return likelihood.predict_log_density(X, *self.predict_f(X), Y)

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
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and (co)variance at ``Xnew [..., N, D]`` from the cache; shapes as in GPflow."""
        return super().predict_f(Xnew, full_cov, full_output_cov)

    @public_method("the prediction", prediction=True)
    def fused_predict_f(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and (co)variance as :meth:`predict_f`, without the cache, so that gradients flow."""
        return super().fused_predict_f(Xnew, full_cov, full_output_cov)

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
        generator = require_arguments(num_samples, num_features, seed)
        component_checks.require_sound(self)
        return self._draw_functions(num_samples, num_features, generator)

    def _draw_functions(
        self, num_samples: int, num_features: int, generator: np.random.Generator
    ) -> FunctionDraws:
        """:meth:`sample_functions` with valid arguments."""
        raise ValueError(f"{type(self).__name__} does not draw functions; use predict_f_samples.")

    @property
    def dtype(self) -> tf.DType:
        """Float type of predictions."""
        return gpflow.default_float()

    def _conditional(
        self, cache: Sequence[tf.Tensor] | None, X: tf.Tensor, full_cov: bool, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and (co)variance at ``X [..., N, D]`` without the mean function.

        :param cache: tensors as :meth:`_precompute` returns them; None computes them anew.
        """
        raise NotImplementedError

    def _conditional_fused(
        self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self._conditional(None, Xnew, full_cov, full_output_cov)

    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self._conditional(cache, Xnew, full_cov, full_output_cov)

    def _require_inputs(self, X: Any, name: str = "Xnew") -> tf.Tensor:
        """Inputs ``[..., N, D]``."""
        return checks.require_inputs(X, self.input_dim, self.dtype, name)

    def _require_data(self, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """The pair ``(X [N, D], Y [N, P])``."""
        return checks.require_data(data, input_dim=self.input_dim, dtype=self.dtype)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        """Refuse components that do not fit each other, in a subclass also q and its sets."""
        component_checks.require_kernel(self.kernel, num_columns)

    def _add_mean_function(self, Xnew: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        if self.mean_function is None:
            return mean
        value = self.mean_function(Xnew)
        return mean + component_checks.require_mean(value, mean, self.mean_function)

    def _prior_variances(self, X: tf.Tensor, blocks: Sequence[Block]) -> tf.Tensor:
        """``k(x, x) [n]`` at all n rows of ``X [..., N, D]``."""
        return tf.reshape(self.kernel(X, full_cov=False), [-1])

    def _refuse_multioutput(self) -> None:
        if isinstance(self.kernel, MultioutputKernel):
            raise ValueError(
                f"{type(self).__name__} takes a single-output kernel shared by all outputs, got "
                f"{type(self.kernel).__name__}; pass one kernel and num_latent_gps instead."
            )

    def _predict_from_blocks(
        self, X: tf.Tensor, blocks: Sequence[Block], full_cov: bool, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        :param X: ``[..., N, D]``.
        :param blocks: with ``A [M, n]`` over all n rows of ``X`` in order.
        :return: mean ``[..., N, P]`` and a covariance in GPflow's shape for the two flags.
        """
        lead, num_rows = tf.shape(X)[:-2], tf.shape(X)[-2]
        if full_cov:
            if X.shape.rank != 2:
                blocks = [b._replace(A=_batch_columns(b.A, lead, num_rows)) for b in blocks]
            mean, cov = joint(self.kernel(X, full_cov=True), blocks)
        else:
            mean, cov = marginals(self._prior_variances(X, blocks), blocks)
            if X.shape.rank != 2:
                shape = tf.concat([lead, [num_rows, tf.shape(mean)[-1]]], axis=0)
                mean, cov = tf.reshape(mean, shape), tf.reshape(cov, shape)
        return mean, spread_outputs(cov, full_cov) if full_output_cov else cov


def cache_type(value: PrecomputeCacheType | str | None) -> PrecomputeCacheType:
    """Temporary, for models that do not use ``public_method`` yet."""
    return PrecomputeCacheType.NOCACHE if value is None else _cache_type(value)


def _batch_columns(A: tf.Tensor, lead: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """``A [M, S * N]`` as ``[..., M, N]``."""
    batches = tf.reshape(tf.transpose(A), tf.concat([lead, [num_rows, tf.shape(A)[0]]], axis=0))
    return tf.linalg.matrix_transpose(batches)


def spread_outputs(cov: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """Independent outputs as a full output covariance: zeros off the diagonal over P."""
    if not full_cov:
        return tf.linalg.diag(cov)  # [..., N, P, P]
    eye = tf.eye(tf.shape(cov)[-3], dtype=cov.dtype)
    return tf.einsum("...pnm,pq->...npmq", cov, eye)  # [..., N, P, N, P]
