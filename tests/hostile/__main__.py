"""``python -m tests.hostile`` judges every cell of every table, and prints them: about an hour."""

import re
import sys

from tests.hostile import (
    bases,
    deep,
    neighbors,
    orthogonal,
    soft_interpolation,
    sub_sampled,
)
from tests.hostile.judging import (
    BAD,
    ERROR,
    OK,
    UNSEEN,
    Verdict,
    arguments,
    arrays,
    spoiled,
    together,
)


def report(title: str, cells: list[tuple[str, str, Verdict]]) -> int:
    """
    Print one matrix, its legend, its messages and its bad cells.

    :return: the number of bad cells.
    """
    rows, columns = dict.fromkeys(c[0] for c in cells), dict.fromkeys(c[1] for c in cells)
    table = {(row, column): verdict for row, column, verdict in cells}
    width = max(map(len, rows))
    print(f"\n== {title}: {len(rows)} kinds at {len(columns)} doors")
    for i, column in enumerate(columns):
        print(f"  {i:2d} {column}")
    print(" " * width, *(f"{i:2d}" for i in range(len(columns))))
    for row in rows:
        symbols = (table.get((row, column), Verdict(" ")).symbol for column in columns)
        print(f"{row:{width}}", *(f"{'B!' if s == BAD else s:>2}" for s in symbols))
    counts = {s: sum(v.symbol == s for *_, v in cells) for s in (ERROR, OK, UNSEEN, "-", BAD)}
    print("counts:", ", ".join(f"{name} {count}" for name, count in counts.items()))
    print("messages:")
    for text in sorted({re.sub(r"\d+", "#", v.text) for *_, v in cells if v.symbol == ERROR}):
        print(f"  {text[:240]}")
    for row, column, verdict in cells:
        if verdict.symbol == BAD:
            print(f"BAD {row} at {column}: {verdict.text[:400]}")
    return counts[BAD]


def main() -> int:
    bad = report("training", list(arguments(orthogonal.TRAINING)))
    for table in (orthogonal, bases, sub_sampled, soft_interpolation, neighbors, deep):
        name = table.__name__.rpartition(".")[2].replace("_", " ")
        bad += report(f"arrays, {name}", list(arrays(table)))
        bad += report(f"other arguments, {name}", list(arguments(table.ARGUMENTS)))
        bad += report(f"arguments together, {name}", list(together(table)))
        cells = [cell for kind in table.SPOILS for cell in spoiled(table, kind)]
        bad += report(f"spoiled models, {name}", cells)
    print(f"\n{bad} bad cell(s)")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
