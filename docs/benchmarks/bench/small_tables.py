"""Small regression tables, all published splits: scores of each row and paired differences."""

import itertools
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import gpflow_sparse as gs
from bench.peers import sklearn_kernel
from gpflow_sparse.data import metrics
from gpflow_sparse.tables.fitting.evaluation import evaluate
from gpflow_sparse.tables.fitting.path import fit_task
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.methods.cached_model import CachedModel

DATASETS = (
    *("challenger", "fertility", "concreteslump", "autos", "servo", "breastcancer", "machine"),
    *("forest", "stock", "pendulum", "energy", "solar"),
)
NUM_SPLITS = 10
BASE = "exact"
"""The row that the others are compared with: what ``auto`` was before it took mixtures."""
_FOLDS = 5


class Scores(NamedTuple):
    """Scores of standardized test outputs."""

    nlpd: float
    rmse: float
    crps: float
    coverage: float


def run(folder: Path, datasets: Sequence[str], rows: Sequence[str], splits: Sequence[int]) -> None:
    """Score rows that ``small_tables.jsonl`` in a folder does not have, and write the page."""

    def load(name: str, split: int) -> Any:
        return gs.data.load(name, split=split)

    chosen = {row: ROWS[row] for row in rows or ROWS}
    path = folder / "small_tables.jsonl"
    score_rows(path, datasets or DATASETS, splits or range(NUM_SPLITS), chosen, load, page)


def score_rows(
    path: Path,
    datasets: Sequence[str],
    splits: Sequence[int],
    rows: Mapping[str, Callable[[Any], Any]],
    load: Callable[[str, int], Any],
    page: Callable[[Sequence[dict[str, Any]]], str],
) -> None:
    """
    Add the records of all rows to a file that does not have them, and write their page beside it.

    :param rows: functions from a data set to a named tuple of scores.
    :param load: from a name and a split to a data set.
    :param page: the text of the page, from all records.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["data"], r["split"], r["row"]) for r in read(path)}
    for name, split in itertools.product(datasets, splits):
        left = [row for row in rows if (name, split, row) not in done]
        if not left:
            continue
        data = load(name, split)
        for row in left:
            begin = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scores = rows[row](data)
            seconds = time.process_time() - begin
            record = {"data": name, "split": split, "row": row, "seconds": round(seconds, 2)}
            record |= {key: float(value) for key, value in scores._asdict().items()}
            record["num_test"] = len(data.test[0])
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    path.with_suffix(".md").write_text(page(read(path)), encoding="utf-8")


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file; none without it."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def of_estimator(method: str) -> Callable[[Any], Scores]:
    """A method of this package, with a minute."""

    def score(data: Any) -> Scores:
        _, model = fit_task(Task(data.standardized()), method, 60.0)
        scores, _ = evaluate(CachedModel(model), model.standardizer, *data.test)
        scale = float(model.standardizer.y_scale.numpy()[0])
        names = scores["nlpd_standardized"], scores["rmse_standardized"], scores["crps"] / scale
        return Scores(*names, scores["coverage"])

    return score


def sklearn_gp(data: Any) -> Scores:
    """scikit-learn's exact GP: Matern 5/2, maximum likelihood from median lengthscales."""
    from gpflow.kernels import Matern52
    from sklearn.gaussian_process import GaussianProcessRegressor

    def fit(X: np.ndarray, y: np.ndarray) -> Any:
        kernel = Matern52(lengthscales=gs.initialization.median_lengthscales(X))
        return GaussianProcessRegressor(sklearn_kernel(kernel, 0.1), random_state=0).fit(X, y)

    return _gaussian(data, lambda X, y, Z: fit(X, y).predict(Z, return_std=True))


def linear(data: Any) -> Scores:
    """Bayesian ridge regression."""
    from sklearn.linear_model import BayesianRidge

    return _gaussian(data, lambda X, y, Z: BayesianRidge().fit(X, y).predict(Z, return_std=True))


