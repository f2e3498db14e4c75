"""Advice that follows from diagnostics, each sentence by a threshold stated here."""

from typing import Any

from scipy import stats

from gpflow_sparse.diagnosis.parameters import AT_BOUND

# Smallest improvement of a bound, in nats per row, for which advice is given.
WORTHWHILE = 0.01
# Inducing inputs closer than this, in lengthscales, count as coinciding.
COINCIDING = 1e-3
# Smallest difference of coverage or accuracy from its nominal value that is reported, and largest
# probability that chance alone makes it so large.
TOLERANCE, CHANCE = 0.02, 1e-3
# Predictions of training rows are fitted to the outputs of these rows.
_IN_SAMPLE = "; of training rows, some excess is to be expected"


def advice(entries: dict[str, Any]) -> list[str]:
    """
    Advice on the next steps, most rewarding first; empty if there is none.

    :param entries: the other entries of :func:`gpflow_sparse.diagnostics`.
    """
    sentences = [
        *_training(entries["bound"]),
        *_inducing(entries["bound"], entries["residual_variance"]),
        *_coinciding(entries["condition_numbers"]),
        *_columns(entries["hyperparameters"]),
        *_noise(entries["hyperparameters"]),
    ]
    calibration = entries["calibration"]
    if calibration is not None and calibration["kind"] == "regression":
        return [*sentences, *_intervals(calibration)]
    return [*sentences, *_classes(calibration)] if calibration is not None else sentences


def _training(bound: dict[str, Any]) -> list[str]:
    gap = bound["training_gap_per_row"]
    if gap is None or gap < WORTHWHILE:
        return []
    return [
        "Train longer: for these inducing inputs and hyperparameters the optimal q would gain "
        f"{gap:.2g} nats per row, and training can win at most that."
    ]


def _inducing(bound: dict[str, Any], residual: dict[str, Any]) -> list[str]:
    gap = bound["inducing_gap_per_row"]
    if gap is None:
        return []
    reach = "at these hyperparameters more or better-placed inducing points"
    if gap < WORTHWHILE:
        return [
            f"More inducing points would not help: {reach} gain at most {gap:.2g} nats per row."
        ]
    worst = max(residual["regions"], key=lambda region: region["unexplained"])
    verb, doubt = "Add inducing points", ""
    if bound["exact"] is None:
        verb = "More inducing points may help"
        doubt = " (from the upper bound, which can be far too high)"
    return [
        f"{verb}: {reach} would gain at most {gap:.2g} nats per row{doubt}. Region "
        f"{worst['region']} needs them most: {worst['unexplained']:.1%} of its prior variance is "
        "unexplained."
    ]


def _coinciding(conditioning: dict[str, Any] | None) -> list[str]:
    distance = None if conditioning is None else conditioning["smallest_distance"]
    if distance is None or distance >= COINCIDING:
        return []
    return [
        f"Two inducing inputs are {distance:.2g} lengthscales apart, no better than one: choose "
        "all of them together, with gpflow_sparse.initialization.split_orthogonal."
    ]


def _columns(hyperparameters: dict[str, Any]) -> list[str]:
    return [
        f"Input column {column['column']} hardly matters: its lengthscale is {column['ratio']:.3g} "
        "standard deviations long. Try leaving it out."
        for column in hyperparameters["columns"] or []
        if column["flag"] == "hardly matters"
    ]


def _noise(hyperparameters: dict[str, Any]) -> list[str]:
    sentences = {
        "noise at its lower bound": "The noise variance is at its lower bound (below "
        f"{AT_BOUND:g} times it): the outputs have no noise, or rows are repeated, or the model "
        "overfits.",
        "explains almost nothing": "The noise variance is "
        f"{hyperparameters['noise_fraction'] or 0.0:.0%} of the variance of Y: the model explains "
        "almost nothing. Check the inputs and the starting values of hyperparameters.",
        "memorizes": "The model memorizes: the nearest neighbor of a typical row explains only "
        f"{hyperparameters['nearest_neighbor_explains'] or 0.0:.1%} of its prior variance. The "
        "lengthscales are shorter than the data can support.",
    }
    return [sentences[flag] for flag in hyperparameters["flags"]]


def _intervals(calibration: dict[str, Any]) -> list[str]:
    (found,) = (c["observed"] for c in calibration["coverage"] if c["nominal"] == 0.95)
    if not _off(found, 0.95, calibration["count"]):
        return []
    word, excuse = ("narrow", "") if found < 0.95 else ("wide", _IN_SAMPLE)
    return [
        f"Intervals are too {word}: {found:.1%} of the outputs lie in those meant for 95 %{excuse}."
    ]


def _classes(calibration: dict[str, Any]) -> list[str]:
    accuracy, confidence = 1.0 - calibration["error_rate"], calibration["mean_confidence"]
    if not _off(accuracy, confidence, calibration["count"]):
        return []
    word, excuse = ("over", "") if confidence > accuracy else ("under", _IN_SAMPLE)
    return [
        f"The class probabilities are {word}confident: {confidence:.1%} on average for the "
        f"predicted class, which is right in {accuracy:.1%} of the cases{excuse}."
    ]


def _off(found: float, expected: float, count: int) -> bool:
    """Whether a fraction of ``count`` observations differs too much, and not by chance."""
    chance = stats.binomtest(round(found * count), count, min(expected, 1.0)).pvalue
    return abs(found - expected) > TOLERANCE and chance < CHANCE
