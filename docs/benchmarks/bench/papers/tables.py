"""Tables of a paper, from its JSON lines: our results beside the published ones."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.figures import new_figure
from bench.papers.rejection import draw_rejection
from bench.papers.spec import PaperRun, Record, Row, key_of

WATCHED = 1000
"""Test rows of a learning curve that is scored during training."""


def expected_times(records: Iterable[Record]) -> dict[tuple[str, str], float]:
    """Seconds of the last successful task of each row and data set."""
    return {key_of(r)[:2]: seconds_of(r) for r in records if r["status"] == "done"}


def seconds_of(record: Record) -> float:
    """Seconds of a task, also of one that was interrupted and resumed."""
    trained = 1e-3 * record.get("milliseconds_per_step", 0.0) * record.get("steps", 0)
    return max(trained, record.get("task_seconds", 0.0))


def duration(seconds: float) -> str:
    """A duration as text, in minutes, or in hours if more than two."""
    minutes = seconds / 60.0
    return f"{minutes:.0f} min" if minutes <= 120.0 else f"{minutes / 60.0:.1f} h"


def summary(run: PaperRun, records: Sequence[Record]) -> tuple[tuple[str, ...], list[Any]]:
    """Header and rows of what the command line prints: means over splits."""
    paper, rows = run.paper, []
    records = [with_derived(record) for record in records]
    titles = tuple(paper.printed or paper.columns)
    for name in paper.datasets:
        for title, same in lines_of(run, records, name):
            cells = (mean_cell(same, *paper.columns[column]) for column in titles)
            rows.append((name, title, *cells))
    return ("data set", "model", *titles), rows


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_derived(record: Record) -> Record:
    """The record with derived entries, which columns and cells may name too."""
    derived: Record = {"splits": record["split"]}
    derived["minutes"] = record.get("training_seconds", 0.0) / 60.0
    derived |= {"peak_gib": record["peak"] / 1024.0} if "peak" in record else {}
    return record | derived


def lines_of(
    run: PaperRun, records: Sequence[Record], dataset: str
) -> Iterator[tuple[str, list[Record]]]:
    """Title and records (of all splits) of each row, then of the other scores of its training."""
    for row in run.all_rows:
        same = records_of(records, row.key, dataset)
        if same:
            yield row.title, same
            for others in zip(*(r.get("also", ()) for r in same), strict=True):
                yield (
                    others[0]["title"],
                    [{"steps": r["steps"], **o} for r, o in zip(same, others, strict=True)],
                )


def records_of(records: Sequence[Record], row: str, dataset: str) -> list[Record]:
    """The records of a row on a data set, of all splits that ended well."""
    return [r for r in records if (*key_of(r)[:2], r["status"]) == (row, dataset, "done")]


def mean_cell(records: Sequence[Record], key: str, form: str, spread: str = "") -> str:
    """Mean over splits, with the standard deviation if asked for; empty where there is none."""
    values = [record[key] for record in records if key in record]
    if key == "splits" or not values:
        return f"{len(values)}" if values else ""
    if isinstance(values[0], str):
        return ", ".join(dict.fromkeys(values))
    mean = values[0] if len(set(values)) == 1 else np.mean(values)
    return f"{mean:{form}}" + (f" ± {np.std(values):{form}}" if spread and len(values) > 1 else "")


def by_metric(run: PaperRun, records: Sequence[Record]) -> Iterator[str]:
    """A table for each metric, with a column for each data set: means over splits."""
    paper, found = run.paper, {key_of(record)[:2] for record in records}
    done: dict[str, list[Record]] = {}
    for record in records:
        if record["status"] == "done":
            done.setdefault(record["dataset"], []).append(record)
    known = {name for _, name in found} | {name for t in paper.published.values() for name in t}
    names = [name for name in paper.datasets if name in known]
    yield f"Split {records[0]['split']}. {'; '.join(map(_size, done.values()))}." if done else ""

    def cell(row: str, name: str, form: str) -> str:
        own = records_of(records, row, name)
        if not own:
            return "failed" if (row, name) in found else "–"
        keys = (key for key in own[0] if isinstance(own[0][key], int | float))
        means = {key: np.mean([record[key] for record in own]) for key in keys}
        return form.format(**(own[0] | means))

    sections = [part for part in paper.sections if part.get("size", run.size) == run.size]
    for section in sections:
        rows = [
            (row.title, *(cell(row.key, name, section["cell"]) for name in names))
            for row in run.all_rows
            if any((row.key, name) in found for name in names)
        ]
        # of a paper that is run in two sizes, beside the rows of its own size
        own = run.size == "full" or "full" not in paper.rows
        column = section.get("published") if own else None
        for title, scores in paper.published.items() if column else ():
            theirs = (scores.get(name, {}).get(column or "", "") for name in names)
            rows.append((f"*paper: {title}*", *theirs))
        yield f"## {section['heading']}" if "heading" in section else ""
        yield section.get("text", "")
        yield grid(("", *names), rows)


def _size(records: Sequence[Record]) -> str:
    """Name, rows and steps of a data set, and its splits if there are several."""
    last, splits = records[-1], sorted({record["split"] for record in records})
    text = f"{last['dataset']}: {last['num_train']} training and {last['num_test']} test rows"
    text += f", {last['steps']} steps ({last['epochs']:.0f} epochs)" if "epochs" in last else ""
    several = f", means over splits {', '.join(map(str, splits))}"
    return text + (several if len(splits) > 1 else "")


def by_dataset(run: PaperRun, records: Sequence[Record]) -> Iterator[str]:
    """For each data set a table with a column for each metric, and a picture of learning curves."""
    paper = run.paper
    for name in paper.datasets:
        lines = list(lines_of(run, records, name))
        if not lines:
            continue
        members = [record for _, same in lines for record in same]
        shown = {t: c for t, c in paper.columns.items() if any(c[0] in r for r in members)}
        rows = [(title, *(mean_cell(same, *c) for c in shown.values())) for title, same in lines]
        for title, scores in paper.published.items():
            if name in scores:
                cells = (scores[name].get(column, "") for column in shown)
                rows.append((f"*paper: {title}*", *cells))
        own = [same for _, same in lines if "num_train" in same[0]]
        first, splits = own[0][0], sorted({r["split"] for same in own for r in same})
        yield f"## {name}"
        yield (
            f"{first['num_train']} training and {first['num_test']} test rows, "
            f"split{'s' * (len(splits) > 1)} {', '.join(map(str, splits))}."
        )
        yield grid(("", *shown), rows)
        picture = _draw(run, name, [same[0] for same in own]) if paper.picture else None
        yield f"![Learning curves]({picture.name})" if picture else ""
        yield from _rejection(run, name, [same for same in own if "kept" in same[0]])


def _rejection(run: PaperRun, dataset: str, lines: Sequence[list[Record]]) -> Iterator[str]:
    """A picture of rejection curves, means over splits, beside the reliability."""
    if not lines:
        return
    titles = {row.key: row.title for row in run.all_rows}
    curves = {titles[same[0]["row"]]: np.mean([r["kept"] for r in same], axis=0) for same in lines}
    pooled = {titles[same[0]["row"]]: [r["reliability"] for r in same] for same in lines}
    path = run.folder / f"{run.stem}-{dataset}.png"
    if draw_rejection(path, run.paper.kept, curves, pooled):
        yield f"![Rejection curves and reliability]({path.name})"


def _points(record: Record) -> list[dict[str, float]]:
    """The learning curve; older records have pairs of a step and a score."""
    return [
        point if isinstance(point, dict) else {"step": point[0], "score": point[1]}
        for point in record["curve"]
    ]


def _draw(run: PaperRun, dataset: str, records: Sequence[Record]) -> Path | None:
    """Scores against minutes; nothing where pictures cannot be drawn."""
    try:
        figure = new_figure(10.0, 4.8)
    except ImportError:  # without matplotlib, which must not end hours of training
        return None
    titles = {row.key: row.title for row in run.all_rows}
    axes: Any = figure.subplots(1, len(run.paper.picture))
    for axis, (key, label) in zip(axes, run.paper.picture.items(), strict=True):
        for record in records:
            minutes = [point["seconds"] / 60.0 for point in _points(record)]
            scores = [point[key] for point in _points(record)]
            axis.plot(minutes, scores, marker=".", label=titles[record["row"]])
        axis.set_xlabel("minutes of training")
        axis.set_ylabel(label)
    lines = axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=3, fontsize=8)
    path = run.folder / f"{run.stem}-{dataset}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def by_row(run: PaperRun, records: Sequence[Record]) -> Iterator[str]:
    """All rows over all data sets, then a table for each row next to a published one."""
    paper, lines = run.paper, []
    for name in paper.datasets:
        found = [records_of(records, row.key, name) for row in run.all_rows]
        one = next((same[0] for same in found if same), None)
        sizes = (f"{one['num_train'] + one['num_test']}", f"{one['num_columns']}") if one else "––"
        theirs = (scores[name]["RMSE"] for scores in paper.published.values())
        lines.append((name, *sizes, *map(_rmse, found), *theirs))
    titles = (*(row.title for row in run.all_rows), *(f"*paper: {t}*" for t in paper.published))
    yield "## Test RMSE"
    yield grid(("data set", "N", "D", *titles), lines)
    for row in run.all_rows:
        yield from _row_table(run, row, records)


def _row_table(run: PaperRun, row: Row, records: Sequence[Record]) -> Iterator[str]:
    """Where a row is not as good as the published one, and its scores other than the RMSE."""
    paper, lines, missed = run.paper, [], []
    for name in paper.datasets:
        same = records_of(records, row.key, name)
        if not same:
            continue
        theirs = paper.published[row.compared][name]
        if not reached(theirs["RMSE"], float(np.mean([r["rmse"] for r in same]))):
            missed.append(name)
        seconds = f"{3600.0 * float(theirs['hours']):.0f}" if "hours" in theirs else ""
        cells = (mean_cell(same, *paper.columns[title]) for title in paper.details)
        lines.append((name, *cells, seconds))
    if lines:
        yield f"## {row.title}"
        yield (
            f"RMSE within one standard deviation of the paper's {row.compared}, or better, on "
            f"{len(lines) - len(missed)} of {len(lines)} data sets"
            f"{', not on ' * bool(missed)}{', '.join(missed)}."
        )
        yield grid(("data set", *paper.details, "paper's s per split"), lines)


def reached(published: str, rmse: float) -> bool:
    """
    Whether a mean is within one published standard deviation of the published mean, or lower.

    :param published: mean and standard deviation, as in ``0.554 ± 0.277``; its digits are used.
    """
    mean, _, deviation = published.partition(" ± ")
    digits = len(mean.partition(".")[2])
    return round(rmse, digits) <= round(float(mean) + float(deviation), 9)


def _rmse(records: Sequence[Record]) -> str:
    if not records:
        return "–"
    values = [record["rmse"] for record in records]
    spread = f" ± {np.std(values):.2g}" if len(values) > 1 else ""
    return f"{np.mean(values):.4g}{spread} ({len(values)})"
