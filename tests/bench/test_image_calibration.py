"""Calibration on images: scores by naive NumPy, turned images, the temperature of a network."""

import json

import numpy as np
from scipy.special import log_softmax, softmax

from bench.papers import image_calibration as images
from bench.papers import image_network
from tests.tables.methods.test_conv_images import make_dataset


def auroc(strange, known):
    """The share of pairs in which the strange one has the larger score; ties count half."""
    pairs = [(s > k) + 0.5 * (s == k) for s in strange for k in known]
    return np.mean(pairs)


def entropies(P):
    return np.array([-sum(p * np.log(p) for p in row) for row in P])


def test_scores_are_those_of_naive_numpy():
    dataset, rng = make_dataset(), np.random.default_rng(1)
    W = rng.normal(size=(36, 3))
    X, labels = dataset.test[0], dataset.test[1][:, 0].astype(int)

    def predict(X):
        return softmax(0.3 * X @ W, axis=1)

    others = rng.normal(size=(7, 36))
    found = images.image_scores(predict, dataset, {"other": (others, X)}, (0.5, 0.8, 1.0))
    P, Q = predict(X), predict(others)
    order = np.argsort(-P.max(axis=1))
    right = (P.argmax(axis=1) == labels)[order]
    kept = [100.0 * right[:n].mean() for n in (5, 8, 10)]
    np.testing.assert_allclose(found["accuracy"], 100.0 * right.mean())
    np.testing.assert_allclose(found["kept"], kept)
    area = (0.3 * (kept[0] + kept[1]) / 2.0 + 0.2 * (kept[1] + kept[2]) / 2.0) / 0.5
    np.testing.assert_allclose(found["kept_area"], area)
    np.testing.assert_allclose(found["nlpd"], -np.mean(np.log(P[np.arange(10), labels])))
    np.testing.assert_allclose(found["brier"], np.mean(((P - np.eye(3)[labels]) ** 2).sum(axis=1)))
    np.testing.assert_allclose(found["entropy_other"], entropies(Q).mean())
    np.testing.assert_allclose(found["entropy_beside_other"], entropies(P).mean())
    np.testing.assert_allclose(found["entropy_test"], entropies(P).mean())
    by_hand = auroc(1.0 - Q.max(axis=1), 1.0 - P.max(axis=1))
    np.testing.assert_allclose(found["auroc_other"], by_hand)
    np.testing.assert_allclose(found["auroc_entropy_other"], auroc(entropies(Q), entropies(P)))
    assert 0.0 < by_hand < 1.0
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_images_are_turned_with_their_channels():
    X = np.array([[[1, 10], [2, 20]], [[3, 30], [4, 40]]], dtype=float).reshape(1, 8)
    turned = images.quarter_turn(X, (2, 2, 2)).reshape(2, 2, 2)
    np.testing.assert_array_equal(turned[..., 0], [[2, 4], [1, 3]])
    np.testing.assert_array_equal(turned[..., 1], [[20, 40], [10, 30]])
    again = X
    for _ in range(4):
        again = images.quarter_turn(again, (2, 2, 2))
    np.testing.assert_array_equal(again, X)


def test_images_of_other_data_are_averaged_to_size_and_gray():
    X = np.arange(2 * 4 * 4 * 3, dtype=float).reshape(2, -1)
    found = images.as_shape(X, (4, 4, 3), (2, 2, 1)).reshape(2, 2, 2)
    cubes = X.reshape(2, 2, 2, 2, 2, 3)  # image, row, within, column, within, channel
    np.testing.assert_allclose(found, cubes.mean(axis=(2, 4, 5)), rtol=1e-6)
    colored = images.as_shape(X, (4, 4, 3), (2, 2, 3)).reshape(2, 2, 2, 3)
    np.testing.assert_allclose(colored, np.repeat(found[..., None], 3, axis=3), rtol=1e-12)


def test_the_temperature_has_the_lowest_log_loss(rng):
    logits, labels = 3.0 * rng.normal(size=(300, 4)), rng.integers(4, size=300)
    logits[np.arange(300), labels] += 3.0

    def loss(T):
        return -np.mean(log_softmax(logits / T, axis=1)[np.arange(300), labels])

    T = image_network.fit_temperature(logits, labels)
    grid = np.exp(np.linspace(0.0, 4.0, 2001))
    np.testing.assert_allclose(T, grid[np.argmin([loss(t) for t in grid])], rtol=3e-3)
    assert loss(T) <= min(loss(t) for t in grid) + 1e-9
    np.testing.assert_allclose(image_network.fit_temperature(3.0 * logits, labels), 3.0 * T, 1e-3)
    # the loss of rows that are all recognized falls for T to 0
    certain = 5.0 * np.eye(4)[labels]
    assert image_network.fit_temperature(certain, labels) == 1.0
    assert T > 2.0
