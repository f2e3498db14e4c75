"""Directive ``{example} NAME``: the figure of ``examples/NAME.py`` and, folded, its code."""

from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]


class Example(SphinxDirective):
    """The figure that ``tox -e examples`` draws, and the code of an example."""

    required_arguments = 1

    def run(self):
        path = ROOT / "examples" / f"{self.arguments[0]}.py"
        self.env.note_dependency(str(path))
        code = path.read_text(encoding="utf-8").rstrip()
        command = f"python examples/{path.name} --output {path.stem}.png"
        return [
            nodes.image(uri=f"/_static/{path.stem}.png", alt=f"Figure of {path.name}"),
            nodes.raw("", "<details><summary>Code</summary>", format="html"),
            nodes.literal_block(command, command, language="none"),
            nodes.literal_block(code, code, language="python"),
            nodes.raw("", "</details>", format="html"),
        ]


def setup(app):
    app.add_directive("example", Example)
    return {"parallel_read_safe": True}
