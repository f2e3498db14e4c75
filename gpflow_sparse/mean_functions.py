"""Mean functions of the hidden layers of deep models: fixed linear maps, and trained filters."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType
from gpflow.functions import Linear

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.covariances.patch_grids import require_sizes
from gpflow_sparse.validation import checks

__all__ = ["RectifiedFilters", "identity_convolution", "pca"]

restrict_dir(__name__, __all__)

# Weights of trained maps, as a fraction of the variables that the optimizer changes: Adam moves a
# variable by its rate in each step, and a rate that is right for q is a large part of a weight of a
# wide patch.
_STEP = 0.1


class RectifiedFilters(Linear):
    """
    ``max(0, x A + b)`` of each row or patch x: the filters of a convolution, and a rectifier.

    A and b are hyperparameters: the optimizer trains them with the others, and they have no KL
    term. In steps of Adam of rate r they move by 0.1 r.
    """

    def __init__(self, weights: Any) -> None:
        """
        :param weights: starting values of A, ``[D, G]``, or ``[h w C, G]`` for patches of C
            channels; b starts at 0.
        :raises ValueError: for weights that are not a finite matrix.
        """
        values = checks.require_matrix(weights, "weights")
        A: np.ndarray = np.asarray(values, dtype=gpflow.default_float())
        step = tfp.bijectors.Scale(A.dtype.type(_STEP))
        starts = A, np.zeros(A.shape[1], A.dtype)
        super().__init__(*(gpflow.Parameter(value, transform=step) for value in starts))

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> tf.Tensor:
        return tf.nn.relu(super().__call__(X))


def identity_convolution(patch_shape: Any, num_channels: int, num_outputs: int) -> Linear:
    """
    The center pixel of each patch: channel g becomes output g, outputs beyond the channels are 0.

    :param patch_shape: ``(h, w)``; for even sizes the pixel below and right of the center is taken.
    :param num_channels: C, channels of the image.
    :param num_outputs: G.
    :return: a function of patch rows ``[..., h w C]`` that returns ``[..., G]``, not trainable.
    :raises ValueError: for sizes that are not positive integers.
    """
    h, w = require_sizes(patch_shape, "patch_shape", (2,))
    C = checks.require_count(num_channels, "num_channels")
    G = checks.require_count(num_outputs, "num_outputs")
    A = np.zeros((h, w, C, G))
    A[h // 2, w // 2] = np.eye(C, G)
    return _fixed(A.reshape(-1, G))


def pca(X: Any, num_outputs: int) -> Linear:
    """
    The mean function of a hidden layer of Salimbeni and Deisenroth, "Doubly Stochastic Variational
    Inference for Deep Gaussian Processes" (2017, arXiv:1705.08933): the identity; with
    fewer outputs than inputs the leading principal directions, with more the inputs and zeros.

    :param X: ``[N, D]``, inputs of the layer, of mean about zero: the map has no constant.
    :param num_outputs: G.
    :return: a function of ``[..., D]`` that returns ``[..., G]``, not trainable.
    :raises ValueError: for inputs that are not a finite matrix.
    """
    tensor = checks.require_matrix(X, "X")
    G = checks.require_count(num_outputs, "num_outputs")
    D = int(tensor.shape[1])
    if G >= D:
        return _fixed(np.eye(D, G))
    rows = np.asarray(tensor, dtype=np.float64)
    if len(rows) < G:
        raise ValueError(f"X must have at least {G} rows for {G} directions, got {len(rows)}.")
    directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:G]
    # the sign is arbitrary; fixed, so that equal data give equal maps on any machine
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    return _fixed((directions * np.sign(largest)).T)


def _fixed(A: np.ndarray) -> Linear:
    function = Linear(A.astype(gpflow.default_float()), np.zeros(1))
    gpflow.set_trainable(function, False)
    return function
