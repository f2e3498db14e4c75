"""Boosted trees that stop early, and GPBoost's Vecchia approximation, in the time of a row."""

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from bench.papers.choices import score_moments
from bench.papers.spec import Record
from bench.papers.training import Budget
from gpflow_sparse.data import Dataset, metrics

# Rounds of boosting at most, and rounds without a gain after which it ends.
_ROUNDS, _PATIENCE = 3000, 50
_RATE = 0.05
_LEAST = 1e-6  # probability of a class, before normalization
# Fraction of the training rows on which it stops, and whose residuals give the variance of
# predictions.
_HELD_OUT = 0.1


class _Options(NamedTuple):
    """See :func:`fit_stopped`."""

    until: float
    seed: int = 0
    classes: bool = False
    categories: Sequence[str] = ()
    large: bool = False


def fit_trees(dataset: Dataset, budget: Budget, library: str) -> Record:
    """
    Boosted trees: rate 0.05, 63 leaves (CatBoost: depth 8), at most 3,000 rounds and the time of
    the row; stopped on a tenth of the training rows, whose residuals give the variance of
    predictions, a little too low.

    :param library: "lightgbm", "catboost" or "scikit-learn".
    """
    begin = time.perf_counter()
    (X, Y), (Z, T) = dataset.train, dataset.test
    order = np.random.default_rng(budget.seed).permutation(len(X))
    stop, own = np.split(order, [max(2, int(_HELD_OUT * len(X)))])
    y, until = Y[:, 0], begin + (budget.seconds or np.inf)
    classes = dataset.num_classes is not None
    y = y.astype(int) if classes else y
    rows, held_out = (X[own], y[own]), (X[stop], y[stop])
    options = {"seed": budget.seed, "classes": classes, "large": True}
    model = fit_stopped(library, rows, held_out, until, **options)
    if classes:
        scores = _scores_of_classes(T, model.predict_proba(Z))
    else:
        variance = np.mean((y[stop] - model.predict(X[stop])) ** 2)
        mean = np.asarray(model.predict(Z))[:, None]
        scores = score_moments(T, mean, np.full_like(mean, variance))
    seconds = time.perf_counter() - begin
    return scores | {"chosen": f"{library} {version(library)}", "training_seconds": seconds}


def _scores_of_classes(labels: np.ndarray, P: np.ndarray) -> Record:
    P = np.maximum(P, _LEAST) / np.sum(np.maximum(P, _LEAST), axis=1, keepdims=True)
    log_loss = -np.mean(np.log(np.take_along_axis(P, labels.astype(int), axis=1)))
    return {
        "error_rate": float(metrics.error_rate(labels, P)),
        "nlpd": float(log_loss),
        "brier": float(metrics.brier(labels, P)),
        "ece": float(metrics.ece(labels, P)),
    }


def _lightgbm(rows: Any, stop: Any, options: _Options) -> Any:
    import lightgbm

    def end_in_time(state: Any) -> None:
        if time.perf_counter() > options.until:
            raise lightgbm.callback.EarlyStopException(
                state.iteration, state.evaluation_result_list
            )

    size = {"num_leaves": 63} if options.large else {}
    kind = lightgbm.LGBMClassifier if options.classes else lightgbm.LGBMRegressor
    model = kind(
        n_estimators=_ROUNDS,
        learning_rate=_RATE,
        n_jobs=1,
        random_state=options.seed,
        verbose=-1,
        **size,
    )
    calls = [lightgbm.early_stopping(_PATIENCE, verbose=False), end_in_time]
    return model.fit(*rows, eval_set=[stop], callbacks=calls)


def _catboost(rows: Any, stop: Any, options: _Options) -> Any:
    import catboost

    class EndInTime:
        def after_iteration(self, info: Any) -> bool:
            return time.perf_counter() < options.until

    size = {"depth": 8} if options.large else {}
    kind = catboost.CatBoostClassifier if options.classes else catboost.CatBoostRegressor
    model = kind(
        iterations=_ROUNDS,
        learning_rate=_RATE,
        thread_count=1,
        random_seed=options.seed,
        allow_writing_files=False,
        **size,
    )
    return model.fit(
        *rows,
        eval_set=stop,
        cat_features=list(options.categories),
        early_stopping_rounds=_PATIENCE,
        callbacks=[EndInTime()],
        verbose=False,
    )


def _scikit_learn(rows: Any, stop: Any, options: _Options) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    size = {"max_leaf_nodes": 63} if options.large else {}
    kind = HistGradientBoostingClassifier if options.classes else HistGradientBoostingRegressor
    model = kind(
        max_iter=_ROUNDS,
        learning_rate=_RATE,
        early_stopping=True,
        n_iter_no_change=_PATIENCE,
        random_state=options.seed,
        categorical_features="from_dtype",
        **size,
    )
    return model.fit(*rows, X_val=stop[0], y_val=stop[1])


_LIBRARIES: Mapping[str, Callable[[Any, Any, _Options], Any]] = {
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "scikit-learn": _scikit_learn,
}


def fit_stopped(
    library: str, rows: tuple[Any, Any], stop: tuple[Any, Any], until: float, **options: Any
) -> Any:
    """
    A model of boosted trees that stops early on some rows, with the methods of scikit-learn.

    :param library: "lightgbm", "catboost" or "scikit-learn".
    :param rows: inputs and outputs, or labels; text as pandas categories, of CatBoost as text.
    :param stop: rows without whose gain for 50 rounds it ends.
    :param until: value of ``time.perf_counter`` after which no round begins, except for
        scikit-learn's.
    :param options: ``seed=0``; ``classes=True`` for labels; ``categories``, names of columns of
        text for CatBoost; ``large=True`` for 63 leaves or depth 8 in place of the library's size.
    """
    return _LIBRARIES[library](rows, stop, _Options(until, **options))


def fit_gpboost(dataset: Dataset, budget: Budget, kernel: str) -> Record:
    """
    GPBoost's Vecchia approximation with a lengthscale for each column, with its own defaults.

    It has no limit of time.

    :param kernel: "matern_ard" with shape 1.5, or "exponential_ard".
    """
    import gpboost

    begin = time.perf_counter()
    (X, Y), (Z, T) = dataset.train, dataset.test
    shape = {"cov_fct_shape": 1.5} if kernel == "matern_ard" else {}
    model = gpboost.GPModel(
        gp_coords=X,
        cov_function=kernel,
        gp_approx="vecchia",
        likelihood="gaussian",
        num_parallel_threads=1,
        seed=budget.seed,
        **shape,
    )
    model.fit(y=Y[:, 0])
    found = model.predict(gp_coords_pred=Z, predict_var=True, predict_response=True)
    seconds = time.perf_counter() - begin
    scores = score_moments(T, found["mu"][:, None], found["var"][:, None])
    return scores | {"chosen": f"gpboost {version('gpboost')}", "training_seconds": seconds}
