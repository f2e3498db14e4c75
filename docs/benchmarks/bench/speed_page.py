"""The page of measurements of speed and memory, from the records of its commands."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomllib

from bench.papers.tables import grid
from bench.provenance import processor, provenance
from bench.steps import Row, Tables, table_of
from gpflow_sparse.persistence import files

Record = dict[str, Any]
"""A command, where and when it ran, and its tables."""

_LAYOUT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_INTRODUCTION: str = _LAYOUT["introduction"]
SECTIONS: list[dict[str, Any]] = _LAYOUT["sections"]


def add(folder: Path, command: str, tables: Tables) -> None:
    """
    Add a record to ``speed.jsonl`` in a folder, in place of an older one of the same command, and
    write ``speed.md`` again.

    :param command: with its options, without the name of the script.
    """
    folder.mkdir(parents=True, exist_ok=True)
    where = {"processor": processor(), "date": time.strftime("%Y-%m-%d")} | provenance()
    path = folder / "speed.jsonl"
    records = {r["command"]: r for r in read(path)}
    records[command] = {"command": command, **where, "tables": tables}
    files.write_text(path, "".join(f"{json.dumps(r)}\n" for r in records.values()))
    files.write_text(folder / "speed.md", page(list(records.values())))


def read(path: Path) -> list[Record]:
    """The records of a file, none if it does not exist."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def page(records: Sequence[Record]) -> str:
    """The page of the records; a section whose commands were not all run is left out."""
    found = {record["command"]: record for record in records}
    sections = [
        _section(section, [found[command] for command in section["commands"]])
        for section in SECTIONS
        if set(section["commands"]) <= set(found)
    ]
    return "\n".join([_INTRODUCTION, *sections])


def _section(section: Mapping[str, Any], records: Sequence[Record]) -> str:
    """Heading, text, commands and one table of all their rows."""
    own = section.get("where", {})
    rows = [
        _shown(row, section["columns"])
        for record in records
        for row in record["tables"][section.get("table", "rows")]
        if all(row.get(name) == value for name, value in own.items())
        and row.get("title") not in section.get("without", ())
    ]
    parts = [f"## {section['title']}\n", _how(records), grid(*table_of(rows)) + "\n"]
    if "text" in section:
        parts.insert(1, section["text"].strip() + "\n")
    return "\n".join(parts)


def _shown(row: Row, columns: Mapping[str, str]) -> Row:
    """The columns of a row under their names on the page, to three digits."""
    return {title: _rounded(row.get(name)) for name, title in columns.items()}


def _rounded(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _how(records: Sequence[Record]) -> str:
    """Where and when the commands ran."""
    commands = ", ".join(f"`{record['command']}`" for record in records)
    made = {(r["processor"], r["threads"], r["date"], r["commit"]) for r in records}
    where = "; ".join(
        f"{threads} core{'s' * (threads != 1)} of {cpu}, {date}, commit {commit}"
        for cpu, threads, date, commit in sorted(made)
    )
    return f"{commands}: {where}.\n"
