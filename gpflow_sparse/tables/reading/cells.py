"""Numbers, dates, labels and gaps in the cells of a column of a table.

A cell is read from its own text and from what training decided on its column, never from other
cells of its file, so that a row means the same in every file.
"""

import re
import warnings
from collections import Counter
from typing import NamedTuple

import numpy as np
import pandas as pd

# Texts of missing cells, in lower case.
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-", "<na>"})
_EXPONENT = r"(?:[eE][+-]?[0-9]+)?"
# Numbers by the character before decimals: without separators of thousands, and with them. Groups
# follow one to three digits, of which the first is not zero.
_PLAIN = {
    mark: re.compile(rf"[+-]?(?:[0-9]+(?:{dot}[0-9]*)?|{dot}[0-9]+){_EXPONENT}")
    for mark, dot in ((".", r"\."), (",", ","))
}
_GROUPED = {
    mark: re.compile(rf"[+-]?[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+(?:{dot}[0-9]*)?{_EXPONENT}")
    for mark, dot, group in ((".", r"\.", ","), (",", ",", r"\."))
}
_OTHER = {".": ",", ",": "."}
CURRENCIES = ("$", "€", "£", "¥", "₹", "USD", "EUR", "GBP", "JPY", "CHF", "CNY", "INR")
_CURRENCY = "|".join(map(re.escape, CURRENCIES))
_AMOUNT = re.compile(
    rf"(?P<sign>[+-]?)(?:(?P<before>{_CURRENCY})\s?)?(?P<number>[+-]?[0-9.,]+{_EXPONENT})"
    rf"(?:\s?(?P<after>{_CURRENCY}|%))?"
)
# Codes of digits: 007 has zeros that its number lacks, and float64 has no more than 15 digits.
_CODE = re.compile(r"[+-]?(?:0[0-9]|[0-9]{16,}$)")
_LARGEST_WHOLE = 2.0**53
# Dates of which the first part may be the day or the month.
_AMBIGUOUS_DATE = re.compile(r"^(\d{1,2})([-/.])(\d{1,2})[-/.]\d{2,4}.*")
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    r"(\w{3,9},? )?"  # a day of the week
    r"(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|(19|20)\d\d[-/](0?[1-9]|1[0-2])"
    rf"|\d{{1,4}}[- ]{_MONTH}[- ,]+\d{{1,4}}|{_MONTH} \d{{1,2}}(st|nd|rd|th)?,? \d{{4}})([ T,].*)?",
    re.IGNORECASE,
)


class Reading(NamedTuple):
    """How the numbers of a column are written."""

    decimal: str = "."
    """The character before decimals, "." or ","; the other one separates thousands."""
    thousands: bool = False
    """Whether cells of training had separators of thousands."""
    unit: str = ""
    """A currency, or "%", beside the numbers of training; or none."""


_POINTS = Reading()


class Evidence(NamedTuple):
    """The reading of the numbers of a column, and what its cells show about it."""

    reading: Reading
    comma: bool = False
    """Whether there are decimal commas."""
    undecided: str = ""
    """A cell such as 1,234, if no cell shows whether the comma separates thousands; or none."""
    contrary: str = ""
    """A cell that can only have the other decimal mark, or none."""


def is_missing(cells: pd.Series) -> np.ndarray:
    """Which cells are missing: empty, NaN, infinite, or a text such as "NA" [N]."""
    missing = cells.isna().to_numpy()
    if pd.api.types.is_numeric_dtype(cells.dtype):
        return missing | ~np.isfinite(cells.to_numpy(np.float64, na_value=np.nan))
    if is_text(cells):
        found = np.fromiter((text.lower() in _MISSING for text in texts_of(cells)), bool)
        return missing | found
    return missing


def texts_of(cells: pd.Series) -> list[str]:
    """The cells as texts without blanks around them."""
    return [str(cell).strip() for cell in cells.tolist()]


def numbers(cells: pd.Series, reading: Reading = _POINTS) -> np.ndarray:
    """
    The cells as float64 [N], NaN for what is not a finite number, such as dates.

    Where the other decimal mark can only be one, as in 0,25, it is; where it can separate
    thousands, as in 1,234, it does. A cell with another currency than the column's is no number,
    nor is one without % in a column of percentages.
    """
    if is_text(cells):
        texts = texts_of(cells)
        plain = _plain_numbers(texts) if reading == _POINTS else None
        if plain is not None:
            return plain
        known = {text: _value(text, reading) for text in set(texts)}
        values = np.array([known[text] for text in texts], np.float64)
    elif pd.api.types.is_datetime64_any_dtype(cells) or reading.unit == "%":
        return np.full(len(cells), np.nan)
    else:
        values = cells.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def _plain_numbers(texts: list[str]) -> np.ndarray | None:
    """
    Values of texts that are all numbers with decimal points, empty, or too large (NaN) [N]; None
    for others. It takes a tenth of the time of reading each text alone.
    """
    if "".join(texts).encode(errors="replace").translate(None, b"0123456789.+-eE"):
        return None
    try:
        values = np.array([float(text or "nan") for text in texts])
    except ValueError:
        return None
    return np.where(np.isfinite(values), values, np.nan)


