"""What the Markdown tables of all papers share."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpflow_sparse.bench.papers.spec import PaperRun


def heading(run: PaperRun) -> list[str]:
    """The title, what makes the page, and the notes."""
    command = f"gpflow-sparse bench paper {run.paper.name} --size {run.size}"
    by = f"Written by `{command}`; not edited by hand. {run.paper.citation}."
    return [f"# {run.paper.title}", by, *run.paper.notes]


def machine(record: Mapping[str, Any]) -> str:
    """What a record was made on."""
    gpus = record["devices"].count("GPU")
    cores = f"{record['cores']} CPU cores" + (f", {gpus} GPU" if gpus else ", no GPU")
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    return f"{cores}; {versions}."


def failures(records: Sequence[Mapping[str, Any]], with_split: bool = False) -> list[str]:
    """A section of the tasks that failed, if there are any."""
    lines = []
    for r in records:
        if r["status"] == "failed":
            split = f", split {r['split']}" if with_split else ""
            lines.append(f"- {r['title']}, {r['dataset']}{split}: {r['message']}")
    return ["## Failed", "\n".join(lines)] if lines else []


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
