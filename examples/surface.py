"""What more inducing points buy: GPflow's SVGP, and SWSGP with sixteen times as many.

20,000 noisy values of a rough surface. Steps of SVGP take time M^3. In SWSGP each row sees its
nearest points, so that steps do not depend on M.

    python examples/surface.py --output surface.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


@click.command()
@click.option("--num-svgp", default=256, show_default=True, help="Inducing points of SVGP.")
@click.option("--num-swsgp", default=4000, show_default=True, help="Inducing points of SWSGP.")
@click.option("--num-steps", default=1000, show_default=True, help="Training steps.")
@click.option("--output", default="surface.png", show_default=True, help="Figure to write.")
def main(num_svgp, num_swsgp, num_steps, output):
    """Fit both models to noisy values of a rough surface."""
    rng = np.random.default_rng(0)
    rough = gs.bases.RandomFourier(gpflow.kernels.Matern32(lengthscales=0.04), 4000)
    weights = rng.normal(size=(4000, 1))
    x = np.linspace(0.0, 1.0, 101)
    Xnew = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    X = rng.uniform(size=(20_000, 2))
    F, Fnew = (rough(rows).numpy() @ weights for rows in (X, Xnew))
    Y = F + 0.3 * rng.normal(size=F.shape)

    Z = [gs.initialization.kmeans(X[: 4 * M], M) for M in (num_svgp, num_swsgp)]
    variables = (Z[0], gs.inducing_variables.NeighborInducingPoints(Z[1], 16))
    kinds = (gpflow.models.SVGP, gs.models.SWSGP)
    panels = {"surface": Fnew}
    for kind, points in zip(kinds, variables, strict=True):
        kernel, noise = gpflow.kernels.Matern32(lengthscales=0.1), gpflow.likelihoods.Gaussian(0.1)
        model = kind(kernel, noise, points, num_data=len(X))
        gs.training.fit(model, (X, Y), num_steps=num_steps, batch_size=256, progress=False)
        name = f"{kind.__name__}, {int(model.inducing_variable.num_inducing)} points"
        panels[name] = model.predict_f(Xnew)[0].numpy()
        error = gs.data.metrics.rmse(Fnew, panels[name])
        print(f"{kind.__name__}={error:.3f}")

    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.8), layout="constrained")
    for panel, (title, values) in zip(axes, panels.items(), strict=True):
        image = panel.imshow(values.reshape(101, 101), extent=(0, 1, 0, 1), vmin=-3, vmax=3)
        panel.set_title(title)
        panel.set_axis_off()
    figure.colorbar(image, ax=axes, shrink=0.8)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
