"""Numbers, dates, labels and gaps in the cells of a column of a table."""

import re
import warnings

import numpy as np
import pandas as pd

# Texts of missing cells, in lower case.
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-", "<na>")
# Numbers with a decimal comma, with a decimal point, and with separators of thousands.
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+(e[+-]?\d+)?", re.IGNORECASE)
_POINT = re.compile(r"[+-]?(\d*|\d{1,3}(,\d{3})+)\.\d+(e[+-]?\d+)?", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+")
_WHOLE = re.compile(r"[+-]?\d{1,3}")
# Dates of which the first part may be the day or the month.
_AMBIGUOUS_DATE = re.compile(r"^(\d{1,2})([-/.])(\d{1,2})[-/.]\d{2,4}.*")
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
DATE = re.compile(
    r"(\w{3,9},? )?"  # a day of the week
    r"(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|(19|20)\d\d[-/](0?[1-9]|1[0-2])"
    rf"|\d{{1,4}}[- ]{_MONTH}[- ,]+\d{{1,4}}|{_MONTH} \d{{1,2}}(st|nd|rd|th)?,? \d{{4}})([ T,].*)?",
    re.IGNORECASE,
)


def is_missing(cells: pd.Series) -> np.ndarray:
    """Which cells are missing: empty, NaN, infinite, or a text such as "NA" [N]."""
    missing = cells.isna().to_numpy()
    if pd.api.types.is_numeric_dtype(cells.dtype):
        missing = missing | ~np.isfinite(cells.to_numpy(np.float64, na_value=np.nan))
    if is_text(cells):
        missing = missing | cells.astype(str).str.strip().str.lower().isin(_MISSING).to_numpy()
    return missing


def numbers(cells: pd.Series, decimal: str = ".") -> np.ndarray:
    """
    The cells as float64 [N], NaN for what is not a finite number.

    :param decimal: the character before decimals, unless the cells show that it is the other one.
    """
    if is_text(cells):
        texts = cells.astype(str).str.strip()
        mark = decimal_mark(texts, decimal)
        other = {".": ",", ",": "."}[mark]
        grouped = texts.str.fullmatch(_POINT if mark == "." else _COMMA)
        grouped |= texts.str.fullmatch(THOUSANDS) & ~texts.str.contains(mark, regex=False)
        texts = texts.where(~grouped, texts.str.replace(other, "", regex=False))
        if mark == ",":
            texts = texts.str.replace(",", ".", regex=False)
        # Python reads 1_000 as a number; in a table it is more likely a code
        cells = pd.to_numeric(texts.where(~texts.str.contains("_", regex=False)), errors="coerce")
    values = cells.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def decimal_mark(cells: pd.Series, default: str) -> str:
    """
    The character before decimals in cells of text: the one that most cells can only have so.

    1,234 may be a thousand or a decimal: the former if other cells are whole numbers below 1,000 or
    have two separators, otherwise as ``default`` says, or a decimal.
    """
    if not is_text(cells):
        return default
    texts = cells.astype(str).str.strip()
    thousands = texts.str.fullmatch(THOUSANDS)
    count = {m: int((texts.str.fullmatch(p) & ~thousands).sum()) for m, p in _MARKS.items()}
    if count[","] != count["."]:
        return max(count, key=lambda mark: count[mark])
    found = texts[thousands]
    if not len(found) or default == ",":
        return default
    separators = found.str.count("[.,]")
    commas = found.str.contains(",", regex=False)
    grouped = (separators > 1).any() or texts.str.fullmatch(_WHOLE).any()
    return "," if commas.any() != grouped else "."


_MARKS = {".": _POINT, ",": _COMMA}


def labels_of(cells: pd.Series) -> np.ndarray:
    """Labels as texts: whole numbers without decimals, True and False in one spelling."""
    texts = cells.astype(str).str.strip().to_numpy(dtype=object)
    lower = np.array([text.lower() for text in texts], dtype=object)
    logical = np.isin(lower, ["true", "false"])
    texts[logical] = [text.capitalize() for text in lower[logical]]
    if pd.api.types.is_bool_dtype(cells):
        return texts
    values = numbers(cells)
    with np.errstate(invalid="ignore"):
        whole = np.isfinite(values) & (values == np.round(values)) & (np.abs(values) < 2.0**53)
    texts[whole] = values[whole].astype(np.int64).astype(str)
    return texts


def days(cells: pd.Series, day_first: bool = False) -> np.ndarray:
    """Dates as days since 1970 [N], NaN for what is not a date."""
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


def fraction_of(cells: pd.Series, pattern: re.Pattern[str]) -> float:
    """Fraction of the cells that are texts of this form."""
    if not is_text(cells):
        return 0.0
    return float(cells.astype(str).str.strip().str.fullmatch(pattern).mean())
