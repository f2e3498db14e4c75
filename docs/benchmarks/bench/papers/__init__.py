"""
Tables of papers that can be run again.

A paper is one TOML file in this folder: data sets, rows with the options of their models and their
budgets, columns, notes, and the numbers that were published. ``spec`` reads it, ``harness`` runs
its tasks within a budget of time and keeps one JSON line for each, ``tables`` turns these lines
into a page. ``data_splits`` and the modules of models hold the functions that a file names as
``read`` and ``fit``; a paper of known models needs a file only. No TensorFlow until a task is run.
"""

from pathlib import Path

PAPER_NAMES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.toml")))
