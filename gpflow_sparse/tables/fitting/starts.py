"""Kernels of a run, and their starting hyperparameters, from exact GPs on some of the rows."""

import copy
import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Iterator, Sequence
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
FIRST, PROFILES, ROWS, AXES, DRAWS = "a first fit", "kernels", "rows", "axes", "further rows"
"""Stages of a search for starting hyperparameters."""
COLUMNS, GRADIENTS = "columns", "gradients"
"""Metrics: lengthscales along the columns of X, or along the axes of the gradients of a model."""
DEFAULT_NOISE = 0.1
"""Noise variance without a fit, as a fraction of the variance of the outputs."""
# The same beyond known variances, as a fraction of their mean; and its least value, above the lower
# bound of GPflow's Gaussian likelihood.
_BEYOND_KNOWN, _LEAST_NOISE = 0.1, 2e-6
# Rows of a table, in multiples of a random subset, from which local subsets are tried too.
_MIN_FOR_LOCAL = 4
# Least number of training rows for a choice of the kernel, and rows by which starts are compared,
# at most a fifth: of 500 the log density was off by .007 on elevators, and a worse start was taken.
_MIN_FOR_KERNELS, _HELD_OUT = 200, 2000
_MAX_DRAWS, _DRAWS_OF_STAGE = 18, 3  # of local subsets
# Largest number of times that axes of gradients are found again from a model along earlier axes,
# neighbors of that model, and least root mean square of a derivative, relative to the largest.
_MAX_REFITS, _AXES_NEIGHBORS, _LEAST_SLOPE = 3, 64, 1e-3
# Time that must be left for another fit, in multiples of what one of its kind took.
_SPARE = 1.3
_LARGEST = 5.0  # output, in robust standard deviations, for likelihoods whose noise has outliers
_MAX_DISTANCES = 4e8  # whose medians are starting lengthscales; 8 s on a core


