"""Text files whose cells mean the same whether they are read as numbers or as texts."""

import gzip
import re
from pathlib import Path

# Bytes of a table of numbers, and what is no number as text: codes, which are cells such as 01 or
# with more digits than float64 has, and digits after a closing quote.
_NUMERIC = b'0123456789+-.eE,;|\t \r\n"'
_CODE = re.compile(rb'[,;|\t \r\n"][+-]?(?:0[0-9]|[0-9]{16})|[0-9.]"[0-9.+-]')
_LONGEST_CODE = 18
_BLOCK = 2**20


def has_plain_numbers(path: Path, num_lines: int) -> bool:
    """
    Whether all cells may be numbers that as floats are what they are as texts.

    pandas reads True as 1.0 and the code 01 as 1.0, if it is asked for floats; as texts they are a
    level of a category, and not the label 1.

    :param path: a text file, which may be compressed.
    :param num_lines: lines at its begin that do not count.
    """
    with (gzip.open if path.name.lower().endswith(".gz") else open)(path, "rb") as file:
        for _ in range(num_lines):
            if b"\r" in file.readline().rstrip(b"\r\n"):  # a carriage return alone ends the line
                return False
        end = b"\n"
        while block := file.read(_BLOCK):
            if block.translate(None, _NUMERIC) or _CODE.search(end + block):
                return False
            end = block[-_LONGEST_CODE:]
    return True