def _value(text: str, reading: Reading) -> float:
    number, unit = _without_unit(text)
    return _parsed(number, reading.decimal) if _fits(unit, reading.unit) else np.nan


def _fits(unit: str, expected: str) -> bool:
    """Whether a number with this sign may stand in a column of the expected one."""
    return unit == expected or (not unit and expected != "%")


def _without_unit(text: str) -> tuple[str, str]:
    """A number without its currency or percent sign, and that sign; the text if it has none."""
    if _PLAIN["."].fullmatch(text):  # most cells
        return text, ""
    match = _AMOUNT.fullmatch(text)
    if match is None or (match["before"] and match["after"]):
        return text, ""
    return match["sign"] + match["number"], match["before"] or match["after"] or ""


def _parsed(number: str, decimal: str) -> float:
    """The value of a number without unit; NaN for other texts."""
    for mark in (decimal, _OTHER[decimal]):
        if _PLAIN[mark].fullmatch(number):
            return float(number.replace(mark, "."))
        if _GROUPED[mark].fullmatch(number):
            return float(number.replace(_OTHER[mark], "").replace(mark, "."))
    return np.nan


class _Number(NamedTuple):
    """A text of a column that may be a number, and how many cells have it."""

    text: str
    number: str
    unit: str
    marks: str
    """The possible characters before decimals: ".", ",", ".," for both, or none for no number."""
    num_cells: int


def _number(text: str, num_cells: int) -> _Number:
    number, unit = _without_unit(text)
    marks = (m for m in _PLAIN if _PLAIN[m].fullmatch(number) or _GROUPED[m].fullmatch(number))
    return _Number(text, number, unit, "".join(marks), num_cells)


def evidence_of(cells: pd.Series) -> Evidence:
    """
    The reading of the numbers of a column, from its cells that can be read in one way only.

    The decimal mark is taken from cells that can have no other: 0.5, 1,234.5, and 1,234,567, whose
    commas can only separate thousands. Without such cells points are decimal. Commas, as in 1,234,
    then separate thousands if other whole numbers have three digits at most and some have three, or
    if there are points, and are decimal otherwise.
    """
    texts = texts_of(cells) if is_text(cells) else []
    if _plain_numbers(texts) is not None:
        return Evidence(_POINTS)
    found = [_number(text, count) for text, count in Counter(texts).items()]
    found = [cell for cell in found if cell.marks]
    unit = _unit_of(found)
    found = [cell for cell in found if _fits(cell.unit, unit)]
    decimal, is_proven = _decimal_of(found)
    grouped = [c.text for c in found if _is_grouped(c.number, decimal)]
    other = [c.text for c in found if c.marks == _OTHER[decimal]]
    commas = [c.text for c in found if "," in c.number and c.marks != "."]
    return Evidence(
        Reading(decimal, bool(grouped), unit),
        comma=decimal == "," and bool(commas),
        undecided="" if is_proven or not commas else commas[0],
        contrary=other[0] if other else "",
    )


def _unit_of(found: list[_Number]) -> str:
    """The sign of a column in which most of these cells are numbers; of the most frequent ones."""
    counts: Counter[str] = Counter()
    for cell in found:
        counts[cell.unit] += cell.num_cells
    units = ["", *sorted(counts)]
    return max(units, key=lambda unit: sum(counts[u] for u in counts if _fits(u, unit)))


def _decimal_of(found: list[_Number]) -> tuple[str, bool]:
    """The character before decimals, and whether cells show what commas mean, if there are any."""
    votes = {mark: sum(c.num_cells for c in found if c.marks == mark) for mark in _PLAIN}
    if any(votes.values()):
        return max(_PLAIN, key=lambda mark: votes[mark]), True
    has = {mark: any(mark in c.number for c in found) for mark in _PLAIN}
    if not has[","] or has["."]:
        return ".", not has[","]
    longest = max((len(c.number.lstrip("+-")) for c in found if "," not in c.number), default=0)
    return (".", True) if longest == 3 else (",", False)


