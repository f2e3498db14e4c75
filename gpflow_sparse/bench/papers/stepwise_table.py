"""The table of a stepwise paper as Markdown: our numbers beside the published ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpflow_sparse.bench.papers.budget import duration
from gpflow_sparse.bench.papers.spec import PaperRun
from gpflow_sparse.bench.papers.table import failures, grid, heading, machine
from gpflow_sparse.persistence import files

Records = Mapping[tuple[str, str], Mapping[str, Any]]


def write_stepwise_table(
    run: PaperRun,
    records: Sequence[Mapping[str, Any]],
    step_times: Mapping[str, float],
    steps: Mapping[str, int],
) -> Path:
    """
    Write ``NAME.md`` in the folder of the run.

    :param records: of all rows run so far.
    :param step_times: measured milliseconds per step, by row; also of rows that were not run.
    :param steps: of every row, by data set, for the data sets of this run.
    :return: path of the file.
    """
    path = run.folder / f"{run.stem}.md"
    found = {(record["row"], record["dataset"]): record for record in records}
    sections = [
        *heading(run),
        _effort(records),
        "## Test RMSE",
        _scores(run, found, "rmse", 0),
        "## Mean test log-likelihood",
        _scores(run, found, "log_likelihood", 1),
        "## Training",
        "Milliseconds per step (median) and, in brackets, seconds of training, compilation "
        "included.",
        _training(run, found),
        "Objective per training row in nats: mean over the batches of the last tenth of the steps.",
        _objectives(run, found),
        *_left(run, found, step_times, steps),
        *failures(records),
    ]
    files.write_text(path, "\n\n".join(section for section in sections if section) + "\n")
    return path


def _effort(records: Sequence[Mapping[str, Any]]) -> str:
    """Steps, epochs, rows, machine."""
    if not records:
        return ""
    by_name = {record["dataset"]: record for record in records}
    parts = [
        f"{name}: {r['num_train']} training and {r['num_test']} test rows, {r['steps']} steps "
        f"({r['epochs']:.0f} epochs)"
        for name, r in by_name.items()
    ]
    last = records[-1]
    return f"Split {last['split']}. {'; '.join(parts)}. {machine(last)}"


def _scores(run: PaperRun, found: Records, metric: str, position: int) -> str:
    """Our rows, then the published ones."""
    rows = []
    for row in run.paper.sizes[run.size].rows:
        cells = [_cell(found.get((row.key, n)), f"{{{metric}:.3f}}") for n in run.paper.datasets]
        rows.append((row.title, *cells))
    for title, scores in run.paper.published.items():
        cells = [f"{scores[n][position]:.3f}" if n in scores else "" for n in run.paper.datasets]
        rows.append((f"*paper: {title}*", *cells))
    return grid(("", *run.paper.datasets), rows)


def _training(run: PaperRun, found: Records) -> str:
    form = "{milliseconds_per_step:.0f} ({training_seconds:.0f})"
    return _ours(run, found, form)


def _objectives(run: PaperRun, found: Records) -> str:
    return _ours(run, found, "{elbo_per_row:.3f}")


def _ours(run: PaperRun, found: Records, form: str) -> str:
    rows = [
        (row.title, *(_cell(found.get((row.key, n)), form) for n in run.paper.datasets))
        for row in run.paper.sizes[run.size].rows
    ]
    return grid(("", *run.paper.datasets), rows)


def _cell(record: Mapping[str, Any] | None, form: str) -> str:
    if record is None:
        return "–"
    if record["status"] != "done":
        return "failed"
    return form.format(**record, elbo_per_row=record["elbo"] / record["num_train"])


def _left(
    run: PaperRun, found: Records, step_times: Mapping[str, float], steps: Mapping[str, int]
) -> list[str]:
    """Rows that were not run, with what they would take."""
    rows = []
    for row in run.paper.sizes[run.size].rows:
        missing = [name for name in steps if (row.key, name) not in found]
        step = step_times.get(row.key)
        if missing and step is None:
            rows.append((row.title, ", ".join(missing), "not measured"))
        elif missing and step is not None:
            times = (f"{name} {duration(1e-3 * step * steps[name])}" for name in missing)
            rows.append((row.title, ", ".join(times), f"{step:.0f} ms"))
    if not rows:
        return []
    return [
        "## Not run yet",
        "The same command goes on with these rows, if `--minutes` gives it the time.",
        grid(("", "expected time", "one step"), rows),
    ]
