"""The tables and pictures of papers whose rows are trained for so many minutes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_sparse.bench.papers.budget import duration
from gpflow_sparse.bench.papers.spec import PaperRun, Record
from gpflow_sparse.bench.papers.table import failures, grid, heading, machine
from gpflow_sparse.persistence import files
from gpflow_sparse.runs.plots import new_figure

# Of the tables: key of the record and its format, by title.
_COLUMNS = {
    "accuracy, %": ("accuracy", ".2f"),
    "NLPD": ("nlpd", ".4f"),
    "ECE": ("ece", ".4f"),
    "steps": ("steps", ".0f"),
    "ms per step": ("milliseconds_per_step", ".0f"),
    "minutes": ("minutes", ".1f"),
}
# Of the curves: key of a point and its format, by title.
_CURVES = {"Accuracy, %": ("accuracy", ".2f"), "NLPD": ("nlpd", ".4f"), "ELBO": ("elbo", ".4g")}


def write_timed_table(run: PaperRun, records: Sequence[Record], paces: Mapping[str, float]) -> Path:
    """
    Write ``NAME.md`` in the folder of the run, and a picture of each data set's learning curves.

    :param records: of all tasks run so far.
    :param paces: seconds of a task, by key of the row.
    :return: path of the page.
    """
    path = run.folder / f"{run.stem}.md"
    done = [record for record in records if record["status"] == "done"]
    sections = [
        *heading(run),
        f"Our numbers were made on {machine(done[-1])}" if done else "",
        *(part for name in run.paper.datasets for part in _dataset(run, name, done)),
        *_left(run, records, paces),
        *failures(records, with_split=True),
    ]
    files.write_text(path, "\n\n".join(section for section in sections if section) + "\n")
    return path


def averages(records: Sequence[Record]) -> dict[str, str]:
    """Means over splits, for accuracy and NLPD with standard deviations, by title of the column."""
    cells = {"splits": f"{len(records)}"}
    for title, (key, form) in _COLUMNS.items():
        values = [_value(record, key) for record in records]
        spread = key in ("accuracy", "nlpd") and len(values) > 1
        mean = f"{np.mean(values):{form}}" if values else ""
        cells[title] = mean + (f" ± {np.std(values):{form}}" if spread else "")
    return cells


def _value(record: Record, key: str) -> float:
    return record["training_seconds"] / 60.0 if key == "minutes" else record[key]


def _dataset(run: PaperRun, name: str, done: Sequence[Record]) -> list[str]:
    """Everything about one data set, rows in the order of the paper's description."""
    rows = [
        (row.title, [record for record in done if record["row"] == row.key])
        for row in run.paper.sizes[run.size].rows
        if row.options["dataset"] == name
    ]
    rows = [(title, records) for title, records in rows if records]
    if not rows:
        return []
    first = rows[0][1][0]
    lines = [(title, *averages(records).values()) for title, records in rows]
    for title, scores in run.paper.published.items():
        if name in scores:
            cells = (scores[name].get(column, "") for column in averages([]))
            lines.append((f"*paper: {title}*", *cells))
    watched = f"on the first {first['num_watched']} test rows of split {first['split']}"
    shares = tuple(f"{k}0 %" for k in range(1, 11))
    curves = [
        part
        for title, (key, form) in _CURVES.items()
        for part in (
            f"{title} of a batch, mean:" if key == "elbo" else f"{title}, {watched}:",
            grid(("share of the time", *shares), [_curve(*row, key, form) for row in rows]),
        )
    ]
    picture = _draw(run, name, rows)
    return [
        f"## {name}",
        f"{first['num_train']} training and {first['num_test']} test rows.",
        grid(("", *averages([])), lines),
        *curves,
        f"![Learning curves]({picture.name})" if picture else "",
    ]


def _curve(title: str, records: Sequence[Record], key: str, form: str) -> tuple[str, ...]:
    points = [f"{point[key]:{form}}" for point in records[0]["curve"]][:10]
    return (title, *points, *[""] * (10 - len(points)))


def _draw(run: PaperRun, name: str, rows: Sequence[tuple[str, Sequence[Record]]]) -> Path | None:
    """Accuracy and NLPD against minutes; nothing where pictures cannot be drawn."""
    try:
        figure = new_figure(10.0, 4.2)
    except ValueError:  # without matplotlib; hours of training shall not end in that
        return None
    axes: Any = figure.subplots(1, 2)
    for title, records in rows:
        points = records[0]["curve"]
        minutes = [point["seconds"] / 60.0 for point in points]
        for axis, key in zip(axes, ("accuracy", "nlpd"), strict=True):
            axis.plot(minutes, [point[key] for point in points], marker=".", label=title)
    for axis, label in zip(axes, ("accuracy, %", "NLPD"), strict=True):
        axis.set_xlabel("minutes of training")
        axis.set_ylabel(label)
    axes[0].legend(fontsize=8, loc="lower right")
    path = run.folder / f"{run.stem}-{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def _left(run: PaperRun, records: Sequence[Record], paces: Mapping[str, float]) -> list[str]:
    """What was not run, with what it would take."""
    keys = {(record["row"], record["dataset"], record["split"]) for record in records}
    missing: dict[tuple[str, str, str], list[float]] = {}
    for task in run.tasks():
        if task.key not in keys:
            place = (task.row.title, task.row.key, task.dataset)
            seconds = paces.get(task.row.key) or 60.0 * task.row.options["minutes"]
            missing.setdefault(place, []).append(seconds)
    if not missing:
        return []
    lines = [
        (title, name, f"{len(times)}", duration(sum(times)))
        for (title, _, name), times in missing.items()
    ]
    return [
        "## Not run yet",
        "The same command goes on with these, if `--minutes` gives it the time.",
        grid(("", "data set", "splits", "expected time"), lines),
    ]
