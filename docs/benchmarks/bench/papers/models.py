"""Models of the papers' tables: built, trained and scored. See ``neighbor_models`` for SWSGP."""

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuu
from gpflow.inducing_variables import InducingPoints
from gpflow.keras import tf_keras

from bench.papers.spec import Record
from bench.papers.tables import WATCHED
from bench.papers.training import Budget, Cosine, Monitor, train
from gpflow_sparse import bases, initialization, models, training
from gpflow_sparse.data import Dataset, metrics
from gpflow_sparse.kernels import WithMissingVariance
from gpflow_sparse.likelihoods import BernoulliLogit, Softmax
from gpflow_sparse.numerics import linalg
from gpflow_sparse.tables.fitting.evaluation import evaluate
from gpflow_sparse.tables.fitting.starts import KERNELS
from gpflow_sparse.tables.methods.cached_model import CachedModel
from gpflow_sparse.tables.methods.registry import read_options, recipe_of
from gpflow_sparse.tables.methods.rows import Pair

Options = Mapping[str, Any]

# Rows of the exact GP whose hyperparameters are starting values of other models.
_SUBSET = 1000
# Training rows to which QSGP fits its covariance during training.
_REFITTED = 4000
# Least starting value of the noise variance: an exact GP may fit few rows almost without noise.
_MIN_NOISE = 1e-3


# Shared by all methods.


@contextmanager
def precision(kind: Any) -> Iterator[None]:
    """A context with another default float of GPflow."""
    jitter = gpflow.config.default_jitter()
    with gpflow.config.as_context(gpflow.config.Config(float=kind, jitter=jitter)):
        yield


@contextmanager
def training_rows(dataset: Dataset, seed: int, float32: bool) -> Iterator[Pair]:
    """The training rows in single or double precision, GPflow's own meanwhile; draws are seeded."""
    kind = np.float32 if float32 else np.float64
    with precision(kind):
        tf.random.set_seed(seed)
        X, Y = dataset.train
        yield X.astype(kind), Y.astype(kind)


def score_test_rows(predictor: Any, dataset: Dataset, chunk_size: int = 4096) -> Record:
    """Metrics of the test rows in the units of the file and, for regression, standardized."""
    X, Y = dataset.in_original_units(dataset.test)
    classes = dataset.num_classes
    if isinstance(predictor, gpflow.models.GPModel):
        predictor = CachedModel(predictor)
    scores, _ = evaluate(predictor, dataset.scaler, X, Y, classes, chunk_size=chunk_size)
    if "coverage" in scores:
        scores["coverage_95"] = scores.pop("coverage")
    return scores


def error_on_test_rows(
    dataset: Dataset, seed: int, prepare: Callable[[Any], Any] = lambda model: None
) -> Callable[[Any], Record]:
    """
    The score of a learning curve: RMSE, or error rate, of latent means at random test rows.

    :param prepare: function of the model that is called before it predicts.
    """
    X, Y = random_rows(dataset.test, WATCHED, seed)

    def score(model: Any) -> Record:
        prepare(model)
        mean = model.predict_f(X.astype(gpflow.default_float()))[0].numpy().astype(np.float64)
        if dataset.num_classes:
            return {"score": float(np.mean((mean > 0.0) != (Y > 0.5)))}
        return {"score": metrics.rmse(Y, mean)}

    return score


def hyperparameters(model: Any, kernel: gpflow.kernels.Kernel) -> Record:
    """Variance and lengthscales of a kernel, and the variance of Gaussian noise if there is any."""
    noise = getattr(model.likelihood, "variance", None)
    return {
        "kernel_variance": float(kernel.variance.numpy()),
        "lengthscales": kernel.lengthscales.numpy().tolist(),
    } | ({} if noise is None else {"noise_variance": float(noise.numpy())})


class Start(NamedTuple):
    """Starting values of hyperparameters; for regression those of an exact GP."""

    variance: float
    lengthscales: np.ndarray
    noise_variance: float = 1.0
    seconds: float = 0.0
    """Time of training that GP."""


