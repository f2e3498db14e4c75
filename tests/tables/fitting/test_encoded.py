"""Images as data: their shapes, and standardization by channel."""

import numpy as np
import pandas as pd
import pytest

import gpflow_sparse as gs
from gpflow_sparse.data.images import image_shape_of, shape_of_images
from gpflow_sparse.tables.fitting.encoded import encoded_rows


@pytest.mark.parametrize(
    ("columns", "shape"),
    [(64, (8, 8, 1)), (784, (28, 28, 1)), (3072, (32, 32, 3)), (1, (1, 1, 1)), (3, (1, 1, 3))],
)
def test_square_images_are_known_by_their_length(columns, shape):
    assert image_shape_of(columns) == shape


@pytest.mark.parametrize("columns", [2, 5, 8, 63, 300 * 2])
def test_other_lengths_are_no_square_image(columns):
    with pytest.raises(ValueError, match=f"image_shape is missing: {columns} columns"):
        image_shape_of(columns)


def test_images_without_channels_have_one():
    assert shape_of_images(np.zeros((5, 4, 3), dtype=np.uint8)) == (4, 3, 1)
    assert shape_of_images(np.zeros((5, 4, 3, 2), dtype=np.uint8)) == (4, 3, 2)


def test_channels_have_one_mean_and_one_scale_each(rng):
    images = rng.normal(size=(20, 4, 3, 2)) * [2.0, 5.0] + [1.0, -3.0]
    images[:, 0, 0] = 7.0  # a corner that never changes
    X = images.reshape(20, -1)
    scaler = gs.Standardizer.fit(X, num_channels=2)
    for c in range(2):
        mean, scale = images[..., c].mean(), images[..., c].std()
        np.testing.assert_allclose(scaler.x_mean.numpy()[c::2], mean, rtol=1e-12)
        np.testing.assert_allclose(scaler.x_scale.numpy()[c::2], scale, rtol=1e-12)
    found = scaler.transform_inputs(X).reshape(images.shape)
    np.testing.assert_allclose(found.mean(axis=(0, 1, 2)), 0.0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=(0, 1, 2)), 1.0, rtol=1e-12)
    # the same pixel is the same number wherever it is
    np.testing.assert_allclose(found[3, 1, 2] * scaler.x_scale.numpy()[:2], images[3, 1, 2] - [
        images[..., 0].mean(), images[..., 1].mean()
    ])  # fmt: skip
    one = gs.Standardizer.fit(X, X[:, :1], num_channels=1)
    np.testing.assert_allclose(one.x_mean, X.mean(), rtol=1e-12)
    np.testing.assert_allclose(one.y_mean, X[:, 0].mean(), rtol=1e-12)


@pytest.mark.parametrize(("channels", "words"), [(5, "divide the 24"), (0, "positive"), (48, "24")])
def test_channels_that_do_not_fit_are_refused(channels, words):
    with pytest.raises(ValueError, match=words):
        gs.Standardizer.fit(np.zeros((3, 24)), num_channels=channels)


def test_image_sets_know_their_shape_and_standardize_as_asked():
    digits = gs.data.load("digits")
    assert digits.image_shape == (8, 8, 1)
    X = digits.train[0]
    scaled = digits.standardized(per_channel=True)
    np.testing.assert_allclose(scaled.train[0], (X - X.mean()) / X.std(), atol=1e-12)
    by_column = digits.standardized().standardizer.x_mean
    np.testing.assert_allclose(by_column, X.mean(axis=0), rtol=1e-12)
    table = gs.data.load("robot_arm")
    assert table.image_shape is None
    with pytest.raises(ValueError, match="per_channel needs image_shape"):
        table.standardized(per_channel=True)


def test_colored_images_of_a_file_know_their_shape(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {f"x_{part}": rng.integers(256, size=(6, 5, 4, 3)) for part in ("train", "test")}
    labels = {f"y_{part}": np.arange(6) for part in ("train", "test")}
    np.savez(tmp_path / "tiny.npz", **{k: v.astype(np.uint8) for k, v in arrays.items()}, **labels)
    found = gs.data.load("tiny", root=tmp_path)
    assert found.image_shape == (5, 4, 3)
    assert found.standardized(per_channel=True).train[0].shape == (6, 60)


def test_images_are_standardized_by_channel_and_other_rows_by_column():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 27)) * np.tile([1.0, 2.0, 3.0], 9), np.arange(30)[:, None] % 3.0
    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(27)])

    def encoded(method, shape=None):
        options = {"image_shape": shape, "seed": 0}
        return encoded_rows(frame, y, method, options, labels="abc")[1]

    images = encoded("conv-solvegp")
    assert images.image_shape == (3, 3, 3)
    assert len(set(images.standardizer.x_scale.numpy().tolist())) == 3
    assert len(set(encoded("auto").standardizer.x_scale.numpy().tolist())) == 27
    np.testing.assert_array_equal(encoded("auto", "3,3,3").train[0], images.train[0])
    gray = encoded("conv-svgp", "3,9")
    assert gray.image_shape == (3, 9, 1)
    np.testing.assert_allclose(gray.in_original_units(gray.train)[0], X, atol=1e-12)
    with pytest.raises(ValueError, match="image_shape 4,9,1 has 36 values, but there are 27"):
        encoded("conv-svgp", "4,9")
