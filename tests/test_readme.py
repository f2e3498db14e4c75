"""The README's snippets run as they stand, and reach what they claim to show."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(("index", "limit"), [(0, 0.3), (1, 0.2)])
def test_a_snippet_runs_and_its_last_number_is_good(capsys, index, limit):
    """Regression: RMSE against a standard deviation of 1; digits: error rate against 0.9."""
    exec(compile(snippets()[index], f"README snippet {index}", "exec"), {})
    printed = float(capsys.readouterr().out.split(":")[-1])
    assert 0.0 <= printed < limit


def test_the_readme_names_the_two_commands():
    text = README.read_text(encoding="utf-8")
    assert 'python -m pip install ".[plot]" && gpflow-sparse fit' in text
    assert "python -m pip install tox && tox" in text
