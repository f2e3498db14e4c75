"""Fixed linear maps on rows, on images and on data with known directions; boosted trees."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import gpflow_sparse as gs
from gpflow_sparse.mean_functions import (
    BoostedTrees,
    RectifiedFilters,
    TreeLogits,
    identity_convolution,
    pca,
)
from tests.oracles import convolutional as oracle


@pytest.mark.parametrize(
    ("patch_shape", "center"),
    [((3, 3), (1, 1)), ((5, 3), (2, 1)), ((1, 1), (0, 0)), ((2, 4), (1, 2))],
)
@pytest.mark.parametrize(("C", "G"), [(1, 1), (3, 3), (3, 2), (2, 4)])
def test_identity_convolution_takes_the_center_of_each_patch(rng, patch_shape, center, C, G):
    """Of channel g alone, where the authors' code copies every channel to every output."""
    function = identity_convolution(patch_shape, C, G)
    image_shape = (6, 7, C)
    X = rng.normal(size=(2, 6 * 7 * C))
    found = function(oracle.patches(X, image_shape, patch_shape))
    rows, columns = oracle.grid_shape(image_shape, patch_shape)
    images = X.reshape(2, *image_shape)
    (i, j), expected = center, np.zeros((2, rows, columns, G))
    for g in range(min(C, G)):
        expected[..., g] = images[:, i : i + rows, j : j + columns, g]
    np.testing.assert_array_equal(found, expected.reshape(2, rows * columns, G))
    assert not function.trainable_variables


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_fewer_outputs_are_the_directions_of_most_variance(rng, offset):
    """Eigenvectors of the covariance, by descending eigenvalue, whatever the mean."""
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    X = (rng.normal(size=(50, 4)) * [3.0, 0.1, 1.0, 0.3]) @ rotation + offset
    values, vectors = np.linalg.eigh(np.cov(X.T))
    for G in (1, 2, 3):
        function = pca(X, G)
        A = np.asarray(function.A)
        np.testing.assert_allclose(A.T @ A, np.eye(G), atol=1e-12)
        top = vectors[:, ::-1][:, :G]
        np.testing.assert_allclose(np.abs(np.sum(A * top, axis=0)), 1.0, atol=1e-10)
        largest = A[np.abs(A).argmax(axis=0), np.arange(G)]
        assert np.all(largest > 0.0)  # the signs are those of every machine
        spread = np.cov(np.asarray(function(X)).T).reshape(G, G)
        np.testing.assert_allclose(np.diag(spread), values[::-1][:G], rtol=1e-10)
        np.testing.assert_allclose(spread, np.diag(np.diag(spread)), atol=1e-9)
        np.testing.assert_allclose(function(np.zeros((1, 4))), np.zeros((1, G)))  # no constant


