"""``partial_fit`` of the estimators: new rows for a trained model, without training."""

from typing import Any

import gpflow
import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted, column_or_1d

from gpflow_sparse.tables.estimators.arguments import (
    require_numbers,
    require_target,
    with_log_exposure,
)
from gpflow_sparse.tables.methods.rows import require_range
from gpflow_sparse.validation.atomic import atomic


class TakesNewRows:
    """An estimator whose ``model_`` may be conditioned on more rows."""

    @atomic
    def partial_fit(self: Any, X: Any, y: Any, classes: Any = None) -> Any:
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
            self._require_known([] if classes is None else classes, np.unique(y))
            return self.fit(X, y)
        rows = self._standardized(X)
        require_target(rows, y, self)
        if hasattr(self, "classes_"):
            labels = column_or_1d(y, warn=True)
            self._require_known(labels, self.classes_)
            Y = self._labels.transform(labels)[:, None].astype(np.float64)
        else:
            Y = require_numbers(y).reshape(len(rows), -1)
        model = self.model_
        if not hasattr(model, "condition_on"):
            raise ValueError(
                f"method {self.method_!r} cannot take new rows, since its model is gpflow.models."
                f"{type(model).__name__}; fit all rows, or take the method 'mixture', 'gpnn' or "
                "'solvegp'."
            )
        self._use_model(model.condition_on(rows, model.standardizer.transform_outputs(Y)))
        return self

    @staticmethod
    def _require_known(labels: Any, known: Any) -> None:
        """:raises ValueError: for labels that are not among the known ones."""
        if unknown := set(np.asarray(labels).tolist()) - set(np.asarray(known).tolist()):
            raise ValueError(
                f"y must hold labels that fit has seen, got {min(unknown, key=str)!r} that it has "
                "not; fit all rows."
            )

    def _encoded(self: Any, frame: pd.DataFrame) -> np.ndarray:
        """Checked rows as the encoder has them ``[n, D']``, with logarithms of exposures."""
        exposed = with_log_exposure(frame, self.recipe_.exposure, self.model_.likelihood)
        return self.encoder_.transform(exposed)  # type: ignore[no-any-return]

    def _standardized(self: Any, X: Any) -> np.ndarray:
        """Rows ``[n, D']`` as the model has them."""
        check_is_fitted(self, "model_")
        inputs = self._encoded(self._checked(X, reset=False))
        with np.errstate(over="ignore"):
            rows = self.model_.standardizer.transform_inputs(inputs)
        names = list(self.encoder_.get_feature_names_out())
        require_range(rows, names, "X, once standardized,", gpflow.default_float())
        return rows
