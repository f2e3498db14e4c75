"""Functions drawn from a deep posterior: functions of functions."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.posteriors.draws import FunctionDraws
from gpflow_sparse.posteriors.layer import LayerPosterior


class DrawnByLayer(SparsePosterior):
    """The part of :class:`~gpflow_sparse.posteriors.DeepPosterior` that draws functions."""

    layers: tuple[LayerPosterior, ...]

    def _draw_functions(
        self, num_samples: int, num_features: int, generator: np.random.Generator
    ) -> FunctionDraws:
        """One function of every layer for each draw, S times the time of one."""
        chains = [
            [layer.posterior._draw_functions(1, num_features, generator) for layer in self.layers]
            for _ in range(num_samples)
        ]
        return FunctionDraws([ComposedPaths(self.layers, chains)], None, self.input_dim)


class ComposedPaths(tf.Module):
    """``f_L(f_{L-1}(... f_1(x)))``, every draw with functions of its own in all layers."""

    def __init__(
        self, layers: Sequence[LayerPosterior], chains: Sequence[Sequence[FunctionDraws]]
    ) -> None:
        """
        :param layers: say which rows an input has: itself, or its patches.
        :param chains: for each draw one function per layer, first to last.
        """
        super().__init__()
        self._layers = tuple(layers)
        self._chains = tuple(tuple(chain) for chain in chains)

    @property
    def dtype(self) -> tf.DType:
        """Float type of X and of the values."""
        return self._chains[0][0].paths[0].dtype

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """``[S, N, P]`` at ``X [N, D]``."""
        return tf.stack([self._evaluate(chain, X) for chain in self._chains])

    def _evaluate(self, chain: Sequence[FunctionDraws], X: tf.Tensor) -> tf.Tensor:
        for layer, function in zip(self._layers, chain, strict=True):
            rows = layer.rows(X)  # [N, p, D']
            values = function(tf.reshape(rows, [-1, rows.shape[-1]]))[0]  # [N p, G]
            X = tf.reshape(values, [-1, layer.output_dim])
        return X