class Hyperparameters(NamedTuple):
    """Starting hyperparameters."""

    kernel: gpflow.kernels.Kernel
    noise_variance: float
    seconds: float = 0.0
    """Time of the fit."""
    log_evidence: float = float("nan")
    """Log evidence of the outputs in a fit to all rows."""


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
    better; see :class:`StartSearch`. No fit is made twice.

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
        exposure: str | None = None,
    ) -> None:
        """
        :param dataset: standardized.
        :param likelihood: a likelihood or its name; for counts and positive outputs with a
            logarithmic link estimates of f are fitted (:func:`log_rates`), and for noise with heavy
            tails the outputs without outliers; classes, and other outputs that are not
            standardized, have median lengthscales and a noise variance of 0.1.
        :param kernel: copied in place of the kernels that configurations name.
        :param until: value of ``time.perf_counter`` before which :meth:`find` ends its fits.
        :param variance: of a kernel that is not fitted.
        :param exposure: the column of the exposures of counts.
        """
        self._dataset, self._given, self._until = dataset, kernel, until
        self._likelihood, self._variance = likelihood, variance
        self.noise_variance = starting_noise(dataset)
        self.is_fitted = dataset.num_classes is None and is_standardized(likelihood)
        if has_heavy_tails(likelihood):  # the noise of exact GPs has none
            rows = (dataset.train[0], np.clip(dataset.train[1], -_LARGEST, _LARGEST))
            self._dataset = dataclasses.replace(dataset, train=rows)
        if not self.is_fitted and dataset.num_classes is None:
            made = make_likelihood(likelihood, None, DEFAULT_NOISE)
            found = log_rates(made, dataset, exposure)
            if found is not None:
                self.is_fitted, rows = True, (dataset.train[0], found[0] - found[0].mean(axis=0))
                self._dataset = dataclasses.replace(dataset, train=rows)
        self._lengthscales = functools.cache(functools.partial(self._medians, dataset.train[0]))
        self.fit = functools.cache(self._fit_once)
        self._axes = functools.cache(self._find_axes)
        self.score = functools.cache(self._score_once)

    def find(self, recipe: Any) -> Hyperparameters:
        """The start of a method, by all stages of its search but further draws of rows."""
        search = StartSearch(self, recipe, num_draws=0)
        while search.advance(self._until):
            pass
        if search.failure is not None and not search.is_fitted:
            message = f"training starts from median lengthscales: {search.failure}"
            warnings.warn(message, stacklevel=2)
        return search.best

    def search(self, recipe: Any) -> "StartSearch":
        """A search for the start of a method, which has made no fit."""
        return StartSearch(self, recipe)

    def about(self, mean: Any) -> "InitialHyperparameters":
        """Starting hyperparameters of a GP about a mean of trees of the same rows."""
        data, variance = mean.residual_data(self._dataset), mean.start_variance
        return InitialHyperparameters(
            data, self._likelihood, self._given, until=self._until, variance=variance
        )

    @functools.cached_property
    def num_distinct(self) -> int:
        """Distinct training rows."""
        return num_distinct(self._dataset.train[0])

    @property
    def num_rows(self) -> int:
        """Training rows."""
        return len(self._dataset.train[0])

    @property
    def num_columns(self) -> int:
        """Columns of the inputs."""
        return int(self._dataset.train[0].shape[1])

    def untrained_kernel(self, recipe: Any) -> gpflow.kernels.Kernel:
        """The given kernel, or the configuration's kernel with median lengthscales."""
        trial = _Trial(self.names(recipe)[0], recipe.ard, recipe.on_grid, recipe.seed)
        kernel = self._kernel(trial)
        if self._given is None and self._variance != 1.0:
            kernel.variance.assign(self._variance)
        if getattr(recipe, "metric", COLUMNS) == GRADIENTS and self._given is None:
            return LinearMap(kernel, np.eye(self._dataset.train[0].shape[1]))
        return kernel

    def names(self, recipe: Any) -> Sequence[str | None]:
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
        kernel, noise_variance, *_ = self.fit(trial)
        X = self._dataset.train[0]
        rest = self._dataset.take(rows_not_held_out(X, _HELD_OUT, trial.seed))
        model = NearestNeighborGP(
            rest.train,
            kernel,
            num_neighbors=_AXES_NEIGHBORS,
            noise_variance=noise_variance,
            row_weights=rest.weights,
            known_variance=rest.noise_variance,
        )
        axes, slopes = initialization.gradient_axes(model, rest.train[0], seed=trial.seed)
        if not slopes[0] > 0.0:
            raise ValueError("the model is constant, and has no axes of gradients.")
        scales = np.maximum(slopes, _LEAST_SLOPE * slopes[0]) ** -0.5
        return axes, scales * np.median(self._medians(X @ axes.T / scales, trial.seed))

    @staticmethod
    def _medians(X: np.ndarray, seed: int) -> np.ndarray:
        most = min(2000, int((_MAX_DISTANCES / X.shape[1]) ** 0.5))
        return initialization.median_lengthscales(X, max_rows=most, seed=seed)

    def _fit_once(self, trial: _Trial) -> Hyperparameters:
        """:raises ValueError: if the fit fails."""
        rows, seed = self._dataset.train, trial.seed + trial.draw
        start = self._of_rows | {"noise_variance": self.noise_variance}
        begin = time.perf_counter()
        kernel = self._kernel(trial)
        log_evidence = float("nan")
        if trial.all_rows:
            noise_variance, log_evidence = initialization.posterior_mode(*rows, kernel, **start)
        elif trial.num_rows is None:
            noise_variance = initialization.local_hyperparameters(*rows, kernel, seed=seed, **start)
        else:
            noise_variance = initialization.subset_hyperparameters(
                *rows, kernel, num_rows=trial.num_rows, seed=seed, **start
            )
        seconds = time.perf_counter() - begin
        if trial.along is not None:
            seconds += self.fit(trial.along).seconds
        return Hyperparameters(kernel, noise_variance, seconds, log_evidence)

    def _score_once(self, trial: _Trial) -> float:
        """Log density of held-out rows given their nearest rows; for all rows, see the trial."""
        kernel, noise_variance, _, log_evidence = self.fit(trial)
        if trial.all_rows:
            return log_evidence
        return initialization.neighbor_log_density(
            *self._dataset.train,
            kernel,
            noise_variance,
            num_held_out=_HELD_OUT,
            seed=trial.seed,
            calibrated=True,
            **self._of_rows,
        )

    @property
    def _of_rows(self) -> dict[str, Any]:
        """Weights of the rows, and known variances of their noise."""
        data = self._dataset
        return {"row_weights": data.weights, "known_variance": data.noise_variance}


