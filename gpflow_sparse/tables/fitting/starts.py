"""Kernels of a run, and their starting hyperparameters, from exact GPs on some of the rows."""

import copy
import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np

from gpflow_sparse import initialization
from gpflow_sparse.data import Dataset
from gpflow_sparse.initialization.repeated_rows import rows_not_held_out
from gpflow_sparse.kernels import LinearMap, product_of
from gpflow_sparse.models import NearestNeighborGP
from gpflow_sparse.tables.fitting.observations import (
    has_heavy_tails,
    is_standardized,
    log_rates,
    make_likelihood,
)
from gpflow_sparse.tables.methods.rows import EXACT_SUBSET, num_distinct, rows_repeat

KERNELS = {
    "matern52": gpflow.kernels.Matern52,
    "matern32": gpflow.kernels.Matern32,
    "matern12": gpflow.kernels.Matern12,
    "squared_exponential": gpflow.kernels.SquaredExponential,
}
AUTO_KERNEL = "auto"
COLUMNS, GRADIENTS = "columns", "gradients"
"""Metrics: lengthscales along the columns of X, or along the axes of the gradients of a model."""
DEFAULT_NOISE = 0.1
"""Noise variance without a fit, as a fraction of the variance of the outputs."""
# Rows of a table, in multiples of a random subset, from which local subsets are tried too.
_MIN_FOR_LOCAL = 4
# Least number of training rows for a choice of the kernel, and rows by which starts are compared,
# at most a fifth: of 500 the log density was off by .007 on elevators, and a worse start was taken.
_MIN_FOR_KERNELS, _HELD_OUT = 200, 2000
_MAX_DRAWS = 20  # of local subsets
# Largest number of times that the axes of gradients are found anew from a model along earlier axes,
# neighbors of that model, and least root mean square of a derivative, relative to the largest.
_MAX_REFITS, _AXES_NEIGHBORS, _LEAST_SLOPE = 3, 64, 1e-3
_LARGEST = 5.0  # output, in robust standard deviations, for likelihoods whose noise has outliers
_MAX_DISTANCES = 4e8  # of which medians are starting lengthscales; 8 s on a core


class Hyperparameters(NamedTuple):
    """Starting hyperparameters."""

    kernel: gpflow.kernels.Kernel
    noise_variance: float
    seconds: float = 0.0
    """Time of the fit."""
    log_evidence: float = float("nan")
    """Log evidence of the outputs, of a fit to all rows."""


class _Trial(NamedTuple):
    """A kernel, and the rows to which its hyperparameters are fitted."""

    kernel: str | None
    """Name; None for the kernel that was given."""
    ard: bool
    on_grid: bool
    seed: int
    num_rows: int | None = None
    """Size of a random subset; None for local subsets."""
    draw: int = 0
    """Which subsets; trials of one seed are compared on the same held-out rows."""
    all_rows: bool = False
    """Whether an exact GP of all rows is fitted, and judged by its evidence."""
    along: "_Trial | None" = None
    """The trial whose gradient axes carry the lengthscales; None for columns of X."""


