"""The table of a paper over splits as Markdown: means and standard deviations, ours and theirs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpflow_sparse.bench.papers.budget import duration
from gpflow_sparse.bench.papers.spec import PaperRun, Record, Row
from gpflow_sparse.bench.papers.table import failures, grid, heading, machine
from gpflow_sparse.persistence import files

Found = Mapping[tuple[str, str], Sequence[Record]]
Expected = Mapping[tuple[str, str], float]


class Published(NamedTuple):
    """A cell of the paper's table, with the digits that it has there."""

    rmse: str
    """Mean and standard deviation over the splits, as in ``0.554 ± 0.277``."""
    hours: str | None = None
    """Per split."""

    def reached_by(self, rmse: float) -> bool:
        """Whether a mean, with as many digits, is within one standard deviation, or better."""
        mean, _, deviation = self.rmse.partition(" ± ")
        digits = len(mean.partition(".")[2])
        return round(rmse, digits) <= round(float(mean) + float(deviation), 9)


def write_splits_table(
    run: PaperRun,
    records: Sequence[Record],
    expected: Expected,
    compared: Mapping[str, str],
    details: Mapping[str, tuple[str, str]],
) -> Path:
    """
    Write ``NAME.md`` in the folder of the run.

    :param records: of all tasks run so far.
    :param expected: seconds per split, by key of the row and data set; 0 where not known.
    :param compared: the published title beside which a row stands, by key of the row.
    :param details: more columns: key of the record and its format, by title.
    :return: path of the file.
    """
    path = run.folder / f"{run.stem}.md"
    rows = run.paper.sizes[run.size].rows
    done = [record for record in records if record["status"] == "done"]
    found = {
        (row.key, name): [r for r in done if (r["row"], r["dataset"]) == (row.key, name)]
        for row in rows
        for name in run.paper.datasets
    }
    sections = [
        *heading(run),
        f"Our numbers were made on {machine(done[-1])}" if done else "",
        "## Test RMSE",
        _overview(run, found),
        *(part for row in rows for part in _row_section(run, row, found, compared, details)),
        *_left(run, records, expected),
        *failures(records, with_split=True),
    ]
    files.write_text(path, "\n\n".join(section for section in sections if section) + "\n")
    return path


def _overview(run: PaperRun, found: Found) -> str:
    """Every row and every published one, side by side."""
    paper, rows = run.paper, run.paper.sizes[run.size].rows
    lines = []
    for name in paper.datasets:
        records = [record for row in rows for record in found[row.key, name]]
        sizes = [(f"{r['num_train'] + r['num_test']}", f"{r['num_columns']}") for r in records]
        cells = (*(sizes[0] if sizes else ("–", "–")), *(_cell(found[r.key, name]) for r in rows))
        theirs = (paper.published[title][name].rmse for title in paper.published)
        lines.append((name, *cells, *theirs))
    titles = (*(row.title for row in rows), *(f"*paper: {t}*" for t in paper.published))
    return grid(("data set", "N", "D", *titles), lines)


def _row_section(
    run: PaperRun,
    row: Row,
    found: Found,
    compared: Mapping[str, str],
    details: Mapping[str, tuple[str, str]],
) -> list[str]:
    """All there is to say of one row: against the paper, against the first row, and the rest."""
    first = run.paper.sizes[run.size].rows[0]
    theirs = run.paper.published[compared[row.key]]
    lines, verdicts = [], []
    for name in run.paper.datasets:
        records = found[row.key, name]
        if not records:
            continue
        mean = float(np.mean([r["rmse"] for r in records]))
        verdicts.append(theirs[name].reached_by(mean))
        other = [] if row is first else [_cell(_on_splits(found[first.key, name], records))]
        extra = (_mean(records, key, form) for key, form in details.values())
        lines.append(
            (
                name,
                _cell(records),
                *other,
                theirs[name].rmse,
                "yes" if verdicts[-1] else "no",
                _mean(records, "nlpd", ".3f"),
                _mean(records, "coverage_95", ".3f"),
                _mean(records, "seconds", ".1f"),
                _seconds(theirs[name].hours),
                *extra,
            )
        )
    if not lines:
        return []
    header = ("data set", "RMSE", *([] if row is first else [f"{first.title}, same splits"]))
    header += ("paper", "reached", "NLPD", "95 % coverage", "s per split", "paper's", *details)
    reached = (
        f"Within one standard deviation of the paper's {compared[row.key]}, or better, on "
        f"{sum(verdicts)} of {len(verdicts)} data sets."
    )
    return [f"## {row.title}", reached, grid(header, lines)]


def _on_splits(records: Sequence[Record], like: Sequence[Record]) -> list[Record]:
    splits = {record["split"] for record in like}
    return [record for record in records if record["split"] in splits]


def _cell(records: Sequence[Record]) -> str:
    if not records:
        return "–"
    values = [record["rmse"] for record in records]
    spread = f" ± {np.std(values):.2g}" if len(values) > 1 else ""
    return f"{np.mean(values):.4g}{spread} ({len(values)})"


def _mean(records: Sequence[Record], key: str, form: str) -> str:
    return format(float(np.mean([record[key] for record in records])), form)


def _seconds(hours: str | None) -> str:
    return "" if hours is None else f"{3600.0 * float(hours):.0f}"


def _left(run: PaperRun, records: Sequence[Record], expected: Expected) -> list[str]:
    """What was not run, with what it would take."""
    keys = {(record["row"], record["dataset"], record["split"]) for record in records}
    missing: dict[tuple[str, str, str], int] = {}
    for task in run.tasks():
        if task.key not in keys:
            place = (task.row.title, task.row.key, task.dataset)
            missing[place] = missing.get(place, 0) + 1
    if not missing:
        return []
    lines = []
    for (title, key, name), count in missing.items():
        seconds: Any = expected[key, name]
        time = duration(seconds * count) if seconds else "not measured"
        lines.append((title, name, f"{count}", time))
    return [
        "## Not run yet",
        "The same command goes on with these, if `--minutes` gives it the time.",
        grid(("", "data set", "splits", "expected time"), lines),
    ]
