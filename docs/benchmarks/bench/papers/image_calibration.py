"""Calibration on images: convolutional GPs beside a network, with images that are none of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from scipy.integrate import trapezoid
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.metrics import log_loss, roc_auc_score

from bench.papers.image_network import fit_network
from bench.papers.models import image_model, training_rows
from bench.papers.spec import Record
from bench.papers.training import Budget, Cosine, Monitor, train
from gpflow_sparse.data import Dataset, load, metrics
from gpflow_sparse.data.images import ImageShape
from gpflow_sparse.tables.methods.cached_model import CachedModel

FRACTIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Fractions of the test rows that are kept, of the rejection curves."""

Predict = Callable[[np.ndarray], np.ndarray]
"""Probabilities ``[N, C]`` of standardized images ``[N, H W C]``."""

# Rows that are predicted together, and images of another data set.
_CHUNK, _OTHERS = 256, 500


def fit_calibrated(options: Mapping[str, Any], dataset: Dataset, budget: Budget) -> Record:
    """
    A row of the table: train for the time of the budget, and score the test rows.

    :param options: ``model``, "network" or arguments of ``deep_convolutional``; ``likelihood`` of
        the latter, "softmax" or "robust_max"; ``rotated``, the labels whose images are shown
        rotated; ``other``, the data set of images of no class.
    """
    strange = unknown_images(dataset, options)
    if options["model"] == "network":
        logits, T, results = fit_network(options, dataset, budget.seconds, budget.seed)
        raw = image_scores(lambda X: softmax(logits(X), axis=1), dataset, strange)
        scaled = image_scores(lambda X: softmax(logits(X) / T, axis=1), dataset, strange)
        return results | scaled | {"also": [{"title": "the same, temperature 1", **raw}]}
    with training_rows(dataset, budget.seed, options["float32"]) as (X, Y):
        model = image_model(options, dataset, X, budget.seed)
        monitor = Monitor(budget)
        rate = Cosine(options["learning_rate"], monitor, warm_up=20)
        results = train(model, (X, Y), monitor, tf_keras.optimizers.Adam(rate), options)
        return results | image_scores(probabilities(model), dataset, strange)


def probabilities(model: gpflow.models.GPModel) -> Predict:
    """The class probabilities of a model, chunk by chunk, from one cached posterior."""
    predict, kind = CachedModel(model).compiled("predict_y"), gpflow.default_float()

    def of_images(X: np.ndarray) -> np.ndarray:
        # chunks of one size, which are traced once: the last one ends with copies of rows
        whole: np.ndarray = np.resize(X.astype(kind), (-(-len(X) // _CHUNK) * _CHUNK, X.shape[1]))
        chunks = np.split(whole, len(whole) // _CHUNK)
        found = [np.asarray(predict(tf.constant(chunk))[0], np.float64) for chunk in chunks]
        P = np.concatenate(found)[: len(X)]
        return P / P.sum(axis=1, keepdims=True)  # of robust-max the sum is 1 to about 1e-4

    return of_images


def unknown_images(
    dataset: Dataset, options: Mapping[str, Any]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """
    Images that are not as those of training, each kind with the test images beside them.

    "rotated": test images of some labels, turned by 90 degrees, and the same upright. "other":
    images of the data set ``options["other"]`` and all test images, where it can be had.
    """
    X, Y = dataset.test
    shape = dataset.image_shape or (1, 1, X.shape[1])
    upright = X[np.isin(Y[:, 0], options["rotated"])]
    found = {"rotated": (quarter_turn(upright, shape), upright)}
    try:
        other = load(options["other"])
    except ValueError:  # no local file, and no download of this name
        return found
    own = dataset.in_original_units(dataset.test)[0]
    lowest, highest = own.min(), own.max()
    pixels = as_shape(other.test[0][:_OTHERS], other.image_shape or shape, shape)
    pixels = lowest + (highest - lowest) * pixels / 255.0
    return found | {"other": (dataset.scaler.transform_inputs(pixels), X)}


def quarter_turn(X: np.ndarray, shape: ImageShape) -> np.ndarray:
    """Square images ``[N, H W C]``, turned by 90 degrees counterclockwise."""
    return np.rot90(X.reshape(-1, *shape), axes=(1, 2)).reshape(len(X), -1)


def as_shape(X: np.ndarray, shape: ImageShape, wanted: ImageShape) -> np.ndarray:
    """Images averaged or interpolated to another size, and to gray or three equal channels."""
    gray = X.reshape(-1, *shape).mean(axis=3, keepdims=True)
    resized = np.asarray(tf.image.resize(gray, wanted[:2], method="area"), dtype=np.float64)
    return np.repeat(resized, wanted[2], axis=3).reshape(len(X), -1)


def image_scores(
    predict: Predict,
    dataset: Dataset,
    strange: Mapping[str, tuple[np.ndarray, np.ndarray]],
    fractions: Sequence[float] = FRACTIONS,
) -> Record:
    """
    Scores of the test rows; accuracies and the area under the rejection curve are in percent.

    :param strange: see :func:`unknown_images`; ``auroc_KIND`` is the area under the ROC curve by
        which ``1 - max p`` tells these images from the test images beside them,
        ``auroc_entropy_KIND`` that of the entropy of p, ``entropy_KIND`` its mean, in nats.
    """
    X, Y = dataset.test
    P, labels = predict(X), Y[:, 0].astype(int)
    kept = 100.0 * metrics.rejection_curve(labels, P, np.array(fractions))
    bins = metrics.reliability(labels, P)
    filled = bins.num_points > 0
    scores: Record = {
        "accuracy": 100.0 * (1.0 - metrics.error_rate(labels, P)),
        "nlpd": float(log_loss(labels, P, labels=range(P.shape[1]))),
        "ece": metrics.ece(labels, P),
        "brier": metrics.brier(labels, P),
        "kept": kept.tolist(),
        "kept_area": float(trapezoid(kept, fractions) / (fractions[-1] - fractions[0])),
        "reliability": [part[filled].tolist() for part in bins],
        "entropy_test": float(np.mean(entropy(P, axis=1))),
    }
    for kind, pair in strange.items():
        scores |= _told_apart(kind, *map(predict, pair))
    return scores


def _told_apart(kind: str, strange: np.ndarray, known: np.ndarray) -> Record:
    """Scores of two sets of probabilities ``[N, C]``."""
    both = np.concatenate([strange, known])
    is_strange = np.arange(len(both)) < len(strange)
    spread = entropy(both, axis=1)
    return {
        f"auroc_{kind}": float(roc_auc_score(is_strange, -both.max(axis=1))),
        f"auroc_entropy_{kind}": float(roc_auc_score(is_strange, spread)),
        f"entropy_{kind}": float(spread[is_strange].mean()),
        f"entropy_beside_{kind}": float(spread[~is_strange].mean()),
    }
