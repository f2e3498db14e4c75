"""Several outputs from independent latent functions, each with a posterior of its own."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.kernels import (
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
)

from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.posteriors.base import (
    Cache,
    MeanAndVariance,
    SparsePosterior,
    spread_outputs,
)
from gpflow_sparse.posteriors.pathwise import FunctionDraws, Sampler


class MultioutputPosterior(SparsePosterior):
    r"""
    Posterior under a multi-output kernel: ``f = W g`` with independent latent functions g.

    ``SharedIndependent`` (one kernel) and ``SeparateIndependent`` (one each) have W = I, so that
    L = P; ``LinearCoregionalization`` has a trainable ``W [P, L]``. Each distinct kernel is one
    single-output posterior over the same inducing inputs, with columns of q of its own, and

        mean = E[g] W^T,    cov[f_p, f_q] = sum_l W_pl W_ql cov[g_l].

    Time and memory are the sums over the kernels.
    """

    def __init__(
        self,
        *arguments: Any,
        part: Callable[..., SparsePosterior],
        **options: Any,
    ) -> None:
        """
        :param arguments: arguments of :class:`SparsePosterior`, with q of L functions.
        :param part: class of the single-output posteriors, or a function that returns one.
        :param options: further arguments of :class:`SparsePosterior`.
        """
        self._part = part
        super().__init__(*arguments, **options)

    @inherit_check_shapes
    def prior_kl(self, X: tf.Tensor | None = None, cache: Cache | None = None) -> tf.Tensor:
        """Sum of the parts' KL."""
        return tf.add_n([part.prior_kl(X, own) for part, own in self._parts_with(cache)])

    def terms(self, X: tf.Tensor) -> Terms:
        terms = mixed_terms(self.kernel, [part.terms(X) for part in self._parts()])
        return terms._replace(mean=self._add_mean_function(X, terms.mean))

    def _conditional_with_precompute(
        self,
        cache: Cache | None,
        Xnew: tf.Tensor,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        parts = self._parts_with(cache)
        moments = [part._conditional_with_precompute(own, Xnew, full_cov) for part, own in parts]
        return mixed(self.kernel, moments, full_cov, full_output_cov)

    def _tensors(self) -> list[tf.Tensor]:
        """The caches of all parts, one after the other."""
        return [tensor for part in self._parts() for tensor in part._tensors()]

    def _draw_functions(self, sampler: Sampler) -> FunctionDraws:
        """Draws of all latent functions, with the matrix that mixes them."""
        paths = [part._draw_paths(sampler) for part in self._parts()]
        W = self.kernel.W if isinstance(self.kernel, LinearCoregionalization) else None
        return FunctionDraws(paths, self.mean_function, self.input_dim, mixing=W)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        require_latent_kernels(self.kernel)
        for part in self._parts():
            part._require_parts(num_columns, dtype)

    def _parts_with(self, cache: Cache | None) -> list[tuple[SparsePosterior, Any]]:
        """The parts, each with its own cache, or None."""
        parts = self._parts()
        if cache is None:
            return [(part, None) for part in parts]
        size = len(cache) // len(parts)  # parts are of one kind and keep as much each
        return [(part, cache[i * size : (i + 1) * size]) for i, part in enumerate(parts)]

    def _parts(self) -> list[SparsePosterior]:
        """Single-output posteriors, one for each distinct kernel, with the present parameters."""
        return [
            self._part(
                kernel,
                self.X_data,
                _take(self._q_mu, columns, is_mean=True),
                _take(self._q_sqrt, columns, is_mean=False),
                whiten=self.whiten,
                jitter=self.jitter,
            )
            for kernel, columns in latent_kernels(self.kernel)
        ]


def mixed(
    kernel: MultioutputKernel,
    moments: Sequence[MeanAndVariance],
    full_cov: bool,
    full_output_cov: bool,
) -> MeanAndVariance:
    """
    Moments of ``W g`` from the moments of the latent functions g.

    :param moments: per part, mean ``[..., N, L_k]`` of its latent functions, and variance
        ``[..., N, L_k]`` or, with ``full_cov``, covariance ``[..., L_k, N, N]``.
    :return: mean ``[..., N, P]`` and a covariance in GPflow's shape for the two flags.
    """
    means, covs = zip(*moments, strict=True)
    mean, cov = tf.concat(means, axis=-1), tf.concat(covs, axis=-3 if full_cov else -1)
    if not isinstance(kernel, LinearCoregionalization):
        return mean, spread_outputs(cov, full_cov) if full_output_cov else cov
    W = tf.convert_to_tensor(kernel.W)  # [P, L]
    mean = tf.linalg.matmul(mean, W, transpose_b=True)
    if full_output_cov:
        rule = "...lnm,pl,ql->...npmq" if full_cov else "...nl,pl,ql->...npq"
        return mean, tf.einsum(rule, cov, W, W)
    rule = "...lnm,pl->...pnm" if full_cov else "...nl,pl->...np"
    return mean, tf.einsum(rule, cov, tf.square(W))


def mixed_terms(kernel: Kernel, parts: Sequence[Terms]) -> Terms:
    """Terms of an ELBO for f, from the terms of the latent functions of each kernel."""
    if not isinstance(kernel, MultioutputKernel):
        return parts[0]
    mean, variance = mixed(kernel, [(part.mean, part.variance) for part in parts], False, False)
    residual = mixed(kernel, [(part.mean, part.residual) for part in parts], False, False)[1]
    return Terms(mean, variance, tf.add_n([part.kl for part in parts]), residual)


def require_latent_kernels(kernel: MultioutputKernel, name: str = "kernel") -> None:
    """
    Refuse multi-output kernels of other classes, and inconsistent ones.

    :raises ValueError: naming the reason and a remedy.
    """
    known = (SharedIndependent, SeparateIndependent, LinearCoregionalization)
    if not isinstance(kernel, known):
        raise ValueError(
            f"{name} must be single-output, SharedIndependent, SeparateIndependent or "
            f"LinearCoregionalization, got {type(kernel).__name__}."
        )
    for latent, _ in latent_kernels(kernel):
        if isinstance(latent, MultioutputKernel):
            raise ValueError(
                f"{name} ({type(kernel).__name__}) holds a {type(latent).__name__}; its kernels "
                "must be single-output."
            )
    if not isinstance(kernel, LinearCoregionalization):
        return
    shape = tuple(kernel.W.shape)
    if len(shape) != 2 or shape[1] != len(kernel.kernels):
        raise ValueError(
            f"{name}.W must have shape [P, {len(kernel.kernels)}], one column per latent kernel; "
            f"got {shape}."
        )


def latent_kernels(kernel: Kernel, num_latent_gps: int = 1) -> list[tuple[Kernel, slice]]:
    """
    The single-output kernels of a model, each with the slice of its latent functions.

    :param num_latent_gps: number of latent functions that share a single-output kernel.
    """
    if not isinstance(kernel, MultioutputKernel):
        return [(kernel, slice(0, num_latent_gps))]
    if isinstance(kernel, SharedIndependent):
        return [(kernel.kernel, slice(0, kernel.output_dim))]
    return [(latent, slice(i, i + 1)) for i, latent in enumerate(kernel.kernels)]


def _take(value: Any, columns: slice, *, is_mean: bool) -> Any:
    """The part of q that belongs to some latent functions."""
    value = value() if callable(value) else value
    if value is None:
        return None
    if isinstance(value, Sequence):
        return tuple(_take(entry, columns, is_mean=is_mean) for entry in value)
    tensor = tf.convert_to_tensor(value)
    # means [M, L] and standard deviations [M, L], or factors [L, M, M]
    return tensor[:, columns] if is_mean or tensor.shape.rank == 2 else tensor[columns]
