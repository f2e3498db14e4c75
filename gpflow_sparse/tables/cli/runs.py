"""What the commands do with an estimator: fit and keep it, predict with it, score it."""

import contextlib
import dataclasses
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.persistence.saving import save_of_run
from gpflow_sparse.tables.cli.folders import MODEL, PAGE, RECORD, RunFolder
from gpflow_sparse.tables.cli.rows import Rows, Source, Split, read_pairs, split_rows
from gpflow_sparse.tables.cli.terminal import (
    phase,
    print_table,
    stopped_training,
    time_left,
    trained_model_kept,
)
from gpflow_sparse.tables.estimators import SparseGPClassifier, SparseGPRegressor
from gpflow_sparse.tables.estimators.scoring import Scored, chosen_parts, chosen_recipe, score_rows
from gpflow_sparse.tables.estimators.stored import as_text
from gpflow_sparse.tables.fitting.calibration import summary
from gpflow_sparse.tables.fitting.observations import BLOCK
from gpflow_sparse.tables.fitting.splits import RANDOM, TIME
from gpflow_sparse.tables.fitting.weights import weights_of_copies
from gpflow_sparse.tables.methods.base import TREES
from gpflow_sparse.tables.methods.registry import AUTO, kind_of, recipe_of
from gpflow_sparse.tables.methods.simple import CONSTANT, LINEAR
from gpflow_sparse.tables.reading.cells import ReadingOptions, labels_of
from gpflow_sparse.tables.reading.columns import Column
from gpflow_sparse.tables.reading.encoder import TableWarning
from gpflow_sparse.tables.reading.tables import as_frame, column_named, read_frame
from gpflow_sparse.tables.report.report import require_report, write_report

