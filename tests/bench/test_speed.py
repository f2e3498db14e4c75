"""The table of all figures."""

from bench import speed


def test_quotients_are_of_rows_that_were_measured():
    times = {"SWSGP(1000, H = 16)": 2.0, "SWSGP(100000, H = 16)": 3.0, "SWSGP(1000, H = 100)": 1.0}
    rows = [{"part": "step", "title": t, "milliseconds": m} for t, m in times.items()]
    (found,) = speed._quotients(rows)
    assert found["ratio"] == 1.5
