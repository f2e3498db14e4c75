"""GPflow's own SVGP with neighbors: each row depends on its nearest inducing points.

3,000 rows of a simulated robot arm; the KL of the points is the chain's, so that the loss is minus
a lower bound, and GPflow's own optimizer trains all of it.

    python examples/neighbors.py --output neighbors.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


@click.command()
@click.option("--num-data", default=3000, show_default=True, help="Training rows.")
@click.option("--num-inducing", default=500, show_default=True, help="Inducing points.")
@click.option("--num-steps", default=60, show_default=True, help="Steps of L-BFGS.")
@click.option("--output", default="neighbors.png", show_default=True, help="Figure to write.")
def main(num_data, num_inducing, num_steps, output):
    """Train gpflow.models.SVGP with 16 neighbors for each row."""
    data = gs.data.load("robot_arm").standardized()
    train, (Xnew, Ynew) = (data.train[0][:num_data], data.train[1][:num_data]), data.test
    points = gs.inducing_variables.NeighborInducingPoints(train[0][:num_inducing], 16)
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(8, 2.0))
    noise = gpflow.likelihoods.Gaussian(0.1)
    model = gpflow.models.SVGP(kernel, noise, points, q_diag=True, whiten=False)

    before = -np.mean(model.predict_log_density((Xnew, Ynew)))
    loss = model.training_loss_closure(train)
    steps = {"maxiter": num_steps}
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options=steps)
    mean, var = (moment.numpy()[:, 0] for moment in model.predict_y(Xnew))
    after = -np.mean(model.predict_log_density((Xnew, Ynew)))
    print(f"before={before:.3f} after={after:.3f} bound={-loss():.0f}")

    figure, panel = plt.subplots(figsize=(5.0, 4.0), layout="constrained")
    panel.errorbar(Ynew[:, 0], mean, 2 * var**0.5, fmt=".", ms=3, lw=0.4)
    panel.axline((0.0, 0.0), slope=1.0, color="k", lw=0.8)
    panel.set(xlabel="distance of the tip, standardized", ylabel="mean and 2 sd of y")
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