@functools.lru_cache(maxsize=1)
def subset_start(dataset: Dataset, seed: int, kernel_name: str, num_rows: int = _SUBSET) -> Start:
    """
    An exact GP with priors on random training rows; kept for the next row on the same data.

    :raises TrainingError: if it cannot be fitted.
    """
    begin, pair = time.perf_counter(), dataset.train
    with precision(np.float64):
        scales = initialization.median_lengthscales(pair[0], seed=seed)
        kernel = KERNELS[kernel_name](lengthscales=scales)
        fit = functools.partial(initialization.subset_hyperparameters, num_rows=num_rows, seed=seed)
        try:
            noise = fit(*pair, kernel)
        except ValueError as error:
            raise training.TrainingError(f"the exact GP of the start: {error}") from error
    seconds = time.perf_counter() - begin
    return Start(float(kernel.variance.numpy()), kernel.lengthscales.numpy(), noise, seconds)


@functools.lru_cache(maxsize=1)
def exact_gp(
    dataset: Dataset, seed: int, kernel_name: str, num_rows: int, iterations: int
) -> tuple[gpflow.models.GPR, Start]:
    """The maximum of the likelihood of random training rows; kept like :func:`subset_start`."""
    begin = time.perf_counter()
    X, Y = random_rows(dataset.train, num_rows, seed)
    with precision(np.float64):
        scales = initialization.median_lengthscales(X, seed=seed)
        kernel = KERNELS[kernel_name](lengthscales=scales)
        model = gpflow.models.GPR((X, Y), kernel, noise_variance=0.1)
        gpflow.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, options={"maxiter": iterations}
        )
    found = kernel.variance.numpy(), kernel.lengthscales.numpy(), model.likelihood.variance.numpy()
    return model, Start(*found, time.perf_counter() - begin)


def random_rows(pair: Pair, count: int, seed: int) -> Pair:
    """At most so many random rows of X and Y."""
    rows = np.random.default_rng(seed).permutation(len(pair[0]))[:count]
    return pair[0][rows], pair[1][rows]


# SOLVE-GP: Shi, Titsias and Mnih (2020).


def fit_solvegp(options: Options, dataset: Dataset, budget: Budget) -> Record:
    """A row of the regression tables; rmse and log_likelihood are of standardized outputs."""
    tf.random.set_seed(budget.seed)
    model = orthogonal_regression(options, dataset.train, budget.seed)
    optimizer = training.adam(options["learning_rate"])
    results = train(model, dataset.train, Monitor(budget), optimizer, options)
    scores = score_test_rows(model, dataset)
    log_likelihood = -scores["nlpd_standardized"]
    return results | {"rmse": scores["rmse_standardized"], "log_likelihood": log_likelihood}


def orthogonal_regression(options: Options, data: Pair, seed: int) -> gpflow.models.GPModel:
    """
    GPflow's SVGP, ODVGP or SOLVE-GP: Matern 3/2 with one lengthscale, q at the prior.

    :param options: method, points (M, or M and M2; SOLVE-GP with M alone is SVGP), whiten, and
        num_columns: columns of the penalty that ODVGP samples in a step.
    :param data: standardized training rows.
    :raises FactorizationError: if Kuu has no Cholesky factor.
    """
    kernel, X, given = gpflow.kernels.Matern32(), data[0], {}
    method, sizes, whiten = options["method"], options["points"], options["whiten"]
    if method == "solvegp" and len(sizes) == 2:
        points = initialization.split_orthogonal(X, *sizes, seed=seed)
    else:
        points = (initialization.kmeans(X, sizes[0], seed=seed),)
    if method == "odvgp":
        points = (*points, initialization.random_subset(X, sizes[1], seed=seed))
    if method == "svgp" and not whiten:
        # GPflow starts at the identity, whitened or not; the prior's factor is that of its own Kuu.
        jitter = gpflow.config.default_jitter()
        covariance = Kuu(InducingPoints(points[0]), kernel, jitter=jitter)
        L = tf.linalg.band_part(linalg.cholesky(covariance, "Kuu"), -1, 0)
        given["q_sqrt"] = L[None].numpy()
    chosen = {"whiten": whiten, "num_columns": options.get("num_columns") or 0}
    recipe = recipe_of(method, **read_options(method, chosen))
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return recipe.build(data, kernel, likelihood, sets=points, **given)


