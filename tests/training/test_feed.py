"""Where training rows come from: fair batches, and sources that do not fit."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.training.feed import RowBatches, open_feed
from gpflow_sparse.validation import checks


def pairs(N=10):
    return np.arange(2.0 * N).reshape(N, 2), np.arange(float(N))[:, None]


def mapped(tmp_path, name, values):
    file = np.memmap(tmp_path / name, dtype=values.dtype, mode="w+", shape=values.shape)
    file[:] = values
    return file


def batches(feed, count):
    return [feed.lookup(*feed.at(step)) for step in range(count)]


def rows_of(num_rows, size, seed, count):
    batch = RowBatches(num_rows, size, seed)
    return [batch(step) for step in range(count)]


def test_every_epoch_is_a_permutation_of_its_own():
    rows = np.concatenate(rows_of(9, 3, 0, 6)).reshape(2, 9)
    np.testing.assert_array_equal(np.sort(rows, axis=1), [range(9)] * 2)
    assert (rows[0] != rows[1]).any()
    assert (rows[0] != np.arange(9)).any()


def test_every_source_goes_back_and_ahead(tmp_path):
    X, Y = pairs()
    sources = [
        ((X, Y), 4),
        ((mapped(tmp_path, "X", X), mapped(tmp_path, "Y", Y)), 4),
        (tf.data.Dataset.from_tensor_slices((X, Y)).batch(4), None),
    ]
    for source, size in sources:
        feed = open_feed(source, size, 0, checks.require_data)
        expected = [y.numpy() for _, y in batches(feed, 8)]
        for step in (7, 2, 3, 3, 6, 0):
            np.testing.assert_array_equal(feed.lookup(*feed.at(step))[1], expected[step])


def test_memory_mapped_arrays_give_the_batches_of_arrays_row_for_row(tmp_path):
    X, Y = pairs()
    data = mapped(tmp_path, "X", X.astype(np.float32)), mapped(tmp_path, "Y", Y)
    feed = open_feed(data, 4, 3, checks.require_data)
    assert (feed.num_rows, feed.batch_size) == (10, 4)
    plain = open_feed((X, Y), 4, 3, checks.require_data)
    for (x, y), (_, expected) in zip(batches(feed, 5), batches(plain, 5), strict=True):
        assert x.dtype == tf.float64
        rows = y.numpy()[:, 0].astype(int)
        np.testing.assert_array_equal(x, X[rows])
        np.testing.assert_array_equal(rows, np.sort(expected[:, 0]))


@pytest.mark.parametrize("size", [0, -1, 11])
def test_batch_sizes_out_of_range_are_refused(size, tmp_path):
    X, Y = pairs()
    for data in ((X, Y), (mapped(tmp_path, "X", X), mapped(tmp_path, "Y", Y))):
        with pytest.raises(ValueError, match=rf"batch_size must be .*, got {size}"):
            open_feed(data, size, 0, checks.require_data)


def dataset(X, Y):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)


@pytest.mark.parametrize(
    ("source", "size", "message"),
    [
        (dataset(*pairs()), 4, r"batch_size must be None for a tf\.data\.Dataset"),
        (dataset(*pairs()).take(0), None, r"data is an empty tf\.data\.Dataset"),
        (dataset(*pairs()).map(lambda X, Y: X), None, r"data must yield pairs \(X \[n, D\]"),
        (dataset(*pairs()).map(lambda X, Y: (X, Y, Y)), None, r"data must yield pairs"),
        (dataset(*pairs()).map(lambda X, Y: (X, Y[:, 0])), None, r"Y must be a matrix"),
        (dataset(*pairs()).unbatch(), None, r"X must be a matrix, got shape \(2,\)"),
        ((pairs()[0],), None, r"data must be a tuple"),
    ],
)
def test_sources_that_do_not_fit_are_refused(source, size, message):
    with pytest.raises(ValueError, match=message):
        open_feed(source, size, 0, checks.require_data)
