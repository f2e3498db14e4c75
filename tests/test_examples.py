"""Every example at a small size, in process, and what all of them have in common."""

import ast
import importlib.util
import re
from pathlib import Path

import gpflow
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from click.testing import CliRunner

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
PUBLIC = {
    "click",
    "gpflow",
    "gpflow_sparse",
    "matplotlib",
    "numpy",
    "pandas",
    "tensorflow",
    "warnings",
}
INFINITY = float("inf")

# options, and the least and the largest value of each number that is printed: for functions the
# largest error is below what they vary, for ten classes below what is wrong by chance, 0.9
FAST = {
    "mixture": (
        "--num-data 15",
        {"nlpd": (-0.5, 1), "coverage": (0.6, 1), "effective_draws": (3, 32)},
    ),
    "solvegp": ("--num-steps 100", {"elbo": (-1500, 0), "rmse": (0, 0.15)}),
}
SLOW = {
    "site_vgp": ("--num-data 60", {"elbo": (-60, -10), "error_rate": (0, 0.2), "nlpd": (0, 0.5)}),
    "gpnn": ("--num-data 4000 --num-neighbors 64", {"rmse": (0, 0.2), "coverage": (0.92, 0.98)}),
    "grief": ("--num-data 500 --num-rounds 1", {"rmse": (0, 0.15), "explained": (0.99, 1.0)}),
    "solvegpr": (
        "--num-inducing 6 --num-orthogonal 6 --num-draws 2",
        {"elbo": (-300, -120), "gap": (0, 50), "solvegp": (-300, -120)},
    ),
    "basis": ("--num-data 500 --num-steps 100", {"rmse": (0, 0.2), "error_rate": (0, 0.15)}),
    "convolutional": (
        "--num-inducing 40 --num-steps 80",
        {"error_rate": (0, 0.1), "nlpd": (0, 0.4)},
    ),
    "dates": ("", {"rmse": (0.4, 0.7), "coverage": (0.9, 1.0)}),
    "deep": ("--num-steps 400", {"rmse": (0, 0.2)}),
    "deep_convolutional": (
        "--num-inducing 30 --num-steps 150",
        {"error_rate": (0, 0.05), "nlpd": (0, 0.25)},
    ),
    "layers": (
        "--num-inducing 20 --num-steps 80",
        {"start": (0.3, INFINITY), "end": (10, INFINITY), "error_rate": (0, 0.35)},
    ),
    "neighbors": (
        "--num-data 500 --num-inducing 100 --num-steps 20",
        {"before": (1.3, 1.6), "after": (0, 1.2), "bound": (-INFINITY, 0)},
    ),
    "odvgp": (
        "--num-steps 100",
        {"elbo": (-350, -300), "rmse": (0, 0.1), "sd": (0.3, 0.5)},
    ),
    "qsgp": (
        "--num-features 1000 --basis-batch-size 200 --num-steps 100",
        {"rmse": (0, 0.3), "noise": (0.1, 0.5)},
    ),
    "reconstruction": (
        "--num-data 200 --num-columns 30",
        {"grief": (0.04, 0.06), "nystrom": (0.1, 0.14), "fourier": (0.3, 0.45)},
    ),
    "rvm": (
        "--num-data 80 --basis-batch-size 40 --num-steps 300",
        {"vectors": (3, 30), "rmse": (0, 0.08)},
    ),
    "snelson": (
        "--num-steps 300",
        {
            "svgp_5": (-61, -58),
            "odvgp": (-54, -51),
            "solvegp": (-36, -33),
            "svgp_10": (-35, -33),
        },
    ),
    "softki": (
        "--num-data 2000 --num-inducing 60 --num-steps 100",
        {"rmse": (0, 1.0), "coverage": (0.9, 0.98)},
    ),
    "surface": (
        "--num-svgp 64 --num-swsgp 1000 --num-steps 200",
        {"SVGP": (0.5, 1), "SWSGP": (0, 0.4)},
    ),
    "swsgp": (
        "--num-inducing 1000 --num-neighbors 8 --num-steps 200",
        {"rmse": (0, 0.25), "coverage": (0.85, 1.0)},
    ),
}
RUNS = FAST | SLOW


def run_example(stem, options, figure):
    """What the command prints, as numbers by name."""
    path = next(path for path in EXAMPLES if path.stem == stem)
    spec = importlib.util.spec_from_file_location(f"example_{stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    arguments = [*options.split(), "--output", str(figure)]
    result = CliRunner().invoke(module.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return {name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", result.stdout)}


@pytest.fixture(autouse=True)
def figures_without_a_screen():
    """Examples draw by pyplot, which would keep their figures."""
    with matplotlib.rc_context({"backend": "agg"}):
        yield
        plt.close("all")


def test_every_example_has_a_run():
    assert set(RUNS) == {path.stem for path in EXAMPLES}


@pytest.mark.parametrize(
    "stem", [*FAST, *(pytest.param(stem, marks=pytest.mark.nightly) for stem in SLOW)]
)
def test_an_example_prints_numbers_that_show_it_works_and_draws(stem, tmp_path):
    options, limits = RUNS[stem]
    numbers = run_example(stem, options, tmp_path / "figure.png")
    assert list(numbers) == list(limits)
    outside = {k: v for k, v in numbers.items() if not limits[k][0] <= v <= limits[k][1]}
    assert outside == {}
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert gpflow.default_float() == np.float64


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_at_most_60_lines_and_imports_what_is_public(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add("." * node.level + (node.module or ""))
    assert {name.split(".")[0] for name in imported} <= PUBLIC
    assert {name for name in imported if name.startswith("gpflow_sparse")} == {"gpflow_sparse"}
    assert not re.search(r"\b(model|gs)\S*\._\w", text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_figure_of_an_example_is_drawn_by_tox_and_shown_on_a_page(path):
    root = path.parent.parent
    line = f"python examples/{path.name} --output docs/_static/{path.stem}.png"
    assert line in (root / "tox.ini").read_text().replace("\r", "")
    assert f"```{{example}} {path.stem}\n" in (root / "docs" / "gallery.md").read_text()
