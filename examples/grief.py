"""GP-GRIEF: four functions from a grid in place of four points, and a covariance matrix rebuilt.

Above: ten noisy values of ``sin(x1) sin(x2)``. The exact GP, VFE (Titsias' bound with four inducing
points that move, GPflow's SGPR) and GRIEF with four eigenfunctions from a 5 x 5 grid; lengthscale
and noise are trained for each, GRIEF's by its likelihood, as in the paper, and by the bound.

Below: how much of a covariance matrix in 100 dimensions is missing with p functions, of random
training points (Nystrom), random Fourier features, GRIEF, and the matrix's own eigenvectors.

Evans and Nair, "Scalable Gaussian Processes with Grid-Structured Eigenfunctions" (2018), figures 1
and 2. They give neither the domain of the first (we take [-pi, pi]^2) nor the lengthscale of the
second (we take sqrt(d)).

    python examples/grief.py --output grief.png
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np

import gpflow_sparse as gs
from _frame import (
    BLUE,
    GREEN,
    RED,
    draw_surface,
    new_figure,
    option,
    print_numbers,
    run,
    save_figure,
    square,
)

LIMIT = np.pi  # inputs of the first part are within +- this
SIDE = 30  # points per side where it is scored
STYLES = {
    "fourier": ("random Fourier", GREEN, "^-"),
    "nystrom": ("random Nystrom", RED, "s-"),
    "grief": ("GRIEF", BLUE, "o-"),
    "optimal": ("optimal", "black", "-"),
}


@dataclass(frozen=True)
class Config:
    """GRIEF, VFE and the exact GP on ten points; covariance matrices rebuilt."""

    num_data: int = option(10, "N, rows above.")
    noise_variance: float = option(0.1, "Variance of the noise on y.")
    num_basis: int = option(4, "Eigenfunctions, and inducing points of VFE.")
    num_steps: int = option(100, "L-BFGS iterations per model, at most.")
    num_rows: int = option(300, "Training rows below, and as many for testing.")
    num_columns: int = option(100, "Input columns below.")
    num_nodes: int = option(100, "Nodes of the grid in each column below.")
    num_draws: int = option(10, "Draws of random approximations, whose errors are averaged.")
    seed: int = option(1, "Seed of all data and draws.")
    output: str | None = option(None, "Figure to write.")


def function(X: np.ndarray) -> np.ndarray:
    """The function behind the data, ``[N, 1]``."""
    return np.sin(X[:, :1]) * np.sin(X[:, 1:])


def make_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 2] uniform on the square, Y [N, 1] the function with Gaussian noise."""
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(-LIMIT, LIMIT, size=(config.num_data, 2))
    return X, function(X) + np.sqrt(config.noise_variance) * rng.standard_normal((len(X), 1))


def build_models(
    data: tuple[np.ndarray, np.ndarray], config: Config
) -> dict[str, gpflow.models.GPModel]:
    """Four models with kernels of variance 1, which stays; the grid is 5 x 5 percentiles of X."""
    noise = config.noise_variance
    Z = gs.initialization.kmeans(data[0], config.num_basis, seed=config.seed)

    def grief(objective: str) -> gs.models.GRIEF:
        return gs.models.GRIEF(
            data,
            new_kernel(),
            num_eigenfunctions=config.num_basis,
            points_per_dimension=5,
            objective=objective,
            noise_variance=noise,
        )

    models = {
        "exact": gpflow.models.GPR(data, new_kernel(), noise_variance=noise),
        "vfe": gpflow.models.SGPR(data, new_kernel(), Z, noise_variance=noise),
        "grief": grief("likelihood"),
        "grief_bound": grief("bound"),
    }
    for model in models.values():
        gpflow.set_trainable(model.kernel.variance, False)
    return models


def new_kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential()


def train(models: dict[str, gpflow.models.GPModel], config: Config) -> dict[str, float]:
    """:return: for each model the RMSE of its mean against the function."""
    X = square(LIMIT, SIDE)
    errors = {}
    for name, model in models.items():
        # the choice of eigenfunctions is made anew between rounds of ten iterations
        gs.training.fit_in_rounds(model, num_rounds=-(-config.num_steps // 10), progress=False)
        errors[name] = gs.data.metrics.rmse(function(X), model.predict_f(X)[0])
    return errors


def reconstruction(config: Config) -> tuple[np.ndarray, dict[str, np.ndarray], float]:
    """
    Relative Frobenius errors of approximate covariance matrices.

    :return: numbers of functions p; for each method the errors ``[2, len(p)]`` between training
        rows, and between all rows; the share of the prior variance that 1 + d eigenfunctions have.
    """
    d, n = config.num_columns, config.num_rows
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), size=(2 * n, d))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.sqrt(d))
    K = kernel(X).numpy()
    # with all n rows the Nystrom matrix is exact between them, so fewer
    sizes = np.unique([*np.linspace(1, n, 13)[:-1].astype(int), min(1 + d, n)])
    grid = gs.bases.GridEigenfunctions(kernel, X[:n], n, config.num_nodes)
    shares = np.exp(grid.log_eigenvalues() - d * np.log(config.num_nodes))
    Phi = grid(X).numpy()  # its columns are sorted: the first p are the basis of size p
    errors = {name: np.zeros((2, len(sizes))) for name in STYLES}
    spectra = [np.linalg.eigvalsh(K[:rows, :rows]) for rows in (n, 2 * n)]
    for j, p in enumerate(sizes):
        errors["grief"][:, j] = relative_errors(K, Phi[:, :p], n)
        draws = [relative_errors(K, A, n) for A in nystrom(kernel, X, p, config)]
        errors["nystrom"][:, j] = np.mean(draws, axis=0)
        draws = [relative_errors(K, A, n) for A in fourier(kernel, X, p, config)]
        errors["fourier"][:, j] = np.mean(draws, axis=0)
        # eigenvalues ascend: the best matrix of rank p lacks all but the last p
        lost = [np.linalg.norm(lam[:-p]) / np.linalg.norm(lam) for lam in spectra]
        errors["optimal"][:, j] = lost
    return sizes, errors, float(shares[: 1 + d].sum())


