"""Estimators with scikit-learn's interface."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from gpflow_sparse.tables.estimators.arguments import (
    decimals_of,
    known_noise,
    require_function,
    require_joint,
    require_numbers,
    require_one_type,
    require_parameters,
    require_target,
    row_weights,
    without_noise,
)
from gpflow_sparse.tables.estimators.base import SparseGPEstimator
from gpflow_sparse.tables.estimators.draws import (
    draw_functions,
    draw_observations,
    joint_covariance,
    warn_of_means,
)
from gpflow_sparse.tables.fitting.copies import distinct_rows_of
from gpflow_sparse.tables.fitting.evaluation import class_probabilities
from gpflow_sparse.tables.fitting.splits import group_labels
from gpflow_sparse.tables.fitting.weights import weights_of_copies
from gpflow_sparse.tables.reading.targets import require_groups
from gpflow_sparse.validation.atomic import atomic
from gpflow_sparse.validation.checks import is_number, require_count, require_flag


class SparseGPRegressor(RegressorMixin, SparseGPEstimator):
    """
    Gaussian-process regression on tables of any size, as a scikit-learn estimator.

    For 8,000 rows or more, a twentieth of them, at most 1,000, are held out of the training, and
    predicted variances are corrected on them, see :func:`gpflow_sparse.calibrate`;
    ``method_options={"calibrate": False}`` trains on all rows instead.

    Inputs and outputs are standardized inside; a warning names outputs far from all others, which
    likelihoods with heavy tails give less weight. A data frame of pandas, polars or Arrow may hold
    text, booleans, dates and missing cells, see :class:`TableEncoder`; an array may hold NaN. A
    ``TableWarning`` names cells that cannot be read and columns that vary and are not used.

    :param method: "auto" measures candidates on held-out rows and trains the best; "exact" is an
        exact GP (up to some thousand rows); else a method of ``gpflow-sparse methods``.
    :param kernel: any GPflow kernel for the standardized inputs, which is copied, and whose values
        are the start. None for the kernels of the method: "mixture" averages nine; "gpnn" and
        "exact" compare Matern 1/2, 3/2, 5/2 and the squared exponential on
        held-out rows; "site_vgp" and "dirichlet_gpnn" have Matern 3/2, "grief" has the squared
        exponential, and all others have Matern 5/2.
    :param likelihood: "gaussian" (default), "student_t", "laplace", "heteroskedastic" for noise
        that depends on the inputs, "poisson", or a GPflow likelihood. Outputs of likelihoods of
        counts and positive values are not standardized.
    :param time_budget: seconds for the choice and the training; no part of them begins that is not
        expected to end in time; the choice may end earlier. None for a number of steps, which makes
        equal calls give equal results.
    :param method_options: options of the method by name, as ``gpflow-sparse fit --help`` has them,
        such as ``{"num_inducing": 512}``.
    :param random_state: an integer makes ``fit`` reproducible.
    :param warm_start: start from the hyperparameters of the last fit.
    :param verbose: print what is tried.
    :param reading: how cells of a DataFrame are read where they do not show it.
    :param split: which rows are held out where methods are compared and variances corrected:
        "random" rows; "time", the last ones by the first column that is a date, without one in the
        order of the rows; or "auto", "time" where a column is a date and rows are predicted worse
        from rows of other times than from random ones, with a warning.
    :param checkpoint_dir: folder in which the training steps of a method are kept, if it is given
        by name and without ``time_budget``; the next ``fit`` of the same rows continues them.

    After ``fit``: ``model_`` is the GPflow model of the standardized rows, ``method_`` its method,
    ``attempts_`` what was tried with its scores, ``reason_`` the reason of the choice,
    ``encoder_.notes_`` what was done with the columns, and ``interrupted_`` whether Ctrl-C ended
    the training, after which the model is the best so far. :func:`gpflow_sparse.save` keeps all of
    this in a file.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @atomic
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        noise_variance: Any = None,
    ) -> "SparseGPRegressor":
        """
        Train on the rows of a table. A call that raises or is interrupted keeps the last fit.

        :param X: DataFrame or array [N, D].
        :param y: outputs [N] or [N, P], finite. Several outputs share kernel and noise variance:
            where their signal-to-noise ratios differ, fit an estimator for each.
        :param sample_weight: weights of the rows [N], at least 0, None for 1: a row of weight 2
            counts as two equal rows, and its observation has half the noise variance; one of weight
            0 is left out. A mean above 1 is divided out, with a warning, and copies of rows are
            left out: neither is a new measurement. Kinds, levels and medians of columns, and the
            choice of a transform, do not depend on weights. The automatic choice tries the methods
            that take weights.
        :param groups: labels of groups of rows [N], such as patients, which are held out together
            where methods are compared and variances corrected; None for none.
        :param noise_variance: known variances of the noise of the rows [N], or one of all rows, in
            the units of ``y`` squared; nearly zero, such as 1e-6, for values without noise. The
            method learns a variance beyond them, a tenth of their mean by its prior median. It is
            for one output, not transformed, and for the methods "auto", "mixture", "exact", "gpnn"
            and "solvegpr"; variances are not calibrated. New observations have the variance beyond
            the known ones: add theirs, or name a column of X by ``noise_column`` of
            ``method_options``, which is used in rows to predict too, where it is there.
        :raises ValueError: for wrong shapes, an unknown method or one that takes no weights or
            known variances, or a likelihood that does not fit.
        """
        require_parameters(self)
        column = (self.method_options or {}).get("noise_column")
        X, in_column = without_noise(X, column, self)
        frame = self._checked(X, ensure_min_samples=2)
        require_target(frame, y, self)
        y = require_numbers(y)
        self._one_dimensional, self.decimals_ = y.ndim == 1, decimals_of(y)
        weights, used = row_weights(sample_weight, len(y))
        known = known_noise(noise_variance, in_column, y, sample_weight, column)
        labels = group_labels(groups, len(y))
        frame, Y = frame[used], y[used, None] if y.ndim == 1 else y[used]
        groups = None if labels is None else labels[used]
        return self._fit(frame, Y, weights, groups=groups, known=known)

    def _without_copies(
        self,
        X: pd.DataFrame,
        Y: np.ndarray,
        weights: np.ndarray | None,
        groups: np.ndarray | None,
        known: np.ndarray | None,
    ) -> Any:
        """The rows that are not copies of others, their weights, groups, and noise variances."""
        observed = Y if known is None else np.column_stack([Y, known])
        kept, summed, note = distinct_rows_of(X, observed, weights)
        if note:
            warnings.warn(note, stacklevel=6)
        if weights is None:
            conformal = bool((self.method_options or {}).get("conformal"))
            summed = weights_of_copies(summed, self.method, conformal)
        if known is not None:  # a copy is not a second measurement of half the variance
            summed, known = None, known[kept]
        return X.iloc[kept], Y[kept], summed, None if groups is None else groups[kept], known

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        point: str | None = None,
        noise: bool = True,
    ) -> Any:
        """
        Means of new observations; medians where the outputs were transformed.

        The mean of the inverse of a logarithm grows without bound with the variance, and is then
        above nearly all of the distribution.

        :param X: DataFrame or array [N, D].
        :param return_std: also standard deviations of new observations, noise included.
        :param return_cov: also their joint covariance [N, N] ([N, N, P] for several outputs), noise
            included; at most 10,000 rows.
        :param point: "mean" for means of transformed outputs too; None for their medians. A warning
            counts the means outside of the central 99 % intervals of their observations.
        :param noise: False for f, the function without the noise of observations, as optimizers
            need it. For transformed outputs: its median, and as deviation half of the distance
            between its quantiles at 16 % and 84 %, in original units.
        :return: point predictions [N] or [N, P]; with a flag a pair.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be true.")
        require_flag(noise, "noise")
        if point not in (None, "mean"):
            raise ValueError(f"point must be 'mean' or None, got {point!r}.")
        if point is not None and not noise:
            raise ValueError(
                f"point must be None where noise is False, got {point!r}; leave it out."
            )
        observed, standardizer = self._observed(X), self.model_.standardizer
        transformed = standardizer.y_transform != "none"
        if noise:
            found = observed.original
            values, deviations = found.point, np.sqrt(found.variance)
        else:
            require_function(self.model_.likelihood, "noise=False is")
            values, deviations = observed.function
        if point == "mean" and transformed and noise:
            values = found.mean
            warn_of_means(observed)
        if return_std:
            return self._shaped(values), self._shaped(deviations)
        if not return_cov:
            return self._shaped(values)
        if transformed:
            raise ValueError("return_cov is for outputs without a transform; call sample_y.")
        scale = 1.0 if standardizer.y_scale is None else standardizer.y_scale.numpy()
        covariance = joint_covariance(self.model_, observed, noise=noise) * scale**2
        return self._shaped(values), self._shaped(covariance)

    def predict_interval(self, X: Any, coverage: float = 0.95) -> np.ndarray:
        """
        Central intervals of new observations; with ``method_options={"conformal": True}`` by
        quantiles of the residuals of the rows that the model is calibrated on.

        :param coverage: the probability of an observation to fall into its interval.
        :return: lower and upper ends, ``[N, 2]`` or ``[N, 2, P]``.
        """
        if not (is_number(coverage) and 0.0 < coverage < 1.0):
            raise ValueError(f"coverage must be between 0 and 1, got {coverage!r}.")
        ends = self._observed(X).interval(coverage)
        return np.stack([self._shaped(end) for end in ends], axis=1)

    def predict_quantiles(self, X: Any, levels: Any = (0.05, 0.5, 0.95)) -> np.ndarray:
        """
        Quantiles of new observations, in the units of ``y``; at pairs such as .025 and .975 the
        ends of :meth:`predict_interval`, conformal ones included.

        :param levels: L probabilities between 0 and 1.
        :return: ``[N, L]``, or ``[N, L, P]``.
        """
        given = np.asarray(levels, np.float64)
        if given.ndim != 1 or not given.size or not np.all((given > 0.0) & (given < 1.0)):
            raise ValueError(
                f"levels must be a list of probabilities between 0 and 1, got {levels!r}; write "
                "0.05 for the quantile of 5 %."
            )
        observed = self._observed(X)
        return np.stack([self._shaped(each) for each in observed.quantiles(given)], axis=1)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """
        Joint samples of new observations.

        :param X: at most 10,000 rows.
        :return: ``[N, n_samples]`` or ``[N, P, n_samples]``.
        """
        return self._samples(draw_observations, X, n_samples, random_state)

    def sample_f(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """
        Joint samples of f, the function without the noise of observations, in the units of ``y``:
        the row of the smallest value of one draw is where Thompson sampling evaluates next.

        :param X: at most 10,000 rows.
        :return: ``[N, n_samples]`` or ``[N, P, n_samples]``.
        :raises ValueError: for counts and positive outputs, whose f is a logarithm.
        """
        check_is_fitted(self, "model_")
        require_function(self.model_.likelihood, "sample_f is")
        return self._samples(draw_functions, X, n_samples, random_state)

    def _samples(self, draw: Any, X: Any, count: int, random_state: Any) -> np.ndarray:
        """Draws of standardized outputs by a function ``[S, N, P]``, in original units."""
        observed = self._observed(X)
        require_joint(observed.rows)
        require_count(count, "n_samples")
        Y = draw(self.model_, self._posterior, observed, count, check_random_state(random_state))
        original = self.model_.standardizer.inverse_outputs(Y.reshape(-1, Y.shape[-1]))
        samples = np.moveaxis(original.reshape(Y.shape), 0, -1)  # [N, P, S]
        return samples[:, 0] if self._one_dimensional else samples

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """``[..., P]`` as ``[...]`` if ``y`` had one dimension."""
        return values[..., 0] if self._one_dimensional else values


class SparseGPClassifier(ClassifierMixin, SparseGPEstimator):
    """
    Gaussian-process classification on tables of any size, as a scikit-learn estimator.

    :param method: "auto", or a method of ``gpflow-sparse methods`` that takes classes.
    :param kernel: as for :class:`SparseGPRegressor`, as all other parameters.
    :param likelihood: for two classes "bernoulli" or "bernoulli_logit", for more "softmax",
        "one_versus_rest" or "multiclass", which is robust-max; or a GPflow likelihood. None for the
        likelihood of the method: "bernoulli" for two classes and "softmax" for more, but
        "bernoulli_logit" and "one_versus_rest" for "site_vgp", "bernoulli_logit" for "simple" and
        about trees, and always "softmax" for "dirichlet_gpnn".
    """

    @atomic
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> "SparseGPClassifier":
        """
        Train on the rows of a table. A call that raises or is interrupted keeps the last fit.

        :param X: DataFrame or array [N, D].
        :param y: labels [N] of any type, at least two different ones.
        :param sample_weight: as for :class:`SparseGPRegressor`.
        :param groups: as for :class:`SparseGPRegressor`; None for copies of rows.
        :raises ValueError: for wrong shapes, a single class, labels that nearly all differ or are
            of several types, an unknown method or one that takes no weights, or an unsuitable
            likelihood.
        """
        frame = self._checked(X, ensure_min_samples=2)
        require_target(frame, y, self)
        labels = column_or_1d(y, warn=True)
        if pd.isna(labels).any():
            raise ValueError(
                f"y must hold a label in every row, got NaN in {int(pd.isna(labels).sum())}; drop "
                "these rows."
            )
        require_one_type(labels)
        weights, used = row_weights(sample_weight, len(labels))
        groups = group_labels(groups, len(labels))
        groups = None if groups is None else groups[used]
        frame, labels = frame[used], labels[used]
        check_classification_targets(labels)
        require_groups(labels, "y", "predict another column, or take SparseGPRegressor for numbers")
        self._labels = LabelEncoder().fit(labels)
        self.classes_ = self._labels.classes_
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold two classes or more, got one class: {self.classes_[0]!r}."
            )
        Y = self._labels.transform(labels)[:, None].astype(np.float64)
        return self._fit(frame, Y, weights, [str(label) for label in self.classes_], groups)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of every row [N]."""
        check_is_fitted(self, "model_")
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [N, C] of the classes, in the order of ``classes_``."""
        return class_probabilities(self._observed(X).moments[0], len(self.classes_))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities [N, C]."""
        return np.log(self.predict_proba(X))
