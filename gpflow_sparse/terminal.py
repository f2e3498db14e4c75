"""Results on a terminal, in a pipe, or in a csv file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def print_results(results: list[dict[str, Any]], num_classes: int | None) -> None:
    """A table of models and their metrics."""
    names = {
        "rmse": "RMSE",
        "error_rate": "error rate",
        "nlpd": "NLPD",
        "crps": "CRPS",
        "coverage": "95 % coverage",
        "brier": "Brier",
        "ece": "ECE",
        "elbo": "ELBO",
        "seconds": "seconds",
    }
    shown = [name for name in names if name in results[0]]
    rows = [(r["title"], *(f"{r[name]:.4g}" for name in shown)) for r in results]
    print_table(("model", *(names[name] for name in shown)), rows)


def print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """A table as wide as the terminal, or as wide as it needs in a pipe."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console = Console()
    width = None if console.is_terminal else 160
    Console(width=width, highlight=False).print(table)


def write_csv(output: Path | None, names: Sequence[str], values: Any) -> None:
    """Rows of numbers under a header, in a file or on standard output."""
    # repr, the shortest text that gives the number back; integers without a point
    rows = (",".join(repr(float(v)).removesuffix(".0") for v in row) for row in values)
    lines = [",".join(names), *rows]
    if output is None:
        click.echo("\n".join(lines))
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("\n".join(lines) + "\n", encoding="utf-8")