# Rows of a part of predictions; draws of observations do not depend on the parts.
_PART = 4 * BLOCK
# Scores of fewer rows are unreliable: of so many the root mean squared error is known to 13 %.
_FEW_ROWS = 30
_MORE_DECIMALS = 2  # of predictions than of the target
_PACKAGES = ("gpflow_sparse", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
_TITLES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R2",
    "error_rate": "error rate",
    "nlpd": "NLPD",
    "crps": "CRPS",
    "coverage": "95 % coverage",
    "brier": "Brier",
    "ece": "ECE",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """A command `fit`."""

    source: Source
    method: str
    options: dict[str, Any]
    """The options of the method that were given, and of all methods."""
    minutes: float | None
    """None for a number of steps."""

    def record(self) -> dict[str, Any]:
        """The run as it is kept in its folder."""
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return found

    def estimator(self, split: Split, checkpoint_dir: Path | None, begin: float) -> Any:
        """
        The estimator that is to be fitted.

        :param begin: value of ``time.perf_counter`` at which the time of the run began.
        """
        seconds = 60.0 * (self.minutes or 0.0) - (time.perf_counter() - begin)
        seconds = max(1.0, _share(split) * seconds)
        options, method = dict(self.options), kind_of(self.method)
        if split.image_shape is not None and (method.takes_images or self.method == AUTO):
            options.setdefault("image_shape", ",".join(map(str, split.image_shape)))
        kind = SparseGPClassifier if split.target.levels else SparseGPRegressor
        return kind(
            self.method,
            method_options={"seed": 0} | options,
            time_budget=None if self.minutes is None else seconds,
            verbose=True,
            checkpoint_dir=checkpoint_dir,
            reading=self.source.reading,
            split=TIME if split.split == TIME else RANDOM,
        )


def fit(run: Run, output: Path | None, begin: float, *, resume: bool, plot: bool) -> dict[str, Any]:
    """
    Fit an estimator to the training rows, write its file, score it on the test rows, and write the
    record and the page.

    :param output: the folder; None for one of the current folder.
    :param begin: value of ``time.perf_counter`` at which the time of the run began.
    :return: the record.
    :raises ValueError: for rows, options or a folder that cannot be used.
    """
    options = {name: value for name, value in run.options.items() if name != "transform"}
    recipe_of(run.method, **options)  # refuses options that the method does not have
    folder = RunFolder(output or _usual_folder(run))
    plot = plot and _can_report(folder.path / PAGE)
    phase(f"reading {run.source.name}")
    split = split_rows(run.source)
    run = dataclasses.replace(run, source=dataclasses.replace(run.source, split=split.split))
    described = run.record() | {"checksum": split.checksum}
    folder.begin(described, resume=resume)
    steps = run.method != AUTO and run.minutes is None
    estimator = run.estimator(split, folder.checkpoints if steps else None, begin)
    # equal commands give equal bits; random numbers outside of training follow the seed too
    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(int(run.options.get("seed", 0)))
    _announce(run, split)
    with time_left(None if run.minutes is None else begin + 60.0 * run.minutes):
        _train(run, estimator, split)
    save_of_run(estimator.model_, folder.model, {"estimator": as_text(estimator)})
    with trained_model_kept(folder.path):
        phase(f"scoring {len(split.test.y)} test rows")
        scored = score_rows(estimator, *split.test)
        record = described | _results(estimator, split, scored, time.perf_counter() - begin)
        print_scores(estimator, scored, split.kind)
        if run.method == AUTO and not estimator.attempts_:
            record["simple_models"] = _simple_models(estimator, split)
        folder.write(record, finished=not (estimator.interrupted_ and steps))
        if plot:
            _write_page_of_run(folder, estimator, scored, record)
        if split.split == TIME and not estimator.interrupted_:
            record["trained_on_all"] = True
            _train_on_all(run, estimator, split, begin)
            save_of_run(estimator.model_, folder.model, {"estimator": as_text(estimator)})
            folder.write(record, finished=True)
            steps = False  # which checkpoints have
    click.echo(f"model and scores are in {folder.path}", err=True)
    if estimator.interrupted_:
        stopped_training(can_resume=steps)
    return record


def _train(run: Run, estimator: Any, split: Split, *, has_notes: bool = True) -> None:
    """Fit the estimator to the training rows, with its progress on standard error."""
    weights = split.train.weights
    if run.source.row_weights is None:  # then only copies of rows have weights
        weights = weights_of_copies(weights, run.method, bool(run.options.get("conformal")))
        if run.options.get("noise_column"):  # a copy is not a second measurement
            weights = None
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        # a note of the split has said it of --row-weights
        warnings.filterwarnings("ignore", "sample_weight has")
        warnings.simplefilter("ignore", TableWarning)  # its notes are printed below
        estimator.fit(split.train.X, split.train.y, weights, split.train.groups)
    for note in estimator.encoder_.notes_ if has_notes else ():
        click.echo(f"  {note}", err=True)
    estimator.target_ = split.target
    estimator.checkpoint_dir = None  # of this run only


def _share(split: Split) -> float:
    """The share of the time in which a model is trained that is scored."""
    return 0.75 if split.split == TIME else 1.0


def _train_on_all(run: Run, estimator: Any, split: Split, begin: float) -> None:
    """
    Train the method that was chosen once more, on test rows too: the rows after these are what a
    model of rows in time is for, and it was scored on rows that follow its own.
    """
    phase("training the model again, on the test rows too")
    rows = split.joined()
    options = dataclasses.asdict(chosen_recipe(estimator))
    if "classes_" not in vars(estimator):
        options["transform"] = estimator.model_.standardizer.y_transform
    known = {name: getattr(estimator, name) for name in ("attempts_", "reason_")}
    given = estimator.get_params(deep=False)
    left = None if run.minutes is None else 60.0 * run.minutes - (time.perf_counter() - begin)
    estimator.set_params(
        method=estimator.method_,
        method_options=options,
        warm_start=True,
        time_budget=None if left is None else max(1.0, left),
    )
    _train(run, estimator, split._replace(train=rows), has_notes=False)
    estimator.set_params(**given)
    vars(estimator).update(known)


def _usual_folder(run: Run) -> Path:
    """The folder of a run where none is given, in the current folder."""
    stem = f"{Path(run.source.data).stem}-{run.method}-{run.options.get('seed', 0)}"
    return Path("gpflow-sparse-runs") / stem


def _announce(run: Run, split: Split) -> None:
    """Print the size of the table, and what was found in it."""
    click.echo(
        f"{run.source.name}: {len(split.train.y)} training and {len(split.test.y)} test rows, "
        f"{split.train.X.shape[1]} columns",
        err=True,
    )
    for note in (*split.notes, split.target.note):
        if note:
            click.echo(f"  {note}", err=True)


def _results(estimator: Any, split: Split, scored: Scored, seconds: float) -> dict[str, Any]:
    """What the record of a finished run holds beside the run."""
    return {
        "title": estimator.recipe_.full_title,
        "chosen": estimator.method_,
        "reason": estimator.reason_,
        "attempts": [attempt._asdict() for attempt in estimator.attempts_],
        **chosen_parts(estimator),
        "scores": scored.scores,
        "standard_errors": scored.errors,
        "kind_of_rows": split.kind,
        "num_train": len(split.train.y),
        "num_test": len(split.test.y),
        "seconds": seconds,
        "versions": {name: version(name) for name in _PACKAGES},
        **summary(estimator.model_),
    }


def _simple_models(estimator: Any, split: Split) -> dict[str, dict[str, float]]:
    """
    Scores of a constant, a linear model and boosted trees on the test rows, which are printed, for
    a small table, whose choice has not tried them; none for images.
    """
    given, found = estimator.method_options, dict[str, dict[str, float]]()
    if split.image_shape is not None or {"exposure", "noise_column"} & given.keys():
        return found
    options = {name: given[name] for name in ("likelihood", "seed") if name in given}
    options["transform"] = estimator.model_.standardizer.y_transform
    train, common = split.train, {"reading": estimator.reading, "split": estimator.split}
    for mean in (CONSTANT, LINEAR, TREES):
        other = type(estimator)("simple", method_options=options | {"mean": mean}, **common)
        # trees are for one output and no rare classes; the notes of the columns are known
        with contextlib.suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other.fit(train.X, train.y, train.weights, train.groups)
            found[mean] = score_rows(other, *split.test).scores
    error = "error_rate" if split.target.levels else "rmse"
    rows = [(name, f"{each['nlpd']:.4g}", f"{each[error]:.4g}") for name, each in found.items()]
    print_table(("beside it, on the same test rows", "NLPD", _TITLES[error]), rows)
    return found


def model_file(path: Path) -> Path:
    """The file of a model: in a run folder, or the path itself."""
    return path / MODEL if path.is_dir() else path


def load(path: Path) -> Any:
    """
    The estimator of a run, or of a file.

    :raises ValueError: for a model that no estimator has fitted.
    """
    if path.is_dir() and not (path / RECORD).is_file():
        raise FileNotFoundError(f"{path} holds no run: {RECORD} is missing.")
    found = gs.load(model_file(path))
    if not hasattr(found, "encoder_"):
        raise ValueError(
            f"{path} holds a {type(found).__name__} without the columns of a table: predict with "
            "it in Python, by gpflow_sparse.load."
        )
    return found


def read_inputs(
    estimator: Any, data: Path, reading: ReadingOptions, identifier: str | None = None
) -> tuple[pd.DataFrame, pd.Series]:
    """
    The columns of training from a file, and what names its rows.

    :param identifier: a column; None for the numbers of rows, counted from 1.
    :raises ValueError: for an unknown column.
    """
    frame = as_frame(read_frame(data, reading))
    labels = pd.Series(np.arange(1, len(frame) + 1), name="row")
    if identifier is not None:
        labels = frame[column_named(identifier, list(frame.columns), str(data), "id")]
    frame = _named(estimator, frame)
    column, table = estimator._noise_column, frame
    frame = estimator.encoder_.select(frame, data)
    if column in table:
        frame = frame.assign(**{column: table[column]})
    for note in estimator.encoder_.gaps(frame):
        click.echo(note, err=True)
    return frame, labels


def _named(estimator: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Columns with the names of training, by position for a model that was trained on an array."""
    names = list(estimator.encoder_.feature_names_in_)
    of_array = frame.shape[1] == len(names) and not hasattr(estimator, "feature_names_in_")
    return frame.set_axis(names, axis=1) if of_array else frame


def rows_to_score(
    path: Path, estimator: Any, data: Path | None, target: str | None, reading: ReadingOptions
) -> tuple[Rows, str]:
    """
    Rows with targets, and what kind of rows they are: the test rows of a run, or rows of a file.

    :param reading: how that file is read.
    :raises ValueError: if the file of a run is not as it was.
    """
    folder = RunFolder(path)
    source = folder.source() if path.is_dir() else Source("")
    if data is not None:
        if not hasattr(estimator, "target_") and target is None:
            raise ValueError(f"target is missing: which column of {data} should be compared with?")
        classes = np.array([*map(str, getattr(estimator, "classes_", ()))], object)
        levels = tuple(labels_of(classes).tolist())
        # of an estimator that was fitted in Python
        plain = Column(str(target), "category" if levels else "number", levels=levels)
        column = getattr(estimator, "target_", plain)
        source = dataclasses.replace(source, reading=reading)
        rows = read_pairs(str(data), source, column, target)
        rows = rows._replace(X=_named(estimator, rows.X))
        if hasattr(estimator, "classes_"):  # whose texts are known
            rows = rows._replace(y=estimator.classes_[pd.Index(levels).get_indexer(rows.y)])
        return rows, f"rows of {data.name}"
    if not path.is_dir():
        raise ValueError(f"data is missing: {path} is not a run folder, which has test rows.")
    if folder.read().get("trained_on_all"):
        raise ValueError(
            f"data is missing: the model in {path} was trained on all rows after its scores, which "
            "run.json has; give later rows by --data."
        )
    split = split_rows(source)
    if split.checksum != folder.read()["checksum"]:
        raise ValueError(
            f"{source.name} is not as it was in training, so that its test rows are unknown: give "
            "the rows to score by --data."
        )
    return split.test, split.kind


def print_scores(estimator: Any, scored: Scored, kind: str) -> None:
    """
    Print what was chosen, the scores of what was tried on held-out rows of the training, and scores
    with their standard errors, and what kind of rows these were measured on.
    """
    parts = [f"{name} {words}" for name, words in chosen_parts(estimator).items()]
    if parts:
        click.echo(f"the model has: {', '.join(parts)}", err=True)
    if estimator.attempts_:
        header = ("tried on held-out rows of the training", "NLPD", "error")
        tried = [(a.method, f"{a.nlpd:.3f}", f"{a.error:.3f}") for a in estimator.attempts_]
        print_table(header, tried)
    scores, errors, num_rows = scored.scores, scored.errors, len(scored.Y)
    rows = [
        (words, f"{scores[name]:.4g}", f"{errors[name]:.2g}" if name in errors else "")
        for name, words in _TITLES.items()
        if name in scores
    ]
    print_table((estimator.recipe_.full_title, "score", "standard error"), rows)
    click.echo(f"measured on {num_rows} rows: {kind}", err=True)
    if num_rows < _FEW_ROWS:
        click.echo(
            f"scores on {num_rows} row{'s' * (num_rows > 1)} are unreliable: scores of other "
            "rows may differ much. Score more rows, or repeat with other values of --split.",
            err=True,
        )


def predictions(
    estimator: Any, frame: pd.DataFrame, labels: pd.Series, advance: Callable[[int], None]
) -> Iterator[pd.DataFrame]:
    """
    Predictions in original units as named columns, in parts of some thousand rows: mean, standard
    deviation of an observation, and the central 95 % interval, with the median in place of the mean
    for transformed outputs, to two decimals more than the target had in training; or the
    probability of each class and the likeliest class.

    :param labels: the first column, which names the rows.
    :raises ValueError: for labels called like a column of predictions.
    """
    for start in range(0, len(frame), _PART):
        part = slice(start, start + _PART)
        table = _predicted(estimator, frame.iloc[part])
        if labels.name in table:
            raise ValueError(
                f"id must be a column whose name no column of predictions has, got "
                f"{labels.name!r}: rename it."
            )
        table.insert(0, labels.name, labels.iloc[part].array)
        yield table
        advance(len(table))


def _predicted(estimator: Any, frame: pd.DataFrame) -> pd.DataFrame:
    if hasattr(estimator, "classes_"):
        P = estimator.predict_proba(frame)
        table = pd.DataFrame(P, columns=[f"probability_{label}" for label in estimator.classes_])
        return table.assign(**{"class": estimator.classes_[P.argmax(axis=1)]})
    standardizer = estimator.model_.standardizer
    observed = estimator._observed(frame)
    (point, _, variance), ends = observed.original, observed.interval()
    suffixes = [""] if point.shape[1] == 1 else [f"_{p}" for p in range(point.shape[1])]
    columns = {
        "mean" if standardizer.y_transform == "none" else "median": point,
        "standard_deviation": np.sqrt(variance),
        "lower_95": ends[0],
        "upper_95": ends[1],
    }
    names = [f"{name}{suffix}" for name in columns for suffix in suffixes]
    table = pd.DataFrame(np.column_stack(list(columns.values())), columns=names)
    decimals = getattr(estimator, "decimals_", None)
    return table if decimals is None else table.round(decimals + _MORE_DECIMALS)


def write_page(path: Path, estimator: Any, scored: Scored, record: dict[str, Any]) -> Path:
    """Write the page about a model, with the scores of these rows."""
    phase("writing the report")
    rows, title = (scored.frame, scored.Y), estimator.recipe_.full_title
    return write_report(path, estimator, *rows, title=title, record=record, scored=scored)


def _write_page_of_run(
    folder: RunFolder, estimator: Any, scored: Scored, record: dict[str, Any]
) -> None:
    """Write the page of a run, or say why not: the model and its scores are kept."""
    try:
        write_page(folder.path / PAGE, estimator, scored, _shown(record))
    except ValueError as error:
        click.echo(f"no report: {error}", err=True)


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    """The part of the record of a run that its page shows."""
    names = (
        *("method", "transform", "mean", "kernel", "metric"),
        *("minutes", "num_train", "num_test", "seconds"),
    )
    shown = {"data": Path(record["source"]["data"]).name, "rows": record["kind_of_rows"]}
    return shown | {name: record[name] for name in names if record.get(name) is not None}


def _can_report(path: Path) -> bool:
    """Whether a page can be written; says why not."""
    try:
        require_report(path)
    except ValueError as error:
        click.echo(f"no report: {error}", err=True)
        return False
    return True
