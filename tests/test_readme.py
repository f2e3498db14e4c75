"""The code of the README and of the methods' pages runs; the README's error is small."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import gpflow_sparse as gs

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted(path for path in (ROOT / "docs" / "methods").glob("*.md") if path.stem != "index")
PAGES += [README]
DEFAULT_TIER = {"README", "swsgp"}  # the other pages are nightly


def snippets(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def run(code, names):
    exec(compile(code, "snippet", "exec"), names)
    return names


def reduced(code: str) -> str:
    """The same code with two training steps, and a fiftieth of every size of 100 and more."""
    code = re.sub(r"\b(num_steps|num_rounds)=\d+", r"\1=2", code)
    return re.sub(r"(?<![\w.])\d[\d_]{2,}(?![\w.])", lambda m: str(max(8, int(m[0]) // 50)), code)


def statements(code: str) -> list[str]:
    """Lines that are neither empty, nor a comment, nor an import."""
    return [line for line in code.splitlines() if line and not line.startswith(("#", "import"))]


@pytest.mark.nightly
def test_the_model_of_the_readme_is_good_by_its_own_diagnostics(capsys):
    """Ten lines, an error near that of the noise, intervals that hold, and no advice but praise."""
    code = snippets(README)[0]
    assert "A model in ten lines" in README.read_text(encoding="utf-8")
    assert len(statements(code)) <= 10
    names = run(code, {})
    X, Y, Xnew, Ynew = (names[name] for name in ("X", "Y", "Xnew", "Ynew"))
    printed = float(capsys.readouterr().out.split(":")[-1])
    mean, variance = names["model"].predict_y(Xnew)
    assert printed == pytest.approx(gs.data.metrics.rmse(Ynew, mean))
    assert 0.0095 < printed < 0.012  # the noise has the standard deviation 0.01
    assert 0.93 < gs.data.metrics.coverage(Ynew, mean, variance) < 0.975
    (advice,) = gs.diagnostics(names["model"], (X, Y))["advice"]
    assert advice.startswith("More inducing points would not help")


def test_the_table_of_the_readme_is_that_of_the_evidence():
    """Columns are rows of the study; cells are RMSE and NLPD, or an error rate and NLPD."""
    lines = (ROOT / "docs" / "benchmarks" / "evidence.jsonl").read_text(encoding="utf-8")
    records = {(r["dataset"], r["row"]): r for r in map(json.loads, lines.splitlines())}
    rows = ("auto", "svgp", "catboost", "gpboost")
    table = re.findall(r"^\| (\w+) \(([\d,]+)[^)]*\) \| (.+) \|$", README.read_text("utf-8"), re.M)
    assert len(table) >= 5
    for name, count, cells in table:
        assert int(count.replace(",", "")) == records[name, "auto"]["num_train"]
        for row, cell in zip(rows, cells.split(" | "), strict=True):
            if (name, row) in records:
                found = records[name, row]
                error = found["rmse"] if "rmse" in found else found["error_rate"]
                assert cell == f"{error:.3f}, {found['nlpd']:.2f}"
            else:
                assert cell == "–"


@pytest.mark.nightly
def test_the_model_of_the_first_snippet_is_kept_by_the_second(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(snippets(README)[1], run(snippets(README)[0], {}))
    Xnew = names["Xnew"][:5]
    np.testing.assert_array_equal(
        names["again"].predict_f(Xnew)[0], names["model"].predict_f(Xnew)[0]
    )
    exported = tf.saved_model.load(str(tmp_path / "arm"))
    mean, _ = exported.predict_f(Xnew)
    np.testing.assert_allclose(mean, names["mean"][:5], atol=1e-10)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.stem,
            marks=[] if page.stem in DEFAULT_TIER else [pytest.mark.nightly],
        )
        for page in PAGES
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # few functions, few steps
def test_the_code_of_a_methods_page_runs(page, tmp_path, monkeypatch):
    """All snippets of a page one after the other, with few rows, small sizes and two steps."""
    load = gs.data.load

    def few_rows(name, **options):
        data = load(name, **options)
        train, test = (tuple(array[:200] for array in pair) for pair in (data.train, data.test))
        return dataclasses.replace(data, train=train, test=test)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gs.data, "load", few_rows)
    names = {}
    for code in snippets(page):
        run(reduced(code), names)
    assert names


def test_the_readme_names_the_commands():
    text = README.read_text(encoding="utf-8")
    assert 'python -m pip install ".[tables,plot]"\n    gpflow-sparse fit --data my.csv' in text
    assert "python -m pip install tox && tox" in text
