"""The one reading of numbers, dates, labels and missing cells, for every file and data frame.

A cell is read from its own text and from what training decided on its column, never from other
cells of its table, so that a row means the same in every table.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

MISSING_WORDS = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?", "-", "--")
"""
Texts of missing cells, in lower case: everywhere in columns of numbers and dates, and in text files
where they are not in quotes. In a data frame such a text is a level of a category.
"""
MISSING_LEVEL = "(missing)"
OTHER = {".": ",", ",": "."}
_LARGEST_WHOLE = 2.0**53
_SEVERAL = (list, tuple, dict, set, np.ndarray)
_ZERO_WIDTH = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff"))

_PLAIN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_CURRENCY = r"[$€£¥₹]|USD|EUR|GBP|JPY|CHF|CNY|INR"
_NUMBER = re.compile(
    rf"(\()?([+-]?)\s?(?:(?P<before>{_CURRENCY})\s?)?([+-]?)"
    r"(?P<digits>[0-9][0-9.,' ]*|[.,][0-9]+)(?P<exponent>[eE][+-]?[0-9]+)?(-)?"
    r"(?:\s?(?P<after>[^\d\s.,()+'-][^\d()]{0,11}))?(\))?"
)
# Digits by the character before decimals; groups of three follow one to three digits, the first of
# which is not zero, and are all separated by the same character.
_DIGITS = {
    mark: re.compile(
        rf"(?:[0-9]+|[1-9][0-9]{{0,2}}([{other}' ])[0-9]{{3}}(?:\1[0-9]{{3}})*)?(?:{dot}[0-9]*)?"
    )
    for mark, dot, other in ((".", r"\.", ","), (",", ",", "."))
}
# Codes of digits: 007 has zeros that its number lacks, and float64 has no more than 15 digits.
_CODE = re.compile(r"[+-]?(?:0[0-9]|[0-9]{16,}$)")

MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DATE = re.compile(
    rf"""(?:[a-z]{{3,9}},?\s)?(?:  # a day of the week
      (?P<y1>[0-9]{{4}})(?P<s1>[-/.])(?P<m1>[0-9]{{1,2}})(?:(?P=s1)(?P<d1>[0-9]{{1,2}}))?
    | (?P<a>[0-9]{{1,2}})(?P<s2>[-/.])(?P<b>[0-9]{{1,2}})(?P=s2)(?P<y2>[0-9]{{4}}|[0-9]{{2}})
    | (?P<d3>[0-9]{{1,2}})[-.\s]{{1,2}}(?P<m3>{MONTHS})[a-z]*[-.,\s]{{1,2}}
      (?P<y3>[0-9]{{4}}|[0-9]{{2}})
    | (?P<m4>{MONTHS})[a-z]*\.?\s(?P<d4>[0-9]{{1,2}})(?:st|nd|rd|th)?,?\s(?P<y4>[0-9]{{4}})
    | (?P<y5>[0-9]{{4}})-W(?P<week>0[1-9]|[1-4][0-9]|5[0-3])(?:-(?P<weekday>[1-7]))?)
    (?:(?:T|,?\s+)(?P<hour>[0-9]{{1,2}}):(?P<minute>[0-9]{{2}})
      (?::(?P<second>[0-9]{{2}}(?:\.[0-9]{{1,9}})?))?(?:\s?(?P<half>[ap])\.?m\.?)?)?
    (?:\s?(?:Z|UTC|GMT|[+-][0-9]{{2}}:?(?:[0-9]{{2}})?))?""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True)
