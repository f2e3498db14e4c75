"""
Small mistakes in the code of the package, one at a time: does the default tier notice them?

``python -m tests.mutations --number 60 --seed 0`` draws mutations at random: a sign, a factor, an
index that is off by one, a comparison, a dropped transpose, two swapped arguments. Each is made in
a temporary copy of the tree, whose default-tier tests then run until the first failure, those of
the mutated module first. One JSON line for each mutation goes to ``--results``; numbers that the
file has already are passed over, so that the same command continues a run that was interrupted.
Mutations that no test noticed are printed at the end; some of them change nothing that can be
observed (an initial value, a block size), which has to be judged by reading.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "gpflow_sparse"
# Files that tell most about any module, after its own tests.
GENERAL = ("test_battery.py", "test_matrix.py", "test_*oracle*.py", "test_fingerprints.py")
OPERATORS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
COMPARISONS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
CONSTANTS = {0.5: "1.0", 1.0: "0.5", 2.0: "1.0"}
TRANSPOSES = ("transpose_a", "transpose_b", "adjoint", "adjoint_a", "adjoint_b", "lower")
# Functions whose first two arguments may be swapped without a mistake, or are not numbers.
SYMMETRIC = ("isinstance", "getattr", "hasattr", "zip", "cast", "add", "minimum", "maximum")
# Code that checks arguments or words messages, which the tests of refusals are for.
NOT_MATHEMATICS = re.compile(r"_?require|_?refus|_describe|__repr__|_sizes|_?check|_?warn")


class Mutation(NamedTuple):
    """A replacement of characters in one file."""

    path: str
    function: str
    line: int
    start: int
    end: int
    after: str

    def apply(self, source: str) -> str:
        """The mutated source."""
        return source[: self.start] + self.after + source[self.end :]


def mutations_of(source: str, path: str = "") -> list[Mutation]:
    """All mutations of the mathematics in a source file."""
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line.encode()))
    if not source.isascii():  # positions in a syntax tree count bytes
        encoded = source.encode()
        offsets = [len(encoded[:offset].decode()) for offset in offsets]
    lines = source.splitlines()
    found = []
    for function, node in _mathematics(ast.parse(source)):
        for first, last, after in _changes(node, source, offsets, lines):
            found.append(Mutation(path, function, node.lineno, first, last, after))
    return found


def _mathematics(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Expressions in functions, each with the name of its function."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, Any]]:
        for child in ast.iter_child_nodes(node):
            name = function
            if isinstance(child, ast.FunctionDef):
                name = child.name
                if NOT_MATHEMATICS.match(name):
                    continue
            if isinstance(child, ast.Raise | ast.JoinedStr | ast.arguments | ast.AnnAssign):
                continue
            if isinstance(child, ast.expr) and name:
                yield name, child
            yield from walk(child, name)

    yield from walk(tree, "")


def _changes(
    node: Any, source: str, offsets: list[int], lines: list[str]
) -> Iterator[tuple[int, int, str]]:
    """Places in the source and what to write there, for one expression."""

    def at(line: int, column: int) -> int:
        text = lines[line - 1]
        column = column if text.isascii() else len(text.encode()[:column].decode())
        return offsets[line - 1] + column

    def span(part: Any) -> tuple[int, int]:
        return at(part.lineno, part.col_offset), at(part.end_lineno, part.end_col_offset)

    def between(left: Any, right: Any, symbols: tuple[str, str]) -> tuple[int, int, str]:
        start = source.index(symbols[0], span(left)[1], span(right)[0])
        return start, start + len(symbols[0]), symbols[1]

    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        parts = (node.left, node.right)
        containers = ast.List | ast.Tuple | ast.JoinedStr | ast.ListComp
        if not any(isinstance(p, containers) or _is_text(p) for p in parts):
            yield between(node.left, node.right, OPERATORS[type(node.op)])
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield between(node.left, node.comparators[0], COMPARISONS[type(node.ops[0])])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        if not isinstance(node.operand, ast.Constant):
            yield span(node)[0], span(node)[0] + 1, ""
    elif isinstance(node, ast.Constant) and type(node.value) is float and node.value in CONSTANTS:
        yield *span(node), CONSTANTS[node.value]
    elif isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if isinstance(bound, ast.Constant) and type(bound.value) is int:
                yield *span(bound), str(bound.value + 1)
    elif isinstance(node, ast.Call):
        for keyword in node.keywords:
            value = getattr(keyword.value, "value", None)
            if keyword.arg in TRANSPOSES and isinstance(value, bool):
                yield *span(keyword.value), str(not value)
        pair = node.args[:2]
        if len(pair) == 2 and all(isinstance(p, ast.Name | ast.Attribute) for p in pair):
            called = ast.unparse(node.func).rpartition(".")[2]
            (first, second), (third, fourth) = span(pair[0]), span(pair[1])
            same = called in SYMMETRIC or source[first:second] == source[third:fourth]
            if not same and not NOT_MATHEMATICS.match(called):
                swapped = source[third:fourth] + source[second:third] + source[first:second]
                yield first, fourth, swapped


def _is_text(part: Any) -> bool:
    return isinstance(getattr(part, "value", None), str)


def draw(number: int, seed: int) -> list[Mutation]:
    """So many mutations, spread over the modules."""
    rng = random.Random(seed)
    pools = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        found = mutations_of(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
        if found:
            pools.append(found)
    rng.shuffle(pools)
    return [rng.choice(pools[i % len(pools)]) for i in range(number)]


def relevant_tests(path: str, root: Path) -> list[str]:
    """All test files, those of a module first."""
    module = Path(path)
    stem, folder = module.stem, module.parent.name
    name = ".".join(module.with_suffix("").parts)
    files = sorted((root / "tests").rglob("test_*.py"))

    def distance(file: Path) -> int:
        own = file.stem.removeprefix("test_")
        if own == stem:
            return 0
        if file.parent.name == folder and (own.startswith(stem) or stem.startswith(own)):
            return 1
        if name in file.read_text(encoding="utf-8"):
            return 2
        if any(file.match(pattern) for pattern in GENERAL):
            return 3
        if own.split("_")[0] == stem.split("_")[0]:
            return 4
        return 5 if file.parent.name == folder else 6

    return [str(file.relative_to(root)) for file in sorted(files, key=distance)]


def run_tests(tree: Path, files: list[str], limit: float) -> tuple[str, str]:
    """ "red", "green" or "time limit", and the first test that failed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command += ["-q", "-x", "--no-header", "-m", "not nightly", *files]
    environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "time limit", ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode == 0:
        return "green", ""
    return "red", failed[1] if failed else done.stdout[-300:]


