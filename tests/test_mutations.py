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
