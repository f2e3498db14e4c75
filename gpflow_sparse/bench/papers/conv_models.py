"""The models of the image tables, trained and scored."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from sklearn.model_selection import train_test_split

from gpflow_sparse.bench.papers.budget import TimedTraining
from gpflow_sparse.bench.papers.curves_runner import precision
from gpflow_sparse.bench.papers.spec import Record
from gpflow_sparse.bench.papers.timed_runner import train
from gpflow_sparse.data import Dataset, load, metrics
from gpflow_sparse.data.images import read_digits
from gpflow_sparse.models import ConvSpec, deep_convolutional
from gpflow_sparse.runs.evaluation import CachedModel, class_probabilities

_CHUNK = 256


def read(name: str, split: int) -> Dataset:
    """
    Standardized by channel.

    The digits are split anew, a fifth for testing, as often of each class as in the whole; of the
    others there is one split.
    """
    if name != "digits":
        return load(name, split).standardized(per_channel=True)
    X, Y, _ = read_digits()
    parts = train_test_split(X, Y, test_size=0.2, stratify=Y, random_state=split)
    train, test = (parts[0], parts[2]), (parts[1], parts[3])
    return dataclasses.replace(load(name), train=train, test=test).standardized(per_channel=True)


def fit_images(dataset: Dataset, plan: TimedTraining, options: Mapping[str, Any]) -> Record:
    """
    Train and score a row.

    :param dataset: from :func:`read`.
    :param options: of the row, see ``papers/conv.py``.
    """
    with precision(np.float32 if options["float32"] else np.float64):
        kind: Any = gpflow.default_float()
        data = tuple(part.astype(kind) for part in dataset.train)
        watched = tuple(part[: options["num_watched"]] for part in dataset.test)
        tf.random.set_seed(plan.seed)
        likelihood = gpflow.likelihoods.MultiClass(int(dataset.num_classes or 0))
        model = build(data[0], dataset.image_shape, likelihood, plan.seed, options["model"])
        results = train(
            model,
            (data[0], data[1]),
            plan,
            learning_rate=options["learning_rate"],
            batch_size=options["batch_size"],
            natural_gradients=options["natural_gradients"],
            score=lambda model: scores_of(CachedModel(model), *watched),
        )
        results["num_watched"] = len(watched[0])
        return results | scores_of(CachedModel(model), *dataset.test)


def build(
    X: np.ndarray,
    image_shape: Any,
    likelihood: gpflow.likelihoods.Likelihood,
    seed: int,
    options: Mapping[str, Any],
) -> gpflow.models.GPModel:
    """
    The model of a row at its start.

    :param X: training images, in the precision of the model.
    :param options: of :func:`gpflow_sparse.models.deep_convolutional`, as JSON has them.
    """
    specs = [ConvSpec(*spec) for spec in options["architecture"]]
    given = {**options, "architecture": specs, "seed": seed}
    return deep_convolutional(X, image_shape, likelihood, **given)


def scores_of(predictor: CachedModel, X: np.ndarray, Y: np.ndarray) -> dict[str, float]:
    """
    Accuracy in percent, NLPD and expected calibration error, from one pass over the images.

    :param X: standardized images.
    """
    kind: Any = gpflow.default_float()
    chunks = [X[i : i + _CHUNK].astype(kind) for i in range(0, len(X), _CHUNK)]
    parts = [predictor.predict_y(tf.constant(chunk))[0].numpy() for chunk in chunks]
    P = np.concatenate(parts).astype(np.float64)
    chosen = np.take_along_axis(P, Y.astype(int), axis=1)
    probabilities = class_probabilities(P, P.shape[1])
    return {
        "accuracy": 100.0 * (1.0 - float(metrics.error_rate(Y, probabilities))),
        "nlpd": float(-np.mean(np.log(chosen))),
        "ece": float(metrics.ece(Y, probabilities)),
    }
