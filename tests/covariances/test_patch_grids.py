"""Patches of images: where they are, in which order, and what is not a grid of patches."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.kernels import Convolutional
from tests.oracles import convolutional as oracle


def make_grid(image_shape, patch_shape, stride=1):
    kernel = gpflow.kernels.SquaredExponential()
    return Convolutional(kernel, image_shape, patch_shape, stride=stride).grid


GRIDS = {
    "plain": ((6, 6, 1), (3, 3), 1),
    "oblong": ((5, 8, 1), (2, 3), 1),
    "channels": ((6, 5, 3), (3, 2), 1),
    "stride": ((7, 9, 2), (3, 2), 2),
    "stride_leaves_a_rest": ((8, 6, 1), (3, 3), 3),
    "one_patch": ((4, 5, 2), (4, 5), 2),
    "pixels": ((3, 4, 2), (1, 1), 1),
}
every_grid = pytest.mark.parametrize("geometry", GRIDS.values(), ids=list(GRIDS))


def images(rng, geometry, count=3):
    return rng.normal(size=(count, int(np.prod(geometry[0]))))


@every_grid
def test_patches_are_those_of_the_oracle_and_of_tensorflow(rng, geometry):
    """Copies of pixels: equal to the last bit."""
    image_shape, (h, w), stride = geometry
    grid, X = make_grid(*geometry), images(rng, geometry)
    found = grid.patches(tf.constant(X)).numpy()
    np.testing.assert_array_equal(found, oracle.patches(X, image_shape, (h, w), stride))
    cut = tf.image.extract_patches(
        X.reshape(-1, *image_shape), [1, h, w, 1], [1, stride, stride, 1], [1, 1, 1, 1], "VALID"
    )
    np.testing.assert_array_equal(found, tf.reshape(cut, found.shape))
    assert cut.shape[1:3] == grid.shape
    assert found.shape == (3, grid.num_patches, grid.patch_length)
    assert grid.num_pixels == X.shape[1]


@every_grid
def test_locations_are_rows_and_columns_of_the_grid(geometry):
    """In steps of the grid, so that the first is (0, 0) and the last (H' - 1, W' - 1)."""
    grid = make_grid(*geometry)
    np.testing.assert_array_equal(grid.locations(), oracle.locations(*geometry))
    np.testing.assert_array_equal(grid.locations()[-1], np.subtract(grid.shape, 1))
    assert grid.locations().dtype == np.float64
