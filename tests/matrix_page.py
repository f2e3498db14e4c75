"""
Every combination of parts, trained for a few steps on real rows: the page docs/matrix.md.

``python -m tests.matrix_page`` writes the page; the nightly tests compare it with new runs.
"""

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_diabetes, load_digits

import gpflow_sparse as gs
from gpflow_sparse import bases, inducing_variables, models
from gpflow_sparse.likelihoods import BernoulliLogit, Softmax

PAGE = Path(__file__).parents[1] / "docs" / "matrix.md"
STEPS, BATCH = 50, 100
NUM_BASIS, NUM_INDUCING = 60, 30

Cell = tuple[str, ...]


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@functools.cache
def diabetes(labels: bool) -> Any:
    """392 training and 50 test rows, standardized; labels say what is above the mean."""
    X, y = load_diabetes(return_X_y=True)
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    Y = (y[:, None] > 0.0).astype(float) if labels else y[:, None]
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:-50], order[-50:]
    return (X[train], Y[train]), (X[test], Y[test])


@functools.cache
def digits(likelihood: str) -> Any:
    """1,000 training and 200 test images of 8 x 8; whether digits are odd, as -1 and 1, or all."""
    X, labels = load_digits(return_X_y=True)
    X = (X - X.mean()) / X.std()
    odd = labels[:, None] % 2.0
    Y = {"Gaussian": 2.0 * odd - 1.0, "Bernoulli": odd, "softmax": labels[:, None].astype(float)}
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:1000], order[1000:1200]
    return (X[train], Y[likelihood][train]), (X[test], Y[likelihood][test])


def wide(D: int, variance: float = 1.0) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(variance, np.full(D, np.sqrt(D)))


BASES: dict[str, Callable[[np.ndarray], Any]] = {
    "random features": lambda X: bases.RandomFourier(wide(10), NUM_BASIS),
    "orthogonal features": lambda X: bases.RandomFourier(wide(10), NUM_BASIS, orthogonal=True),
    "grid eigenfunctions": lambda X: bases.GridEigenfunctions(wide(10), X, NUM_BASIS, 5),
    "reweighted grid": lambda X: bases.ReweightedBasis(
        bases.GridEigenfunctions(wide(10), X, NUM_BASIS, 5), np.ones(NUM_BASIS)
    ),
    "points and features": lambda X: bases.Hybrid(wide(10), X[:30], NUM_BASIS - 30),
    "softmax interpolation": lambda X: bases.SoftInterpolation(wide(10), X[:NUM_BASIS]),
    "kernels at rows": lambda X: bases.KernelDictionary(wide(10), X[:NUM_BASIS]),
    "kernels at rows, RVM prior": lambda X: bases.KernelDictionary(
        wide(10), X[:NUM_BASIS], precision="diagonal", constant=True
    ),
}
INFERENCE = (
    "exact",
    "variational, Gaussian",
    "variational, Bernoulli",
    "sub-sampled, Gaussian",
    "sub-sampled, Bernoulli",
    "inducing variable of SVGP",
)


