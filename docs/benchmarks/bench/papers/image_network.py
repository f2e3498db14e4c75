"""A small convolutional network with a fitted temperature, for comparison on images."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gpflow.keras import tf_keras
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from bench.papers.spec import Record
from gpflow_sparse.data import Dataset
from gpflow_sparse.data.images import ImageShape

# Most training rows that are held out, and their largest share.
MAX_HELD_OUT, SHARE_HELD_OUT = 1000, 0.1
# Largest logarithm of the temperature.
_MAX_LOG = 4.0
# Passes that no run with a limit of time reaches.
_MAX_EPOCHS = 1_000_000

Logits = Callable[[np.ndarray], np.ndarray]
"""Logits ``[N, C]`` of rows ``[N, H W C]``."""


def fit_network(
    options: Mapping[str, Any], dataset: Dataset, seconds: float | None, seed: int
) -> tuple[Logits, float, Record]:
    """
    Train until the log loss of held-out training rows has not fallen for some passes, or the time
    is over, and keep the weights with the lowest; fit the temperature to the same held-out rows.

    :param options: learning_rate, batch_size, and patience in passes.
    :param seconds: of training; None for no limit.
    :return: logits of the network, its temperature, and steps and times of the training.
    """
    tf_keras.utils.set_random_seed(seed)
    X, Y = dataset.train
    shape = dataset.image_shape or (1, 1, X.shape[1])
    order = np.random.default_rng(seed).permutation(len(X))
    count = min(MAX_HELD_OUT, int(SHARE_HELD_OUT * len(X)))
    held_out, rest = order[:count], order[count:]
    network = make_network(shape, int(dataset.num_classes or 0))
    rate = options["learning_rate"]
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(tf_keras.optimizers.Adam(rate), loss)
    best, begin = _BestWeights(seconds, options["patience"]), time.perf_counter()
    network.fit(
        as_images(X[rest], shape),
        Y[rest, 0],
        batch_size=options["batch_size"],
        epochs=_MAX_EPOCHS,
        validation_data=(as_images(X[held_out], shape), Y[held_out, 0]),
        callbacks=[best],
        verbose=0,
    )
    taken = time.perf_counter() - begin
    best.restore()

    def logits(X: np.ndarray) -> np.ndarray:
        found = network.predict(as_images(X, shape), batch_size=256, verbose=0)
        return np.asarray(found, dtype=np.float64)

    steps = int(network.optimizer.iterations.numpy())
    results: Record = {"steps": steps, "milliseconds_per_step": 1e3 * taken / steps}
    results |= {"training_seconds": taken, "num_held_out": count}
    temperature = fit_temperature(logits(X[held_out]), Y[held_out, 0].astype(int))
    return logits, temperature, results | {"temperature": temperature}


def make_network(shape: ImageShape, num_classes: int) -> tf_keras.Model:
    """Two convolutions of 3 x 3 pixels, 32 and 64 channels, and a dense layer of 128 units."""
    layers = tf_keras.layers
    parts: list[Any] = [layers.InputLayer(shape)]
    for channels in (32, 64):
        parts += [layers.Conv2D(channels, 3, padding="same", activation="relu")]
        parts += [layers.MaxPooling2D()]
    parts += [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(num_classes)]
    return tf_keras.Sequential(parts)


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """
    The T of at least 1 with the lowest log loss of ``softmax(logits / T)``. Guo, Pleiss, Sun and
    Weinberger, "On calibration of modern neural networks" (2017, arXiv:1706.04599), section 4.2.

    The bound is ours: if all held-out rows are recognized, their loss falls for T to 0.

    :param logits: of held-out rows ``[N, C]``.
    :param labels: integers ``[N]``.
    """

    def loss(log_temperature: float) -> float:
        scaled = log_softmax(logits / np.exp(log_temperature), axis=1)
        return -float(np.mean(scaled[np.arange(len(labels)), labels]))

    found = minimize_scalar(loss, bounds=(0.0, _MAX_LOG), method="bounded")
    # the search stays inside of its bounds
    return float(np.exp(found.x)) if found.fun < loss(0.0) else 1.0


def as_images(X: np.ndarray, shape: ImageShape) -> np.ndarray:
    """Rows ``[N, H W C]`` as single-precision images ``[N, H, W, C]``."""
    return X.reshape(-1, *shape).astype(np.float32)


class _BestWeights(tf_keras.callbacks.Callback):  # type: ignore[misc]
    """Keep the weights with the lowest held-out loss; stop after a time or without progress."""

    def __init__(self, seconds: float | None, patience: int) -> None:
        super().__init__()
        self._end = np.inf if seconds is None else time.perf_counter() + seconds
        self._patience, self._stale = patience, 0
        self._best = np.inf
        self._weights: list[np.ndarray] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if time.perf_counter() > self._end:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        loss = (logs or {})["val_loss"]
        self._stale += 1
        if loss < self._best:
            self._best, self._stale, self._weights = loss, 0, self.model.get_weights()
        if self._stale >= self._patience:
            self.model.stop_training = True

    def restore(self) -> None:
        """Give the network the best weights."""
        if self._weights:
            self.model.set_weights(self._weights)
