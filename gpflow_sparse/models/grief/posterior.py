"""Posterior of type-I inference: a mixture of Gaussian processes."""

import abc
import math
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction

from gpflow_sparse.bases.base import FiniteBasis
from gpflow_sparse.inference.collapsed import RowSums
from gpflow_sparse.inference.rotation import Rotation, coefficient_moments
from gpflow_sparse.models.grief.quadrature import Quadrature
from gpflow_sparse.models.grief.type_one import weighted_factor
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.pathwise import (
    FunctionDraws,
    Sampler,
    WeightPaths,
    in_blocks,
    residual_paths,
    stack,
    unstack,
)
from gpflow_sparse.validation import checks, component_checks


class Components(tf.Module, metaclass=abc.ABCMeta):
    """Gaussian processes, one for each of S values of the unknowns, in float64."""

    def __init__(self, log_weights: tf.Tensor, noise: tf.Tensor, num_outputs: int) -> None:
        """
        :param log_weights: logarithms of the components' probabilities, ``[S]``.
        :param noise: noise variances of the components, ``[S]``.
        """
        super().__init__()
        self.log_weights = log_weights
        self.noise = noise
        self.num_outputs = num_outputs
        self.weights: tf.Tensor | None = None
        """Sampled weights of basis functions, ``[S, p]``; None where they are integrated out."""

    @abc.abstractmethod
    def moments(self, A: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Moments of every component at n inputs.

        :param A: features ``[p, n]``, float64.
        :return: means ``[S, n, P]``, and variances ``[S, n, P]`` or ``[S, n, 1]``.
        """

    @abc.abstractmethod
    def draw(self, chosen: np.ndarray, generator: np.random.Generator) -> tf.Tensor:
        """
        Coefficients of the features, one draw for each entry of ``chosen``.

        :param chosen: numbers of components, ``[C]``.
        :return: ``[C, p, P]``, float64.
        """


class RotatedComponents(Components):
    """Weights of rotated functions, with independent coefficients; O(S p) memory."""

    def __init__(
        self,
        rotated: Rotation,
        log_weights: tf.Tensor,
        noise: tf.Tensor,
        means: tf.Tensor,
        variances: tf.Tensor,
    ) -> None:
        """
        :param means: means of the coefficients, ``[S, p, P]``.
        :param variances: variances of the coefficients, ``[S, p, P]`` or ``[S, p, 1]``.
        """
        super().__init__(log_weights, noise, rotated.num_outputs)
        self._V = rotated.V
        self._means, self._variances = means, variances

    @classmethod
    def sampled(
        cls, rotated: Rotation, noise: tf.Tensor, weights: tf.Tensor
    ) -> "RotatedComponents":
        """Equally probable samples of the noise ``[S]`` and the weights ``[S, p]``."""
        means, variances = coefficient_moments(rotated, noise, weights)
        components = cls(rotated, _equal(noise), noise, means, variances[..., None])
        components.weights = weights
        return components

    @classmethod
    def integrated(cls, rotated: Rotation, result: Quadrature) -> "RotatedComponents":
        """Noise variances ``[J]`` of a quadrature, the weights integrated out."""
        return cls(rotated, result.log_weights, result.noise, result.means, result.variances)

    def moments(self, A: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rotated = tf.linalg.matmul(A, self._V, transpose_a=True)  # [n, p]
        return rotated @ self._means, tf.square(rotated) @ self._variances

    def draw(self, chosen: np.ndarray, generator: np.random.Generator) -> tf.Tensor:
        mean, variance = (tf.gather(part, chosen) for part in (self._means, self._variances))
        drawn = mean + tf.sqrt(variance) * generator.normal(size=mean.shape)
        return tf.linalg.matmul(self._V, drawn)


class WeightedComponents(Components):
    """
    Weights of the features: every component has a p x p factor, which is computed when needed to
    save O(S p^2) memory. Time O(S p^2 (p + n)) for each block of n rows.
    """

    def __init__(self, sums: RowSums, noise: tf.Tensor, weights: tf.Tensor) -> None:
        """
        :param noise: equally probable samples ``[S]``.
        :param weights: the samples' weights, ``[S, p]``.
        """
        super().__init__(_equal(noise), noise, int(sums.Ae.shape[1]))
        self.weights = weights
        self._sums = sums

    def moments(self, A: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def of_one(part: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            L, roots, c = self._solve(*part)
            C = linalg.solve_triangular(L, roots * A)  # [p, n]
            variance = tf.reduce_sum(tf.square(C), axis=0)
            return tf.linalg.matmul(C, c, transpose_a=True), variance[:, None]

        return tf.map_fn(
            # AutoGraph would convert all called functions at every call
            tf.autograph.experimental.do_not_convert(of_one),
            (self.noise, self.weights),
            fn_output_signature=(A.dtype, A.dtype),
            parallel_iterations=1,
        )

    def draw(self, chosen: np.ndarray, generator: np.random.Generator) -> tf.Tensor:
        """``W^1/2 L^-T (c + xi)``, c as in the moments, ``xi ~ N(0, I)``; O(p^3) a component."""
        assert self.weights is not None
        shape = (len(chosen), *self._sums.Ae.shape)
        found, xi = np.empty(shape), generator.normal(size=shape)
        for component in np.unique(chosen):
            L, roots, c = self._solve(self.noise[component], self.weights[component])
            here = chosen == component
            columns = stack(c + xi[here])  # [p, C' P]
            solved = roots * linalg.solve_triangular(L, columns, adjoint=True)
            found[here] = unstack(solved, (int(here.sum()), shape[2]))
        return tf.constant(found)

    def _solve(
        self, noise: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """``L [p, p]``, ``W^1/2 [p, 1]`` and ``c = L^-1 W^1/2 A e / noise  [p, P]``."""
        L = weighted_factor(self._sums, noise, weights)
        roots = tf.sqrt(weights)[:, None]
        return L, roots, linalg.solve_triangular(L, roots * self._sums.Ae) / noise


def _equal(noise: tf.Tensor) -> tf.Tensor:
    return tf.fill(tf.shape(noise), -tf.math.log(tf.cast(tf.size(noise), noise.dtype)))


class MixturePosterior(tf.Module):
    """
    A mixture of Gaussian processes with Gaussian noise, which is not a Gaussian process itself.

    Its mean is the mean of the components' means; its variance the mean of their variances plus the
    variance of their means; its density the mean of their densities. There is no covariance between
    inputs, but functions can be drawn. Basis and mean function are copies, made at construction.
    `gs.save` does not write it: save the model, and keep the seed.
    """

    def __init__(
        self,
        basis: FiniteBasis,
        components: Components,
        *,
        residual: bool,
        mean_function: MeanFunction | None = None,
        acceptance: tf.Tensor | None = None,
        log_evidence: tf.Tensor | None = None,
    ) -> None:
        """
        :param basis: basis of the features that the components weigh; copied.
        :param residual: whether f includes the residual of the kernel, which keeps its prior:
            ``k(x, x) - |phi(x)|^2`` is added to all variances.
        :param mean_function: copied; None for zero.
        :param acceptance: acceptance rates of the sampler of the components, one per chain.
        :param log_evidence: log evidence of the data, if known.
        :raises ValueError: if ``residual`` is true for a basis whose residual is not a covariance.
        """
        super().__init__()
        if residual and not basis.is_projection:
            raise ValueError(
                f"residual must be False for a {type(basis).__name__}: the residual of its "
                "kernel is not a covariance."
            )
        self.basis = gpflow.utilities.deepcopy(basis)
        self.mean_function = mean_function and gpflow.utilities.deepcopy(mean_function)
        self.residual = residual
        self.acceptance = acceptance
        self.log_evidence = log_evidence
        self.weights = components.weights
        """Sampled weights of basis functions, ``[S, p]``; None where they are integrated out."""
        self.noise_variance = components.noise
        """Noise variances of the components, ``[S]``."""
        self.log_weights = components.log_weights
        """Logarithms of the probabilities of the components, ``[S]``."""
        self.num_outputs = components.num_outputs
        """P."""
        self._components = components
        self._precomputed = self.basis.precompute()
        self._entries_per_row = max(
            basis.num_basis, int(components.noise.shape[0]) * self.num_outputs
        )

    def predict_f(self, Xnew: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and variance of the function, in blocks of rows of bounded memory.

        Time O(N p (p + S P)) for weights on rotated functions, O(S N p^2) for weights on features.

        :param Xnew: ``[N, D]``.
        :return: ``[N, P]`` and ``[N, P]``.
        :raises ValueError: for inputs of another rank or D, or that are not finite.
        """
        return self._predict(Xnew, tf.zeros([], tf.float64))

    def predict_y(self, Xnew: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of new observations: :meth:`predict_f` plus the mean noise variance."""
        noise = tf.reduce_sum(tf.exp(self.log_weights) * self.noise_variance)
        return self._predict(Xnew, noise)

    def predict_log_density(self, data: Any) -> tf.Tensor:
        """
        Log density of new observations, one per row, over all outputs together.

        The mean over components of ``prod_q N(y_q | mean_q, variance_q + noise)``: given the
        component, outputs are independent. For sampled weights this is exact. Where the weights are
        integrated out, a component is a noise variance, and ``f`` given it a mixture too, over
        weights, which is replaced by the Gaussian of its moments: with three functions and 15 rows
        this moved the log density by at most 1e-3 at four of five inputs, and by 0.18 at the fifth.

        :param data: ``(X [N, D], Y [N, P])``.
        :return: ``[N]``, in nats.
        :raises ValueError: as :meth:`predict_f`, and if Y does not have P columns and a row for
            each of X.
        """
        X, Y = checks.require_data(data, input_dim=self.basis.input_dim, dtype=self.basis.dtype)
        if Y.shape[1] not in (None, self.num_outputs):
            raise ValueError(
                f"Y must have {self.num_outputs} column(s), one per output; got shape "
                f"{tuple(Y.shape)}."
            )
        X = self._require_inputs(X)
        checks.require_range(Y, "Y")
        Y = checks.require_finite_in_graph(Y, "Y")
        errors = tf.cast(Y - self._mean(X, Y), tf.float64)
        noise = self.noise_variance[:, None, None]

        def log_density(rows: tf.Tensor) -> tf.Tensor:
            X, errors = tf.split(rows, [-1, self.num_outputs], axis=1)
            means, variances = self._moments(X)
            variances = variances + noise
            terms = tf.square(errors - means) / variances + tf.math.log(2.0 * math.pi * variances)
            per_component = -0.5 * tf.reduce_sum(terms, axis=2)  # [S, n]
            mixed = tf.reduce_logsumexp(self.log_weights[:, None] + per_component, axis=0)
            return mixed[None, :, None]

        rows = tf.concat([tf.cast(X, tf.float64), errors], axis=1)
        result = in_blocks(log_density, rows, self._entries_per_row)[0, :, 0]
        component_checks.require_finite_result(self, "the log density", result)
        return tf.cast(result, X.dtype)

    def sample_functions(
        self, num_samples: int, *, num_features: int = 1024, seed: int | None = None
    ) -> FunctionDraws:
        """
        Functions drawn from the mixture, to be evaluated at any inputs: each is drawn from a
        component, which is chosen by its probability. Mean and variance at each input equal
        :meth:`predict_f`. Where the weights are integrated out, a component's coefficients are
        drawn from the Gaussian of their moments, as for :meth:`predict_log_density`.

        Time O(S p^2) for weights on rotated functions, O(S p^3) for weights on features; with a
        residual plus the time of its draws, see
        :func:`~gpflow_sparse.posteriors.pathwise.residual_paths`.

        :param num_samples: S.
        :param num_features: random Fourier features of each draw of the residual, even.
        :param seed: as in :meth:`gpflow_sparse.posteriors.SparsePosterior.sample_functions`.
        :return: a function of ``X [N, D]`` that returns ``[S, N, P]``, mean function included.
        :raises ValueError: for invalid arguments, inside ``tf.function``, and with a residual for
            kernels without random Fourier features.
        """
        sampler = Sampler.make(num_samples, num_features, seed)
        shares = np.exp(self.log_weights.numpy())
        chosen = sampler.generator.choice(len(shares), size=num_samples, p=shares / shares.sum())
        weights = tf.cast(self._components.draw(chosen, sampler.generator), self.basis.dtype)
        if self.residual:
            paths = residual_paths(self.basis, weights, sampler)
        else:
            paths = WeightPaths(self.basis, weights)
        return FunctionDraws([paths], self.mean_function, self.basis.input_dim)

    def _predict(self, Xnew: Any, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        X = self._require_inputs(Xnew)
        shares = tf.exp(self.log_weights)[:, None, None]  # [S, 1, 1]

        def mean_and_variance(rows: tf.Tensor) -> tf.Tensor:
            means, variances = self._moments(rows)
            mean = tf.reduce_sum(shares * means, axis=0)  # [n, P]
            # by deviations: the difference of two large moments would cancel
            variance = tf.reduce_sum(shares * (variances + tf.square(means - mean)), axis=0)
            return tf.stack([mean, variance])

        mean, variance = tf.unstack(
            in_blocks(mean_and_variance, tf.cast(X, tf.float64), self._entries_per_row)
        )
        component_checks.require_finite_result(self, "the prediction", mean, variance)
        mean = tf.cast(mean, X.dtype)
        return mean + self._mean(X, mean), tf.cast(variance + noise, X.dtype)

    def _moments(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of every component, ``[S, n, P]``, without the mean function."""
        X = tf.cast(X, self.basis.dtype)
        A = tf.cast(self.basis.features(X, self._precomputed), tf.float64)  # [p, n]
        means, variances = self._components.moments(A)
        if self.residual:
            Kff_diag = tf.cast(self.basis.kernel(X, full_cov=False), tf.float64)
            left = tf.maximum(Kff_diag - tf.reduce_sum(tf.square(A), axis=0), 0.0)
            variances += left[:, None]
        return means, variances

    def _require_inputs(self, Xnew: Any) -> tf.Tensor:
        X = checks.require_matrix(Xnew, "Xnew", self.basis.dtype)
        checks.require_inputs(X, self.basis.input_dim, self.basis.dtype)
        checks.require_range(X, "Xnew")
        component_checks.require_kernel(self.basis.kernel, X.shape[1])
        return checks.require_finite_in_graph(X, "Xnew")

    def _mean(self, X: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        if self.mean_function is None:
            return tf.zeros_like(like)
        return component_checks.require_mean(self.mean_function(X), like, self.mean_function)
