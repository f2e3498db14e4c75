"""Metrics against an independent implementation and against hand calculations."""

from statistics import NormalDist

import numpy as np
import pytest
import scoringrules
from numpy.testing import assert_allclose

from gpflow_sparse.data import metrics


@pytest.fixture
def gaussian():
    rng = np.random.default_rng(0)
    Y, mean = rng.standard_normal((2, 40, 1))
    return Y, mean, rng.uniform(0.1, 3.0, (40, 1))


def test_rmse_of_errors_three_and_four_is_the_root_of_twelve_and_a_half():
    Y = np.array([[1.0], [2.0]])
    assert_allclose(metrics.rmse(Y, np.array([[4.0], [-2.0]])), np.sqrt(12.5))


def test_nlpd_is_the_mean_logarithmic_score_of_a_normal(gaussian):
    Y, mean, variance = gaussian
    oracle = scoringrules.logs_normal(Y, mean, np.sqrt(variance)).mean()
    assert_allclose(metrics.nlpd(Y, mean, variance), oracle, rtol=1e-12)


def test_nlpd_sums_over_outputs_and_averages_over_points():
    zeros, ones = np.zeros((5, 2)), np.ones((5, 2))
    assert_allclose(metrics.nlpd(zeros, zeros, ones), 2 * 0.9189385332046727)


def test_crps_is_the_closed_form_of_a_normal(gaussian):
    Y, mean, variance = gaussian
    oracle = scoringrules.crps_normal(Y, mean, np.sqrt(variance)).mean()
    assert_allclose(metrics.crps(Y, mean, variance), oracle, rtol=1e-10)


def test_coverage_counts_the_outputs_within_1_96_standard_deviations():
    Y, zero, four = np.array([3.9, -3.9, 3.95, -8.0]), np.zeros(4), np.full(4, 4.0)
    assert metrics.coverage(Y, zero, four) == 0.5
    assert metrics.coverage(Y, zero, four, level=0.99) == 0.75


zero, one, nan = np.zeros(3), np.ones(3), np.array([0.0, np.nan, 0.0])


@pytest.mark.parametrize(
    ("score", "arguments", "message"),
    [
        *(
            (score, arguments, message)
            for score in (metrics.nlpd, metrics.crps, metrics.coverage)
            for arguments, message in (
                ((zero, zero[:, None], one), r"mean must have the shape of Y, \(3,\), got \(3, 1"),
                ((zero, zero, one[:1]), r"variance must have the shape of Y, \(3,\), got \(1,\)"),
                ((nan, zero, one), "Y must be finite, got 1"),
                ((zero, zero, -one), "variance must be positive"),
            )
        ),
        *((metrics.coverage, (zero, zero, one, p), "level must be in") for p in (0.0, 1.0, 95)),
        (metrics.rmse, (zero[:, None], zero), "nothing is broadcast"),
        (metrics.rmse, (zero[:0, None], zero[:0, None]), "N at least 1"),
        (metrics.rmse, (zero[0], zero[0]), r"\[N,P\] or \[N\]"),
        (metrics.rmse, (zero, nan), r"mean must be finite, got 1 .* index \[1\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(score, arguments, message):
    with pytest.raises(ValueError, match=message):
        score(*arguments)


PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.0, 0.1, 0.9], [0.5, 0.25, 0.25]])
LABELS = np.array([0, 2, 2, 1])


def test_brier_of_two_classes_is_twice_the_binary_score():
    rng = np.random.default_rng(2)
    p, labels = rng.uniform(size=30), rng.integers(0, 2, 30)
    oracle = 2 * scoringrules.brier_score(labels, p).mean()
    assert_allclose(metrics.brier(labels, np.stack([1 - p, p], axis=1)), oracle)


def test_ece_weighs_the_gap_of_each_bin_by_its_points():
    p = np.array([0.9, 0.9, 0.8, 0.6])
    labels = np.array([1, 1, 0, 1])
    # Ten bins: {0.9, 0.9} right twice, {0.8} wrong, {0.6} right.
    by_hand = (2 * 0.1 + 0.8 + 0.4) / 4
    assert_allclose(metrics.ece(labels, np.stack([1 - p, p], axis=1), num_bins=10), by_hand)


def test_the_accuracy_of_the_kept_is_that_of_the_most_certain_points():
    rng = np.random.default_rng(5)
    P = rng.dirichlet(np.ones(4), size=50)
    labels = rng.integers(0, 4, 50)
    fractions = np.array([0.02, 0.3, 0.31, 0.7, 1.0])
    order = sorted(range(50), key=lambda i: -max(P[i]))
    by_hand = []
    for count in (1, 15, 16, 35, 50):
        right = sum(int(np.argmax(P[i])) == labels[i] for i in order[:count])
        by_hand.append(right / count)
    assert_allclose(metrics.rejection_curve(labels, P, fractions), by_hand)
    assert_allclose(by_hand[-1], 1 - metrics.error_rate(labels, P))


