"""Fitted estimators in files: what a file holds beside the model, as JSON."""

import dataclasses
import json
import os
from typing import Any

import gpflow
import numpy as np
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.validation import check_is_fitted

from gpflow_sparse.persistence.schema import Given, parse_json
from gpflow_sparse.tables.estimators.estimators import (
    SparseGPClassifier,
    SparseGPEstimator,
    SparseGPRegressor,
)
from gpflow_sparse.tables.fitting.attempts import Attempt
from gpflow_sparse.tables.methods.registry import stored_recipe
from gpflow_sparse.tables.reading.cells import ReadingOptions
from gpflow_sparse.tables.reading.columns import Column
from gpflow_sparse.tables.reading.encoder import TableEncoder

_KINDS = {kind.__name__: kind for kind in (SparseGPRegressor, SparseGPClassifier)}
_TYPES = {"str": str, "int": np.int64, "float": np.float64, "bool": np.bool_}
_SCHEMA = {
    "class": str,
    "parameters": dict,
    "recipe": dict,
    "columns": list[Column],
    "is_named": bool,
    "is_one_dimensional": bool,
    "reason": str,
    "attempts": list[dict],
}
_OPTIONAL = Given({"classes": list, "type_of_classes": str, "target": Column, "decimals": int})


def as_text(estimator: SparseGPEstimator) -> str:
    """
    All of a fitted estimator but its model.

    :raises ValueError: for other estimators, one that is not fitted, and labels that are not texts,
        numbers or booleans.
    """
    if not isinstance(estimator, SparseGPEstimator):
        raise ValueError(
            "model must be a GPflow model or an estimator of gpflow_sparse, got "
            f"{type(estimator).__name__}."
        )
    check_is_fitted(estimator, "model_")
    parameters = estimator.get_params(deep=False)
    found = {
        "class": type(estimator).__name__,
        # a kernel and a likelihood are taken from the model again
        "parameters": {k: v for k, v in parameters.items() if not isinstance(v, gpflow.Module)},
        "recipe": {"method": estimator.method_, "options": dataclasses.asdict(estimator.recipe_)},
        "columns": [dataclasses.asdict(column) for column in estimator.encoder_.columns_],
        "is_named": hasattr(estimator, "feature_names_in_"),
        "is_one_dimensional": getattr(estimator, "_one_dimensional", True),
        "reason": estimator.reason_,
        "attempts": [attempt._asdict() for attempt in estimator.attempts_],
    }
    if hasattr(estimator, "classes_"):
        classes = estimator.classes_
        kind = {"U": "str", "O": "str", "i": "int", "u": "int", "f": "float", "b": "bool"}
        if classes.dtype.kind not in kind:
            raise ValueError(
                f"the estimator cannot be saved with labels of type {classes.dtype}; make them "
                "texts or numbers before fit."
            )
        found |= {"classes": classes.tolist(), "type_of_classes": kind[classes.dtype.kind]}
    if getattr(estimator, "decimals_", None) is not None:
        found["decimals"] = estimator.decimals_
    if hasattr(estimator, "target_"):
        found["target"] = dataclasses.asdict(estimator.target_)
    return json.dumps(found, default=_plain)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's, and paths as texts."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, ReadingOptions):
        return dataclasses.asdict(value)
    raise ValueError(
        f"the estimator cannot be saved with a parameter or label of type {type(value).__name__}; "
        "make it a text or a number."
    )


def from_text(text: str, model: gpflow.models.GPModel, source: str) -> SparseGPEstimator:
    """
    The estimator that :func:`as_text` describes, with its model.

    :param source: the file, in errors.
    :raises ValueError: if the text is damaged.
    """
    remedy = "restore the file or train again"
    found = parse_json(text, _SCHEMA, source, remedy)
    try:
        return _estimator(found, model)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{source} is damaged: {error}; {remedy}.") from error


def _estimator(found: dict[str, Any], model: gpflow.models.GPModel) -> SparseGPEstimator:
    kind = _KINDS[found["class"]]
    given = dict.fromkeys(kind().get_params(deep=False)) | found["parameters"]
    for name in ("kernel", "likelihood"):
        if name not in found["parameters"]:
            given[name] = gpflow.utilities.deepcopy(getattr(model, name, None))
    if given["reading"] is not None:
        given["reading"] = ReadingOptions(**given["reading"])
    estimator = kind(**given)
    columns = tuple(Column(**column) for column in found["columns"])
    estimator.encoder_ = TableEncoder.from_columns(columns)
    estimator.n_features_in_ = len(columns)
    if found["is_named"]:
        estimator.feature_names_in_ = np.array([column.name for column in columns], object)
    estimator.method_ = found["recipe"]["method"]
    estimator.recipe_ = stored_recipe(estimator.method_, found["recipe"]["options"])
    estimator.reason_ = found["reason"]
    estimator.attempts_ = tuple(Attempt(**attempt) for attempt in found["attempts"])
    if kind is SparseGPClassifier:
        dtype: Any = _TYPES[found["type_of_classes"]]
        classes = np.array(found["classes"], dtype)
        estimator._labels = LabelEncoder().fit(classes)
        estimator.classes_ = estimator._labels.classes_
    else:
        estimator._one_dimensional = found["is_one_dimensional"]
        estimator.decimals_ = found.get("decimals")
    if "target" in found:
        estimator.target_ = Column(**found["target"])
    estimator._use_model(model)
    return estimator
