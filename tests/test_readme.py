"""The README's snippets run as they stand, and reach what they claim to show."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

README = Path(__file__).parents[1] / "README.md"


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def run(index, names):
    exec(compile(snippets()[index], f"README snippet {index}", "exec"), names)
    return names


@pytest.mark.parametrize(("index", "limit"), [(0, 0.3), (2, 0.2)])
def test_a_snippet_runs_and_its_last_number_is_good(capsys, index, limit):
    """Regression: RMSE against a standard deviation of 1; digits: error rate against 0.9."""
    run(index, {})
    printed = float(capsys.readouterr().out.split(":")[-1])
    assert 0.0 <= printed < limit


def test_the_model_of_the_first_snippet_is_kept_by_the_second(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(1, run(0, {}))
    Xnew = names["data"].test[0][:5]
    np.testing.assert_array_equal(
        names["again"].predict_f(Xnew)[0], names["model"].predict_f(Xnew)[0]
    )
    exported = tf.saved_model.load(str(tmp_path / "arm"))
    mean, _ = exported.predict_f(Xnew)
    np.testing.assert_allclose(mean, names["mean"][:5], atol=1e-10)


def test_the_readme_names_the_two_commands():
    text = README.read_text(encoding="utf-8")
    assert 'python -m pip install ".[plot]" && gpflow-sparse fit' in text
    assert "python -m pip install tox && tox" in text