class StartSearch:
    """
    The starting hyperparameters of one method, searched for in stages of a few fits each.

    A first fit is a start already. Where a recipe leaves the kernel open, each kernel is fitted to
    local subsets; then the best one to a random subset of all rows, and in long tables to local
    subsets. The nearest rows predict held-out rows with each fit, and the best one is kept.

    If a recipe leaves the metric open, the best fit is followed by up to three rounds of fits with
    a lengthscale for each axis of the gradients of the best fit before
    (:func:`~gpflow_sparse.initialization.gradient_axes`), as long as the nearest rows predict
    held-out rows better. The last stages are fits to other local subsets, as sixty-four subsets are
    few: on kin40k the log densities of held-out rows of three draws were 0.845, 0.881 and 0.991.
    """

    def __init__(
        self, starts: InitialHyperparameters, recipe: Any, num_draws: int = _MAX_DRAWS
    ) -> None:
        self._starts, self._recipe, self._num_draws = starts, recipe, num_draws
        self._ranked: list[_Trial] = []  # fits, from the worst to the best
        self._stages = self._plan()
        self.stage = ""
        """The latest stage."""
        self._seconds: dict[Any, float] = {}  # of the latest fit of a kind, and its score
        self.gain = math.nan
        """Nats of a held-out row by which the latest stage raised its log density."""
        self.is_out_of_time = False
        """Whether there was no time for a fit of the latest stage."""
        self.failure: ValueError | None = None
        """The latest error of a fit."""

    @property
    def is_fitted(self) -> bool:
        """Whether the start is one of the fits."""
        return bool(self._ranked)

    @property
    def best(self) -> Hyperparameters:
        """The best start so far, not to be changed; median lengthscales before the first fit."""
        if not self._ranked:
            kernel = self._starts.untrained_kernel(self._recipe)
            return Hyperparameters(kernel, self._starts.noise_variance)
        return self._starts.fit(self._ranked[-1])

    def advance(self, until: float = math.inf) -> bool:
        """
        Make the fits of the next stage; False if there is none, or no time for one.

        :param until: value of ``time.perf_counter`` before which a fit must be expected to end, by
            1.3 times the time of earlier ones, but for the first.
        """
        self.stage, trials = next(self._stages, ("", []))
        before, self.is_out_of_time = self._ranked[-1:], False
        for trial in trials:
            begin, kind = time.perf_counter(), (trial.num_rows, trial.along is None)
            needed = self._seconds.get(kind, max(self._seconds.values(), default=0.0))
            if self._ranked and begin + _SPARE * needed > until:
                self.is_out_of_time = trial is trials[0]
                break
            self._try(trial)
            self._seconds[kind] = time.perf_counter() - begin
        compared = before and len(self._ranked) > 1
        ends = (
            [self._starts.score(each) for each in (*before, self._ranked[-1])] if compared else ()
        )
        self.gain = ends[1] - ends[0] if ends else math.nan
        return bool(trials) and not self.is_out_of_time

    def _try(self, trial: _Trial) -> None:
        """Fit a trial, and rank it among the others."""
        if trial in self._ranked:
            return
        try:
            self._starts.fit(trial)
        except ValueError as error:
            self.failure = error
            return
        trials = [*self._ranked, trial]
        if len(trials) > 1:
            trials = sorted(filter(self._has_score, trials), key=self._starts.score)
        self._ranked = trials or self._ranked

    def _has_score(self, trial: _Trial) -> bool:
        try:
            self._starts.score(trial)
        except ValueError as error:
            self.failure = error
            return False
        return True

    def _plan(self) -> Iterator[tuple[str, list[_Trial]]]:
        """The stages, each from the best fit of those before."""
        starts, recipe = self._starts, self._recipe
        if not starts.is_fitted or not recipe.num_subset:
            return
        names, key = starts.names(recipe), (recipe.ard, recipe.on_grid, recipe.seed)
        num_rows, subsets = starts.num_rows, _subsets(recipe, starts.num_distinct)
        repeated = rows_repeat(starts.num_distinct, num_rows) and subsets[0] == starts.num_distinct
        if len(names) > 1 and not repeated:
            trials = [_Trial(name, *key) for name in names]
            yield FIRST, trials[:1]
            yield PROFILES, trials
            names = [self._ranked[-1].kernel] if self._ranked else names[:1]
            if None not in subsets:  # these fits are for the choice of the kernel only
                self._ranked = []
        # of the models whose start is the end, the one that predicts from all rows
        is_exact = not (recipe.is_trained or hasattr(recipe, "num_neighbors"))
        if repeated or (is_exact and num_rows <= EXACT_SUBSET):
            self._ranked = []
            with_one = {False} if is_exact and names[0] is not None else set()
            kinds = [(name, ard) for name in names for ard in {recipe.ard} | with_one]
            trial = _Trial(names[0], *key, subsets[0], all_rows=True)
            yield ROWS, [trial._replace(kernel=name, ard=ard) for name, ard in kinds]
            return
        trials = [_Trial(names[0], *key, subset) for subset in subsets]
        if not self._ranked:
            yield FIRST, trials[-1:]
        yield ROWS, trials
        yield from self._along_gradients(subsets)
        for draw in range(1, self._num_draws + 1, _DRAWS_OF_STAGE):
            draws, best = range(draw, draw + _DRAWS_OF_STAGE), self._ranked[-1:]
            yield DRAWS, [each._replace(num_rows=None, draw=i) for i in draws for each in best]

    def _along_gradients(self, subsets: list[int | None]) -> Iterator[tuple[str, list[_Trial]]]:
        """Rounds of fits along the axes of gradients of the best fit, as recipes allow."""
        metric = getattr(self._recipe, "metric", COLUMNS)
        for number in range(_MAX_REFITS if self._ranked and metric != COLUMNS else 0):
            best = self._ranked[-1]
            if best.kernel is None or best.on_grid or not best.ard or self._starts.num_columns == 1:
                return
            if metric == GRADIENTS and not number:
                self._ranked = []
            yield AXES, [best._replace(num_rows=subset, along=best) for subset in subsets]
            if not self._ranked or self._ranked[-1].along != best:
                return


def starting_noise(dataset: Dataset) -> float:
    """The start, and the median of the prior, of the noise variance that is learned."""
    if dataset.noise_variance is None:
        return DEFAULT_NOISE
    return max(_LEAST_NOISE, _BEYOND_KNOWN * float(dataset.noise_variance.mean()))


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
