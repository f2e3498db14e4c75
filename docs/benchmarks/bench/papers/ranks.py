"""Mean ranks of methods over data sets, and the least difference of ranks that is significant."""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats


class Ranks(NamedTuple):
    """Mean ranks of K methods over S data sets."""

    mean: np.ndarray
    """``[K]``, from 1, the best, to K."""
    critical_difference: float
    """
    Of the Nemenyi test at 5 %: mean ranks that differ by less may do so by chance (Demšar 2006,
    "Statistical comparisons of classifiers over multiple data sets", section 3.2.2).
    """
    p_value: float
    """Of the Friedman test that all methods are equal; NaN for fewer than three methods."""
    num_sets: int
    """S."""


def rank(scores: np.ndarray) -> Ranks:
    """
    Rank methods on every data set, and average.

    :param scores: ``[S, K]``, smaller is better; of equal ones ranks are averaged, and NaN, for a
        method that failed, is the last.
    :raises ValueError: for no data set, or fewer than two methods.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or len(scores) < 1 or scores.shape[1] < 2:
        raise ValueError(
            f"scores must have shape [S, K] with S at least 1 and K at least 2, got {scores.shape}."
        )
    num_sets, num_methods = scores.shape
    known = np.where(np.isnan(scores), np.inf, scores)
    ranks = stats.rankdata(known, axis=1)
    quantile = stats.studentized_range.ppf(0.95, num_methods, np.inf) / np.sqrt(2.0)
    width = quantile * np.sqrt(num_methods * (num_methods + 1) / (6.0 * num_sets))
    p_value = float("nan")
    if num_methods > 2 and num_sets > 1:
        p_value = float(stats.friedmanchisquare(*ranks.T).pvalue)
    return Ranks(ranks.mean(axis=0), float(width), p_value, num_sets)


def draw_ranks(axis: Any, titles: list[str], ranks: Ranks, label: str) -> None:
    """
    Mean ranks, best first, with a bar as long as the critical difference from the best.

    Methods within it are filled, others are open circles.
    """
    order = np.argsort(ranks.mean, kind="stable")
    best = ranks.mean[order[0]]
    places = np.arange(len(order))
    near = ranks.mean[order] - best < ranks.critical_difference
    end = best + ranks.critical_difference
    axis.axvspan(best, end, color="0.9", zorder=0)
    axis.hlines(places, 1.0, ranks.mean[order], color="0.6", linewidth=0.8)
    for is_near, face in ((True, "#0072b2"), (False, "white")):
        shown = near == is_near
        axis.plot(
            ranks.mean[order][shown], places[shown], "o", color="#0072b2", markerfacecolor=face
        )
    axis.set_yticks(places, [titles[i] for i in order], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0.8, max(len(order), end) + 0.2)
    axis.set_xlabel(f"mean rank by {label}\n{ranks.num_sets} sets", fontsize=9)
