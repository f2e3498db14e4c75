"""Layouts of pages that compare methods: mean ranks, the automatic choice beside each, pictures."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.figures import new_figure
from bench.papers.ranks import Ranks, draw_ranks, rank
from bench.papers.spec import PaperRun, Record, Row
from bench.papers.tables import by_dataset, grid, mean_cell, records_of, with_derived

AGREEMENT = "agreement"
"""Key of the row that compares libraries at fixed hyperparameters."""
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Probabilities of the central intervals whose coverage is in records of regression."""

# Training rows of the largest set for which the automatic choice is an exact GP.
_FEW = 1000
# Sets of rows that are told in a text.
_FEW_SETS = 2
_MANY = f"more than {_FEW:,} rows"
_TREES = ("trees", "lightgbm", "catboost", "histogram")
_REGRETTED = ("nlpd", "rmse", "error_rate")
# Colors that are told apart with any color vision (Okabe and Ito), and markers for print.
_COLORS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
_MARKERS = "osD^vPX*<>hd8p"


def by_rank(run: PaperRun, records: Sequence[Record]) -> Iterator[str]:
    """Ranks, "auto" beside the others, all scores, time, calibration and agreement."""
    scored = [record for record in records if record["row"] != AGREEMENT]
    yield from _ranks(run, scored)
    yield from _beside_auto(run, scored)
    yield from _regression(run, scored)
    yield from by_dataset(run, [record for record in scored if "rmse" not in record])
    yield from _times(run)
    yield from _calibration(run, scored)
    yield from _agreement([record for record in records if record["row"] == AGREEMENT])


def _ranks(run: PaperRun, records: Sequence[Record]) -> Iterator[str]:
    """Mean ranks over the regression sets on which all rows of the first group were run."""
    rows, names = _ranked(run, records)
    if len(rows) < 2 or not names:
        return
    groups = list(_groups_by_size(records, names))
    ranks = {
        (group, label): _ranks_over(records, rows, part, score)
        for group, part in [("all", names), *groups]
        for label, score in (("NLPD", "nlpd"), ("RMSE", "rmse"))
    }
    titles, some = [row.title for row in rows], ranks["all", "NLPD"]
    widths = [f"{ranks[group, 'NLPD'].critical_difference:.1f} ({group})" for group, _ in groups]
    yield "## Ranks"
    yield (
        f"Mean ranks over {len(names)} regression sets on which all these methods were run. Mean "
        f"ranks that differ by less than {some.critical_difference:.1f} may do so by chance "
        f"(Nemenyi test at 5 %), those of sets by size {', '.join(widths)}. Filled circles differ "
        "by less from the best. A method that failed on a set is the last there."
    )
    others = sorted({r["dataset"] for r in records if "rmse" in r} - set(names))
    if others:
        yield f"Not in the ranks, since some of these rows were not run: {', '.join(others)}."

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(groups), 2, squeeze=False)
        shown = [key for key in ranks if key[0] != "all"]
        for axis, key in zip(axes.ravel(), shown, strict=True):
            draw_ranks(axis, titles, ranks[key], ", ".join(reversed(key)))

    size = (9.0, len(groups) * (0.9 + 0.24 * len(rows)))
    yield _picture(run, "ranks", "Mean ranks", size, draw)
    order = np.argsort(some.mean, kind="stable")
    cells = [(titles[i], *(f"{found.mean[i]:.2f}" for found in ranks.values())) for i in order]
    yield grid(("mean rank", *(f"{label}, {group}" for group, label in ranks)), cells)