def fit_images(options: Options, dataset: Dataset, budget: Budget) -> Record:
    """A row of the image tables; accuracy is in percent."""
    with training_rows(dataset, budget.seed, options["float32"]) as (X, Y):
        model = image_model(options, dataset, X, budget.seed)
        (X_test, Y_test), count = dataset.test, options["num_watched"]
        some = dataclasses.replace(dataset, test=(X_test[:count], Y_test[:count]))
        monitor = Monitor(budget, lambda model: _image_scores(model, some))
        rate = Cosine(options["learning_rate"], monitor, warm_up=20)
        results = train(model, (X, Y), monitor, tf_keras.optimizers.Adam(rate), options)
        return results | _image_scores(model, dataset) | {"num_watched": len(some.test[0])}


def image_model(
    options: Options, dataset: Dataset, X: np.ndarray, seed: int
) -> gpflow.models.GPModel:
    """
    :param options: ``model``, options of :func:`gpflow_sparse.models.deep.convolutional` as JSON
        has them, and ``likelihood``, "softmax" or, by default, "robust_max".
    :param X: training images, in the precision of the model.
    """
    kinds = {"softmax": Softmax, "robust_max": gpflow.likelihoods.MultiClass}
    likelihood = kinds[options.get("likelihood", "robust_max")](int(dataset.num_classes or 0))
    specs = [models.ConvSpec(*spec) for spec in options["model"]["architecture"]]
    given = {**options["model"], "architecture": specs, "seed": seed}
    return models.deep_convolutional(X, dataset.image_shape, likelihood, **given)


def _image_scores(model: Any, dataset: Dataset) -> Record:
    scores = score_test_rows(CachedModel(model), dataset, chunk_size=256)
    return {"accuracy": 100.0 * (1.0 - scores["error_rate"])} | scores


# GP-GRIEF: Evans and Nair (2018).


def fit_grief(options: Options, dataset: Dataset, budget: Budget) -> Record:
    """
    A row of the regression table: hyperparameters of an exact GP, then type II or type I.

    :param options: inference ("type-II", or anything else for type I: rotated weights by
        quadrature, original ones by NUTS), and arguments of
        :func:`fit_with_basis_refresh` or of the model.
    """
    start, begin = subset_start(dataset, budget.seed, "squared_exponential"), time.perf_counter()
    start = start._replace(noise_variance=max(start.noise_variance, _MIN_NOISE))
    num_train, D = dataset.train[0].shape
    given: Record = {"points_per_dimension": 10, "noise_variance": start.noise_variance}
    names = ("objective", "reweighted", "num_eigenfunctions")
    given |= {name: options[name] for name in names if name in options}
    if options["inference"] == "type-II":
        given["num_eigenfunctions"] = paper_size(num_train + len(dataset.test[0]))
    kernel = gpflow.kernels.SquaredExponential(start.variance, start.lengthscales)
    with warnings.catch_warnings():
        # the table has the share of every row
        warnings.filterwarnings("ignore", message=".* of the kernel's prior variance")
        model = models.GRIEF(dataset.train, kernel, **given)
        if options["inference"] == "type-II":
            rounds = {name: options[name] for name in ("num_rounds", "num_iterations")}
            training.fit_with_basis_refresh(model, **rounds)
            predictor, noise = CachedModel(model), model.likelihood.variance.numpy()
        else:
            method = "quadrature" if options["reweighted"] == "rotated" else "nuts"
            predictor = model.sample_posterior(method=method, seed=budget.seed)
            noise = np.sum(np.exp(predictor.log_weights) * predictor.noise_variance)
    seconds = time.perf_counter() - begin
    return {
        **score_test_rows(predictor, dataset),
        "num_basis": int(model.basis.num_basis),
        "num_columns": D,
        "explained_variance": model.basis.explained_variance(),
        "noise_variance": float(noise),
        "start_noise_variance": start.noise_variance,
        "seconds": start.seconds + seconds,
        "start_seconds": start.seconds,
    }