def test_points_of_equal_certainty_are_kept_at_random():
    """Of 0.9 right, and 0.8 right, wrong, wrong: 1; (1 + 1/3) / 2; (1 + 2/3) / 3; 1/2."""
    p = np.array([0.8, 0.9, 0.8, 0.8])
    labels = np.array([1, 1, 0, 0])
    found = metrics.rejection_curve(labels, np.stack([1 - p, p], axis=1), np.arange(1, 5) / 4)
    assert_allclose(found, [1.0, 2 / 3, 5 / 9, 1 / 2])


@pytest.mark.parametrize("fractions", [[0.0], [1.1], [np.nan], 0.5, [[0.5]]])
def test_fractions_to_keep_must_be_in_the_unit_interval(fractions):
    with pytest.raises(ValueError, match="fractions must be a vector"):
        metrics.rejection_curve(LABELS, PROBABILITIES, fractions)


def _rejection(labels, probabilities):
    return metrics.rejection_curve(labels, probabilities, np.ones(1))


@pytest.mark.parametrize("score", [metrics.error_rate, metrics.brier, metrics.ece, _rejection])
def test_class_scores_refuse_wrong_labels_and_probabilities(score):
    with pytest.raises(ValueError, match="integers from 0 to 2, got 3"):
        score(np.array([0, 1, 2, 3]), PROBABILITIES)
    with pytest.raises(ValueError, match=r"integers from 0 to 2, got 0\.5"):
        score(np.array([0, 0.5, 2, 1]), PROBABILITIES)
    with pytest.raises(ValueError, match="integers from 0 to 2, got -1"):
        score(np.array([0, 1, -1, 1]), PROBABILITIES)
    with pytest.raises(ValueError, match="labels must have shape"):
        score(LABELS[:3], PROBABILITIES)
    with pytest.raises(ValueError, match="rows that sum to 1"):
        score(LABELS, PROBABILITIES * 1.01)
    with pytest.raises(ValueError, match=r"smallest value of -0\.1"):
        score(LABELS, np.array([[1.1, -0.1, 0.0]] * 4))
    with pytest.raises(ValueError, match="stack 1 - p and p"):
        score(LABELS, PROBABILITIES[:, :1])
    with pytest.raises(ValueError, match="probabilities must be finite"):
        score(LABELS, np.where(PROBABILITIES == 0.9, np.nan, PROBABILITIES))


def test_pit_is_the_normal_distribution_function_at_the_outputs(gaussian):
    Y, mean, variance = gaussian
    expected = [
        [NormalDist(m, v**0.5).cdf(y)] for y, m, v in zip(*map(np.ravel, gaussian), strict=True)
    ]
    assert_allclose(metrics.pit(Y, mean, variance), expected, rtol=1e-12, atol=1e-15)


def test_ks_uniform_is_the_largest_step_away_from_the_diagonal():
    assert_allclose(metrics.ks_uniform(np.array([[0.5]])), 0.5)
    assert_allclose(metrics.ks_uniform(np.array([0.1, 0.2, 0.9])), 2 / 3 - 0.2)
    for bad in ([], [1.1], [-0.1], [np.nan]):
        with pytest.raises(ValueError, match=r"each in \[0, 1\]"):
            metrics.ks_uniform(np.array(bad))


def test_coverage_curve_is_the_coverage_of_each_level(gaussian):
    levels = np.array([0.1, 0.5, 0.9])
    expected = [metrics.coverage(*gaussian, level=level) for level in levels]
    assert_allclose(metrics.coverage_curve(*gaussian, levels), expected)
    assert_allclose(
        metrics.coverage_curve(*gaussian, levels),
        [np.mean(np.abs(metrics.pit(*gaussian) - 0.5) <= level / 2) for level in levels],
    )
    with pytest.raises(ValueError, match="level must be in"):
        metrics.coverage_curve(*gaussian, np.array([0.5, 1.0]))


def test_reliability_compares_accuracy_with_confidence_bin_by_bin():
    p = np.array([0.9, 0.9, 0.8, 0.55])
    labels = np.array([1, 1, 0, 1])
    found = metrics.reliability(labels, np.stack([1 - p, p], axis=1), num_bins=4)
    # (0.5, 0.75] holds 0.55; (0.75, 1] the others, of which 0.8 is wrong
    assert found.num_points.tolist() == [0, 0, 1, 3]
    assert_allclose(found.confidence, [np.nan, np.nan, 0.55, 2.6 / 3])
    assert_allclose(found.accuracy, [np.nan, np.nan, 1.0, 2 / 3])
    with pytest.raises(ValueError, match="num_bins"):
        metrics.reliability(LABELS, PROBABILITIES, num_bins=1.5)