class InitialHyperparameters:
    """
    Starting hyperparameters for the methods that are tried on a table.

    They are fitted as an exact GP to a random subset of the rows; in a table with many more rows
    also to local subsets, and the fit is taken with which the nearest rows predict held-out rows
    better. If a recipe leaves the kernel open, each kernel is fitted to local subsets and judged in
    this way. No fit is made twice.

    If a recipe leaves the metric open, the best fit is followed by up to three rounds of fits with
    a lengthscale for each axis of the gradients of the best fit before
    (:func:`~gpflow_sparse.initialization.gradient_axes`), as long as the nearest rows predict
    held-out rows better.

    An exact GP of at most 1,000 rows is fitted to all of them, with a lengthscale for every column
    and with a common one; the fit with the higher evidence is the start.

    Where inputs repeat, all of this is done with distinct rows, each of which has all of its
    outputs. If each occurs twice or more on average, and a random subset may have all of them, the
    start is fitted to all, and kernels are compared by their evidence: so few held-out
    places cannot tell kernels apart.
    """

    def __init__(
        self,
        dataset: Dataset,
        likelihood: Any = None,
        kernel: gpflow.kernels.Kernel | None = None,
        *,
        until: float = math.inf,
        variance: float = 1.0,
    ) -> None:
        """
        :param dataset: standardized.
        :param likelihood: a likelihood or its name; for counts and positive outputs with a
            logarithmic link estimates of f are fitted (:func:`log_rates`), and for noise with heavy
            tails the outputs without outliers; classes, and other outputs that are not
            standardized, have median lengthscales and a noise variance of 0.1.
        :param kernel: copied in place of the kernels that configurations name.
        :param until: value of ``time.perf_counter``: half of the time until then is for the
            comparison of kernels, and after it no round of axes begins.
        :param variance: of a kernel that is not fitted.
        """
        self._dataset, self._given, self._until = dataset, kernel, until
        self._likelihood, self._variance = likelihood, variance
        self._kernels_until = time.perf_counter() + 0.5 * (until - time.perf_counter())
        self._rounds: set[_Trial] = set()  # trials whose axes have been tried
        self._is_fitted = dataset.num_classes is None and is_standardized(likelihood)
        if has_heavy_tails(likelihood):  # the noise of exact GPs has none
            rows = (dataset.train[0], np.clip(dataset.train[1], -_LARGEST, _LARGEST))
            self._dataset = dataclasses.replace(dataset, train=rows)
        if not self._is_fitted and dataset.num_classes is None:
            found = log_rates(make_likelihood(likelihood, None, DEFAULT_NOISE), dataset.train[1])
            if found is not None:
                self._is_fitted, rows = True, (dataset.train[0], found[0] - found[0].mean(axis=0))
                self._dataset = dataclasses.replace(dataset, train=rows)
        self._lengthscales = functools.cache(functools.partial(self._medians, dataset.train[0]))
        self._fit = functools.cache(self._fit_once)
        self._axes = functools.cache(self._find_axes)
        self._score = functools.cache(self._score_once)
        self._failure: ValueError | None = None

    def find(self, recipe: Any) -> Hyperparameters:
        """The start of a method, not to be changed."""
        if not self._is_fitted or not recipe.num_subset:
            return Hyperparameters(self.untrained_kernel(recipe), DEFAULT_NOISE)
        trial = self._best_trial(recipe)
        if trial is not None:
            return self._fit(trial)
        warnings.warn(f"training starts from median lengthscales: {self._failure}", stacklevel=2)
        return Hyperparameters(self.untrained_kernel(recipe), DEFAULT_NOISE)

    def about(self, mean: Any, until: float = math.inf) -> "InitialHyperparameters":
        """Starting hyperparameters of a GP about a mean of trees of the same rows."""
        data = mean.residual_data(self._dataset)
        return InitialHyperparameters(
            data, self._likelihood, self._given, until=until, variance=mean.start_variance
        )

    def improve(self, recipe: Any, until: float) -> Hyperparameters:
        """
        The best of the start of a method and of fits of its kernel to other local subsets.

        Sixty-four subsets are few: on kin40k the log densities of held-out rows of three draws
        were 0.845, 0.881 and 0.991.

        :param until: value of ``time.perf_counter`` before which fits end, as far as is known from
            the first.
        """
        best = self._best_trial(recipe) if self._is_fitted and recipe.num_subset else None
        if best is None or best.all_rows:
            return self.find(recipe)
        trials, longest = [best], 0.0
        for draw in range(1, _MAX_DRAWS):
            begin = time.perf_counter()
            if begin + longest > until:
                break
            trials = self._ranked([*trials, best._replace(num_rows=None, draw=draw)])
            longest = max(longest, time.perf_counter() - begin)
        return self._fit(trials[-1])

    def _best_trial(self, recipe: Any) -> _Trial | None:
        """The kernel, and then the rows, with the best score; None if every fit failed."""
        names, key = self._names(recipe), (recipe.ard, recipe.on_grid, recipe.seed)
        num_rows, subsets = len(self._dataset.train[0]), _subsets(recipe, self._num_distinct)
        repeated = rows_repeat(self._num_distinct, num_rows) and subsets[0] == self._num_distinct
        if len(names) > 1 and not repeated:
            trials = self._ranked([_Trial(name, *key) for name in names], self._kernels_until)
            names = [trial.kernel for trial in trials[-1:]] or names[:1]
        trials = [_Trial(names[0], *key, subset) for subset in subsets]
        # of the models whose start is the end, the one that predicts from all rows
        is_exact = not (recipe.is_trained or hasattr(recipe, "num_neighbors"))
        if repeated or (is_exact and num_rows <= EXACT_SUBSET):
            with_one = {False} if is_exact and names[0] is not None else set()
            kinds = [(name, ard) for name in names for ard in {recipe.ard} | with_one]
            trials = [trials[0]._replace(kernel=n, ard=a, all_rows=True) for n, a in kinds]
        trials = self._ranked(trials)
        return self._along_gradients(trials, subsets, recipe) if trials else None

    def _along_gradients(
        self, trials: list[_Trial], subsets: list[int | None], recipe: Any
    ) -> _Trial:
        """The best of ranked trials and of fits along the axes of gradients, as recipes allow."""
        metric, best = getattr(recipe, "metric", COLUMNS), trials[-1]
        fixed = best.kernel is None or best.all_rows or best.on_grid or not best.ard
        if metric == COLUMNS or fixed or self._dataset.train[0].shape[1] == 1:
            return best
        trials = trials if metric == AUTO_KERNEL else []
        for _ in range(_MAX_REFITS):
            if best not in self._rounds and time.perf_counter() > self._until:
                break
            self._rounds.add(best)
            again = [best._replace(num_rows=subset, along=best) for subset in subsets]
            trials = self._ranked([*trials, *again])
            if not trials or trials[-1] not in again:
                break
            best = trials[-1]
        return best

    @functools.cached_property
    def _num_distinct(self) -> int:
        return num_distinct(self._dataset.train[0])

    def untrained_kernel(self, recipe: Any) -> gpflow.kernels.Kernel:
        """The given kernel, or the configuration's kernel with median lengthscales."""
        trial = _Trial(self._names(recipe)[0], recipe.ard, recipe.on_grid, recipe.seed)
        kernel = self._kernel(trial)
        if self._given is None and self._variance != 1.0:
            kernel.variance.assign(self._variance)
        if getattr(recipe, "metric", COLUMNS) == GRADIENTS and self._given is None:
            return LinearMap(kernel, np.eye(self._dataset.train[0].shape[1]))
        return kernel

    def _names(self, recipe: Any) -> Sequence[str | None]:
        """The kernels to choose from."""
        if self._given is not None:
            return [None]
        if recipe.kernel != AUTO_KERNEL:
            return [recipe.kernel]
        return list(KERNELS)[: None if len(self._dataset.train[0]) >= _MIN_FOR_KERNELS else 1]

    def _kernel(self, trial: _Trial) -> gpflow.kernels.Kernel:
        if self._given is not None:
            return copy.deepcopy(self._given)
        if trial.along is None:
            return _make_kernel(trial, self._lengthscales(trial.seed))
        axes, lengthscales = self._axes(trial.along)
        return LinearMap(_make_kernel(trial, lengthscales), axes)

    def _find_axes(self, trial: _Trial) -> tuple[np.ndarray, np.ndarray]:
        """
        Axes of the gradients of a trial's model ``[D, D]``, and starting lengthscales along them
        ``[D]``, which fall with the root of the derivative: on pumadyn32nm the held-out NLPD was
        -.11 with these, .15 with medians, and .14 without axes. They are found without the rows by
        which trials are compared: D^2 numbers fit these rows better than others.
        """
        kernel, noise_variance, *_ = self._fit(trial)
        X = self._dataset.train[0]
        rest = self._dataset.take(rows_not_held_out(X, _HELD_OUT, trial.seed))
        model = NearestNeighborGP(
            rest.train,
            kernel,
            num_neighbors=_AXES_NEIGHBORS,
            noise_variance=noise_variance,
            row_weights=rest.weights,
        )
        axes, slopes = initialization.gradient_axes(model, rest.train[0], seed=trial.seed)
        scales = np.maximum(slopes, _LEAST_SLOPE * slopes[0]) ** -0.5
        return axes, scales * np.median(self._medians(X @ axes.T / scales, trial.seed))

    @staticmethod
    def _medians(X: np.ndarray, seed: int) -> np.ndarray:
        most = min(2000, int((_MAX_DISTANCES / X.shape[1]) ** 0.5))
        return initialization.median_lengthscales(X, max_rows=most, seed=seed)

    def _fit_once(self, trial: _Trial) -> Hyperparameters:
        """:raises ValueError: if the fit fails."""
        rows, seed = self._dataset.train, trial.seed + trial.draw
        weights: dict[str, Any] = {"row_weights": self._dataset.weights}
        begin = time.perf_counter()
        kernel = self._kernel(trial)
        log_evidence = float("nan")
        if trial.all_rows:
            noise_variance, log_evidence = initialization.posterior_mode(*rows, kernel, **weights)
        elif trial.num_rows is None:
            noise_variance = initialization.local_hyperparameters(
                *rows, kernel, seed=seed, **weights
            )
        else:
            noise_variance = initialization.subset_hyperparameters(
                *rows, kernel, num_rows=trial.num_rows, seed=seed, **weights
            )
        seconds = time.perf_counter() - begin
        if trial.along is not None:
            seconds += self._fit(trial.along).seconds
        return Hyperparameters(kernel, noise_variance, seconds, log_evidence)

    def _score_once(self, trial: _Trial) -> float:
        """Log density of held-out rows given their nearest rows; of all rows see the trial."""
        kernel, noise_variance, _, log_evidence = self._fit(trial)
        if trial.all_rows:
            return log_evidence
        return initialization.neighbor_log_density(
            *self._dataset.train,
            kernel,
            noise_variance,
            num_held_out=_HELD_OUT,
            seed=trial.seed,
            row_weights=self._dataset.weights,
            calibrated=True,
        )

    def _ranked(self, trials: list[_Trial], until: float = math.inf) -> list[_Trial]:
        """
        The trials whose fit does not fail, from the worst to the best.

        :param until: value of ``time.perf_counter`` before which the next trial must be expected to
            end.
        """
        fitted: list[_Trial] = []
        longest = 0.0
        for trial in trials:
            begin = time.perf_counter()
            if fitted and begin + longest > until:
                break
            try:
                self._fit(trial)
                if len(trials) > 1:
                    self._score(trial)
            except ValueError as error:
                self._failure = error
            else:
                fitted.append(trial)
            longest = max(longest, time.perf_counter() - begin)
        return sorted(fitted, key=self._score) if len(fitted) > 1 else fitted


