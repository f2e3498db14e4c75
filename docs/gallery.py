"""Directive ``{example} NAME OPTIONS``: runs ``examples/NAME.py``, shows figure, output and code.

Figures lie in ``docs/_drawn``. They are drawn again when the example, its options or the package
has changed.
"""

import contextlib
import hashlib
import io
import runpy
import shlex
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "_drawn"


def package_digest():
    """Of all sources of the package, which every example runs."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "gpflow_sparse").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run_example(path, options, figure):
    """Draws the figure of an example in this process and returns what it prints."""
    import matplotlib

    printed = io.StringIO()
    with matplotlib.rc_context({"backend": "agg"}), contextlib.redirect_stdout(printed):
        main = runpy.run_path(str(path))["main"]
        main([*options, "--output", str(figure)], standalone_mode=False)
    return printed.getvalue()


def figure_and_output(name, options):
    """Path of the figure and the output, from an earlier build where nothing has changed."""
    path = ROOT / "examples" / f"{name}.py"
    key = "\n".join([package_digest(), path.read_text(encoding="utf-8"), *options])
    digest = hashlib.sha256(key.encode()).hexdigest()
    figure, record = FIGURES / f"{name}.png", FIGURES / f"{name}.txt"
    if figure.exists() and record.exists():
        stored, _, output = record.read_text(encoding="utf-8").partition("\n")
        if stored == digest:
            return figure, output
    FIGURES.mkdir(exist_ok=True)
    output = run_example(path, options, figure)
    record.write_text(f"{digest}\n{output}", encoding="utf-8")
    return figure, output


class Example(Directive):
    """The figure, the command with its output, and the code of an example."""

    required_arguments = 1
    final_argument_whitespace = True  # the argument is the whole line

    def run(self):
        name, *options = shlex.split(self.arguments[0])
        path = ROOT / "examples" / f"{name}.py"
        self.state.document.settings.record_dependencies.add(str(path))
        figure, output = figure_and_output(name, options)
        command = shlex.join(["python", f"examples/{name}.py", *options])
        shell = f"$ {command}\n{output.rstrip()}"
        code = path.read_text(encoding="utf-8").rstrip()
        return [
            nodes.image(uri=f"/{figure.relative_to(ROOT / 'docs')}", alt=f"Figure of {path.name}"),
            nodes.literal_block(shell, shell, language="text"),
            nodes.literal_block(code, code, language="python"),
        ]


def setup(app):
    app.add_directive("example", Example)
    return {"parallel_read_safe": False}
