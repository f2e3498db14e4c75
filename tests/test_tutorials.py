"""The code of the tutorials and of the page of the estimators runs and prints what the page shows.

Blocks of Python and of the command line run in order in an empty folder, at full size. Each line of
the output that a page shows after them must be printed, in this order and exactly: pages show no
number that another version or another processor changes.
"""

import re
import shlex
from pathlib import Path

import pytest
import tensorflow as tf
from click.testing import CliRunner

from gpflow_sparse.tables.cli.main import main

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in sorted((DOCS / "tutorials").glob("*.md")) if page.stem != "index"]
PAGES += [DOCS / "estimators.md"]
NIGHTLY = {
    "classification",
    "dates",
    "images",
    "svgp",
    "table",
}  # each a quarter of a minute or more
BLOCK = re.compile(r"```(python|bash|text)\n(.*?)```", re.DOTALL)


def blocks(path):
    """Pairs of a kind, python, bash or text, and the code or output."""
    return BLOCK.findall(path.read_text(encoding="utf-8"))


def require_shown_is_printed(shown, printed):
    lines = iter(printed.splitlines())
    for line in shown.splitlines():
        assert line in lines, f"{line!r} in\n{printed}"


def run_commands(code):
    """Output of the lines of a block of commands, errors first."""
    printed = ""
    for line in code.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "gpflow-sparse"
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        printed += result.stderr + result.stdout
    return printed


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=page.stem, marks=[pytest.mark.nightly] if page.stem in NIGHTLY else []
        )
        for page in PAGES
    ],
)
def test_a_page_prints_what_it_shows(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tf.random.set_seed(0)
    names, printed = {}, ""
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page.name, "exec"), names)
            printed = capsys.readouterr().out
        elif kind == "bash":
            printed = run_commands(text)
        else:
            assert text
            require_shown_is_printed(text, printed)