def nystrom(
    kernel: gpflow.kernels.Kernel, X: np.ndarray, p: int, config: Config
) -> Iterator[np.ndarray]:
    """Features ``[2 n, p]`` of p random training rows, once for each draw."""
    rng = np.random.default_rng(config.seed)
    for _ in range(config.num_draws):
        Z = X[rng.choice(config.num_rows, p, replace=False)]
        lam, Q = np.linalg.eigh(kernel(Z).numpy())
        kept = lam > 1e-12 * lam[-1]
        yield kernel(X, Z).numpy() @ (Q[:, kept] / np.sqrt(lam[kept]))


def fourier(
    kernel: gpflow.kernels.Kernel, X: np.ndarray, p: int, config: Config
) -> Iterator[np.ndarray]:
    """Random Fourier features ``[2 n, p]``, one more if p is odd, once for each draw."""
    for seed in range(config.num_draws):
        yield gs.bases.RandomFourier(kernel, p + p % 2, seed=seed)(X).numpy()


def relative_errors(K: np.ndarray, A: np.ndarray, n: int) -> tuple[float, float]:
    """``|K - A A^T| / |K|`` between the first n rows, and between all."""
    missing = K - A @ A.T
    return (
        float(np.linalg.norm(missing[:n, :n]) / np.linalg.norm(K[:n, :n])),
        float(np.linalg.norm(missing) / np.linalg.norm(K)),
    )


def main(config: Config) -> dict[str, float]:
    """
    Train, rebuild, print one line; draw if asked to.

    :return: RMSE of the models; then, with 1 + d functions (or as many as there are rows), the
        errors ``..._K`` of the matrix between all rows, and ``explained``, the share of the prior
        variance that these eigenfunctions have.
    """
    data = make_data(config)
    with warnings.catch_warnings():
        # so few functions lose prior variance, which is shown here
        warnings.filterwarnings("ignore", message=".* of the kernel's prior variance")
        models = build_models(data, config)
        numbers = train(models, config)
        sizes, errors, explained = reconstruction(config)
    at = int(np.flatnonzero(sizes == min(1 + config.num_columns, config.num_rows))[0])
    numbers |= {f"{name}_K": float(values[1, at]) for name, values in errors.items()}
    numbers["explained"] = explained
    print_numbers(numbers, ".3f")
    if config.output is not None:
        draw(config, data, models, (sizes, errors))
    return numbers


def draw(
    config: Config,
    data: tuple[np.ndarray, np.ndarray],
    models: dict[str, gpflow.models.GPModel],
    found: tuple[np.ndarray, dict[str, np.ndarray]],
) -> None:
    """Means over the square above, errors against p below."""
    figure = new_figure(11.0, 6.6)
    above, below = figure.subfigures(2, 1)
    draw_means(above, data, models)
    sizes, errors = found
    panels = below.subplots(1, 2, sharey=True)
    for panel, values, title in zip(panels, (0, 1), ("training rows", "all rows"), strict=True):
        for name, (label, color, style) in STYLES.items():
            panel.semilogy(
                sizes, errors[name][values], style, color=color, ms=3.5, lw=1.2, label=label
            )
        panel.axvline(1 + config.num_columns, color="0.7", lw=0.8, ls=":")
        panel.set_title(f"covariances between {title}", fontsize=10, loc="left")
        panel.set(xlabel="p", ylim=(6e-3, 2.0))
    panels[0].set_ylabel("relative error")
    panels[1].legend(frameon=False, fontsize=9)
    save_figure(figure, config.output, *above.get_axes())


def draw_means(
    figure: Any, data: tuple[np.ndarray, np.ndarray], models: dict[str, gpflow.models.GPModel]
) -> None:
    """The function and three means; crosses are data, dots inducing points and nodes."""
    X = square(LIMIT, SIDE)
    surfaces = {"the function": (function(X), None)}
    for name, title in (("exact", "exact GP"), ("vfe", "VFE"), ("grief", "GRIEF")):
        model = models[name]
        points = None
        if name == "vfe":
            points = model.inducing_variable.Z.numpy()
        if name == "grief":
            points = np.stack(np.meshgrid(*model.basis.grid), axis=-1).reshape(-1, 2)
        mean = model.predict_f(X)[0].numpy()
        title = f"{title}, rmse {gs.data.metrics.rmse(function(X), mean):.2f}"
        surfaces[title] = (mean, points)
    panels = figure.subplots(1, 4, sharex=True, sharey=True)
    for panel, (title, (values, points)) in zip(panels, surfaces.items(), strict=True):
        image = draw_surface(panel, values, LIMIT, -1.0, 1.0)
        panel.plot(*data[0].T, "kx", ms=5)
        if points is not None:
            panel.plot(*points.T, "k.", ms=4, alpha=0.7)
        panel.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT))
        panel.set_title(title, fontsize=10, loc="left")
    figure.colorbar(image, ax=panels, shrink=0.8)


if __name__ == "__main__":
    run(main, Config)
