"""
Mean functions: offsets, fixed linear maps and trained filters of the hidden layers of deep models,
and boosted trees, also of the log odds of classes.
"""

import weakref
from collections.abc import Sequence
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

__all__ = [
    "BoostedTrees",
    "Offset",
    "RectifiedFilters",
    "TreeLogits",
    "identity_convolution",
    "pca",
]

restrict_dir(__name__, __all__)

# Weights of trained maps, as a fraction of the variables that the optimizer changes: Adam moves a
# variable by its rate in each step, and a rate that is right for q is a large part of a weight of a
# wide patch.
_STEP = 0.1
# Pairs of a row and a tree that are evaluated at once, about 100 MiB; and trees at once where the
# number of rows is unknown while tracing.
_PAIRS, _TREES = 2**22, 16
# The last inputs of each mean function of trees, at most so many, and the values there; this is no
# attribute of it, which files would hold.
_REMEMBERED = 2
_LAST: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class Offset(gpflow.functions.MeanFunction):
    """
    A column of X as it is, as the prior mean of every latent function: for counts the logarithm of
    the exposure, so that the log rate is ``f + log exposure``.

    The column is not standardized, and the kernel must not see it:
    ``Matern52(active_dims=[0, 1])`` for an offset in column 2. A sum such as ``Offset(2) +
    gpflow.functions.Constant()`` has a learned constant beside it.
    """

    def __init__(self, column: int) -> None:
        """
        :param column: of X, from 0.
        :raises ValueError: for a number that is not an integer of at least 0.
        """
        super().__init__()
        self.column = checks.require_whole(column, "column", "the number of a column of X")
        if self.column < 0:
            raise ValueError(f"column must be the number of a column of X, got {column!r}.")

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> tf.Tensor:
        columns = tf.convert_to_tensor(X).shape[-1]
        if columns is not None and self.column >= columns:
            raise ValueError(f"column of Offset is {self.column}, but X has {columns} column(s).")
        return tf.convert_to_tensor(X)[..., self.column : self.column + 1]


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


