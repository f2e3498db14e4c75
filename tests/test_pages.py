"""The documentation against the tree: the table of files, the errata cited, the links."""

import importlib.util
import re
from pathlib import Path

import pytest

from gpflow_sparse import models

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "gpflow_sparse"
FILE_COLUMNS = ("model", "test", "oracle", "example")
NO_MODELS = {"ConvSpec", "VariationalModel"}
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]
CONTRIBUTING = DOCS / "contributing.md"
METHOD_PAGES = [p for p in sorted((DOCS / "methods").glob("*.md")) if p.name != "index.md"]


def file_table(text):
    """Rows of the table of files in ``docs/contributing.md``, each a dict by column name."""
    table = text[text.index("| method | model |") :]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    columns, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]


def links(text):
    """Targets of Markdown links and images, code left out, without their anchors."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [target.split("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]


def cited_errata():
    """Numbers such as S1 or C4 that the sources cite next to the name of the errata page."""
    sources = [*(ROOT / "gpflow_sparse").rglob("*.py"), *(ROOT / "tests" / "oracles").glob("*.py")]
    texts = [re.findall(r"errata\.md([^)]*)\)", path.read_text()) for path in sources]
    return {
        number for found in texts for text in found for number in re.findall(r"\b[CEKQSW]\d+", text)
    }


def cited_tests(text):
    """Pairs of a file of tests and a function in it, written ``tests/test_a.py::test_b``."""
    return re.findall(r"(tests/\S+\.py)::(\w+)", text)


ROWS = file_table(CONTRIBUTING.read_text())


def test_the_atlas_has_a_row_for_every_model():
    methods = " ".join(row["method"] for row in ROWS)
    assert {name for name in models.__all__ if f"`{name}`" not in methods} == NO_MODELS


@pytest.mark.parametrize("row", ROWS, ids=[row["method"] for row in ROWS])
def test_every_file_the_atlas_names_exists(row):
    for column in FILE_COLUMNS:
        paths = re.findall(r"`([^`]+)`", row[column])
        assert len(paths) in ((1, 2) if column == "model" else (1,))
        assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_the_errata_page_has_every_number_the_sources_cite():
    listed = re.findall(r"^\| ([A-Z]\d+) \|", (DOCS / "errata.md").read_text(), flags=re.MULTILINE)
    for letter in {number[0] for number in listed}:
        own = [number for number in listed if number[0] == letter]
        assert own == [f"{letter}{i + 1}" for i in range(len(own))]
    assert cited_errata()
    assert cited_errata() - set(listed) == set()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_relative_link_resolves(page):
    missing = [t for t in links(page.read_text()) if not (page.parent / t).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_test_a_page_names_exists(page):
    for path, name in cited_tests(page.read_text()):
        assert f"\ndef {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_source_file_a_page_names_exists(page):
    """Paths of Python files in the repository or in the package; names alone are not looked up."""
    named = re.findall(r"(?<![\w/])((?:\w+/)+\w+\.py)\b", page.read_text())
    missing = [p for p in named if not (ROOT / p).is_file() and not (PACKAGE / p).is_file()]
    assert missing == []


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.stem)
def test_pages_of_methods_have_one_order(page):
    """A figure, code, when it pays in three lines, options, mistakes, mathematics."""
    text = page.read_text()
    wanted = ["## When it pays", "## Options", "## What goes wrong", "## Mathematics"]
    assert [line for line in text.splitlines() if line.startswith("## ")] == wanted
    assert 0 < text.index("![") < text.index("```python") < text.index(wanted[0])
    pays = text[text.index(wanted[0]) : text.index(wanted[1])]
    assert pays.count("\n- ") == 3


def test_the_gallery_shows_every_example():
    shown = re.findall(
        r"^```{example} (\w+)", (DOCS / "gallery.md").read_text(), flags=re.MULTILINE
    )
    assert sorted(shown) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
    assert [name for name in shown if not (DOCS / "_static" / f"{name}.png").exists()] == []


def test_the_drawing_has_these_imports_upward():
    spec = importlib.util.spec_from_file_location("drawing", DOCS / "drawing.py")
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    graph = drawing.read_imports()
    heights = drawing.levels(graph)
    assert heights["numerics"] == 0
    assert heights["tables/cli"] == max(heights.values())
    arrows = drawing.without_detours(graph, heights)
    upward = {(a, b) for a in arrows for b in arrows[a] if heights[b] > heights[a]}
    assert upward == {("tables/methods", "tables/fitting")}
    assert "numerics" not in arrows["models"]  # it follows from other imports