def test_rectified_filters_move_in_steps_of_a_tenth(rng):
    """A step of gradient descent of rate 1 changes the weights by 1 / 100 of their gradient."""
    A, X = rng.normal(size=(4, 2)), rng.normal(size=(9, 4))
    function = RectifiedFilters(A)
    np.testing.assert_allclose(function(X), np.maximum(0.0, X @ A), rtol=1e-12)
    weights, shift = function.A.unconstrained_variable, function.b.unconstrained_variable
    assert {id(v) for v in function.trainable_variables} == {id(weights), id(shift)}
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(function(X))
    slopes = tape.gradient(total, [weights, shift])
    for variable, slope in zip((weights, shift), slopes, strict=True):
        variable.assign_add(slope)
    above = (X @ A > 0.0).astype(float)  # [N, G]
    np.testing.assert_allclose(function.A, A + 0.01 * X.T @ above, rtol=1e-10)
    np.testing.assert_allclose(function.b, 0.01 * above.sum(axis=0), rtol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: identity_convolution((3, 0), 1, 1), "patch_shape"),
        (lambda: RectifiedFilters(np.ones(3)), "weights"),
        (lambda: RectifiedFilters(np.full((3, 2), np.nan)), "weights"),
        (lambda: pca(np.ones((3, 6)), 4), "X must have at least 4 rows for 4 directions, got 3"),
    ],
)
def test_what_gives_no_map_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.fixture(scope="module")
def boosted():
    """Models whose thresholds are values of rows, rows, and the average of their predictions."""
    rng = np.random.default_rng(3)
    X = np.round(rng.normal(size=(900, 3)), 1)  # 0.1 is not a sum of powers of two
    y = 3.0 + np.sin(3 * X[:, 0]) + (X[:, 1] > 0.2) + 0.1 * rng.normal(size=900)
    sizes = {"max_iter": 7, "max_leaf_nodes": 9}
    models = [HistGradientBoostingRegressor(**sizes).fit(X[i:], y[i:]) for i in (0, 200)]
    thresholds = np.concatenate(
        [t[0].nodes["num_threshold"] for m in models for t in m._predictors]
    )
    X = np.concatenate([X, thresholds[:, None] + [[0.0, 0.0, 0.0]], [[-99.0, 99.0, 0.0]]])
    return models, X, np.mean([model.predict(X) for model in models], axis=0)[:, None]


def test_trees_are_those_of_scikit_learn(boosted, monkeypatch):
    """At thresholds too, with and without blocks of trees, compiled, and with leading axes."""
    models, X, expected = boosted
    trees = BoostedTrees.from_scikit_learn(models)
    np.testing.assert_allclose(trees(X), expected, rtol=1e-12)
    halves = BoostedTrees.from_scikit_learn(models[:1], weight=0.5)
    np.testing.assert_allclose(halves(X)[:, 0], 0.5 * models[0].predict(X), rtol=1e-12)
    for shape in ([None, 3], list(X.shape)):
        traced = tf.function(lambda X: trees(X), input_signature=[tf.TensorSpec(shape, tf.float64)])
        np.testing.assert_allclose(traced(X), expected, rtol=1e-12)
    monkeypatch.setattr("gpflow_sparse.mean_functions._PAIRS", 4 * len(X))  # 14 trees: 2 + 3 * 4
    again = BoostedTrees.from_scikit_learn(models)  # which remembers no values
    np.testing.assert_allclose(again(X), expected, rtol=1e-12)
    assert trees(X[:6].reshape(2, 3, 3)).shape == (2, 3, 1)
    assert not trees.trainable_variables


def test_values_of_trees_are_remembered_for_equal_inputs_alone(rng, monkeypatch):
    X, others, third = rng.normal(size=(3, 200, 2))
    model = HistGradientBoostingRegressor(max_iter=5).fit(X, X[:, 0])
    trees = BoostedTrees.from_scikit_learn([model])
    for rows in (X, others, third):
        np.testing.assert_allclose(trees(rows)[:, 0], model.predict(rows), rtol=1e-9, atol=1e-9)
    known = trees(others)
    monkeypatch.setattr(BoostedTrees, "_evaluate", None)
    assert trees(others.copy()) is known
    with pytest.raises(TypeError):
        trees(X)  # two inputs are remembered


def test_other_models_than_boosted_trees_of_squared_error_are_refused(boosted):
    models, X, _ = boosted
    absolute = HistGradientBoostingRegressor(loss="absolute_error", max_iter=2).fit(X, X[:, 0])
    groups = HistGradientBoostingRegressor(categorical_features=[0], max_iter=2)
    groups.fit(np.floor(np.abs(X)), X[:, 0])
    for wrong in (absolute, groups, HistGradientBoostingRegressor(), "trees"):
        with pytest.raises(ValueError, match="models must be fitted HistGradientBoostingRegressor"):
            BoostedTrees.from_scikit_learn([models[0], wrong])
    with pytest.raises(ValueError, match="got none"):
        BoostedTrees.from_scikit_learn([])
    labels = HistGradientBoostingClassifier(max_iter=2).fit(X, X[:, 0] > 0.0)
    with pytest.raises(ValueError, match=r"one loss and number of outputs, got .*log_loss"):
        BoostedTrees.from_scikit_learn([models[0], labels])


