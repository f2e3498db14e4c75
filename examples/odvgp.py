"""ODVGP: few inducing points for the covariance, more of them for the mean.

Kernel, noise and points are fixed, and q is fitted by L-BFGS. The mean follows the curve with all
points; the standard deviation of f is the one that the few points of Z leave.

    python examples/odvgp.py --output odvgp.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


def curve(x):
    return np.sin(2.5 * x) + 0.6 * np.sin(4.7 * x + 0.5)


@click.command()
@click.option("--num-inducing", default=6, show_default=True, help="Points for the covariance, Z.")
@click.option("--num-orthogonal", default=12, show_default=True, help="Points for the mean, O.")
@click.option("--num-steps", default=150, show_default=True, help="L-BFGS iterations, at most.")
@click.option("--output", default="odvgp.png", show_default=True, help="Figure to write.")
def main(num_inducing, num_orthogonal, num_steps, output):
    """Fit q of ODVGP to noisy values of a curve."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, size=(200, 1))
    Y = curve(X) + 0.25 * rng.normal(size=X.shape)

    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    likelihood = gpflow.likelihoods.Gaussian(0.25**2)
    Z = gs.initialization.kmeans(X, num_inducing)
    O = gs.initialization.greedy_orthogonal(X, Z, num_orthogonal, kernel)
    sets = gs.inducing_variables.OrthogonalInducingVariables(Z, O)
    model = gs.models.ODVGP(kernel, likelihood, sets)
    for part in (kernel, likelihood, sets):
        gpflow.set_trainable(part, False)
    loss, limit = model.training_loss_closure((X, Y)), {"maxiter": num_steps}
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options=limit)

    x = np.linspace(0.0, 6.0, 400)[:, None]
    mean, var = (moment.numpy()[:, 0] for moment in model.predict_f(x))
    error, sd = gs.data.metrics.rmse(curve(x[:, 0]), mean), var**0.5
    print(f"elbo={model.elbo((X, Y)):.1f} rmse={error:.3f} sd={sd.mean():.3f}")

    figure, panel = plt.subplots(figsize=(8.0, 3.8), layout="constrained")
    panel.plot(X, Y, ".", color="0.7", ms=3)
    panel.fill_between(x[:, 0], mean - 2 * sd, mean + 2 * sd, alpha=0.3)
    panel.plot(x, mean, label="mean and 2 sd of f")
    panel.plot(x, curve(x), "k--", lw=0.8, label="curve")
    panel.plot(Z, np.full(len(Z), -3.0), "k+", label="Z")
    panel.plot(O, np.full(len(O), -3.0), "r^", ms=4, label="O")
    panel.legend(ncols=4, loc="upper right")
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
