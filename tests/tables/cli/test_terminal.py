"""Tables of predictions as csv, in parts."""

import io
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from gpflow_sparse.numerics.searches import warn_if_unmoved
from gpflow_sparse.tables.cli.session import session
from gpflow_sparse.tables.cli.terminal import clear_errors, progress_of_rows, write_csv

FRAMES = {
    "floats": lambda v: pd.DataFrame(v, columns=["mean", 'a "quoted", name', "c"]),
    "small and large": lambda v: pd.DataFrame(v * [[1e-300, 1e300, 1e16]]).round(3),
    "missing": lambda v: pd.DataFrame(np.where(v > 1.0, np.nan, v)),
    "labels": lambda v: pd.DataFrame(v).assign(label=['one, "1"', "two"] * (len(v) // 2)),
    "float32": lambda v: pd.DataFrame(v.astype(np.float32)),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=list(FRAMES))
def test_parts_of_a_table_are_written_as_pandas_writes_all_of_it(rng, make, tmp_path, capsys):
    whole = make(rng.normal(size=(20, 3)))
    expected = whole.to_csv(index=False, lineterminator="\n")
    write_csv(tmp_path / "a.csv", iter([whole[:8], whole[8:10], whole[10:]]))
    assert (tmp_path / "a.csv").read_bytes() == expected.encode()
    write_csv(None, iter([whole[:8], whole[8:]]))
    assert capsys.readouterr().out == expected


def test_a_table_that_cannot_be_finished_leaves_no_file(rng, tmp_path):
    def parts():
        yield pd.DataFrame(rng.normal(size=(2, 2)))
        raise ValueError("no more")

    (tmp_path / "a.csv").write_text("old")
    with pytest.raises(ValueError, match="no more"):
        write_csv(tmp_path / "a.csv", parts())
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "old"


def test_no_bar_is_drawn_outside_of_a_terminal(capsys):
    with progress_of_rows(10, enabled=True) as advance:
        advance(10)
    assert "".join(capsys.readouterr()) == ""


def test_texts_that_spreadsheets_take_for_formulas_get_an_apostrophe(tmp_path):
    """Numbers stay numbers, also labels with a sign; column names are texts too."""
    labels = ["=1+1", "+A1", "-x", "@SUM(A1)", "\tx", "a=1", "-1", "+2.5e3", "'=1"]
    table = pd.DataFrame({"=p": np.arange(9.0) - 4.0, "class": labels})
    write_csv(tmp_path / "p.csv", [table])
    read = pd.read_csv(tmp_path / "p.csv", dtype={"class": str}, sep=",")
    assert list(read.columns) == ["'=p", "class"]
    quoted = ["'=1+1", "'+A1", "'-x", "'@SUM(A1)", "'\tx", "a=1", "-1", "+2.5e3", "'=1"]
    assert read["class"].tolist() == quoted
    np.testing.assert_array_equal(read["'=p"], table["=p"])


def test_warnings_of_this_package_are_sentences_and_others_are_silent(capsys, tmp_path):
    """Whatever place a warning names."""
    (tmp_path / "x.bin").write_bytes(b"")
    with clear_errors():
        warnings.warn("of another package", RuntimeWarning, stacklevel=1)
        np.log(np.zeros(1))
        warn_if_unmoved("hyperparameters", np.zeros(1), np.zeros(1), np.ones(1))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: the search for hyperparameters ended where it began")
    assert ".py" not in line
    assert "UserWarning" not in line


def test_warnings_are_as_usual_where_the_user_asked_for_them(monkeypatch):
    monkeypatch.setattr(sys, "warnoptions", ["error"])
    with clear_errors(), pytest.warns(UserWarning, match="of another package"):
        warnings.warn("of another package", stacklevel=1)


def test_ctrl_c_is_acknowledged_while_an_operation_of_tensorflow_runs(monkeypatch):
    """The operation waits for a number, which it gets after the line, or after five seconds."""
    numbers, said, err = tf.queue.FIFOQueue(1, tf.int32), [], io.StringIO()

    def press_ctrl_c():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            time.sleep(0.05)
            if "Ctrl-C: the present computation ends first" in err.getvalue():
                said.append(err.getvalue())
                break
        numbers.enqueue(1)

    helper = threading.Thread(target=press_ctrl_c)
    monkeypatch.setattr(sys, "stderr", err)
    with pytest.raises(KeyboardInterrupt), session(False, None):
        helper.start()
        numbers.dequeue()
        time.sleep(10.0)
    helper.join()
    assert len(said) == 1
    assert signal.set_wakeup_fd(-1) == -1
