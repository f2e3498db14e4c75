"""Tables with the troubles of real ones, each alone and several together."""

import numpy as np
import pandas as pd

NUM_ROWS = 150
CITIES = np.array(["Bern", "Rome", "Oslo"])


def _category(frame, rng):
    frame["city"] = rng.choice(CITIES, len(frame))
    frame["y"] = frame["y"] + (frame["city"] == "Rome")


def _many_levels(frame, rng):
    frame["code"] = [f"c{k}" for k in rng.integers(60, size=len(frame))]


def _booleans(frame, rng):
    frame["flag"] = rng.random(len(frame)) < 0.5


def _yes_no(frame, rng):
    frame["answer"] = rng.choice(["yes", "no"], len(frame))


def _dates(frame, rng):
    frame["day"] = pd.date_range("2020-01-01", periods=len(frame), freq="D").strftime("%Y-%m-%d")


def _times(frame, rng):
    frame["time"] = pd.date_range("2020-01-01", periods=len(frame), freq="5h").strftime(
        "%d/%m/%Y %H:%M"
    )


def _gaps(frame, rng):
    frame.loc[rng.random(len(frame)) < 0.2, "a"] = np.nan


def _text_gaps(frame, rng):
    frame["a"] = frame["a"].astype(object)
    frame.loc[rng.random(len(frame)) < 0.1, "a"] = "n/a"


def _stray_text(frame, rng):
    frame["a"] = frame["a"].astype(object)
    frame.loc[3, "a"] = "broken"


def _gaps_in_category(frame, rng):
    _category(frame, rng)
    frame.loc[rng.random(len(frame)) < 0.1, "city"] = None


def _gaps_in_target(frame, rng):
    frame.loc[rng.random(len(frame)) < 0.1, "y"] = np.nan


def _decimal_commas(frame, rng):
    frame["b"] = [f"{value:.3f}".replace(".", ",") for value in frame["b"]]


def _money(frame, rng):
    frame["b"] = [f"${value:,.2f}" for value in 1000 * frame["b"]]


def _names_alike(frame, rng):
    frame["a missing"] = frame["a"]
    frame["kind"] = rng.choice(["x", "z"], len(frame))
    frame["kind=x"] = rng.random(len(frame))
    _gaps(frame, rng)


def _constant(frame, rng):
    frame["one"] = 1


def _empty(frame, rng):
    frame["nothing"] = np.nan


def _copy(frame, rng):
    frame["again"] = frame["a"]


def _identifier(frame, rng):
    frame["id"] = [f"row-{i:05d}" for i in range(len(frame))]


def _infinite(frame, rng):
    frame.loc[5, "a"] = np.inf


def _huge_scale(frame, rng):
    frame["b"] = frame["b"] * 1e12 + 1e13


def _outlier(frame, rng):
    frame.loc[7, "y"] = 1e6


def _heavy_tail(frame, rng):
    frame["y"] = frame["y"] + rng.standard_t(1.5, len(frame))


def _spaces_in_names(frame, rng):
    frame.rename(columns={"a": " price [EUR] "}, inplace=True)


ALONE = {
    name.strip("_"): change
    for name, change in list(globals().items())
    if callable(change) and name.startswith("_") and not name.startswith("__")
}
TOGETHER = {
    "shop": (_category, _gaps, _dates, _identifier),
    "sensors": (_times, _gaps, _stray_text, _constant),
    "survey": (_yes_no, _many_levels, _gaps_in_category, _gaps_in_target),
    "export": (_decimal_commas, _copy, _empty, _booleans),
}
NAMES = (*ALONE, *TOGETHER)


def table(name, *, seed=0, num_rows=NUM_ROWS):
    """A table with the target "y", which depends on the numbers "a" and "b"."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(num_rows, 2)), columns=["a", "b"])
    frame["y"] = np.sin(2 * frame["a"]) + 0.5 * frame["b"] + 0.1 * rng.normal(size=num_rows)
    for change in TOGETHER.get(name) or (ALONE[name],):
        change(frame, rng)
    return frame