def resolved(recipe: Any, kernel: gpflow.kernels.Kernel) -> Any:
    """The recipe with the options that make this kernel, in place of those left open."""
    is_map = isinstance(kernel, LinearMap)
    kind = type(kernel.base if is_map else kernel)
    name = next((name for name, known in KERNELS.items() if kind is known), None)
    if name is None:
        return recipe
    changed = {"kernel": name}
    if hasattr(recipe, "metric"):
        changed["metric"] = GRADIENTS if is_map else COLUMNS
    return dataclasses.replace(recipe, **changed)


def _subsets(recipe: Any, num_rows: int) -> list[int | None]:
    """Sizes of the subsets: a random subset, and for a long table local subsets, as None."""
    subset = min(recipe.num_subset, num_rows)
    local = not hasattr(recipe, "num_basis")  # few functions are smooth
    return [subset, *([None] if local and num_rows >= _MIN_FOR_LOCAL * subset else [])]


def _make_kernel(trial: _Trial, lengthscales: np.ndarray) -> gpflow.kernels.Kernel:
    """A kernel of unit variance; one lengthscale, the median of the given ones, unless ARD."""
    assert trial.kernel is not None  # a given kernel is copied, not made here
    scales = lengthscales if trial.ard else float(np.median(lengthscales))
    kind = KERNELS[trial.kernel]
    if not trial.on_grid or kind is gpflow.kernels.SquaredExponential:
        return kind(lengthscales=scales)
    product = product_of(kind, np.broadcast_to(scales, lengthscales.shape))
    for part in () if trial.ard else getattr(product, "kernels", ())[1:]:
        part.lengthscales = product.kernels[0].lengthscales
    return product
