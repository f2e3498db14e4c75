"""Finite bases: exact regression on random Fourier features, and classes on eigenfunctions.

``BasisSVGP`` takes any likelihood and minibatches. Any basis goes into either of the models.

    python examples/basis.py --output basis.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


def function(X):
    return np.sin(2.0 * X[:, :1]) + np.cos(3.0 * X[:, 1:] + X[:, :1])


@click.command()
@click.option("--num-data", default=2000, show_default=True, help="Rows.")
@click.option("--num-basis", default=100, show_default=True, help="Functions in each basis, even.")
@click.option("--num-steps", default=300, show_default=True, help="Steps of the classification.")
@click.option("--output", default="basis.png", show_default=True, help="Figure to write.")
def main(num_data, num_basis, num_steps, output):
    """Fit a function seen through noise, and by the sign of these values alone."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(num_data, 2))
    Y = function(X) + 0.3 * rng.normal(size=(num_data, 1))

    fourier = gs.bases.RandomFourier(gpflow.kernels.SquaredExponential(), num_basis)
    regression = gs.models.BasisGPR((X, Y), fourier, noise_variance=0.1)
    loss, limit = regression.training_loss_closure(), {"maxiter": 30}
    gpflow.optimizers.Scipy().minimize(loss, regression.trainable_variables, options=limit)

    kernel = gpflow.kernels.SquaredExponential()
    grid = gs.bases.GridEigenfunctions(kernel, X, num_basis, points_per_dimension=15)
    classes = gs.models.BasisSVGP(grid, gpflow.likelihoods.Bernoulli(), num_data=num_data)
    steps = {"num_steps": num_steps, "batch_size": min(200, num_data), "natural_gradients": True}
    gs.training.fit(classes, (X, (Y > 0.0).astype(float)), **steps, progress=False)

    x = np.linspace(-2.0, 2.0, 40)
    Xnew = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    truth, mean = function(Xnew), regression.predict_f(Xnew)[0].numpy()
    probability = classes.predict_y(Xnew)[0].numpy()
    wrong = np.mean((probability > 0.5) != (truth > 0.0))
    print(f"rmse={gs.data.metrics.rmse(truth, mean):.3f} error_rate={wrong:.3f}")

    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.8), layout="constrained")
    panels = {"mean of f": mean, "probability of class 1": probability}
    for panel, (title, values) in zip(axes, panels.items(), strict=True):
        image = panel.imshow(values.reshape(40, 40), origin="lower", extent=(-2, 2, -2, 2))
        panel.contour(x, x, truth.reshape(40, 40), levels=[0.0], colors="white")
        panel.set_title(title)
        figure.colorbar(image, ax=panel)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
