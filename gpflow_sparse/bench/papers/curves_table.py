"""The table of a paper with learning curves as Markdown: our numbers beside the published ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpflow_sparse.bench.papers.spec import PaperRun, Record
from gpflow_sparse.bench.papers.table import failures, grid, heading, machine
from gpflow_sparse.persistence import files


def write_curves_table(
    run: PaperRun, records: Sequence[Record], columns: Mapping[str, tuple[str, str]]
) -> Path:
    """
    Write ``NAME.md`` in the folder of the run.

    :param records: of all tasks run so far.
    :param columns: key of the record and its format, by title.
    :return: path of the file.
    """
    path = run.folder / f"{run.stem}.md"
    done = [record for record in records if record["status"] == "done"]
    sections = [
        *heading(run),
        f"Our numbers were made on {machine(done[-1])}" if done else "",
        *(part for name in run.paper.datasets for part in _dataset(run, name, done, columns)),
        *_left(run, records),
        *failures(records),
    ]
    files.write_text(path, "\n\n".join(section for section in sections if section) + "\n")
    return path


def _dataset(
    run: PaperRun, name: str, done: Sequence[Record], columns: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Everything about one data set, rows in the order of the paper's description."""
    order = [row.key for row in run.paper.sizes[run.size].rows]
    records = sorted(
        (r for r in done if r["dataset"] == name), key=lambda record: order.index(record["row"])
    )
    if not records:
        return []
    scored = [line for record in records for line in lines_of(record)]
    shown = {
        title: (key, form)
        for title, (key, form) in columns.items()
        if any(key in line for line in scored)
    }
    lines = [
        (r["title"], f"{r['steps']}", *(number(r, key, form) for key, form in shown.values()))
        for r in scored
    ]
    for title, scores in run.paper.published.items():
        if name in scores:
            cells = (scores[name].get(column, "") for column in shown)
            lines.append((f"*paper: {title}*", "", *cells))
    split = f"split {records[0]['split']}"
    size = f"{records[0]['num_train']} training and {records[0]['num_test']} test rows"
    return [
        f"## {name}",
        f"{size}, {split}.",
        grid(("", "steps", *shown), lines),
        f"{records[0]['curve_of']}:",
        grid(("share of the steps", *(f"{k}0 %" for k in range(1, 11))), _curves(records)),
    ]


def lines_of(record: Record) -> list[Record]:
    """A record, and what its training was scored as besides: the records in ``also``."""
    shared = {name: record[name] for name in ("dataset", "steps")}
    return [record, *({**shared, **other} for other in record.get("also", ()))]


def number(record: Record, key: str, form: str) -> str:
    """An entry of a record, or nothing where it has none."""
    return f"{record[key]:{form}}" if key in record else ""


def _curves(records: Sequence[Record]) -> list[tuple[str, ...]]:
    lines = []
    for record in records:
        points = [f"{score:.4f}" for _, score in record["curve"]][:10]
        lines.append((record["title"], *points, *[""] * (10 - len(points))))
    return lines


def _left(run: PaperRun, records: Sequence[Record]) -> list[str]:
    """Rows that were not run."""
    found = {(record["row"], record["dataset"]) for record in records}
    lines = []
    for row in run.paper.sizes[run.size].rows:
        missing = [
            n
            for n in run.chosen_datasets
            if n in row.options["datasets"] and (row.key, n) not in found
        ]
        if missing:
            lines.append((row.title, ", ".join(missing)))
    if not lines:
        return []
    intro = "The same command goes on with these rows, if `--minutes` gives it the time."
    return ["## Not run yet", intro, grid(("", "data sets"), lines)]