def boosted(make: Callable[[], Any], stopped: bool = False) -> Callable[[Any], Scores]:
    """
    Boosted trees, whose predictions have the variance of cross-validated residuals.

    :param stopped: whether the number of trees is found on a tenth of the rows, and the trees are
        those of the other nine tenths.
    """

    def fit(X: np.ndarray, y: np.ndarray) -> Any:
        if not stopped:
            return make().fit(X, y)
        order = np.random.default_rng(0).permutation(len(X))
        held, rest = np.split(order, [max(1, len(X) // 10)])
        return _stopped_early(make(), (X[rest], y[rest]), (X[held], y[held]))

    def predict(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        fold = np.random.default_rng(1).permutation(len(X)) % _FOLDS
        errors = np.empty(len(X))
        for k in range(_FOLDS):
            own = fold == k
            errors[own] = y[own] - fit(X[~own], y[~own]).predict(X[own])
        mean = np.asarray(fit(X, y).predict(Z))
        return mean, np.full(len(Z), max(1e-3, float(np.sqrt(np.mean(errors**2)))))

    return lambda data: _gaussian(data, predict)


def _stopped_early(model: Any, rows: tuple[Any, Any], held: tuple[Any, Any]) -> Any:
    if type(model).__module__.startswith("lightgbm"):
        import lightgbm

        quiet = lightgbm.log_evaluation(0)
        stop = lightgbm.early_stopping(50, verbose=False)
        return model.fit(*rows, eval_set=[held], callbacks=[stop, quiet])
    return model.fit(*rows, eval_set=held, early_stopping_rounds=50, verbose=False)


def _gaussian(data: Any, predict: Callable[..., Any]) -> Scores:
    """Scores of Gaussian predictions, from standardized rows."""
    scaled = data.standardized()
    (X, Y), (Z, T) = scaled.train, scaled.test
    mean, deviation = (np.reshape(part, (-1, 1)) for part in predict(X, Y[:, 0], Z))
    density = stats.norm.logpdf(T, mean, deviation)
    inside = np.abs(T - mean) <= stats.norm.ppf(0.975) * deviation
    crps = metrics.crps(T, mean, deviation**2)
    return Scores(-np.mean(density), metrics.rmse(T, mean), crps, np.mean(inside))


def _lightgbm() -> Any:
    import lightgbm

    options = {"n_estimators": 3000, "learning_rate": 0.05, "n_jobs": 1, "verbose": -1}
    return lightgbm.LGBMRegressor(**options, min_child_samples=5)


def _catboost() -> Any:
    import catboost

    options = {"iterations": 3000, "learning_rate": 0.05, "thread_count": 1}
    return catboost.CatBoostRegressor(**options, allow_writing_files=False)


def _sklearn_trees() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=0)


ROWS: dict[str, Callable[[Any], Scores]] = {
    "auto": of_estimator("auto"),
    "exact": of_estimator("exact"),
    "scikit-learn GP": sklearn_gp,
    "linear": linear,
    "boosted trees": boosted(_sklearn_trees),
    "LightGBM": boosted(_lightgbm, stopped=True),
    "CatBoost": boosted(_catboost, stopped=True),
}
"""Functions from a data set in original units to the scores of a row."""


def page(records: Sequence[dict[str, Any]]) -> str:
    """The page of all records."""
    wide = by_split(records)
    rows = [row for row in ROWS if any(row in scores for scores in wide.values())]
    complete = {k: v for k, v in wide.items() if all(row in v for row in rows)}
    lines = [
        "# Small tables",
        "",
        "Written by `python docs/benchmarks/run.py small-tables`; not edited by hand.",
        "",
        f"{len(complete)} published splits of {len({k[0] for k in complete})} regression sets of "
        "21 to 960 training rows; scores of standardized outputs, averaged over splits, *pooled* "
        "over all test rows. *auto* is the automatic choice with a minute, a mixture of exact GPs; "
        "*exact* is one exact GP. The power of the evidence by which *auto* weighs its "
        "[components](../methods/mixture.md#mathematics) was chosen on two of these "
        "ten splits. *scikit-learn GP* has a Matern 5/2 kernel by maximum likelihood. "
        "Trees have the variance of cross-validated residuals; LightGBM (and CatBoost, if it is a "
        "row) stops early on a tenth of the rows. Ranks are of the mean NLPD of each set. Seconds "
        "are CPU seconds of fit and scores on one core; after ± stands the standard error over "
        "splits.",
        "",
        "| row | mean rank | NLPD | pooled NLPD | NLPD - exact | better in | RMSE | RMSE - exact | "
        "CRPS | coverage of 95 % | seconds |",
        "| --- |" + " --- |" * 10,
    ]
    lines += [_line(row, rows, complete) for row in rows]
    lines += ["", "## NLPD of each set", "", f"| set | {' | '.join(rows)} |"]
    lines.append("| --- |" + " --- |" * len(rows))
    for name in dict.fromkeys(k[0] for k in complete):
        means = [mean_of(complete, row, "nlpd", name) for row in rows]
        lines.append(f"| {name} | " + " | ".join(f"{m:.3f}" for m in means) + " |")
    return "\n".join(lines) + "\n"


def by_split(records: Sequence[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Records by set and split, and then by row; the last of each."""
    wide: dict[tuple[str, int], dict[str, Any]] = {}
    for record in records:
        wide.setdefault((record["data"], record["split"]), {})[record["row"]] = record
    return wide


def mean_of(complete: Any, row: str, score: str, name: str | None = None) -> float:
    """The mean of a score over the splits of one set, or of all."""
    found = [v[row][score] for k, v in complete.items() if name in (None, k[0])]
    return float(np.mean(found))


def _line(row: str, rows: Sequence[str], complete: Any) -> str:
    names = list(dict.fromkeys(k[0] for k in complete))
    table = np.array([[mean_of(complete, r, "nlpd", name) for r in rows] for name in names])
    rank = stats.rankdata(table, axis=1).mean(axis=0)[rows.index(row)]
    weights = [v[row]["num_test"] for v in complete.values()]
    pooled = np.average([v[row]["nlpd"] for v in complete.values()], weights=weights)
    inside = np.average([v[row]["coverage"] for v in complete.values()], weights=weights)
    cells = [row, f"{rank:.2f}", f"{mean_of(complete, row, 'nlpd'):.3f}", f"{pooled:.3f}"]
    cells += difference(complete, row, "nlpd", count=True)
    cells.append(f"{mean_of(complete, row, 'rmse'):.3f}")
    cells += difference(complete, row, "rmse")
    cells += [f"{mean_of(complete, row, 'crps'):.3f}", f"{inside:.3f}"]
    cells.append(f"{mean_of(complete, row, 'seconds'):.1f}")
    return f"| {' | '.join(cells)} |"


def difference(
    complete: Any, row: str, score: str, *, base: str = BASE, count: bool = False
) -> list[str]:
    """The mean difference to the base row with its standard error, and in how many it is lower."""
    if row == base:
        return [""] * (1 + count)
    found = np.array([v[row][score] - v[base][score] for v in complete.values()])
    text = f"{found.mean():+.3f} ± {found.std(ddof=1) / len(found) ** 0.5:.3f}"
    return [text, f"{int(np.sum(found < 0))} of {len(found)}"] if count else [text]