class ReadingOptions:
    """
    How a table is read, where this should be otherwise than what is found in it.

    :param encoding: encoding of a text file.
    :param separator: the character between the cells of a text file; None to find it.
    :param header: whether the first row of a text file has names; None to tell from its cells.
    :param skip_rows: lines of a text file above its first row.
    :param decimal: "." or "," before decimals, in columns whose cells show neither; None to take
        the one that other columns of the table show.
    :param thousands: "." or "," between thousands: the other one stands before decimals. Blanks
        and apostrophes are read as separators of thousands anyway.
    :param na_values: further texts and numbers that stand for missing cells, such as "-99.9".
    :param day_first: whether the day stands before the month, in columns whose cells do not show
        it.
    :param lonlat: names of the columns of longitudes and latitudes, in degrees, which are encoded
        as points of the sphere; None to find them by name and range, () for none.
    """

    encoding: str = "utf-8"
    separator: str | None = None
    header: bool | None = None
    skip_rows: int = 0
    decimal: str | None = None
    thousands: str | None = None
    na_values: tuple[str, ...] = ()
    day_first: bool | None = None
    lonlat: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "na_values", tuple(self.na_values))
        if self.lonlat is not None:
            pair = self.lonlat if isinstance(self.lonlat, list | tuple) else (None,)
            if len(set(map(str, pair))) != len(pair) or len(pair) not in (0, 2):
                raise ValueError(
                    "lonlat must be the names of two columns, of longitudes and of latitudes, or "
                    f"() for none, got {self.lonlat!r}."
                )
            object.__setattr__(self, "lonlat", tuple(clean(str(name)) for name in pair))
        for name, allowed in (("decimal", (".", ",", None)), ("thousands", (".", ",", None))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be '.' or ',', got {getattr(self, name)!r}.")
        if self.decimal is not None and self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands must differ, got {self.decimal!r} for both.")
        if self.separator is not None and len(self.separator) != 1:
            raise ValueError(f"separator must be one character, got {self.separator!r}.")

    @property
    def usual_decimal(self) -> str | None:
        """The decimal mark of columns whose cells show none; None if no option says it."""
        return self.decimal or (OTHER[self.thousands] if self.thousands else None)


def clean(text: str) -> str:
    """A text in Unicode's form NFC, without zero-width characters and blanks around it."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(_ZERO_WIDTH).replace("\u2212", "-")
        text = re.sub(r"[\u00a0\u2007\u2009\u202f]", " ", text)
    return text.strip()


def cells_of(column: pd.Series, na_values: tuple[str, ...] = ()) -> np.ndarray:
    """
    The cells of a column of any type [N]: float64 with NaN for missing and infinite cells, dates
    and local times as datetime64 with NaT, or clean texts with None. Booleans are texts, durations
    are numbers of days.

    :param na_values: texts and numbers that are missing.
    :raises ValueError: for complex numbers, and for lists and the like in cells.
    """
    kind: Any = column.dtype
    if isinstance(kind, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    elif isinstance(kind, pd.SparseDtype):
        column = column.sparse.to_dense()
    elif zone := getattr(getattr(kind, "pyarrow_dtype", kind), "tz", None):
        # local hours and weekdays; pandas would give those in UTC for a column of Arrow
        column = column.astype(pd.DatetimeTZDtype("ns", zone)).dt.tz_localize(None)
    elif isinstance(kind, pd.CategoricalDtype):
        column = column.astype(object)
    kind, na_labels = column.dtype, {_label(clean(na)) for na in na_values}
    if kind.kind in "iuf":
        values = column.to_numpy(np.float64, na_value=np.nan)
        absent = [float(na) for na in na_labels if _PLAIN.fullmatch(na)]
        return np.where(np.isfinite(values) & ~np.isin(values, absent), values, np.nan)
    if kind.kind == "M":
        dates = column.to_numpy(na_value=np.datetime64("NaT"))
        # years such as 9999 stand for no date, and would overflow
        outside = (dates < np.datetime64("1677-09-22")) | (dates > np.datetime64("2262-04-10"))
        return np.where(outside, np.datetime64("NaT"), dates).astype("datetime64[ns]")
    if kind.kind == "m":
        return column.to_numpy("timedelta64[ns]") / np.timedelta64(1, "D")
    require_single(column)
    missing, texts = column.isna().to_numpy(), column.astype(str).to_numpy(object)
    texts[missing] = None

    def cleaned(text: str) -> str | None:
        text = clean(text)
        return None if not text or (na_labels and _label(text) in na_labels) else text

    return by_text(texts, cleaned, object)


def require_single(column: pd.Series) -> None:
    """:raises ValueError: for complex numbers, and for lists and the like in cells."""
    kind: Any = column.dtype
    found = str(kind) if kind.kind == "c" or re.match(r"(\w*list|struct|map)<", str(kind)) else ""
    if kind.kind == "O":
        several = (cell for cell in column if isinstance(cell, _SEVERAL))
        found = next((f"a {type(cell).__name__} in a cell" for cell in several), found)
    if found:
        raise ValueError(
            f"column {column.name!r} must hold single real numbers, dates or texts, got {found}; "
            "drop it or split it."
        )


def by_text(cells: np.ndarray, function: Callable[[str], Any], dtype: Any = float) -> np.ndarray:
    """A function of each text, called once for equal ones [N]; NaN or None for missing cells."""
    known = {text: function(text) for text in dict.fromkeys(cells.tolist()) if text is not None}
    known[None] = None
    return np.array([known[text] for text in cells.tolist()], dtype)


def places(cells: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Positions of cells among different texts [N]; -1, the last one, for other cells."""
    index = {text: i for i, text in enumerate(texts)}  # pandas merges texts that are not Unicode
    return np.array([index.get(cell, -1) for cell in cells.tolist()], np.int64)


def is_missing(cells: np.ndarray) -> np.ndarray:
    """Which of the cells, see :func:`cells_of`, are missing [N]."""
    return np.asarray(pd.isna(cells))


class Number(NamedTuple):
    """The possible meanings of a text."""

    values: dict[str, float]
    """Value by the character before decimals; empty for a text that is not a number."""
    unit: str = ""
    """What stands beside the number, such as "€", "%" or "kg"."""


def parse_number(text: str) -> Number:
    """
    The meanings of a clean text as a number: with or without separators of thousands, a currency
    before or after it, another unit after it, and a minus sign before it, after it, or, as in
    accounting, as parentheses.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return Number({})
    opened, sign, before, inner, digits, exponent, minus, after, closed = match.groups()
    signs = sum(map(bool, (opened, sign, inner, minus)))
    if bool(opened) != bool(closed) or signs > 1 or (before and after):
        return Number({})
    factor = -1.0 if opened or minus or "-" in (sign, inner) else 1.0
    digits, values = digits.rstrip(), {}
    for mark, form in _DIGITS.items():
        if form.fullmatch(digits):
            plain = "".join("." if c == mark else c for c in digits if c.isdigit() or c == mark)
            values[mark] = factor * float(plain + (exponent or ""))
    return Number(values, (before or after or "").strip())


def fits(unit: str, expected: str) -> bool:
    """Whether a number with this unit may stand in a column of the expected one."""
    return unit == expected or (not unit and expected != "%")


def plain_numbers(texts: Sequence[str | None]) -> np.ndarray | None:
    """
    The values of texts that are all numbers with decimal points and nothing else, or missing (NaN);
    None for others. It takes a tenth of the time of reading each text alone.
    """
    known = [text or "nan" for text in texts]
    if "".join(known).encode(errors="replace").translate(None, b"0123456789.+-eEna"):
        return None
    try:
        return np.array(list(map(float, known)))
    except ValueError:
        return None


def numbers(cells: np.ndarray, decimal: str = ".", unit: str = "") -> np.ndarray:
    """
    The numbers of a column [N], NaN for other cells: for dates, for numbers that have another
    decimal mark or unit than the column, and in a column of percentages for those without %.

    :param cells: see :func:`cells_of`.
    """
    if cells.dtype.kind == "f" and unit != "%":
        return cells
    if cells.dtype != object:
        return np.full(len(cells), np.nan)

    def value(text: str) -> float:
        found = parse_number(text)
        return found.values.get(decimal, np.nan) if fits(found.unit, unit) else np.nan

    values = plain_numbers(cells.tolist()) if decimal == "." and not unit else None
    values = by_text(cells, value) if values is None else values
    return np.where(np.isfinite(values), values, np.nan)


def labels_of(cells: np.ndarray) -> np.ndarray:
    """
    Labels as texts [N]: each number in one spelling, such as 1 for 1.0, and True and False; texts
    whose zeros a number would lack, such as 01, stay as they are. Missing cells are "(missing)".
    """
    texts = cells
    if cells.dtype != object:
        texts = cells.astype(str).astype(object)
        texts[is_missing(cells)] = None
        texts = by_text(texts, lambda text: text.removesuffix("T00:00:00.000000000"), object)
    labels = by_text(texts, _label, object)
    return np.where(is_missing(labels), MISSING_LEVEL, labels)


def _label(text: str) -> str:
    if text.lower() in ("true", "false"):
        return text.capitalize()
    if not _PLAIN.fullmatch(text) or _CODE.match(text) or not np.isfinite(float(text)):
        return text
    value = float(text)
    is_whole = value == round(value) and abs(value) < _LARGEST_WHOLE
    return str(int(value)) if is_whole else repr(value)


DATE_FORMS = ("", "clock", "yyyymmdd", "s", "ms")
"""
Forms of the dates of a column: dates as such; times of the day such as 14:30, which are fractions
of a day; integers such as 20240131; seconds or milliseconds since 1970.
"""
_PER_DAY = {"s": 86_400.0, "ms": 86_400_000.0}


def days(cells: np.ndarray, day_first: bool = False, form: str = "") -> np.ndarray:
    """
    Dates as days since 1970 [N] in local time; NaN for what is not a date, such as numbers.

    :param form: see :data:`DATE_FORMS`.
    """
    if form in _PER_DAY:
        return numbers(cells) / _PER_DAY[form]
    if form == "yyyymmdd":
        codes = pd.Series(numbers(cells)).map("{:.0f}".format, na_action="ignore")
        cells = pd.to_datetime(codes, format="%Y%m%d", errors="coerce").to_numpy("datetime64[ns]")
    if cells.dtype == object:
        day = "1970-01-01 " if form == "clock" else ""
        texts = by_text(cells, lambda text: _iso(_DATE.fullmatch(day + text), day_first), object)
        parsed = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", errors="coerce")
        cells = parsed.to_numpy("datetime64[ns]")
    if cells.dtype.kind != "M":
        return np.full(len(cells), np.nan)
    return np.asarray((cells - np.datetime64(0, "ns")) / np.timedelta64(1, "D"))


def _iso(match: re.Match[str] | None, day_first: bool) -> str | None:
    """The local time of a date; None for another text and for a year of two digits."""
    if match is None:
        return None
    found = match.groupdict()
    year = found["y1"] or found["y2"] or found["y3"] or found["y4"] or found["y5"]
    if len(year) < 4:
        return None
    name = found["m3"] or found["m4"]
    month = 1 + MONTHS.split("|").index(name.lower()) if name else found["m1"]
    day = found["d1"] or found["d3"] or found["d4"] or 1
    if found["a"]:
        day, month = (found["a"], found["b"]) if day_first else (found["b"], found["a"])
    if found["week"]:
        week = f"{year} {found['week']} {found['weekday'] or 1}"
        year, month, day = pd.to_datetime(week, format="%G %V %u").timetuple()[:3]
    hour = int(found["hour"] or 0)
    if found["half"]:
        hour = hour % 12 + 12 * (found["half"].lower() == "p")
    second = found["second"] or "00"
    return f"{year}-{int(month):02}-{int(day):02}T{hour:02}:{found['minute'] or '00'}:{second}"


class DateForms(NamedTuple):
    """How many texts of a column are dates, and what they show about their order."""

    num_full: int
    num_short: int
    """Dates with two digits for the year."""
    short: str
    """The first of these."""
    day_first: bool | None
    """Whether the day stands before the month; None if no cell shows it."""
    depends_on_order: bool
    """Whether there are dates such as 1/2/2020."""


def date_forms(cells: np.ndarray) -> DateForms:
    """The forms of the dates of a column of texts, see :func:`cells_of`."""
    found = [(m, n) for text, n in Counter(cells).items() if text and (m := _DATE.fullmatch(text))]
    short = [(m, n) for m, n in found if len(m["y2"] or m["y3"] or "year") == 2]
    numeric = [(m, n) for m, n in found if m["a"]]
    first, second = (sum(n for m, n in numeric if int(m[part]) > 12) for part in "ab")
    day_first: bool | None = first > second
    if not first and not second:
        dots = sum(n for m, n in numeric if m["s2"] == ".")
        day_first = True if 2 * dots > sum(n for _, n in numeric) else None
    num_short = sum(n for _, n in short)
    num_full = sum(n for _, n in found) - num_short
    example = short[0][0].group() if short else ""
    return DateForms(num_full, num_short, example, day_first, bool(numeric))
