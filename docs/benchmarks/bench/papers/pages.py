"""The page of a paper, in Markdown: heading, tables, details, what was not run, what failed."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.papers import comparison, tables
from bench.papers.spec import PaperRun, Record, key_of
from gpflow_sparse.persistence import files

LAYOUTS: Mapping[str, Callable[[PaperRun, Sequence[Record]], Iterator[str]]] = {
    "by_metric": tables.by_metric,
    "by_dataset": tables.by_dataset,
    "by_row": tables.by_row,
    "by_rank": comparison.by_rank,
}
# Data sets that are named; of more their number is told.
_MANY = 4


def write_page(run: PaperRun, records: Sequence[Record]) -> Path:
    """
    Write the page, and pictures of learning curves where the paper has them.

    :param records: of all tasks run so far.
    :return: path of the page, ``NAME.md`` in the folder of the run.
    """
    records = [tables.with_derived(record) for record in records]
    done = [record for record in records if record["status"] == "done"]
    sections = [
        *_heading(run),
        *LAYOUTS[run.paper.layout](run, records),
        "## How it was run",
        *_paragraphs(run.paper.notes),
        f"Computed on {_machine(done)}" if done else "",
        *_left(run, records),
        *_failures(records),
    ]
    path = run.folder / f"{run.stem}.md"
    files.write_text(path, "\n\n".join(section for section in sections if section) + "\n")
    return path


def _heading(run: PaperRun) -> list[str]:
    paper = run.paper
    command = f"python docs/benchmarks/run.py paper {paper.name} --size {run.size}"
    command += f" --steps {run.steps}" if run.steps else ""
    command += f" --datasets {','.join(run.datasets)}" if run.datasets else ""
    command = paper.command.format(size=run.size) or command
    by = f"Written by `{command}`. {paper.citation}. [How it was run](#how-it-was-run)."
    return [f"# {paper.title}", by, *_paragraphs(paper.protocol)]


def _paragraphs(text: str) -> list[str]:
    """Parts of a text between empty lines, each as one line."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip())]


def _machine(records: Sequence[Record]) -> str:
    """Of the last record, and the cores that rows had, in older records not known."""
    record, threads = records[-1], sorted({r["threads"] for r in records if "threads" in r})
    gpus = record["devices"].count("GPU")
    cores = f"{record['cores']} CPU cores"
    cores += f", {' or '.join(map(str, threads))} for each row" if threads else ""
    cores += f", {gpus} GPU" if gpus else ", no GPU"
    versions = ", ".join(f"{name} {record['versions'][name]}" for name in ("gpflow", "tensorflow"))
    return f"{cores}; {versions}."


def _left(run: PaperRun, records: Sequence[Record]) -> list[str]:
    """The chosen tasks that were not run."""
    keys = {key_of(record) for record in records}
    missing: dict[str, list[str]] = {}
    for row, name, split in run.tasks():
        if (row.key, name, split) not in keys:
            missing.setdefault(row.title, []).append(name)
    lines = []
    for title, names in missing.items():
        counts = Counter(names)
        told = [f"{name}, {n} splits" if n > 1 else name for name, n in counts.items()]
        told = [f"{len(counts)} data sets"] if len(counts) > _MANY else told
        lines.append(f"{title} ({', '.join(told)})")
    text = f"The same command continues with {'; '.join(lines)}."
    return ["## Not run yet", text] if lines else []


def _failures(records: Sequence[Record]) -> list[str]:
    lines = [
        f"- {r['title']}, {r['dataset']}, split {r['split']}: {r['message']}"
        for r in records
        if r["status"] == "failed"
    ]
    return ["## Failed", "\n".join(lines)] if lines else []
