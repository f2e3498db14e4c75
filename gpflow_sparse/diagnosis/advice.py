"""Advice that follows from diagnostics, each sentence by a threshold stated here."""

from typing import Any

from scipy import stats

from gpflow_sparse.data.limits import listed
from gpflow_sparse.diagnosis.parameters import AT_BOUND

# Smallest improvement of a bound, in nats per row, for which advice is given.
WORTHWHILE = 0.01
# Inducing inputs closer than this, in lengthscales, count as coinciding.
COINCIDING = 1e-3
# Smallest difference of coverage or accuracy from its nominal value that is reported, and largest
# probability that chance alone makes it so large.
TOLERANCE, CHANCE = 0.02, 1e-3
# A hidden layer whose signal is less than so many times its noise passes on little of its input.
MIN_RATIO = 1.0
# Predictions of training rows are fitted to the outputs of these rows.
_IN_SAMPLE = "; of training rows, some excess is to be expected"


def advice(entries: dict[str, Any]) -> list[str]:
    """
    Advice on the next steps, most rewarding first; empty if there is none.

    :param entries: the other entries of :func:`gpflow_sparse.diagnostics`.
    """
    sentences = [
        *_bound(entries["bound"], entries["residual_variance"]["regions"]),
        *_hyperparameters(entries["hyperparameters"], entries["condition_numbers"] or {}),
        *_layers(entries["layers"] or []),
    ]
    calibration = entries["calibration"]
    if calibration is None:
        return sentences
    regression = calibration["kind"] == "regression"
    return [*sentences, *(_intervals if regression else _classes)(calibration)]


def _bound(bound: dict[str, Any], regions: list[dict[str, Any]]) -> list[str]:
    """Advice to train longer, and to add inducing points or not."""
    sentences = []
    training, inducing = bound["training_gap_per_row"], bound["inducing_gap_per_row"]
    if training is not None and training >= WORTHWHILE:
        sentences.append(
            "Train longer: for these inducing inputs and hyperparameters the optimal q would gain "
            f"{training:.2g} nats per row, and training can gain no more."
        )
    if inducing is None:
        return sentences
    reach = "at these hyperparameters more or better-placed inducing points"
    if inducing < WORTHWHILE:
        return [
            *sentences,
            f"More inducing points would not help: {reach} gain at most {inducing:.2g} nats per "
            "row.",
        ]
    worst = max(regions, key=lambda region: region["unexplained"])
    verb, doubt = "Add inducing points", ""
    if bound["exact"] is None:
        verb = "More inducing points may help"
        doubt = " (from the upper bound, which can be far too high)"
    return [
        *sentences,
        f"{verb}: {reach} would gain at most {inducing:.2g} nats per row{doubt}. Region "
        f"{worst['region']} needs them most: {worst['unexplained']:.1%} of its prior variance is "
        "unexplained.",
    ]


def _hyperparameters(entry: dict[str, Any], conditioning: dict[str, Any]) -> list[str]:
    """Advice on inducing inputs that coincide, input columns, noise and lengthscales."""
    sentences = []
    distance = conditioning.get("smallest_distance")
    if distance is not None and distance < COINCIDING:
        sentences.append(
            f"Two inducing inputs are {distance:.2g} lengthscales apart, no better than one: "
            "choose all of them together, with gpflow_sparse.initialization.split_orthogonal."
        )
    columns = [c for c in entry["columns"] or [] if c["flag"] == "hardly matters"]
    if columns:
        sentences.append(
            f"Input columns that hardly matter: {listed([c['column'] for c in columns])}. Their "
            f"lengthscales are {min(c['ratio'] for c in columns):.3g} standard deviations long or "
            "more. Try leaving them out."
        )
    by_flag = {
        "noise at its lower bound": "The noise variance is at its lower bound (below "
        f"{AT_BOUND:g} times it): the outputs have no noise, or rows are repeated, or the model "
        "overfits.",
        "explains almost nothing": "The noise variance is "
        f"{entry['noise_fraction'] or 0.0:.0%} of the variance of Y: the model explains almost "
        "nothing. Check the inputs and the starting values of hyperparameters.",
        "memorizes": "The model memorizes: the nearest neighbor of a typical row explains only "
        f"{entry['nearest_neighbor_explains'] or 0.0:.1%} of its prior variance. The lengthscales "
        "are shorter than the data can support.",
    }
    return [*sentences, *(by_flag[flag] for flag in entry["flags"])]


def _layers(layers: list[dict[str, Any]]) -> list[str]:
    """Advice on hidden layers whose outputs are noise for the most part."""
    return [
        f"Hidden layer {entry['layer']} passes on more noise than signal: the variance of its mean "
        f"over rows is {entry['ratio']:.2g} times its own variance. Start it at a mean function "
        "or with start_at, train longer, or leave the layer out."
        for entry in layers
        if entry["ratio"] is not None and entry["ratio"] < MIN_RATIO
    ]


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
