"""Where training rows come from: fair batches, and sources that do not fit."""

from collections import Counter

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.training.feed import RowBatches, data_guard, open_feed
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


@pytest.mark.parametrize(("num_rows", "size"), [(10, 3), (10, 5), (7, 7), (6, 4), (5, 1)])
def test_every_row_comes_equally_often_in_batches_of_one_size(num_rows, size):
    """After ``size`` epochs, that is ``num_rows`` batches, each row has come ``size`` times."""
    drawn = rows_of(num_rows, size, 0, num_rows)
    assert {len(batch) for batch in drawn} == {size}
    assert Counter(np.concatenate(drawn).tolist()) == dict.fromkeys(range(num_rows), size)


def test_every_epoch_is_a_permutation_of_its_own():
    rows = np.concatenate(rows_of(9, 3, 0, 6)).reshape(2, 9)
    np.testing.assert_array_equal(np.sort(rows, axis=1), [range(9)] * 2)
    assert (rows[0] != rows[1]).any()
    assert (rows[0] != np.arange(9)).any()


def test_a_later_batch_needs_none_of_those_before_it():
    """That is what a resumed run relies on."""
    drawn = rows_of(10, 4, 3, 40)
    for step in (39, 0, 17, 18, 2):
        np.testing.assert_array_equal(RowBatches(10, 4, 3)(step), drawn[step])


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


def test_fingerprints_tell_one_set_of_rows_from_another():
    X, Y = pairs()
    prints = [
        open_feed(source, None, 0, checks.require_data).fingerprint
        for source in ((X, Y), (X.copy(), Y.copy()), (X, Y + 1e-12), (X[:9], Y[:9]))
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_a_batch_of_all_the_data_keeps_the_order():
    X, Y = pairs()
    for size in (None, 10):
        feed = open_feed((X, Y), size, 0, checks.require_data)
        for x, y in batches(feed, 2):
            np.testing.assert_array_equal(x, X)
            np.testing.assert_array_equal(y, Y)


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


def test_a_dataset_repeats_and_loses_no_batch():
    X, Y = pairs(6)
    feed = open_feed(
        tf.data.Dataset.from_tensor_slices((X, Y)).batch(2), None, 0, checks.require_data
    )
    assert (feed.num_rows, feed.batch_size) == (None, None)
    seen = np.concatenate([y for _, y in batches(feed, 6)])[:, 0]
    np.testing.assert_array_equal(seen, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5])


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


def test_the_guard_follows_the_model_also_for_gpflows_own():
    X, Y = pairs()
    model = gpflow.models.SVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(), X[:3])
    with pytest.raises(ValueError, match=r"Y must be a matrix"):
        data_guard(model)((X, Y[:, 0]))
    with pytest.raises(ValueError, match=r"Y must have 1 column\(s\)"):
        data_guard(model)((X, np.hstack([Y, Y])))
    with pytest.raises(ValueError, match=r"labels 0 or 1"):
        data_guard(model)((X, Y))
    np.testing.assert_array_equal(data_guard(model)((X, Y % 2))[1], Y % 2)