def _groups_by_size(
    records: Sequence[Record], names: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Title and names of the sets of more rows than a number, and of those of at most so many."""
    sizes = {record["dataset"]: record["num_train"] for record in records}
    for title, is_large in ((_MANY, True), (f"at most {_FEW:,} rows", False)):
        part = [name for name in names if (sizes[name] > _FEW) == is_large]
        if part:
            yield title, part


def _ranks_over(
    records: Sequence[Record], rows: Sequence[Row], names: Sequence[str], score: str
) -> Ranks:
    """Ranks of rows by a score over data sets."""
    means = [[_mean(records_of(records, row.key, name), score) for row in rows] for name in names]
    return rank(np.array(means))


def _ranked(run: PaperRun, records: Sequence[Record]) -> tuple[list[Row], list[str]]:
    """Rows and regression sets of a block without gaps, of failed rows too."""
    ran = {(record["row"], record["dataset"]) for record in records}
    first = [row for row in run.all_rows if row.group == "all" and row.key != AGREEMENT]
    names = [
        name
        for name in run.paper.datasets
        if all((row.key, name) in ran for row in first if name in row.datasets)
        and any("rmse" in record for record in records_of(records, "auto", name))
    ]
    return [row for row in run.all_rows if all((row.key, n) in ran for n in names)], names


def _mean(records: Sequence[Record], score: str) -> float:
    """The mean over splits; NaN for none."""
    return float(np.mean([record[score] for record in records])) if records else float("nan")


def _beside_auto(run: PaperRun, records: Sequence[Record]) -> Iterator[str]:
    """The row "auto" beside the best method and beside peers."""
    lines, differences = [], {}
    for name in run.paper.datasets:
        scores = {row.key: records_of(records, row.key, name) for row in run.all_rows}
        means = {
            (key, score): _mean(same, score)
            for key, same in scores.items()
            for score in _REGRETTED
            if same and score in same[0]
        }
        methods = [key for key in scores if key != "auto"]
        if all((key, "nlpd") in means for key in ("auto", "svgp")):
            own = (
                ("chosen", ""),
                ("coverage", ".3f"),
                ("training_seconds", ".0f"),
                ("peak_gib", ".1f"),
            )
            cells = [mean_cell(scores["auto"], *column) for column in own]
            lines.append((name, *cells, *_regret(means, methods)))
            least = means["auto", "nlpd"]
            differences[name] = {k: v - least for (k, part), v in means.items() if part == "nlpd"}
    if not lines:
        return
    header = (
        *("data set", "chosen", "95 % coverage", "s", "GiB"),
        *("NLPD - best row", "RMSE or error / best row", "NLPD - best trees"),
    )
    yield "## auto beside the others"
    yield (
        "Negative numbers are in favor of *auto*. The best row is that of the lowest score among "
        "all others, trees and linear models too, and known only in hindsight; the best trees are "
        "those of the lowest score of four rows of boosted trees."
    )
    yield grid(header, lines)
    height = max(1.2 + 0.35 * len(differences), 0.6 + 0.2 * len(run.all_rows))
    text = "NLPD of every row less that of auto"
    yield _picture(run, "", text, (7.0, height), lambda f: _draw_differences(f, run, differences))


def _regret(means: Mapping[tuple[str, str], float], methods: Sequence[str]) -> Iterator[str]:
    """Scores of "auto" less those of the best method and of the best boosted trees."""
    error = "rmse" if ("auto", "rmse") in means else "error_rate"

    def best(score: str, keys: Sequence[str] = methods) -> float:
        known = [means[key, score] for key in keys if (key, score) in means]
        return min(known, default=float("nan"))

    yield f"{means['auto', 'nlpd'] - best('nlpd'):+.3f}"
    yield f"{100.0 * (means['auto', error] / best(error) - 1.0):+.1f} %"
    yield f"{means['auto', 'nlpd'] - best('nlpd', _TREES):+.3f}"


def _draw_differences(
    figure: Any, run: PaperRun, differences: Mapping[str, Mapping[str, float]]
) -> None:
    """NLPD of every row less that of "auto", by data set."""
    axis, names = figure.subplots(), list(differences)
    shown = {key for found in differences.values() for key in found} - {"auto"}
    for i, row in enumerate(row for row in run.all_rows if row.key in shown):
        places = [i for i, name in enumerate(names) if row.key in differences[name]]
        values = [differences[names[i]][row.key] for i in places]
        style = _style(i) | {"linestyle": "none"}
        axis.plot(values, places, label=row.title, markersize=5, alpha=0.8, **style)
    axis.axvline(0.0, color="black", linewidth=1.0)
    axis.set_xscale("symlog", linthresh=0.05)
    ticks = (-1.0, -0.1, 0.0, 0.1, 1.0)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel(
        "NLPD less that of auto, symmetric log scale (right of the line: auto is better)"
    )
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)


def _times(run: PaperRun) -> Iterator[str]:
    """RMSE against seconds, from the results of all sizes, on the data sets of the size "quick"."""
    quick = run.paper.rows.get("quick", ())
    names = [n for n in run.paper.datasets if any(n in row.datasets for row in quick)]
    records = [record for size in run.paper.rows for record in _results(run, size)]
    points: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in names}
    for name in names:
        for row in run.all_rows:
            same = [r for r in records_of(records, row.key, name) if r["split"] == 0]
            if len(same) > 1 or (same and row.key == "trees"):
                pairs = sorted((r["training_seconds"], r["rmse"]) for r in same)
                points[name][row.title] = pairs
    names = [name for name in names if len(points[name]) > 1]
    if not names:
        return
    yield "## RMSE against time"
    yield (
        "Of split 0, one point for each budget of time, and of boosted trees, which have none, one "
        "point; seconds include the choice, starting values and compilation."
    )

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(names), squeeze=False)[0]
        titles = list(dict.fromkeys(title for name in names for title in points[name]))
        for axis, name in zip(axes, names, strict=True):
            for title, pairs in points[name].items():
                style = _style(titles.index(title))
                axis.plot(*zip(*pairs, strict=True), label=title, markersize=4, lw=1.0, **style)
            axis.set_xscale("log")
            _mark_seconds(axis)
            axis.set_title(name, fontsize=9)
            axis.set_xlabel("seconds")
        axes[0].set_ylabel("RMSE")
        handles = {line.get_label(): line for axis in axes for line in axis.get_lines()}
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, fontsize=8)

    yield _picture(run, "times", "RMSE against seconds", (max(8.0, 2.6 * len(names)), 4.0), draw)


def _regression(run: PaperRun, records: Sequence[Record]) -> Iterator[str]:
    """RMSE and NLPD of all rows, and of published ones, on the regression sets of many rows."""
    known = {record["dataset"] for record in records if "rmse" in record}
    groups = dict(_groups_by_size(records, [n for n in run.paper.datasets if n in known]))
    names, lines, few = groups.get(_MANY, []), [], []
    for row in run.all_rows if names else ():
        found = {name: records_of(records, row.key, name) for name in names}
        done = [f"{name} {_pair(same)}" for name, same in found.items() if same]
        if len(done) > _FEW_SETS:
            lines.append((row.title, *map(_pair, found.values())))
        elif done:
            few.append(f"{row.title}: {'; '.join(done)}.")
    for title, theirs in run.paper.published.items() if names else ():
        scores = ([dict(theirs[name])] if name in theirs else [] for name in names)
        lines.append((f"*paper: {title}*", *map(_pair, scores)))
    if lines:
        yield f"## Regression, {_MANY}"
        yield (
            "RMSE, NLPD; – where a row was not run. Sets of fewer rows are in the picture above, "
            "and with ten splits on [their own page](small_tables.md)."
        )
        yield grid(("", *names), lines)
        yield " ".join(few)


def _pair(scores: Sequence[Record]) -> str:
    """RMSE and NLPD, of records or as printed in a paper, by title."""
    pairs = (
        (("rmse", ".3f"), ("nlpd", ".3f"))
        if "rmse" in (scores or [{}])[0]
        else (("RMSE", ""), ("NLPD", ""))
    )
    return ", ".join(filter(None, (mean_cell(scores, *pair) for pair in pairs))) or "–"


def _mark_seconds(axis: Any) -> None:
    """Few ticks of a logarithmic axis, whose labels do not overlap."""
    low, high = axis.get_xlim()
    ticks = [tick for tick in (1, 3, 7, 15, 30, 60, 120, 300, 1000) if low <= tick <= high]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()


def _results(run: PaperRun, size: str) -> list[Record]:
    """Finished records of a size, whichever were run."""
    path = run.folder / f"{replace(run, size=size, rows=(), splits=()).stem}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = [record for record in map(json.loads, lines) if record["row"] != AGREEMENT]
    return [with_derived(record) for record in found]


def _calibration(run: PaperRun, records: Sequence[Record]) -> Iterator[str]:
    """Coverage of central intervals less their probability, a mean over the ranked data sets."""
    rows, names = _ranked(run, records)
    curves = {}
    for row in rows:
        same = [r for n in names for r in records_of(records, row.key, n) if "covered" in r]
        if same:
            curves[row.title] = np.array([record["covered"] for record in same]) - LEVELS
    if not curves:
        return
    yield "## Calibration"
    yield (
        "Fraction of test rows inside the central interval of a probability, less that "
        "probability, a mean over the data sets of the ranks: above zero intervals are too "
        "wide, below too narrow; the table has the mean size over sets and probabilities."
    )

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        axis.axhline(0.0, color="0.5", linewidth=0.8)
        for i, (title, found) in enumerate(curves.items()):
            axis.plot(LEVELS, found.mean(axis=0), label=title, markersize=4, lw=1.0, **_style(i))
        axis.set_xlabel("probability of the interval")
        axis.set_ylabel("coverage less probability")
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)

    yield _picture(run, "calibration", "Coverage less probability", (7.5, 3.8), draw)
    lines = []
    for title, found in sorted(curves.items(), key=lambda pair: np.abs(pair[1]).mean()):
        same = [r for r in records if r["title"] == title and r["status"] == "done"]
        seconds, peaks = ([r[key] for r in same] for key in ("training_seconds", "peak_gib"))
        cells = f"{min(seconds):.0f} to {max(seconds):.0f}", f"{min(peaks):.1f} to {max(peaks):.1f}"
        lines.append((title, f"{np.abs(found).mean():.3f}", *cells))
    yield grid(("", "mean error of coverage", "s, all sets", "GiB, all sets"), lines)


def _agreement(records: Sequence[Record]) -> Iterator[str]:
    """Largest differences of libraries to GPflow at fixed hyperparameters."""
    for record in records:
        if record["status"] == "done":
            largest: dict[str, float] = {}
            for found in record["differences"]:
                largest[found["library"]] = max(
                    largest.get(found["library"], 0), found["difference"]
                )
            yield "## The libraries agree"
            yield (
                f"On {record['num_rows']} training rows of {record['dataset']}, with the same "
                "kernel, noise variance, points and q, before anything is trained, objectives, "
                "means and variances differ from GPflow's, relative to the largest absolute value, "
                f"by at most {', '.join(f'{v:.1e} ({k})' for k, v in largest.items())}."
            )


def _style(i: int) -> dict[str, str]:
    """Color, marker and line of the method number i; dashed where colors begin again."""
    turn, color = divmod(i, len(_COLORS))
    marker = _MARKERS[i % len(_MARKERS)]
    return {"color": _COLORS[color], "marker": marker, "linestyle": "--" if turn % 2 else "-"}


def _picture(
    run: PaperRun, name: str, text: str, size: tuple[float, float], draw: Callable[[Any], None]
) -> str:
    """
    Markdown of a picture in the folder of the run; empty without matplotlib, since a picture must
    not end hours of training.

    :param name: ending of its file name; none for that of the page.
    :param draw: function that draws in an empty figure.
    """
    try:
        figure = new_figure(*size)
    except ImportError:
        return ""
    draw(figure)
    path = run.folder / f"{run.stem}{f'-{name}' if name else ''}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    return f"![{text}]({path.name})"