class BoostedTrees(gpflow.functions.MeanFunction):
    """
    A weighted average of fitted boosted trees, ``w / K sum_k f_k(x)``, as a fixed mean function of
    one output, or of one for each class.

    The trees are arrays of nodes, so that model files and exports hold them. Nothing is trained,
    and the gradient with respect to x is zero, as it is almost everywhere. A row goes left where
    ``x <= threshold``, compared in float64 as in scikit-learn. A call takes O(N T d) time for T
    trees of depth d: 0.2 s on a core for 10,000 rows, 200 trees and depth 8.
    """

    def __init__(
        self,
        column: Any,
        threshold: Any,
        left: Any,
        value: Any,
        num_trees: int,
        depth: int,
        weight: float = 1.0,
        num_outputs: int = 1,
    ) -> None:
        """
        Arrays have an entry for each node of all trees; the first nodes are the roots.

        :param column: of the inputs, compared at the node.
        :param threshold: at leaves infinity.
        :param left: the node below on the left, followed by the node on the right; at leaves the
            leaf itself.
        :param value: added to the sum at leaves.
        :param num_trees: T.
        :param depth: largest number of comparisons in a tree.
        :param weight: by which the values are multiplied already, kept for information.
        :param num_outputs: P; tree t adds to output t modulo P.
        """
        super().__init__()
        self.num_outputs = int(num_outputs)
        self.column, self.left = tf.constant(column, tf.int32), tf.constant(left, tf.int32)
        self.threshold, self.value = (tf.constant(v, tf.float64) for v in (threshold, value))
        self.num_trees, self.depth, self.weight = int(num_trees), int(depth), float(weight)

    @classmethod
    def from_scikit_learn(cls, models: Sequence[Any], weight: float = 1.0) -> "BoostedTrees":
        """
        The average of the predictions of models, multiplied by a weight; of classifiers that of
        their log odds, one column for two classes and one for each of more classes.

        :param models: fitted ``sklearn.ensemble.HistGradientBoostingRegressor`` of squared error,
            or ``HistGradientBoostingClassifier``, of columns of numbers; NaN among inputs is not
            expected.
        :raises ValueError: for models of another kind, or of different numbers of outputs.
        """
        trees = [tree for model in models for tree in _trees_of(model)]
        if not trees:
            raise ValueError("models must be fitted models with trees, got none.")
        start = np.sum(_starts_of(models), axis=0)  # [P]
        num_outputs = len(start)
        sizes = [len(tree) for tree in trees]
        first = np.cumsum([0, *sizes[:-1]])  # positions of the roots as they are stored
        nodes, shift = np.concatenate(trees), np.repeat(first, sizes)
        splits = np.flatnonzero(nodes["is_leaf"] == 0)
        place = np.empty(len(nodes), int)  # new positions: the roots, then pairs of children
        place[first] = np.arange(len(trees))
        pairs = len(trees) + 2 * np.arange(len(splits))
        place[(shift + nodes["left"])[splits]] = pairs
        place[(shift + nodes["right"])[splits]] = pairs + 1
        left, column, threshold = place.copy(), nodes["feature_idx"], np.full(len(nodes), np.inf)
        left[splits], threshold[splits] = pairs, nodes["num_threshold"][splits]
        output = np.repeat(np.arange(len(trees)) % num_outputs, sizes)
        value = nodes["value"] + start[output] * num_outputs / len(trees)
        value *= weight / len(models)
        order, depth = np.argsort(place), int(nodes["depth"].max())
        column, threshold, left, value = (p[order] for p in (column, threshold, left, value))
        return cls(column, threshold, left, value, len(trees), depth, weight, num_outputs)

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        if not tf.executing_eagerly():
            return self._evaluate(X)
        # every posterior of a model asks for the mean of the same training rows, and scores ask for
        # that of the same rows several times
        for inputs, values in _LAST.get(self, ()):
            if inputs.shape == X.shape and bool(tf.reduce_all(inputs == X)):
                return values
        values = self._evaluate(X)
        self.remember(X, values)
        return values

    def remember(self, X: tf.Tensor, values: tf.Tensor) -> None:
        """
        Keep values ``[N, 1]`` at inputs ``[N, D]``, for calls with equal inputs until calls with
        two other ones.
        """
        _LAST[self] = [(X, values), *_LAST.get(self, ())][:_REMEMBERED]

    def _evaluate(self, X: tf.Tensor) -> tf.Tensor:
        """The average at ``X [..., D]``: ``[..., P]``."""
        X = tf.stop_gradient(X)
        rows = tf.reshape(tf.cast(X, tf.float64), [-1, X.shape[-1]])  # [N, D]
        known = rows.shape[0]
        size = _TREES if known is None else max(1, _PAIRS // max(1, known))
        size = min(size // self.num_outputs or 1, self.num_trees // self.num_outputs)
        size *= self.num_outputs
        first = self.num_trees % size
        total = self._sum_of(rows, tf.constant(0), first)
        _, total = tf.while_loop(
            lambda start, total: start < self.num_trees,
            lambda start, total: (start + size, total + self._sum_of(rows, start, size)),
            (tf.constant(first), total),
            parallel_iterations=1,
        )
        shape = tf.concat([tf.shape(X)[:-1], [self.num_outputs]], axis=0)
        return tf.cast(tf.reshape(total, shape), X.dtype)

    def _sum_of(self, rows: tf.Tensor, start: tf.Tensor, count: int) -> tf.Tensor:
        """The sums of the values of some trees ``[N, P]`` for all rows ``[N, D]``."""
        node = tf.tile(start + tf.range(count)[None], [tf.shape(rows)[0], 1])  # [N, count]
        for _ in range(self.depth):
            x = tf.gather(rows, tf.gather(self.column, node), batch_dims=1)
            right = tf.cast(x > tf.gather(self.threshold, node), tf.int32)
            node = tf.gather(self.left, node) + right
        shape = [tf.shape(rows)[0], count // self.num_outputs, self.num_outputs]
        return tf.reduce_sum(tf.reshape(tf.gather(self.value, node), shape), axis=1)


class TreeLogits(gpflow.functions.MeanFunction):
    """
    Log odds of classes by boosted trees, ``s g(x) + c``, as the prior mean of latent functions: a
    GP of this mean whose variance is 0 has the probabilities of the trees, calibrated by s and c.

    The scale s and the constants c are hyperparameters; the trees g are fixed. Log odds of trees
    that were fitted to the label of a row are too certain for training. An input that equals one of
    the ``rows`` therefore has the log odds given for it, which other trees predict; every other
    input has the log odds of all trees. Inputs are compared as numbers of 32 bits, since a change
    of units and back changes last bits of 64, by a hash, in O(log n) time.
    """

    def __init__(self, trees: BoostedTrees, rows: Any, logits: Any) -> None:
        """
        :param trees: g, of P outputs.
        :param rows: training rows ``[n, D]``.
        :param logits: of these rows by trees that were fitted to others ``[n, P]``; equal rows have
            their average.
        :raises ValueError: for arrays that do not fit each other or the trees.
        """
        super().__init__()
        inputs = checks.require_matrix(rows, "rows", dtype=gpflow.default_float())
        values = np.asarray(checks.require_matrix(logits, "logits"), np.float64)
        if values.shape != (inputs.shape[0], trees.num_outputs):
            raise ValueError(
                f"logits must be [{inputs.shape[0]}, {trees.num_outputs}], one row for each of "
                f"rows and one column for each output of the trees; got {list(values.shape)}."
            )
        keys, of_row = np.unique(_row_keys(inputs), return_inverse=True)
        means = np.zeros((len(keys), values.shape[1]))
        np.add.at(means, of_row, values)
        self.trees = trees
        self.keys = tf.constant(keys)
        self.logits = tf.constant(means / np.bincount(of_row)[:, None])  # [., P]
        self.scale = gpflow.Parameter(1.0, transform=gpflow.utilities.positive())
        self.constant = gpflow.Parameter(np.zeros(values.shape[1]))

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        rows = tf.stop_gradient(tf.reshape(X, [-1, X.shape[-1]]))
        keys = _row_keys(rows)
        place = tf.minimum(tf.searchsorted(self.keys, keys), len(self.keys) - 1)
        is_known = tf.gather(self.keys, place) == keys
        known = tf.cast(tf.gather(self.logits, place), X.dtype)
        found = tf.cond(
            tf.reduce_all(is_known),
            lambda: known,
            lambda: tf.where(is_known[:, None], known, self.trees(rows)),
        )
        shape = tf.concat([tf.shape(X)[:-1], [self.trees.num_outputs]], axis=0)
        return tf.reshape(self.scale * found + self.constant, shape)


def _row_keys(rows: tf.Tensor) -> tf.Tensor:
    """A hash of each row ``[N, D]`` in float32: int64 ``[N]``, equal on every processor."""
    values = tf.cast(tf.cast(rows, tf.float32), tf.float64)
    values = tf.where(values == 0.0, tf.zeros_like(values), values)  # -0.0 becomes 0.0
    bits = tf.bitcast(values, tf.int64)
    bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, tf.constant(32, tf.int64)))
    factors = np.random.RandomState(0).randint(-(2**62), 2**62, size=rows.shape[-1], dtype=np.int64)
    mixed = bits * tf.constant(2 * factors + 1)  # modulo 2^64
    mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, tf.constant(29, tf.int64)))
    return tf.reduce_sum(mixed * tf.constant(0x2545F4914F6CDD1D, tf.int64), axis=-1)


def _trees_of(model: Any) -> list[np.ndarray]:
    """
    The nodes of every tree of a model, as scikit-learn stores them, iteration by iteration.

    :raises ValueError: for a model of another kind, or with categories.
    """
    stored = getattr(model, "_predictors", None)
    is_known = getattr(model, "loss", None) in ("squared_error", "log_loss")
    if not stored or not is_known or getattr(model, "is_categorical_", None) is not None:
        raise ValueError(
            "models must be fitted HistGradientBoostingRegressor of squared error or "
            f"HistGradientBoostingClassifier, without categorical columns, got "
            f"{type(model).__name__}."
        )
    return [tree.nodes for trees in stored for tree in trees]


def _starts_of(models: Sequence[Any]) -> list[np.ndarray]:
    """
    The constants ``[P]`` to which the trees of each model add.

    :raises ValueError: for models of different losses or numbers of outputs.
    """
    starts = [np.ravel(model._baseline_prediction).astype(np.float64) for model in models]
    kinds = sorted({(model.loss, len(start)) for model, start in zip(models, starts, strict=True)})
    if len(kinds) > 1:
        raise ValueError(f"models must have one loss and number of outputs, got {kinds}.")
    return starts


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