def _is_grouped(number: str, decimal: str) -> bool:
    """Whether a number has separators of thousands."""
    return not _PLAIN[decimal].fullmatch(number) and any(
        _GROUPED[mark].fullmatch(number) for mark in _PLAIN
    )


def strange_marks(cells: pd.Series, reading: Reading) -> tuple[list[str], list[str]]:
    """Cells with separators of thousands, if training had none, and with the other decimal mark."""
    texts = texts_of(cells) if is_text(cells) else []
    if reading == _POINTS and _plain_numbers(texts) is not None:
        return [], []
    found = [_number(text, 1) for text in texts]
    found = [cell for cell in found if cell.marks and _fits(cell.unit, reading.unit)]
    grouped = [c.text for c in found if _is_grouped(c.number, reading.decimal)]
    other = [c.text for c in found if c.marks == _OTHER[reading.decimal]]
    return [] if reading.thousands else grouped, other


def labels_of(cells: pd.Series) -> np.ndarray:
    """
    Labels as texts: each number in one spelling, such as 1 for 1.0, and True and False.

    Texts whose zeros a number would lack, such as 01, stay as they are.
    """
    if not is_text(cells) and not pd.api.types.is_bool_dtype(cells):
        values = numbers(cells)
        texts = cells.astype(str).to_numpy(dtype=object)
        with np.errstate(invalid="ignore"):
            whole = (values == np.round(values)) & (np.abs(values) < _LARGEST_WHOLE)
        texts[whole] = values[whole].astype(np.int64).astype(str)
        return texts
    texts = texts_of(cells)
    known = {text: _label(text) for text in set(texts)}
    return np.array([known[text] for text in texts], dtype=object)


def _label(text: str) -> str:
    if text.lower() in ("true", "false"):
        return text.capitalize()
    if not _PLAIN["."].fullmatch(text) or _CODE.match(text):
        return text
    value = float(text)
    if not np.isfinite(value):
        return text
    is_whole = value == round(value) and abs(value) < _LARGEST_WHOLE
    return str(int(value)) if is_whole else repr(value)


def days(cells: pd.Series, day_first: bool = False) -> np.ndarray:
    """Dates as days since 1970 [N], NaN for what is not a date, such as numbers."""
    if not pd.api.types.is_datetime64_any_dtype(cells):
        # pandas also takes numbers and words: 5 as nanoseconds or this month's day, "now", "noon"
        cells = pd.Series(texts_of(cells), dtype=object).where(like_dates(cells), None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that a format was guessed
        try:
            dates = pd.to_datetime(
                cells, errors="coerce", format="mixed", utc=True, dayfirst=day_first
            )
        except (ValueError, TypeError):
            return np.full(len(cells), np.nan)
    elapsed = dates - pd.Timestamp(0, tz="UTC")
    return (elapsed / pd.Timedelta(days=1)).to_numpy(np.float64)


def like_dates(cells: pd.Series) -> np.ndarray:
    """Which cells are texts in the form of a date [N]."""
    if not is_text(cells):
        return np.zeros(len(cells), bool)
    return np.fromiter((bool(_DATE.fullmatch(text)) for text in texts_of(cells)), bool, len(cells))


def date_order(texts: pd.Series) -> tuple[bool, str]:
    """
    Whether the day stands before the month, and a few words on that; none if no date depends on it.

    It does if a first part is above 12, or no second part is and the parts are separated by dots.
    """
    parts = texts.str.strip().str.extract(_AMBIGUOUS_DATE.pattern).dropna()
    if not len(parts):
        return False, ""
    day_first, month_first = ((parts[i].astype(int) > 12).sum() for i in (0, 2))
    if not day_first and not month_first:
        first = bool((parts[1] == ".").mean() > 0.5)
        return first, f"{'day' if first else 'month'} first, although no cell shows the order"
    words = "day first" if day_first > month_first else "month first"
    if others := min(day_first, month_first):
        words += f" but for {others} cells that can only be read otherwise"
    return bool(day_first > month_first), words


def date_formats(texts: pd.Series) -> pd.Series:
    """One cell of each format among dates of text: of each order of digits, letters and signs."""
    forms = texts.str.strip().replace({r"\d+": "0", "[A-Za-z]+": "a"}, regex=True)
    return texts[~forms.duplicated()]


def is_text(cells: pd.Series) -> bool:
    """Whether the cells are neither numbers nor booleans nor dates."""
    kind = cells.dtype
    return not (
        pd.api.types.is_numeric_dtype(kind)
        or pd.api.types.is_bool_dtype(kind)
        or pd.api.types.is_datetime64_any_dtype(kind)
    )
