"""SOLVE-GP regression: the best q in closed form, and functions drawn from it.

L-BFGS trains kernel, noise and inducing points on all rows. Then the model becomes a SOLVE-GP,
which could be trained further on minibatches.

    python examples/solvegpr.py --output solvegpr.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


@click.command()
@click.option("--num-inducing", default=8, show_default=True, help="Points of the first set, Z.")
@click.option("--num-orthogonal", default=8, show_default=True, help="Points of the second set, O.")
@click.option("--num-draws", default=12, show_default=True, help="Functions drawn.")
@click.option("--output", default="solvegpr.png", show_default=True, help="Figure to write.")
def main(num_inducing, num_orthogonal, num_draws, output):
    """Fit SOLVE-GP regression to a wave with a gap, and draw functions from it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 8.0, size=(400, 1))
    X = np.where(X < 4.0, X, X + 2.0)
    Y = np.sin(2.0 * X) + 0.5 * np.cos(4.3 * X) + 0.3 * rng.normal(size=X.shape)

    Z, O = gs.initialization.split_orthogonal(X, num_inducing, num_orthogonal)
    sets = gs.inducing_variables.OrthogonalInducingVariables(Z, O)
    regression = gs.models.SOLVEGPR((X, Y), gpflow.kernels.Matern52(), sets, noise_variance=0.1)
    gpflow.optimizers.Scipy().minimize(
        regression.training_loss_closure(),
        regression.trainable_variables,
        options={"maxiter": 100},
    )
    gap = regression.structured_gap()  # what independent sets in q cost
    model = regression.to_solvegp()
    print(f"elbo={regression.elbo():.2f} gap={gap:.2f} solvegp={model.elbo((X, Y)):.2f}")

    x = np.linspace(-1.0, 11.0, 600)[:, None]
    mean, var = (moment.numpy()[:, 0] for moment in model.predict_f(x))
    functions = model.posterior().sample_functions(num_draws)(x)
    figure, panel = plt.subplots(figsize=(8.0, 3.8), layout="constrained")
    panel.plot(X, Y, ".", color="0.7", ms=3)
    panel.fill_between(x[:, 0], mean - 2 * var**0.5, mean + 2 * var**0.5, alpha=0.25)
    panel.plot(x, functions.numpy()[..., 0].T, "C0", lw=0.6)
    panel.plot(x, mean, "k--", lw=1.0, label="mean and 2 sd of f, and draws")
    panel.set(xlabel="x", ylabel="y")
    panel.legend()
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
