"""Sphinx configuration; ``tox -e docs`` builds with warnings as errors."""

import re
import sys
from pathlib import Path

import check_shapes

from gpflow_sparse._version import __version__

# our docstrings state the shapes; those of GPflow's methods take 2 s
check_shapes.set_rewrite_docstrings(None)

project = "gpflow_sparse"
author = "The gpflow_sparse contributors"
copyright = author
version = release = __version__

sys.path.insert(0, str(Path(__file__).parent))  # extensions of our own: drawing.py, gallery.py
extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode", "myst_parser"]
extensions += ["sphinx.ext.mathjax", "sphinx-mathjax-offline", "drawing", "gallery"]
exclude_patterns = ["_build", "_drawn"]
templates_path = ["_templates"]
nitpicky = False

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autoclass_content = "both"
autodoc_typehints = "none"  # the docstrings say kinds and shapes; GPflow's types do not render
autodoc_default_options = {"members": True, "show-inheritance": True}
toc_object_entries_show_parents = "hide"
autosummary_imported_members = True
autosummary_ignore_module_all = False

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_title = f"{project} {release}"
html_theme_options = {"show_prev_next": False, "footer_start": ["copyright"], "footer_end": []}


def mark_formulas(app, what, name, obj, options, lines):
    """Set the indented formulas of our docstrings as literal blocks; plain reST would quote them.

    A formula is indented by four and stands between blank lines, after a paragraph.
    """
    marked = []
    for i, line in enumerate(lines):
        opens = line.startswith("    ") and i > 1 and not lines[i - 1].strip()
        paragraph = next((text for text in reversed(lines[:i]) if text.strip()), "")
        if opens and not re.match(r"\s|:|\.\. |[-*] ", paragraph) and not paragraph.endswith("::"):
            marked += ["::", ""]
        marked.append(line)
    lines[:] = marked


def setup(app):
    app.connect("autodoc-process-docstring", mark_formulas)