def paper_size(num_rows: int) -> int:
    """``min(1000, 10^floor(log10 n))``: p of type II, from all rows, test rows included."""
    return int(min(1000, 10 ** (len(str(num_rows)) - 1)))


# QSGP: Evans and Nair (2020).


def fit_qsgp(options: Options, dataset: Dataset, budget: Budget) -> Record:
    """A row of the studies: QSGP, or GPflow's SVGP in double precision."""
    svgp, regression = options["basis"] == "svgp", dataset.num_classes is None
    if regression:
        _, start = exact_gp(dataset, budget.seed, "squared_exponential", _SUBSET, 200)
    else:
        start = Start(options["variance"], options["lengthscale"])
    with training_rows(dataset, budget.seed, float32=not svgp) as (X, Y):
        kernel = gpflow.kernels.SquaredExponential(start.variance, start.lengthscales)
        noise = start.noise_variance
        likelihood = gpflow.likelihoods.Gaussian(noise) if regression else BernoulliLogit()
        rows, _ = random_rows((X, Y), _REFITTED, budget.seed)

        def update(model: Any) -> None:
            # C follows learned hyperparameters by its closed form
            if regression and options["dense_rate"]:
                model.update_covariance(rows)

        monitor = Monitor(budget, error_on_test_rows(dataset, budget.seed, update))
        model = qsgp_model(options, kernel, likelihood, (X, Y), budget.seed)
        if svgp:
            optimizer = training.adam(options["learning_rate"])
        else:
            rate, dense = Cosine(options["dense_rate"], monitor, frozen=0.1), None
            if options["dense_rate"]:
                dense = tf_keras.optimizers.Adam(rate)
            rate = Cosine(options["learning_rate"], monitor)
            optimizer = training.SparseAdagrad(rate, dense=dense)
        update(model)
        results = train(model, (X, Y), monitor, optimizer, options)
        scores = _score_qsgp(model, dataset, X, budget.seed, options)
        return results | scores | hyperparameters(model, kernel)


def qsgp_model(
    options: Options, kernel: Any, likelihood: Any, data: Pair, seed: int
) -> gpflow.models.GPModel:
    """The model of a row at its start."""
    X, kind = data[0], options["basis"]
    if kind == "svgp":
        Z = initialization.kmeans(X, options["num_inducing"], kernel, seed=seed)
        return recipe_of("svgp").build(data, kernel, likelihood, sets=(Z,))
    given: Record = {}
    if kind == "dictionary":
        given = {"basis": bases.KernelDictionary(kernel, X), "augmentation": X}
    if kind == "hybrid":
        k = options["num_leading"]
        Z = initialization.kmeans(X, k, kernel, seed=seed).astype(X.dtype)
        given["basis"] = bases.Hybrid(kernel, Z, options["num_basis"] - k, seed=seed)
    names = ("num_basis", "basis_batch_size", "num_control_rows", "num_dense_columns", "covariance")
    chosen = {name: options[name] for name in names if name in options}
    recipe = recipe_of("qsgp", basis="fourier", seed=seed, **chosen)
    model = recipe.build(data, kernel, likelihood, **given)
    for part in (model.basis, likelihood):
        gpflow.utilities.set_trainable(part, bool(options["dense_rate"]))
    return model


def _score_qsgp(model: Any, dataset: Dataset, X: np.ndarray, seed: int, options: Options) -> Record:
    """Scores of the test rows, before and after the closed form of the covariance."""
    count = options.get("num_test", len(dataset.test[0]))
    if count < len(dataset.test[0]):
        dataset = dataclasses.replace(dataset, test=random_rows(dataset.test, count, seed))
    before: Record = {}
    if dataset.num_classes is None and options.get("covariance") in ("diag", "block"):
        before["nlpd_as_trained"] = score_test_rows(model, dataset)["nlpd_standardized"]
        model.update_covariance(X)
    return before | score_test_rows(model, dataset)


