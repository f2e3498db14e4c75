"""Decisions of training on the columns of a table: kinds, how cells are read, encodings."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gpflow_sparse.data.limits import quoted
from gpflow_sparse.tables.reading.cells import (
    DATE_FORMS,
    MISSING_LEVEL,
    MISSING_WORDS,
    MONTHS,
    OTHER,
    ReadingOptions,
    cells_of,
    date_forms,
    days,
    fits,
    is_missing,
    labels_of,
    numbers,
    parse_number,
    plain_numbers,
)

# A column of text is numbers or dates if at least this fraction of its cells is.
MIN_SHARE = 0.9
# Levels of a category with an indicator column each; rarer ones share the origin.
MAX_LEVELS = 30
# Text with more distinct values than this fraction of the rows tells rows apart, not groups.
_IDENTIFIER, _MIN_ROWS = 0.5, 20
# The smallest of so many different values, or the largest, is far from the others if it is so many
# ranges of these away; a value of nines, such as -99.9 or 9999, at half a range.
_MIN_DISTINCT, _FAR, _FAR_NINES = 4, 10.0, 0.5
_DEFAULT = ReadingOptions()
# Rows from which the usual character before decimals is found.
_FIRST_ROWS = 10_000
# Lengths in days of the periods whose sine and cosine are inputs; half a period is the second
# harmonic, with which few rows and linear models find two peaks a day and free days. The weekday
# helps trees and linear models; the hour added nothing to these, nor for a GP.
PERIODS = {"year": 365.2425, "week": 7.0, "half week": 3.5, "day": 1.0, "half day": 0.5}
# Days that a column must cover for these and the weekday.
_LEAST_SPANS = {
    "year": 2 * PERIODS["year"],
    **dict.fromkeys(("week", "half week", "weekday"), 14.0),
    **dict.fromkeys(("day", "half day"), 2.0),
}
# Columns of integers that are dates: days since 1970 of 1900 to 2100; and for seconds since 1970,
# days of 1990 to 2040 and a name of the column. Cells from which most others are told.
_CENTURIES, _EPOCH, _FIRST_CELLS = (-25567.0, 47482.0), (7305.0, 25567.0), 100
_OF_TIME = re.compile(r"date|time|epoch|(^|[\W_])(ts|at)$", re.IGNORECASE)
# What a note says of the forms of dates, with words on the order of day and month.
_DATES_AS = {
    "": "is a date{}: days since 1970",
    "clock": "is a time of the day: its fraction of the day",
    "yyyymmdd": "has integers that are dates: days since 1970",
    "s": "is read as seconds since 1970: days since 1970",
    "ms": "is read as milliseconds since 1970: days since 1970",
}
# Months with a number that may be a day or a year.
_MONTH_ONLY = re.compile(rf"(?:{MONTHS})[a-z]*[-. /][0-9]{{1,2}}", re.IGNORECASE)
# Days since 1970 and their angles are rounded to 1e-11, so equal times of two days would differ.
_DECIMALS = 9


@dataclass(frozen=True)
class Column:
    """
    Kind and encoding of one column of a table; all fields are plain values, stored as JSON.

    :param name: the column.
    :param kind: "number", "category", "date", "longitude" or "latitude" in degrees, or "dropped"
        for a column that is not used.
    :param fill: number that replaces missing cells: the median of the others; days for dates.
    :param missing: whether cells were missing; then an indicator column stands beside the numbers.
    :param decimal: the character before decimals, "." or ",".
    :param thousands: whether cells of training had the other character between thousands.
    :param unit: a currency, "%" or another unit beside the numbers of training; empty for none.
    :param day_first: whether dates such as 1/2/2020 have the day before the month.
    :param form: of dates, see :data:`~gpflow_sparse.tables.reading.cells.DATE_FORMS`.
    :param latitude: of longitudes, the column of the latitudes with which they are points.
    :param levels: categories with an indicator column each; other categories are all zeros.
    :param periods: periods of a date with a sine and a cosine each, of :data:`PERIODS`; and
        "weekday", whose number is 0 on Mondays.
    :param averaged: levels with an average target of their rows, where not all have an indicator.
    :param averages: A numbers for each of these levels, and A for any other level.
    :param na_values: further texts and numbers that stand for missing cells.
    :param note: one sentence on what is done with the column; empty for plain numbers.
    """

    name: str
    kind: str
    fill: float = 0.0
    missing: bool = False
    decimal: str = "."
    thousands: bool = False
    unit: str = ""
    day_first: bool = False
    form: str = ""
    latitude: str = ""
    levels: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()
    averaged: tuple[str, ...] = ()
    averages: tuple[float, ...] = ()
    na_values: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("levels", "periods", "averaged", "averages", "na_values"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name, allowed in (
            (
                "kind",
                self.kind in ("number", "category", "date", "longitude", "latitude", "dropped"),
            ),
            ("latitude", bool(self.latitude) == (self.kind == "longitude")),
            ("decimal", self.decimal in (".", ",")),
            ("form", self.form in DATE_FORMS),
            ("periods", set(self.periods) <= set(_LEAST_SPANS)),
            ("fill", np.isfinite(self.fill)),
            ("averages", not len(self.averages) % (len(self.averaged) + 1)),
            ("averages", np.isfinite(self.averages).all()),
        ):
            if not allowed:
                value = getattr(self, name)
                raise ValueError(f"column {self.name!r} cannot have the {name} {value!r}.")

    @property
    def num_averages(self) -> int:
        """A, columns of averages beside the indicators."""
        return len(self.averages) // (len(self.averaged) + 1)

    @property
    def width(self) -> int:
        """The number of encoded columns."""
        if self.kind == "category":
            return len(self.levels) + self.num_averages
        if self.kind == "dropped":
            return 0
        seasons = 2 * len(self.periods) - ("weekday" in self.periods)
        return 1 + (self.kind == "longitude") + self.missing + seasons

    def cells(self, frame: pd.DataFrame) -> np.ndarray:
        """The cells of the column in a table, see :func:`cells_of`."""
        return cells_of(frame[self.name], self.na_values)

    def values(self, cells: np.ndarray) -> np.ndarray:
        """Numbers, or days since 1970 [N]; NaN for other cells."""
        if self.kind == "date":
            return days(cells, self.day_first, self.form)
        return numbers(cells, self.decimal, self.unit)


class NumberForms:
    """
    How the numbers of a column are written: their unit, and the character before decimals.

    :param cells: texts, see :func:`cells_of`.
    :param usual: the character of columns whose cells show none, or None for points.
    """

    def __init__(self, cells: np.ndarray, usual: str | None = None) -> None:
        counts = Counter(cells[~is_missing(cells)].tolist())
        self._total = sum(n for text, n in counts.items() if text.lower() not in MISSING_WORDS)
        self._all_plain = plain_numbers(list(counts)) is not None
        if self._all_plain:  # one text says as much as all, in a tenth of the time
            pointed = [text for text in counts if "." in text]
            shows = (text for text in pointed if len(parse_number(text).values) == 1)
            counts = Counter([next(shows, pointed[0])] if pointed else [])
        found = [(text, parse_number(text), n) for text, n in counts.items()]
        found = [cell for cell in found if cell[1].values]
        units = Counter({"": 0})
        for _, number, n in found:
            units[number.unit] += n
        self.unit = max(units, key=lambda unit: (units[unit], unit))
        self._found = [cell for cell in found if fits(cell[1].unit, self.unit)]
        self.shown = {m: sum(n for _, x, n in self._found if [*x.values] == [m]) for m in ".,"}
        """Cells that are numbers only with this character before decimals."""
        self.usual, is_shown = usual, any(self.shown.values())
        self.decimal = max(".,", key=lambda m: self.shown[m]) if is_shown else usual or "."
        self.thousands = any(
            OTHER[self.decimal] in text for text, x, _ in self._found if self.decimal in x.values
        )
        """Whether there are separators of thousands."""

    @property
    def share(self) -> float:
        """Cells that are numbers, among those that are not missing."""
        if self._all_plain:
            return 1.0
        return sum(n for _, x, n in self._found if self.decimal in x.values) / max(1, self._total)

    def notes(self) -> list[str]:
        """Parts of a sentence on how the numbers are read."""
        parts, texts = [], [text for text, x, _ in self._found if self.decimal in x.values]
        if self.decimal == "," and any("," in text for text in texts):
            parts.append("is read with decimal commas")
        if self.thousands:
            parts.append("is read with separators of thousands")
        if self.unit:
            parts.append(f"is in {'percent' if self.unit == '%' else self.unit}")
        if any("(" in text for text in texts):
            parts.append("has numbers in parentheses, which are read as negative")
        undecided = [text for text, x, _ in self._found if len({*x.values.values()}) > 1]
        if undecided and self.usual is None and not any(self.shown.values()):
            value = numbers(np.array(undecided[:1], object), self.decimal, self.unit)[0]
            parts.append(
                f"has cells such as {undecided[0]!r}, read as {value:g} although no cell shows "
                "which character stands before decimals"
            )
        return parts


def usual_decimal(frame: pd.DataFrame) -> str | None:
    """
    The character before decimals that most columns of numbers show, in the first 10,000 rows; None
    if none does.
    """
    votes = {".": 0, ",": 0}
    for name in frame:
        cells = cells_of(frame[name].iloc[:_FIRST_ROWS])
        if cells.dtype == object:
            forms = NumberForms(cells)
            votes[forms.decimal] += forms.share >= MIN_SHARE and any(forms.shown.values())
        elif cells.dtype.kind == "f" and (cells % 1.0 > 0.0).any():
            votes["."] += 1  # another reader has read them with points
    return max(votes, key=lambda mark: votes[mark]) if any(votes.values()) else None


def unreadable_cells(cells: np.ndarray, values: np.ndarray) -> list[str]:
    """
    Cells that are neither missing nor numbers or dates.

    :param values: what was read [N], NaN for nothing.
    """
    found = map(str, cells[np.isnan(values) & ~is_missing(cells)].tolist())
    return [text for text in found if text.lower() not in MISSING_WORDS]


def described(found: Sequence[str], kind: str = "number", count: int | None = None) -> str:
    """
    The count and three examples of cells that are not numbers or dates; empty if there are none.

    :param count: the number of such cells; None for the length of ``found``.
    """
    count = len(found) if count is None else count
    examples = ", ".join(map(quoted, list(dict.fromkeys(found))[:3]))
    few = f"cell that is not a {kind}" if count == 1 else f"cells that are not {kind}s"
    return f"{count} {few}, such as {examples}" if count else ""


def unreadable(cells: np.ndarray, values: np.ndarray, kind: str = "number") -> str:
    """What :func:`described` says of :func:`unreadable_cells`."""
    return described(unreadable_cells(cells, values), kind)


def learn_column(
    name: str,
    cells: np.ndarray,
    options: ReadingOptions = _DEFAULT,
    usual: str | None = None,
    *,
    as_category: bool = False,
) -> Column:
    """
    The kind of a column from its cells, how they are read, and what encoding it needs.

    :param cells: see :func:`cells_of`.
    :param usual: the character before decimals that other columns of the table show, or none.
    :raises ValueError: for dates with years of two digits.
    """
    missing, reason = is_missing(cells), ""
    if missing.all():
        return Column(name, "dropped", note=f"{name!r} is empty and not used.")
    if not as_category:
        form = coded_form(name, cells)
        found = None if form else _learn_number(name, cells, options, usual)
        if (found := found or learn_date(name, cells, options, form)) is not None:
            return found
        reason = _why_not_groups(cells[~missing], usual)
    if reason:
        note = f"{name!r} {reason} and is not used.{_date_hint(cells[~missing])}"
        return Column(name, "dropped", note=note)
    column = _category(name, labels_of(cells[~missing]), int(missing.sum()), options)
    return replace(column, note=column.note + _date_hint(cells[~missing]))


def _date_hint(cells: np.ndarray) -> str:
    """A sentence on texts such as Jan-08, which may be days or years; empty for others."""
    if cells.dtype != object or not all(_MONTH_ONLY.fullmatch(text) for text in set(cells)):
        return ""
    return f" Texts such as {cells[0]!r} look like dates: write them as 2024-01 or 2024-01-08."


def number_column(
    name: str,
    cells: np.ndarray,
    options: ReadingOptions,
    usual: str | None,
    least: float = MIN_SHARE,
) -> tuple[Column, list[str]] | None:
    """
    How the numbers of a column are read, and parts of a sentence on that; None where fewer cells
    than ``least`` are numbers of one unit.
    """
    column = Column(name, "number", na_values=options.na_values)
    if cells.dtype != object:
        return (column, []) if cells.dtype.kind == "f" else None
    forms = NumberForms(cells, options.usual_decimal or usual)
    if forms.share < least:
        return None
    mark, unit = forms.decimal, forms.unit
    return replace(column, decimal=mark, thousands=forms.thousands, unit=unit), forms.notes()


def _learn_number(
    name: str, cells: np.ndarray, options: ReadingOptions, usual: str | None
) -> Column | None:
    found = number_column(name, cells, options, usual)
    if found is None:
        return None
    column, parts = found
    values = column.values(cells)
    known = values[np.isfinite(values)]
    fill, gaps = float(np.median(known)), len(values) - len(known)
    if known.min() == known.max():
        if not gaps:
            return _constant(name)
        note = f"{name!r} is {fill:g} or missing: only which of both is used."
        return replace(column, fill=fill, missing=True, note=note)
    if strange := unreadable(cells, values):
        parts.append(f"has {strange}")
    if gaps:
        parts.append(f"misses {gaps} of {len(values)} values, which are set to the median {fill:g}")
    if far := far_values(known):
        parts.append(far)
    note = f"{name!r} {', and '.join(parts)}." if parts else ""
    return replace(column, fill=fill, missing=gaps > 0, note=note)


def far_values(known: np.ndarray) -> str:
    """
    Part of a sentence on the smallest or the largest of the values [N] if it is far from all
    others and may stand for missing; empty if there is none.
    """
    values, counts = np.unique(known, return_counts=True)
    if len(values) < _MIN_DISTINCT:
        return ""
    for end, beside, others in ((0, 1, values[1:]), (-1, -2, values[:-1])):
        is_nines = set(f"{abs(values[end]):g}".replace(".", "")) == {"9"} and abs(values[end]) > 9
        ranges = _FAR_NINES if is_nines else _FAR
        if abs(values[end] - values[beside]) > ranges * (others[-1] - others[0]):
            times = "1 value" if counts[end] == 1 else f"{counts[end]} values"
            value = f"{values[end]:g}"
            return (
                f"has {times} of {value}, far from all others: if this stands for missing, leave "
                f"these cells empty or give --na-values {value}"
            )
    return ""


def coded_form(name: str, cells: np.ndarray) -> str:
    """
    The form of the dates of a column of times of the day, or of integers that mean dates, see
    :data:`~gpflow_sparse.tables.reading.cells.DATE_FORMS`; empty for other columns.
    """
    if cells.dtype.kind == "M":
        return ""
    parts = cells[:_FIRST_CELLS], cells  # few cells rule out most columns
    found = (form for form in DATE_FORMS[1:] if all(_means(form, name, part) for part in parts))
    return next(found, "")


def _means(form: str, name: str, cells: np.ndarray) -> bool:
    """
    Whether cells have a coded form. Integers are numbers unless all of them are dates such as
    20240131, or, below a name that says so, seconds since 1970 from 1990 to 2040.
    """
    values = days(cells, form=form)
    known = values[np.isfinite(values)]
    if form == "clock":
        return len(known) >= MIN_SHARE * np.count_nonzero(~is_missing(cells))
    if unreadable_cells(cells, values) or (form != "yyyymmdd" and not _OF_TIME.search(name)):
        return False
    first, last = _CENTURIES if form == "yyyymmdd" else _EPOCH
    return bool(np.all((first <= known) & (known < last)))


def _order_of(name: str, cells: np.ndarray, options: ReadingOptions) -> tuple[bool, str] | None:
    """
    Whether texts that are dates have the day before the month, and words on that; None where too
    few cells are dates.

    :raises ValueError: for years of two digits.
    """
    forms = date_forms(cells)
    if forms.num_full + forms.num_short < MIN_SHARE * (~is_missing(cells)).sum():
        return None
    if forms.num_short:
        raise ValueError(
            f"column {name!r} must have four digits in every year, got {forms.num_short} dates "
            f"such as {forms.short!r}: write the century, or drop the column."
        )
    if not forms.depends_on_order:
        return False, ""
    shown, asked = forms.day_first, options.day_first
    day_first = bool(asked) if shown is None else shown
    words = f", {'day' if day_first else 'month'} first"
    return day_first, words + (
        ", although no cell shows the order" if shown is None and asked is None else ""
    )


def learn_date(
    name: str, cells: np.ndarray, options: ReadingOptions, form: str = ""
) -> Column | None:
    """
    A column of dates; None where too few cells are dates.

    :param form: see :data:`~gpflow_sparse.tables.reading.cells.DATE_FORMS`.
    :raises ValueError: for years of two digits.
    """
    order: tuple[bool, str] | None = (False, "")
    if cells.dtype == object and not form:
        order = _order_of(name, cells, options)
    values = np.full(len(cells), np.nan) if order is None else days(cells, order[0], form)
    known = values[np.isfinite(values)]
    if order is None or len(known) < MIN_SHARE * (~is_missing(cells)).sum() or not len(known):
        return None
    gaps, span = len(values) - len(known), float(np.ptp(known))
    if not span and not gaps:
        return _constant(name)
    # dates that are whole periods apart are all at the same time of the period
    periods = tuple(
        period
        for period, least in _LEAST_SPANS.items()
        if ("day" in period.split() if form == "clock" else span >= least)
        and np.ptp(seasonal_features(known, period), axis=0).any()
    )
    note = f"{name!r} {_DATES_AS[form].format(order[1])}"
    note += f" and the time of {', '.join(periods)}" if periods else ""
    if strange := unreadable(cells, values, "date"):
        note += f"; it has {strange}"
    note += f"; {gaps} missing dates are set to the median" if gaps else ""
    fill, na_values = float(np.median(known)), options.na_values
    return Column(
        name, "date", fill, gaps > 0, day_first=order[0], form=form, periods=periods,
        na_values=na_values, note=f"{note}.",
    )  # fmt: skip


def seasonal_features(days_since: np.ndarray, period: str) -> np.ndarray:
    """Sine and cosine of the time of a period [N, 2], or the number of the weekday [N, 1]."""
    if period == "weekday":
        return np.floor((days_since + 3.0) % 7.0)[:, None]  # 1970 began on a Thursday
    angle = 2 * np.pi * days_since / PERIODS[period]
    return np.round(np.stack([np.sin(angle), np.cos(angle)], axis=1), _DECIMALS)


def _why_not_groups(cells: np.ndarray, usual: str | None) -> str:
    """Why cells without missing ones are not a category; empty if they are one."""
    distinct = len(set(labels_of(cells)))
    if distinct <= max(_IDENTIFIER * len(cells), _MIN_ROWS):
        return ""
    forms = NumberForms(cells, usual) if cells.dtype == object else None
    if forms is None or forms.share < 0.5:
        return f"has {distinct} texts in {len(cells)} rows, which name rows rather than groups,"
    strange = unreadable(cells, numbers(cells, forms.decimal, forms.unit))
    return f"has {strange}, too many for a column of numbers,"


def _constant(name: str) -> Column:
    return Column(name, "dropped", note=f"{name!r} is constant and not used.")


def _category(name: str, labels: np.ndarray, gaps: int, options: ReadingOptions) -> Column:
    counts = sorted(Counter(labels).items(), key=lambda pair: (-pair[1], pair[0]))
    if len(counts) == 1 and not gaps:
        return _constant(name)
    levels = tuple(sorted(label for label, _ in counts[:MAX_LEVELS]))
    note = f"{name!r} is a category of {len(counts)} levels"
    if len(counts) > len(levels):
        note += f"; the {len(levels)} most frequent have a column each"
    if gaps:
        levels = tuple(dict.fromkeys((*levels, MISSING_LEVEL)))
        note += f"; {gaps} missing cells are a level of their own"
    return Column(
        name, "category", missing=gaps > 0, levels=levels, na_values=options.na_values,
        note=f"{note}.",
    )  # fmt: skip
