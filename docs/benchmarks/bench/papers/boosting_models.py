"""Boosted trees that stop early, and GPBoost's Vecchia approximation, in the time of a row."""

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from bench.papers.choices import score_moments
from bench.papers.spec import Record
from bench.papers.training import Budget
from gpflow_sparse.data import Dataset

# Rounds of boosting at most, and rounds without a gain after which it ends.
_ROUNDS, _PATIENCE = 3000, 50
# Fraction of the training rows on which it stops, and whose residuals give the variance of
# predictions.
_HELD_OUT = 0.1


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
    y = Y[:, 0]
    until = begin + (budget.seconds or np.inf)
    model = STOPPED_TREES[library]((X[own], y[own]), (X[stop], y[stop]), budget.seed, until)
    variance = np.mean((y[stop] - model.predict(X[stop])) ** 2)
    mean = np.asarray(model.predict(Z))[:, None]
    seconds = time.perf_counter() - begin
    scores = score_moments(T, mean, np.full_like(mean, variance))
    return scores | {"chosen": f"{library} {version(library)}", "training_seconds": seconds}


def _lightgbm(rows: Any, stop: Any, seed: int, until: float, categories: Sequence[str] = ()) -> Any:
    import lightgbm

    def end_in_time(state: Any) -> None:
        if time.perf_counter() > until:
            raise lightgbm.callback.EarlyStopException(
                state.iteration, state.evaluation_result_list
            )

    options = {"n_estimators": _ROUNDS, "learning_rate": 0.05, "num_leaves": 63, "n_jobs": 1}
    model = lightgbm.LGBMRegressor(**options, random_state=seed, verbose=-1)
    calls = [lightgbm.early_stopping(_PATIENCE, verbose=False), end_in_time]
    return model.fit(*rows, eval_set=[stop], callbacks=calls)


def _catboost(rows: Any, stop: Any, seed: int, until: float, categories: Sequence[str] = ()) -> Any:
    import catboost

    class EndInTime:
        def after_iteration(self, info: Any) -> bool:
            return time.perf_counter() < until

    options = {"iterations": _ROUNDS, "learning_rate": 0.05, "depth": 8, "thread_count": 1}
    model = catboost.CatBoostRegressor(**options, random_seed=seed, allow_writing_files=False)
    return model.fit(
        *rows,
        eval_set=stop,
        cat_features=list(categories),
        early_stopping_rounds=_PATIENCE,
        callbacks=[EndInTime()],
        verbose=False,
    )


def _scikit_learn(
    rows: Any, stop: Any, seed: int, until: float, categories: Sequence[str] = ()
) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        max_iter=_ROUNDS,
        learning_rate=0.05,
        max_leaf_nodes=63,
        early_stopping=True,
        n_iter_no_change=_PATIENCE,
        random_state=seed,
        categorical_features="from_dtype",
    )
    return model.fit(*rows, X_val=stop[0], y_val=stop[1])


STOPPED_TREES: Mapping[str, Callable[..., Any]] = {
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "scikit-learn": _scikit_learn,
}
"""
Fits by library, of training rows, rows to stop on, a seed, and the value of ``time.perf_counter``
after which no round begins; ``categories`` names columns of text. LightGBM and scikit-learn find
pandas categories by themselves.
"""


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
