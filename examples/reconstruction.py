"""Figure 2 of GP-GRIEF's paper: how close a product of basis functions is to the kernel matrix.

Rows of 100 columns, and a grid of 20^100 points that is never formed. With one function more than
columns GRIEF is far closer than functions at random training rows (Nystrom), which overtake it.

    python examples/reconstruction.py --output reconstruction.png
"""

import warnings

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


@click.command()
@click.option("--num-data", default=1000, show_default=True, help="Rows.")
@click.option("--num-columns", default=100, show_default=True, help="Columns of a row, D.")
@click.option("--output", default="reconstruction.png", show_default=True, help="Figure to write.")
def main(num_data, num_columns, output):
    """Approximate a kernel matrix by GRIEF, Nystrom and random Fourier features."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-(3.0**0.5), 3.0**0.5, size=(num_data, num_columns))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=num_columns**0.5)
    K, most = kernel(X).numpy(), 6 * num_columns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the prior variance that few functions lack
        eigenfunctions = gs.bases.GridEigenfunctions(kernel, X, most, 20)(X).numpy()

    def errors(p):
        """Relative errors with p functions of each kind."""
        rows = rng.choice(num_data, p, replace=False)
        factor = np.linalg.cholesky(K[np.ix_(rows, rows)] + 1e-8 * np.eye(p))
        fourier = gs.bases.RandomFourier(kernel, p + p % 2, seed=int(p))(X).numpy()
        kinds = eigenfunctions[:, :p], np.linalg.solve(factor, K[rows]).T, fourier
        return [np.linalg.norm(K - phi @ phi.T) / np.linalg.norm(K) for phi in kinds]

    sizes = np.unique(np.r_[np.linspace(10, most, 25, dtype=int), num_columns + 1])
    found = np.array([errors(p) for p in sizes])  # [., 3]
    best = found[sizes == num_columns + 1][0]
    print("grief={:.4f} nystrom={:.4f} fourier={:.4f}".format(*best))

    figure, panel = plt.subplots(figsize=(8.0, 3.8), layout="constrained")
    for line, name in zip(found.T, ("GRIEF", "Nystrom", "random Fourier"), strict=True):
        panel.semilogy(sizes, line, ".-", label=name)
    panel.axvline(num_columns + 1, color="0.7", lw=0.8, zorder=0, label="1 + D functions")
    panel.set(xlabel="basis functions", ylabel="relative error of the matrix")
    panel.legend()
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
