"""SOLVE-GP: a second set of inducing points, on what the first leaves unexplained.

python examples/solvegp.py --output solvegp.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


def curve(x):
    return np.sin(2.5 * x) + 0.6 * np.sin(4.7 * x + 0.5)


@click.command()
@click.option("--num-inducing", default=12, show_default=True, help="Points of the first set, Z.")
@click.option(
    "--num-orthogonal", default=12, show_default=True, help="Points of the second set, O."
)
@click.option("--num-steps", default=500, show_default=True, help="Training steps.")
@click.option("--output", default="solvegp.png", show_default=True, help="Figure to write.")
def main(num_inducing, num_orthogonal, num_steps, output):
    """Fit SOLVE-GP to noisy values of a curve."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, size=(2000, 1))
    Y = curve(X) + 0.25 * rng.normal(size=X.shape)

    Z, O = gs.initialization.split_orthogonal(X, num_inducing, num_orthogonal)
    model = gs.models.SOLVEGP(
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(0.1),
        gs.inducing_variables.OrthogonalInducingVariables(Z, O),
        num_data=len(X),
    )
    steps = {"num_steps": num_steps, "batch_size": 256, "natural_gradients": True}
    gs.training.fit(model, (X, Y), **steps, progress=False)

    x = np.linspace(-1.0, 11.0, 400)[:, None]
    mean, var = (moment.numpy()[:, 0] for moment in model.predict_f(x))
    error = gs.data.metrics.rmse(curve(X), model.predict_f(X)[0])
    print(f"elbo={model.elbo((X, Y)):.1f} rmse={error:.3f}")

    figure, panel = plt.subplots(figsize=(8.0, 3.8), layout="constrained")
    panel.plot(X, Y, ".", color="0.75", ms=2)
    panel.fill_between(x[:, 0], mean - 2 * var**0.5, mean + 2 * var**0.5, alpha=0.3)
    panel.plot(x, mean, label="mean and 2 sd of f")
    panel.plot(x, curve(x), "k--", lw=0.8, label="curve")
    for points, mark in zip(model.inducing_variable.sets, ("k+", "r^"), strict=True):
        panel.plot(points.Z, np.full(len(points.Z.numpy()), -3.0), mark)
    panel.set(xlabel="x", ylabel="y", ylim=(-3.3, 3.0), title="below: + are Z, triangles are O")
    panel.legend(loc="upper right", ncols=2)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
