"""What the regressor and the classifier share: parameters, training, rows to predict, pickling."""

import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from gpflow_sparse.numerics.tracing import frees_graphs
from gpflow_sparse.persistence.saving import load, save_with_classes
from gpflow_sparse.tables.estimators.arguments import (
    require_parameters,
    with_log_exposure,
    without_noise,
)
from gpflow_sparse.tables.estimators.new_rows import conditioned, require_known, standardized
from gpflow_sparse.tables.fitting.calibration import will_calibrate
from gpflow_sparse.tables.fitting.encoded import encoded_rows
from gpflow_sparse.tables.fitting.evaluation import Observations
from gpflow_sparse.tables.fitting.path import fit_task
from gpflow_sparse.tables.fitting.splits import AUTO as AUTO_SPLIT
from gpflow_sparse.tables.fitting.splits import groups_of
from gpflow_sparse.tables.fitting.task import Task
from gpflow_sparse.tables.methods.registry import AUTO
from gpflow_sparse.tables.reading.cells import ReadingOptions
from gpflow_sparse.tables.reading.tables import as_frame, as_pandas
from gpflow_sparse.validation.atomic import atomic

_ARRAYS = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}


class SparseGPEstimator(BaseEstimator):
    """Shared code of the regressor and the classifier: parameters, training, pickling."""

    def __init__(
        self,
        method: str = "auto",
        kernel: gpflow.kernels.Kernel | None = None,
        likelihood: Any = None,
        time_budget: float | None = None,
        method_options: dict[str, Any] | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool = False,
        checkpoint_dir: Any = None,
        reading: ReadingOptions | None = None,
        split: str = "auto",
    ) -> None:
        self.method = method
        self.kernel = kernel
        self.likelihood = likelihood
        self.time_budget = time_budget
        self.method_options = method_options
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.checkpoint_dir = checkpoint_dir
        self.reading = reading
        self.split = split

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @frees_graphs
    def _fit(
        self,
        X: Any,
        Y: np.ndarray,
        weights: np.ndarray | None,
        labels: Sequence[str] = (),
        groups: np.ndarray | None = None,
        known: np.ndarray | None = None,
    ) -> Any:
        """
        Encode the inputs, choose and train a model of the standardized rows.

        :param Y: outputs [N, P], or positions among the labels [N, 1].
        :param weights: weights of the rows [N], positive; None for 1.
        :param labels: names of the classes; none for regression.
        :param groups: labels of the groups of the rows [N]; None for none.
        :param known: variances of the noise of the outputs [N]; None for 0.
        """
        begin = time.perf_counter()
        require_parameters(self)
        if not labels:
            X, Y, weights, groups, known = self._without_copies(X, Y, weights, groups, known)
        y = Y[:, 0] if labels else Y
        found = groups_of(X, y, self.split, groups, is_class=bool(labels), reading=self.reading)
        options = dict(self.method_options or {})
        likelihood = options.get("likelihood") if self.likelihood is None else self.likelihood
        options = {"seed": int(check_random_state(self.random_state).randint(2**31 - 1))} | options
        self.encoder_, dataset = encoded_rows(
            with_log_exposure(X, options.get("exposure"), likelihood, self),
            Y,
            self.method,
            options,
            likelihood=likelihood,
            tries_transforms=self.method == AUTO and self.kernel is None and known is None,
            reading=self.reading,
            weights=weights,
            noise_variance=known,
            labels=labels,
            groups=found,
        )
        options.pop("transform", None)  # which the standardizer has
        passed = time.perf_counter() - begin
        choice, model = fit_task(
            Task(dataset, self.kernel, likelihood, options),
            self.method,
            None if self.time_budget is None else max(0.0, self.time_budget - passed),
            print if self.verbose else lambda line: None,
            start=getattr(self, "model_", None) if self.warm_start else None,
            checkpoint_dir=self.checkpoint_dir,
        )
        self.recipe_, self.attempts_ = choice.recipe, choice.attempts
        self.method_, self.reason_ = choice.recipe.name, choice.reason
        self.interrupted_ = choice.interrupted
        self._use_model(model)
        is_used = choice.attempts or will_calibrate(choice.recipe, dataset)
        if found.in_time and is_used and self.split == AUTO_SPLIT:
            warnings.warn(found.note, stacklevel=6)
        return self

    @atomic
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """
        Let the trained model see new rows too, without training: see ``condition_on`` of the
        models. Columns are encoded, and outputs standardized and transformed, as in the last
        ``fit``; hyperparameters and the calibration stay. The first call is a ``fit``.

        :param X: DataFrame or array [n, D] with the columns of ``fit``.
        :param y: outputs [n] or [n, P], or labels [n] of the classes that ``fit`` has seen.
        :param classes: labels that ``y`` must hold in the first call, as of scikit-learn; or None.
        :raises ValueError: for rows that do not fit, new labels, and a method whose model takes no
            new rows, with the reason: ``fit`` all rows then.
        """
        if not hasattr(self, "model_"):
            require_known([] if classes is None else classes, np.unique(y))
            return self.fit(X, y)
        self._use_model(conditioned(self, X, y))
        return self

    def _use_model(self, model: gpflow.models.GPModel) -> None:
        """Predict with a trained model of the standardized rows."""
        self.model_, self._posterior = model, self.recipe_.predictor(model)

    def _checked(self, X: Any, **options: Any) -> Any:
        """``X`` after scikit-learn's checks: a data frame as pandas', else a matrix of numbers."""
        X = as_pandas(X)
        frame = isinstance(X, pd.DataFrame)
        options |= {"skip_check_array": True} if frame else _ARRAYS
        if frame:
            as_frame(X)  # names that repeat are refused
        try:
            X = validate_data(self, X, **options)
        except ValueError as error:
            if frame or not str(error).startswith("could not convert string"):
                raise
            raise ValueError(
                f"X must hold numbers if it is an array: {error}; give texts in a DataFrame."
            ) from None
        return self._named(X, options.get("reset", True))

    def _named(self, X: Any, reset: bool) -> pd.DataFrame:
        """
        Checked rows with the names of the columns of training. Rows to predict without names,
        and rows for a model that was trained on an array, are named by position: scikit-learn has
        warned, and has refused another number of columns.
        """
        if reset:
            named = isinstance(X, pd.DataFrame)
            return X if named else as_frame(X, [f"x{i}" for i in range(X.shape[1])])
        names = list(self.encoder_.feature_names_in_)
        if not isinstance(X, pd.DataFrame):
            return as_frame(X, names)
        return X if set(names) <= set(map(str, X.columns)) else X.set_axis(names, axis=1)

    @property
    def _noise_column(self) -> str | None:
        """The column of known noise variances, which rows to predict may have; None for none."""
        return getattr(self.recipe_, "noise_column", None)

    def _observed(self, X: Any) -> Observations:
        """New observations at rows to predict."""
        rows = standardized(self, X)
        _, noise_variance = without_noise(X, self._noise_column, self)
        posterior, standardizer = self._posterior, self.model_.standardizer
        return Observations(posterior, standardizer, rows, noise_variance=noise_variance)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "model_" in state:
            del state["_posterior"]
            with tempfile.TemporaryDirectory() as folder:
                classes = save_with_classes(state["model_"], Path(folder) / "model")
                state["model_"] = (Path(folder) / "model").read_bytes(), classes
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            content, classes = state["model_"]
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "model").write_bytes(content)
                model = load(Path(folder) / "model", classes=classes)
            posterior = state["recipe_"].predictor(model)
            state = {**state, "model_": model, "_posterior": posterior}
        super().__setstate__(state)