def run(mutation: Mutation, tree: Path, limit: float) -> dict[str, Any]:
    """The result of one mutation, which is undone afterwards."""
    path = tree / mutation.path
    source = path.read_text(encoding="utf-8")
    mutated = mutation.apply(source)
    start = time.perf_counter()
    try:
        path.write_text(mutated, encoding="utf-8")
        outcome, test = run_tests(tree, relevant_tests(mutation.path, tree), limit)
    finally:
        path.write_text(source, encoding="utf-8")
    changed = mutated[: mutation.start + len(mutation.after)].count("\n")
    return {
        "path": mutation.path,
        "function": mutation.function,
        "line": mutation.line,
        "before": source.splitlines()[source[: mutation.start].count("\n")].strip(),
        "after": mutated.splitlines()[changed].strip(),
        "outcome": outcome,
        "test": test,
        "seconds": round(time.perf_counter() - start, 1),
    }


def copy_tree(target: Path) -> None:
    """The files of the repository that tests need."""
    for name in (PACKAGE, "tests", "docs", "examples"):
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, target / path.name)


def main() -> None:
    """Run the mutations that the results file lacks, and print those that no test noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for each mutation")
    parser.add_argument("--results", type=Path, default=Path("mutations.jsonl"))
    options = parser.parse_args()
    text = options.results.read_text(encoding="utf-8") if options.results.exists() else ""
    results = {
        r["number"]: r for r in map(json.loads, text.splitlines()) if r["seed"] == options.seed
    }
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        for number, mutation in enumerate(draw(options.number, options.seed)):
            if number in results:
                continue
            result = {"number": number, "seed": options.seed, **run(mutation, tree, options.limit)}
            results[number] = result
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            print(number, result["outcome"], f"{result['path']}:{result['line']}", result["test"])
    kept = [results[number] for number in sorted(results) if number < options.number]
    survivors = [result for result in kept if result["outcome"] != "red"]
    print(f"{len(kept) - len(survivors)} of {len(kept)} mutations are red.")
    for r in survivors:
        print(f"{r['outcome']}: {r['path']}:{r['line']} in {r['function']}")
        print(f"  - {r['before']}\n  + {r['after']}")


if __name__ == "__main__":
    main()
