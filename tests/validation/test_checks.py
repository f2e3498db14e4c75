"""The guards: what they take, what they refuse, and that the message says what to do."""

import gpflow
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf
from gpflow import likelihoods

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP
from gpflow_sparse.validation import checks

N, D = 6, 2


class Frame:
    """What NumPy sees of a data frame."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


def pair(P=1):
    return np.linspace(-1.0, 1.0, N * D).reshape(N, D), np.linspace(0.0, 1.0, N * P).reshape(N, P)


def guard_eagerly(X, Y, **options):
    return checks.require_data((X, Y), **options)


def guard_while_tracing(X, Y, **options):
    """X and Y as arguments of a ``tf.function``: only static shapes are known."""

    @tf.function(autograph=False)
    def traced(X, Y):
        return checks.require_data((X, Y), **options)

    return traced(tf.constant(X), tf.constant(Y))


both_modes = pytest.mark.parametrize("guard", [guard_eagerly, guard_while_tracing])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([[1.0, None]], dtype=object), r"X must hold real numbers, got Python objects"),
        (np.array([["a", "b"]]), r"X must hold real numbers.*np\.asarray\(X, dtype=float\)"),
        ([["a", "b"]], r"X must hold real numbers.*Encode text"),
        ([[b"a"]], r"X must hold real numbers"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), r"X must hold real numbers.*datetime"),
        (np.array([[1.0 + 2.0j]]), r"X must hold real numbers.*complex128"),
        (tf.constant([[1.0 + 2.0j]]), r"X must hold real numbers.*complex128"),
        (tf.constant([["a"]]), r"X must hold real numbers.*string"),
        ([[1.0, 2.0], [3.0]], r"X must be a rectangular array of numbers"),
        (None, r"X must hold real numbers"),
        (tf.sparse.from_dense([[1.0, 0.0]]), r"X must be a dense array.*SparseTensor"),
        (tf.ragged.constant([[1.0], [2.0, 3.0]]), r"X must be a dense array.*RaggedTensor"),
        (scipy.sparse.eye(3), r"X must hold real numbers"),
    ],
    ids=[
        "objects",
        "strings",
        "list_of_strings",
        "bytes",
        "dates",
        "complex",
        "complex_tensor",
        "string_tensor",
        "ragged_list",
        "none",
        "sparse_tensor",
        "ragged_tensor",
        "scipy_sparse",
    ],
)
def test_what_is_not_an_array_of_real_numbers_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        checks.as_tensor(value, "X")
    with pytest.raises(ValueError, match=message):
        checks.require_data((value, np.zeros((2, 1))))


def test_masked_entries_are_refused_and_a_mask_of_nothing_passes():
    values = np.array([[1.0], [2.0]])
    with pytest.raises(ValueError, match=r"Y has masked entries\. Drop or fill"):
        checks.as_tensor(np.ma.masked_array(values, [[False], [True]]), "Y")
    np.testing.assert_array_equal(checks.as_tensor(np.ma.masked_array(values), "Y"), values)


@both_modes
@pytest.mark.parametrize(
    ("X_shape", "Y_shape", "message"),
    [
        ((N, D), (N,), r"Y must be a matrix, got shape \(6,\)\. Use Y\[:, None\]"),
        ((N,), (N, 1), r"X must be a matrix, got shape \(6,\)\. Use X\[:, None\]"),
        ((N, D), (), r"Y must be a matrix, got shape \(\)"),
        ((N, D), (N, 1, 1), r"Y must be a matrix, got shape \(6, 1, 1\)"),
        ((2, N, D), (N, 1), r"X must be a matrix, got shape \(2, 6, 2\)"),
        ((N, D), (1, 1), r"X and Y must have the same number of rows, got 6 and 1"),
        ((N, D), (N - 1, 1), r"X and Y must have the same number of rows, got 6 and 5"),
        ((N, D + 1), (N, 1), r"X must have 2 column\(s\).*got shape \(6, 3\)"),
        ((0, D), (0, 1), r"X is empty: shape \(0, 2\)"),
        ((N, 0), (N, 1), r"X is empty: shape \(6, 0\)"),
        ((N, D), (0, 1), r"Y is empty: shape \(0, 1\)"),
        ((N, D), (N, 0), r"Y is empty: shape \(6, 0\)"),
        ((N, D), (N, 2), r"Y must have 1 column\(s\) for Gaussian with num_latent_gps=1"),
    ],
)
def test_shapes_that_do_not_pair_up_are_refused(guard, X_shape, Y_shape, message):
    options = {"input_dim": D, "likelihood": likelihoods.Gaussian(), "num_latent_gps": 1}
    with pytest.raises(ValueError, match=message):
        guard(np.zeros(X_shape), np.zeros(Y_shape), **options)


def test_unknown_static_shapes_pass_while_tracing():
    """Sizes are compared when the graph runs; good values come through."""
    likelihood = likelihoods.Gaussian()

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec([None, None], t) for t in (tf.float64, tf.float32)],
    )
    def traced(X, Y):
        data = checks.require_data((X, Y), input_dim=D, likelihood=likelihood, num_latent_gps=1)
        return (*data, checks.require_inputs(X, D))

    X, Y = pair()
    for got, expected in zip(traced(X, Y.astype(np.float32)), (X, Y, X), strict=True):
        assert got.dtype == tf.float64
        np.testing.assert_allclose(got, expected, rtol=1e-7)  # Y came through float32


def heteroskedastic():
    return likelihoods.HeteroskedasticTFPConditional()


def switched():
    return likelihoods.SwitchedLikelihood([likelihoods.Gaussian(), likelihoods.StudentT()])


@both_modes
@pytest.mark.parametrize(
    ("likelihood", "num_latent_gps", "columns", "good"),
    [
        (likelihoods.Gaussian(), 2, 1, 2),
        (likelihoods.MultiClass(3), 3, 3, 1),
        (likelihoods.Softmax(3), 3, 3, 1),
        (heteroskedastic(), 2, 2, 1),
        (switched(), 1, 1, 2),
    ],
    ids=["gaussian", "multiclass", "softmax", "heteroskedastic", "switched"],
)
def test_y_must_have_as_many_columns_as_the_likelihood_sees(
    guard, likelihood, num_latent_gps, columns, good
):
    X, _ = pair()
    options = {"likelihood": likelihood, "num_latent_gps": num_latent_gps}
    name = type(likelihood).__name__
    with pytest.raises(ValueError, match=rf"Y must have {good} column\(s\) for {name}"):
        guard(X, np.zeros((N, columns)), **options)
    np.testing.assert_array_equal(guard(X, np.zeros((N, good)), **options)[1], np.zeros((N, good)))


def test_a_likelihood_that_fixes_its_latent_functions_refuses_another_number():
    with pytest.raises(ValueError, match=r"num_latent_gps must be 10.*pass num_latent_gps=10"):
        checks.require_likelihood(likelihoods.MultiClass(10), 1)
    with pytest.raises(ValueError, match=r"num_latent_gps must be 2.*HeteroskedasticTFPCond"):
        checks.require_likelihood(heteroskedastic(), 1)
    for likelihood, count in ((likelihoods.Softmax(3), 3), (likelihoods.Gaussian(), 7)):
        checks.require_likelihood(likelihood, count)


@pytest.mark.parametrize(
    ("likelihood", "P", "wrong", "message"),
    [
        (likelihoods.Bernoulli(), 1, -1.0, r"labels 0 or 1 \(not -1 and 1\) for Bernoulli"),
        (likelihoods.Bernoulli(), 1, 2.0, r"labels 0 or 1"),
        (likelihoods.Bernoulli(), 1, 0.5, r"labels 0 or 1"),
        (likelihoods.MultiClass(3), 3, 3.0, r"integer class labels from 0 to 2 for MultiClass"),
        (likelihoods.MultiClass(3), 3, -1.0, r"integer class labels from 0 to 2"),
        (likelihoods.MultiClass(3), 3, 0.5, r"integer class labels from 0 to 2"),
        (likelihoods.Softmax(3), 3, 3.0, r"integer class labels from 0 to 2 for Softmax"),
        (likelihoods.Ordinal(np.array([0.0, 1.0])), 1, 3.0, r"integer levels from 0 to 2"),
        (likelihoods.Poisson(), 1, -1.0, r"counts 0, 1, 2, \.\.\. for Poisson"),
        (likelihoods.Poisson(), 1, 0.25, r"counts"),
        (likelihoods.Exponential(), 1, -0.5, r"non-negative numbers for Exponential"),
        (likelihoods.Gamma(), 1, 0.0, r"positive numbers for Gamma"),
        (likelihoods.Beta(), 1, 0.0, r"numbers inside \(0, 1\) for Beta"),
        (likelihoods.Beta(), 1, 1.0, r"numbers inside \(0, 1\)"),
    ],
)
def test_values_outside_the_support_are_refused_with_an_example(likelihood, P, wrong, message):
    X, _ = pair()
    inside = 0.5 if isinstance(likelihood, likelihoods.Beta) else 1.0
    Y = np.full((N, 1), inside)
    options = {"likelihood": likelihood, "num_latent_gps": P}
    np.testing.assert_array_equal(checks.require_data((X, Y), **options)[1], Y)
    Y[[1, 4]] = wrong
    expected = rf"Y must hold {message}.*2 other value\(s\), such as {wrong:g}\. Recode Y"
    with pytest.raises(ValueError, match=expected.replace("such as -", r"such as \-")) as caught:
        checks.require_data((X, Y), **options)
    assert f"such as {wrong:g}." in str(caught.value)


def test_the_index_of_a_switched_likelihood_is_checked_and_its_values_are_not():
    X, reals = pair()
    index = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])[:, None]
    options = {"likelihood": switched(), "num_latent_gps": 1}
    Y = np.hstack([reals - 5.3, index])
    np.testing.assert_array_equal(checks.require_data((X, Y), **options)[1], Y)
    Y[2, 1] = 2.0
    with pytest.raises(ValueError, match=r"Y must hold an index from 0 to 1 in the last column"):
        checks.require_data((X, Y), **options)


@pytest.mark.parametrize(
    ("X_shape", "Y_shape", "Y", "message"),
    [
        ([None, 2], [None, 1], np.zeros((1, 1)), "same number of rows"),
        ([None, 2], [None, None], np.zeros((6, 3)), r"1 column\(s\) for Gaussian"),
    ],
)
def test_sizes_unknown_while_tracing_are_compared_when_the_graph_runs(X_shape, Y_shape, Y, message):
    signature = [tf.TensorSpec(X_shape, tf.float64), tf.TensorSpec(Y_shape, tf.float64)]
    likelihood = likelihoods.Gaussian()

    @tf.function(input_signature=signature)
    def rows(X, Y):
        X, Y = checks.require_data((X, Y), likelihood=likelihood, num_latent_gps=1)
        return tf.shape(X)[0]

    assert rows(np.zeros((6, 2)), np.zeros((6, 1))) == 6
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        rows(np.zeros((6, 2)), Y)


def test_an_unknown_rank_is_refused_while_tracing():
    signature = [tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec(None, tf.float64)]
    function = tf.function(lambda X, Y: checks.require_data((X, Y)), input_signature=signature)
    with pytest.raises(ValueError, match="Y must be a matrix, but its rank is unknown"):
        function(np.zeros((6, 2)), np.zeros(6))
    kernel = gpflow.kernels.Matern52()
    model = SOLVEGP(kernel, likelihoods.Gaussian(), OrthogonalInducingVariables(np.zeros((3, 2))))
    predict = tf.function(model.predict_f, input_signature=[tf.TensorSpec(None, tf.float64)])
    message = r"Xnew must have shape \[\.\.\., N, D\], but its rank is unknown while tracing: give"
    with pytest.raises(ValueError, match=message):
        predict(np.zeros((6, 2)))
