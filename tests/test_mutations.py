"""The script of the mutations makes the mistakes that it says, where there is mathematics."""

from tests import mutations

SOURCE = '''"""a + b"""
import numpy as np

def moments(A, m, name="a" + "b"):
    """1 + 1"""
    var = np.matmul(A, m, transpose_a=True)[1:] - 0.5 * m
    if var < 0.0:
        raise ValueError("negative" + str(1 - 2))
    return -var / len(m)  # not a - b

def _require_sound(a):
    return a + 1
'''


def test_every_kind_of_mistake_is_made_in_mathematics_alone():
    found = {mutation.apply(SOURCE) for mutation in mutations.mutations_of(SOURCE)}
    expected = [
        ("[1:] - 0.5", "[1:] + 0.5"),
        ("0.5 * m", "0.5 / m"),
        ("0.5 * m", "1.0 * m"),
        ("[1:]", "[2:]"),
        ("transpose_a=True", "transpose_a=False"),
        ("matmul(A, m,", "matmul(m, A,"),
        ("var < 0.0", "var <= 0.0"),
        ("-var / len", "var / len"),
        ("-var / len", "-var * len"),
    ]
    assert found == {SOURCE.replace(old, new, 1) for old, new in expected}


def test_mutations_are_spread_over_modules_and_compile():
    many, drawn = mutations.draw(200, seed=1), mutations.draw(40, seed=1)
    assert drawn == many[:40]
    assert len({mutation.path for mutation in drawn}) == 40
    folders = {mutation.path.split("/")[1] for mutation in many}
    assert {"data", "models", "numerics", "persistence", "tables", "training"} <= folders
    for mutation in drawn:
        source = (mutations.ROOT / mutation.path).read_text(encoding="utf-8")
        compile(mutation.apply(source), mutation.path, "exec")


def test_the_tests_of_a_module_come_first():
    files = mutations.relevant_tests("gpflow_sparse/numerics/linalg.py", mutations.ROOT)
    assert files[0] == "tests/numerics/test_linalg.py"
    assert len(files) == len(list((mutations.ROOT / "tests").rglob("test_*.py")))
