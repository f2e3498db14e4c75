"""Exact GP regression by dual blocks: a weight at every row, and no N x N matrix.

A rough surface with a hole in the middle of the data. A linear system is solved block by block for
the mean and for draws of functions, whose spread is the variance.

    python examples/dual.py --output dual.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


@click.command()
@click.option("--num-data", default=5000, show_default=True, help="Rows.")
@click.option("--num-paths", default=64, show_default=True, help="Draws for the variance.")
@click.option("--block-size", default=500, show_default=True, help="Rows in a block.")
@click.option("--output", default="dual.png", show_default=True, help="Figure to write.")
def main(num_data, num_paths, block_size, output):
    """Fit an exact GP to noisy values of a rough surface."""
    rng = np.random.default_rng(0)
    rough = gs.bases.RandomFourier(gpflow.kernels.Matern32(lengthscales=0.15), 2000)
    weights = rng.normal(size=(2000, 1))
    x = np.linspace(0.0, 1.0, 61)
    Xnew = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    X = rng.uniform(size=(num_data, 2))
    X = X[np.hypot(*(X - 0.5).T) > 0.15]
    F, Fnew = (rough(rows).numpy() @ weights for rows in (X, Xnew))
    Y = F + 0.1 * rng.normal(size=F.shape)

    kernel = gpflow.kernels.Matern32()
    noise = gs.initialization.local_hyperparameters(X, Y, kernel)  # sets those of the kernel
    model = gs.models.DualGPR((X, Y), kernel, noise_variance=noise, num_paths=num_paths)
    solution = model.solve(gs.models.DualOptions(block_size=block_size))

    mean, var = (np.asarray(moment) for moment in model.predict_f(Xnew))
    covered = gs.data.metrics.coverage(Fnew, mean, var)
    error = gs.data.metrics.rmse(F, model.predict_f(X)[0])
    print(f"passes={len(solution.state.history)} rmse={error:.3f} coverage={covered:.3f}")

    draw = model.posterior().sample_functions(1)(Xnew).numpy()
    panels = {"surface": Fnew, "mean": mean, "one draw": draw, "standard deviation": var**0.5}
    figure, axes = plt.subplots(1, 4, figsize=(12.0, 3.0), layout="constrained")
    for panel, (title, values) in zip(axes, panels.items(), strict=True):
        image = panel.imshow(values.reshape(61, 61), origin="lower", extent=(0, 1, 0, 1))
        panel.set_title(title)
        figure.colorbar(image, ax=panel, shrink=0.7)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