# SoftKI: Camano and Huang.


def fit_softki(options: Options, dataset: Dataset, budget: Budget) -> Record:
    """A row of the regression tables: SoftKI, the same basis with a free q, or GPflow's models."""
    with training_rows(dataset, budget.seed, options["float32"]) as (X, Y):
        model = softki_model(options, (X, Y), budget.seed)

        def fit_posterior(model: Any) -> None:
            if isinstance(model, models.SoftKI):
                model.fit_posterior((X, Y), refit_noise=False)

        monitor = Monitor(budget, error_on_test_rows(dataset, budget.seed, fit_posterior))
        data, rate = None if options["model"] == "sgpr" else (X, Y), options["learning_rate"]
        optimizer = training.adam(rate, decay_steps=budget.steps if options["decay"] else None)
        results = train(model, data, monitor, optimizer, options)
        basis = getattr(model, "basis", None)
        results |= hyperparameters(model, model.kernel if basis is None else basis.kernel)
        if basis is not None:
            results["temperature"] = float(basis.temperature.numpy())
        if isinstance(model, models.SoftKI):
            return results | score_softki(model, dataset, (X, Y), options["refit_noise"])
        return results | score_test_rows(model, dataset)


def softki_model(options: Options, data: Pair, seed: int) -> gpflow.models.GPModel:
    """The model of a row at its start: variance 1, one lengthscale or one for each column."""
    X, scales = data[0], options["lengthscale"]
    if scales == "median":
        scales = initialization.median_lengthscales(X, seed=seed)
    scales = np.broadcast_to(scales, X.shape[1:]) if options["ard"] else np.mean(scales)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=scales)
    Z = initialization.kmeans(X, options["num_inducing"], kernel, seed=seed).astype(X.dtype)
    noise = options["noise_variance"]
    if options["model"] == "sgpr":
        return gpflow.models.SGPR(data, kernel, Z, noise_variance=noise)
    likelihood = gpflow.likelihoods.Gaussian(noise)
    if options["model"] == "svgp":
        return recipe_of("svgp").build(data, kernel, likelihood, sets=(Z,))
    weights = {name: options[name] for name in ("temperature", "tied")}
    if options["model"] == "uncollapsed":
        basis = bases.SoftInterpolation(kernel, Z, **weights)
        return recipe_of("basis_svgp").build(data, kernel, likelihood, basis=basis)
    given: Record = {"objective": options["objective"], "held_out": 0.0, **weights}
    model = recipe_of("softki").build(data, kernel, likelihood, sets=(Z,), **given)
    gpflow.set_trainable(model.basis.temperature, options["learn_temperature"])
    gpflow.set_trainable(model.likelihood.variance, options["learn_noise"])
    return model


def score_softki(model: models.SoftKI, dataset: Dataset, data: Pair, refit_noise: bool) -> Record:
    """
    With the noise as it was trained, or re-fitted; and in standardized units both ways, and with
    the re-fitted noise and the prior variance filled up to the kernel's.
    """
    start = time.perf_counter()
    model.fit_posterior(data, refit_noise=False)
    seconds = time.perf_counter() - start
    trained_noise = float(model.likelihood.variance.numpy())
    as_trained = score_test_rows(model, dataset)
    model.fit_posterior(data, refit_noise=True)
    noise, refitted = float(model.likelihood.variance.numpy()), score_test_rows(model, dataset)
    own, model.kernel = model.kernel, WithMissingVariance(model.basis)
    filled = score_test_rows(model, dataset)
    model.kernel = own
    return (refitted if refit_noise else as_trained) | {
        "noise_variance": noise if refit_noise else trained_noise,
        "nlpd_as_trained": as_trained["nlpd_standardized"],
        "rmse_refitted": refitted["rmse_standardized"],
        "nlpd_refitted": refitted["nlpd_standardized"],
        "nlpd_filled": filled["nlpd_standardized"],
        "noise_refitted": noise,
        "posterior_seconds": seconds,
    }
