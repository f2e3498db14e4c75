"""SWSGP: thousands of inducing points; each row uses its nearest ones.

20,000 noisy values of a rough surface. Training starts from one pass over the rows; after it q is
replaced by the best one for the hyperparameters found.

    python examples/swsgp.py --output swsgp.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


@click.command()
@click.option("--num-inducing", default=2000, show_default=True, help="Inducing points.")
@click.option("--num-neighbors", default=16, show_default=True, help="Points that a row sees.")
@click.option("--num-steps", default=2000, show_default=True, help="Training steps.")
@click.option("--output", default="swsgp.png", show_default=True, help="Figure to write.")
def main(num_inducing, num_neighbors, num_steps, output):
    """Fit SWSGP to noisy values of a rough surface."""
    rng = np.random.default_rng(0)
    rough = gs.bases.RandomFourier(gpflow.kernels.Matern32(lengthscales=0.07), 2000)
    weights = rng.normal(size=(2000, 1))
    x = np.linspace(0.0, 1.0, 101)
    Xnew = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    X = rng.uniform(size=(20_000, 2))
    F, Fnew = (rough(rows).numpy() @ weights for rows in (X, Xnew))
    Y = F + 0.3 * rng.normal(size=F.shape)

    Z = gs.initialization.kmeans(X[: 4 * num_inducing], num_inducing)
    model = gs.models.SWSGP(
        gpflow.kernels.Matern32(lengthscales=0.2),
        gpflow.likelihoods.Gaussian(0.1),
        gs.inducing_variables.NeighborInducingPoints(Z, num_neighbors),
        num_data=len(X),
    )
    gs.training.fit(model, (X, Y), num_steps=num_steps, batch_size=128, progress=False)
    model.update_posterior((X, Y))

    mean, var = (moment.numpy() for moment in model.predict_f(Xnew))
    error = gs.data.metrics.rmse(Fnew, mean)
    print(f"rmse={error:.3f} coverage={gs.data.metrics.coverage(Fnew, mean, var):.3f}")

    panels = {"surface": Fnew, "mean": mean, "standard deviation": var**0.5}
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.4), layout="constrained")
    for panel, (title, values) in zip(axes, panels.items(), strict=True):
        image = panel.imshow(values.reshape(101, 101), origin="lower", extent=(0, 1, 0, 1))
        panel.set_title(title)
        figure.colorbar(image, ax=panel, shrink=0.8)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
