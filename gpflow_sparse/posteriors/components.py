"""The Gaussian processes whose mixture is a type-I posterior."""

import abc

import numpy as np
import tensorflow as tf

from gpflow_sparse.inference.collapsed import RowSums
from gpflow_sparse.inference.quadrature import Quadrature
from gpflow_sparse.inference.rotation import Rotation, coefficient_moments
from gpflow_sparse.inference.type_one import weighted_factor
from gpflow_sparse.numerics import linalg
from gpflow_sparse.posteriors.pathwise import stack, unstack


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
            return self._moments_of_one(A, *part)

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
            noise, weights = self.noise[component], self.weights[component]
            L = weighted_factor(self._sums, noise, weights)
            roots = tf.sqrt(weights)[:, None]
            c = linalg.solve_triangular(L, roots * self._sums.Ae) / noise  # [p, P]
            here = chosen == component
            columns = stack(c + xi[here])  # [p, C' P]
            solved = roots * linalg.solve_triangular(L, columns, adjoint=True)
            found[here] = unstack(solved, (int(here.sum()), shape[2]))
        return tf.constant(found)

    def _moments_of_one(
        self, A: tf.Tensor, noise: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        L = weighted_factor(self._sums, noise, weights)
        roots = tf.sqrt(weights)[:, None]
        c = linalg.solve_triangular(L, roots * self._sums.Ae) / noise  # [p, P]
        C = linalg.solve_triangular(L, roots * A)  # [p, n]
        variance = tf.reduce_sum(tf.square(C), axis=0)
        return tf.linalg.matmul(C, c, transpose_a=True), variance[:, None]


def _equal(noise: tf.Tensor) -> tf.Tensor:
    return tf.fill(tf.shape(noise), -tf.math.log(tf.cast(tf.size(noise), noise.dtype)))