def of_basis(basis: str, inference: str) -> Any:
    """A model, and its training and test rows."""
    labels = inference.endswith("Bernoulli")
    train, test = diabetes(labels)
    functions = BASES[basis](train[0])
    likelihood: Any = BernoulliLogit() if labels else gpflow.likelihoods.Gaussian(0.5)
    if inference == "exact":
        return models.BasisGPR(train, functions, noise_variance=0.5), train, test
    options = {"num_data": len(train[0])}
    if inference.startswith("variational"):
        return models.BasisSVGP(functions, likelihood, **options), train, test
    if inference.startswith("sub-sampled"):
        options |= {"basis_batch_size": NUM_BASIS // 3, "covariance": "diag"}
        return models.QSGP(functions, likelihood, **options), train, test
    features = inducing_variables.BasisFeatures(functions)
    kernel = gs.kernels.Basis(functions)
    return gpflow.models.SVGP(kernel, likelihood, features, **options), train, test


INDUCING = ("points", "patches", "located patches")
STRUCTURE = ("one set", "orthogonal sets", "three sets", "nearest neighbors", "basis functions")
DEPTH = ("1 layer", "2 layers")
LIKELIHOODS = ("Gaussian", "Bernoulli", "softmax")
IMAGE, PATCH = (8, 8), (3, 3)


def of_inducing(inducing: str, structure: str, depth: str, likelihood: str) -> Any:
    """A model, and its training and test rows."""
    train, test = digits(likelihood)
    rng, X, latents = np.random.default_rng(0), train[0], 10 if likelihood == "softmax" else 1
    made = {"Bernoulli": BernoulliLogit, "softmax": functools.partial(Softmax, 10)}
    noise: Any = made.get(likelihood, functools.partial(gpflow.likelihoods.Gaussian, 0.5))()
    hidden: list[Any] = []
    shape: tuple[int, ...] = IMAGE
    if depth == "2 layers" and inducing == "points":
        hidden, X = (
            [
                models.GPLayer(
                    wide(64, 0.1),
                    X[:20],
                    num_latent_gps=64,
                    mean_function=gpflow.functions.Identity(),
                )
            ],
            X,
        )
    elif depth == "2 layers":
        layer = models.ConvLayer(
            wide(9, 0.1), patches(X, IMAGE, 20, rng), IMAGE, PATCH, num_latent_gps=2,
            mean_function=gs.mean_functions.identity_convolution(PATCH, 1, 2),
        )  # fmt: skip
        shape = layer.output_shape
        X = np.asarray(layer.mean_function(np.asarray(layer.grid.patches(X)))).reshape(len(X), -1)
        hidden = [layer]
    kernel, sets = last_parts(inducing, structure, X, shape, rng)
    options = {"num_latent_gps": latents}
    if hidden:
        layers = [*hidden, models.GPLayer(kernel, sets, **options)]
        return models.DeepGP(layers, noise, num_data=len(X)), train, test
    options["num_data"] = len(X)
    if structure == "basis functions":
        return models.BasisSVGP(sets.basis, noise, **options), train, test
    if structure == "nearest neighbors":
        return models.SWSGP(kernel, noise, sets, **options), train, test
    return models.SOLVEGP(kernel, noise, sets, **options), train, test


def last_parts(
    inducing: str, structure: str, X: np.ndarray, shape: tuple[int, ...], rng: Any
) -> tuple[Any, Any]:
    """Kernel and inducing variable of the last, or only, layer."""
    D, M = X.shape[1], NUM_INDUCING
    kernel = wide(D)
    if inducing != "points":
        of_patches = gs.kernels.TICK if inducing == "located patches" else gs.kernels.Convolutional
        D = 9 * (shape[2] if len(shape) > 2 else 1)
        kernel = of_patches(wide(D, 5.0), shape, PATCH)
    if structure == "basis functions":
        functions = bases.RandomFourier(kernel, NUM_BASIS)
        return gs.kernels.Basis(functions), inducing_variables.BasisFeatures(functions)
    numbers = {"orthogonal sets": (M, M), "three sets": (M, M // 2, M // 2)}.get(structure, (M,))
    parts = [one_set(inducing, X, shape, size, rng) for size in numbers]
    if structure == "nearest neighbors":
        return kernel, inducing_variables.NeighborInducingPoints(parts[0], 8)
    return kernel, inducing_variables.OrthogonalInducingVariables(*parts)


def one_set(inducing: str, X: np.ndarray, shape: tuple[int, ...], size: int, rng: Any) -> Any:
    if inducing == "points":
        return X[rng.permutation(len(X))[:size]].copy()
    Z = patches(X, shape, size, rng)
    if inducing == "patches":
        return inducing_variables.Patches(Z)
    return inducing_variables.LocatedPatches(Z, rng.uniform(0.0, 5.0, size=(size, 2)))


def patches(X: np.ndarray, shape: tuple[int, ...], size: int, rng: Any) -> np.ndarray:
    """Random patches of images, with some noise that tells equal ones apart."""
    images = X.reshape(len(X), shape[0], shape[1], -1)
    rows = rng.integers(len(X), size=size)
    places = rng.integers(0, [shape[0] - 2, shape[1] - 2], size=(size, 2))
    cut = [images[n, i : i + 3, j : j + 3].ravel() for n, (i, j) in zip(rows, places, strict=True)]
    found: np.ndarray = np.stack(cut)
    return found + 0.1 * rng.normal(size=found.shape)


OUTPUTS = (
    "counts, negative binomial",
    "counts and zeros, zero-inflated Poisson",
    "levels, learned thresholds",
    "known variances",
    "two outputs, a third missing",
)
MODELS = ("SOLVEGP", "SWSGP", "BasisSVGP", "QSGP", "DeepGP", "SiteVGP")


@functools.cache
def diabetes_outputs(outputs: str) -> Any:
    """The rows of :func:`diabetes` with outputs of another kind, made from the same ones."""
    (X, Y), (X_test, Y_test) = diabetes(labels=False)
    rng = np.random.default_rng(0)

    def made(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        counts, kind = np.floor(5.0 * np.exp(0.5 * y)), outputs.partition(",")[0]
        if kind == "counts":
            return counts
        if kind == "counts and zeros":
            return np.where(rng.random(y.shape) < 0.2, 0.0, counts)
        if kind == "levels":
            return np.digitize(y, [-0.5, 0.5]).astype(float)
        known = rng.uniform(0.01, 0.5, size=y.shape)
        if kind == "known variances":
            return np.hstack([y + np.sqrt(known) * rng.normal(size=y.shape), known])
        both = np.hstack([y, x[:, -1:]])  # the last column is related to the disease
        return np.where(rng.random(both.shape) < 1 / 3, np.nan, both)

    return (X, made(Y, X)), (X_test, made(Y_test, X_test))


def of_outputs(outputs: str, name: str) -> Any:
    """A model, and its training and test rows."""
    train, test = diabetes_outputs(outputs)
    own = gs.likelihoods
    made: dict[str, Callable[[], Any]] = {
        OUTPUTS[0]: own.NegativeBinomial,
        OUTPUTS[1]: own.ZeroInflatedPoisson,
        OUTPUTS[2]: lambda: own.OrderedProbit(3),
        OUTPUTS[3]: lambda: own.GaussianWithKnownVariance(0.5),
        OUTPUTS[4]: lambda: own.MissingOutputs(gpflow.likelihoods.Gaussian(0.5)),
    }
    likelihood, Z = made[outputs](), train[0][:NUM_INDUCING]
    options: dict[str, Any] = {"num_latent_gps": 1 + (outputs == OUTPUTS[4])}
    if name == "SiteVGP":
        return models.SiteVGP(train, wide(10), likelihood, **options), train, test
    options["num_data"] = len(train[0])
    if name == "SOLVEGP":
        sets = inducing_variables.OrthogonalInducingVariables(Z[:15], Z[15:])
        return models.SOLVEGP(wide(10), likelihood, sets, **options), train, test
    if name == "SWSGP":
        near = inducing_variables.NeighborInducingPoints(Z, 8)
        return models.SWSGP(wide(10), likelihood, near, **options), train, test
    if name == "DeepGP":
        identity = gpflow.functions.Identity()
        hidden = models.GPLayer(wide(10, 0.1), Z, num_latent_gps=10, mean_function=identity)
        last = models.GPLayer(wide(10), Z, num_latent_gps=options["num_latent_gps"])
        return models.DeepGP([hidden, last], likelihood, num_data=len(train[0])), train, test
    functions = BASES["random features"](train[0])
    if name == "QSGP":
        options |= {"basis_batch_size": NUM_BASIS // 3, "covariance": "diag"}
        return models.QSGP(functions, likelihood, **options), train, test
    return models.BasisSVGP(functions, likelihood, **options), train, test


def score(build: Callable[..., Any], cell: Cell) -> tuple[float, float] | str:
    """NLPD of test rows before and after training, or why the cell cannot be had."""
    tf.random.set_seed(0)
    try:
        model, train, test = build(*cell)
    except ValueError as error:
        return str(error).splitlines()[0]
    if isinstance(model, models.SWSGP):
        model.count_neighbors(train[0])
    before = nlpd(model, test)
    if isinstance(model, models.SiteVGP):
        model.fit_hyperparameters(max_iterations=STEPS)
    elif isinstance(model, models.BasisGPR):
        gs.training.fit_with_basis_refresh(
            model, num_rounds=1, num_iterations=STEPS, progress=False
        )
    else:
        optimizers = {models.QSGP: gs.training.SparseAdagrad, models.SWSGP: gs.training.SparseAdam}
        rate = 0.1 if isinstance(model, models.QSGP) else 0.02
        optimizer = optimizers.get(type(model), gs.training.adam)(rate)
        given = {"num_steps": STEPS, "batch_size": BATCH, "progress": False}
        gs.training.fit(model, train, optimizer=optimizer, **given)
    return before, nlpd(model, test)


def nlpd(model: Any, test: Any) -> float:
    return -float(np.mean(model.predict_log_density(test)))


CELLS: dict[Cell, Callable[..., Any]] = {
    **dict.fromkeys(itertools.product(BASES, INFERENCE), of_basis),
    **dict.fromkeys(itertools.product(INDUCING, STRUCTURE, DEPTH, LIKELIHOODS), of_inducing),
    **dict.fromkeys(itertools.product(OUTPUTS, MODELS), of_outputs),
}
"""All cells, and the functions that build their models."""


def page(results: dict[Cell, tuple[float, float] | str]) -> str:
    """The text of the page."""
    reasons = {", ".join(cell[:2]): r for cell, r in results.items() if isinstance(r, str)}

    def shown(cell: Cell) -> str:
        found = results[cell]
        return "" if isinstance(found, str) else f"{found[0]:.2f} → {found[1]:.2f}"

    first = [(basis, *(shown((basis, name)) for name in INFERENCE)) for basis in BASES]
    second = [
        (*key, *(shown((*key, name)) for name in LIKELIHOODS))
        for key in itertools.product(INDUCING, STRUCTURE, DEPTH)
    ]
    second = [row for row in second if any(row[3:])]
    third = [(name, *(shown((name, model)) for model in MODELS)) for name in OUTPUTS]
    return (
        "\n\n".join(
            [
                TITLE,
                grid(("basis", *INFERENCE), first),
                MIDDLE,
                grid(("inducing variable", "structure", "depth", *LIKELIHOODS), second),
                OTHERS,
                grid(("outputs", *MODELS), third),
                FOOT,
                "\n".join(f"- {parts}: {reason}" for parts, reason in reasons.items()),
            ]
        )
        + "\n"
    )


TITLE = f"""# All combinations

Written by `python -m tests.matrix_page`, and compared with new runs by the nightly tests; not
edited by hand. Each cell has the NLPD of test rows before and after {STEPS} steps, which are too
few for a good model: the cells show that all parts work together.

## Bases and inference

scikit-learn's diabetes data, standardized, {NUM_BASIS} functions. *Exact* is `BasisGPR` with
{STEPS} iterations of L-BFGS, *variational* `BasisSVGP`, *sub-sampled* `QSGP`, and *inducing
variable of SVGP* GPflow's `SVGP` with `BasisFeatures`."""

MIDDLE = """## Inducing variables, structures, depth and likelihoods

scikit-learn's digits: whether a digit is odd, as -1 and 1 for the Gaussian likelihood, and all ten
for softmax. With two layers, the last one has the parts of the cell; the hidden one has points, or
patches before patches."""

OTHERS = f"""## Counts, levels, known variances and missing outputs

The diabetes data with other [outputs](outputs.md), made from the same ones: *SiteVGP* with
{STEPS} iterations of L-BFGS, the others as above. *DeepGP* has two layers."""

FOOT = "Refused, with one layer and with two, for every likelihood:"


def main() -> None:
    results = {}
    for cell, build in CELLS.items():
        results[cell] = score(build, cell)
        print(*cell, results[cell], file=sys.stderr, flush=True)
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