@pytest.fixture(scope="module", params=[2, 3])
def classifiers(request):
    """Classifiers, rows, and the average log odds of these ``[N, P]``."""
    rng = np.random.default_rng(4)
    X = np.round(rng.normal(size=(600, 3)), 1)
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=600), [0.0, 0.8][: request.param - 1])
    models = [
        HistGradientBoostingClassifier(max_iter=count, max_leaf_nodes=5).fit(X[i:], y[i:])
        for i, count in ((0, 5), (200, 3))
    ]
    logits = np.mean([model.decision_function(X) for model in models], axis=0)
    return models, X, logits.reshape(len(X), -1)


def test_rows_that_are_known_have_the_log_odds_that_were_given(classifiers):
    """Equal rows their average, -0.0 as 0.0; in a graph, and beside inputs that are not known."""
    models, X, logits = classifiers
    trees, rng = BoostedTrees.from_scikit_learn(models), np.random.default_rng(0)
    rows, of_row = np.unique(X, axis=0, return_inverse=True)
    given = rng.normal(size=logits.shape)
    function = TreeLogits(trees, X, given)
    function.scale.assign(0.7)
    function.constant.assign(np.arange(1.0, 1.0 + logits.shape[1]))
    means = np.stack([given[of_row.ravel() == i].mean(axis=0) for i in range(len(rows))])
    expected = 0.7 * means + function.constant.numpy()
    negative = np.where(rows == 0.0, -0.0, rows)
    for call in (function, tf.function(lambda X: function(X))):
        np.testing.assert_allclose(call(tf.constant(negative)), expected, rtol=1e-12)
        mixed = np.concatenate([rows[:5], rows[:5] + 0.03])
        others = 0.7 * trees(mixed[5:]) + function.constant
        np.testing.assert_allclose(call(tf.constant(mixed))[:5], expected[:5], rtol=1e-12)
        np.testing.assert_allclose(call(tf.constant(mixed))[5:], others, rtol=1e-12)
    assert function(rows[:6].reshape(2, 3, 3)).shape == (2, 3, logits.shape[1])
    assert len(function.trainable_variables) == 2


def test_a_model_with_log_odds_of_trees_is_saved_and_exported(classifiers, tmp_path):
    models, X, logits = classifiers
    trees, new = BoostedTrees.from_scikit_learn(models), X[:50] + 0.03
    count = logits.shape[1]
    likelihood = gs.likelihoods.Softmax(count) if count > 1 else gs.likelihoods.BernoulliLogit()
    model = gpflow.models.SVGP(
        gpflow.kernels.Matern32(),
        likelihood,
        X[:4],
        mean_function=TreeLogits(trees, X, logits + 1.0),
        num_latent_gps=count,
    )
    model.mean_function.scale.assign(1.5)
    np.testing.assert_allclose(model.predict_f(new)[0], 1.5 * trees(new), rtol=1e-10, atol=1e-12)
    known = np.unique(X, axis=0)
    gs.save(model, tmp_path / "model")
    loaded = gs.load(tmp_path / "model")
    gs.export(model, tmp_path / "export")
    exported = tf.saved_model.load(str(tmp_path / "export"))
    for rows in (new, known):
        expected = model.predict_f(rows)[0]
        np.testing.assert_array_equal(loaded.predict_f(rows)[0], expected)
        np.testing.assert_allclose(exported.predict_f(tf.constant(rows))[0], expected, rtol=1e-12)


def test_log_odds_of_another_shape_are_refused(classifiers):
    models, X, logits = classifiers
    trees = BoostedTrees.from_scikit_learn(models)
    with pytest.raises(ValueError, match=r"logits must be \[600, .\], one row for each of rows"):
        TreeLogits(trees, X, logits[:5])
