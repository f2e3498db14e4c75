"""Draws the folders of the package and their imports, read from the sources when Sphinx starts.

python docs/drawing.py imports.svg
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gpflow_sparse"
# Files at the top: `recipes` and `estimators` are public names of folders of `tables`.
HIDDEN = {"__init__", "_version", "_names", "save_load", "recipes", "estimators", "tables"}


def named(parts):
    """The folder of a module, whose folder is one of `tables` if it is in there."""
    is_deep = parts[:1] == ("tables",) and len(parts) > 2
    return "/".join(parts[: 1 + is_deep])


def folder_of(path):
    return named(path.relative_to(PACKAGE).with_suffix("").parts)


def executed(tree):
    """All nodes but for imports for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from executed(node)


def imported_folders(path):
    """Folders of the package that one file imports, relative and absolute imports alike."""
    found = set()
    for node in executed(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = [PACKAGE.name, *path.relative_to(PACKAGE).parts[:-1]]
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    parts = (tuple(name.split(".")) for name in found)
    return {named((*part[1:], "")) for part in parts if part[0] == PACKAGE.name and len(part) > 1}


def read_imports():
    """``{folder: {imported folder: number of files}}`` of all files of the package."""
    graph = defaultdict(lambda: defaultdict(int))
    paths = sorted(PACKAGE.rglob("*.py"))
    folders = {folder_of(path) for path in paths} - HIDDEN
    for path in paths:
        source = folder_of(path)
        for target in imported_folders(path) & folders:
            if source in folders and target != source:
                graph[source][target] += 1
    return {name: dict(graph[name]) for name in sorted(folders)}


def levels(graph):
    """Level of each folder: one above the highest that it imports.

    Where two folders import each other, the import of fewer files does not count.
    """
    found = {}

    def level(name):
        if name not in found:
            below = [
                target
                for target, count in graph[name].items()
                if count > graph[target].get(name, 0)
            ]
            found[name] = 1 + max(map(level, below), default=-1)
        return found[name]

    return {name: level(name) for name in graph}


def without_detours(graph, heights):
    """The imports that no chain of other downward imports implies, and those that go upward."""
    down = {a: {b for b in graph[a] if heights[b] < heights[a]} for a in graph}

    def reach(name):
        return down[name].union(*map(reach, down[name]))

    kept = {a: down[a] - set().union(*map(reach, down[a])) for a in graph}
    return {a: sorted(kept[a] | (set(graph[a]) - down[a])) for a in graph}


def places_of(heights):
    """Centers of the boxes, one row for each level."""
    rows = defaultdict(list)
    for name, height in sorted(heights.items()):
        rows[height].append(name)
    places = {}
    for height, names in rows.items():
        places |= {name: ((i + 1) / (len(names) + 1), height) for i, name in enumerate(names)}
    return places


def lines_of(name):
    paths = [PACKAGE / f"{name}.py", *(PACKAGE / name).rglob("*.py")]
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths if path.exists())


def draw(graph, path):
    from matplotlib.figure import Figure

    heights = levels(graph)
    places = places_of(heights)
    number = max(heights.values()) + 1
    figure = Figure(figsize=(8.6, 0.62 * number + 0.4), layout="constrained")
    axes = figure.add_subplot()
    for name, targets in without_detours(graph, heights).items():
        for target in targets:
            arrow = {"arrowstyle": "-|>", "color": "0.4", "shrinkA": 10, "shrinkB": 11}
            if heights[target] > heights[name]:
                arrow |= {"color": "tab:red", "linestyle": "--"}
                arrow |= {"connectionstyle": "arc3,rad=0.3"}
            axes.annotate("", places[target], places[name], arrowprops=arrow)
    for name, (x, y) in places.items():
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.3"}
        text = f"{name}  {lines_of(name):,}"
        axes.text(x, y, text, ha="center", va="center", fontsize=9, bbox=box)
    axes.set(xlim=(0, 1), ylim=(-0.5, number - 0.5))
    axes.axis("off")
    figure.savefig(path)


def write_drawing(app):
    target = Path(app.srcdir) / "_drawn" / "imports.svg"
    target.parent.mkdir(exist_ok=True)
    draw(read_imports(), target)


def setup(app):
    app.connect("builder-inited", write_drawing)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    draw(read_imports(), sys.argv[1])
