"""SoftKI: softmax interpolation between learned points, in 100 input columns.

Three directions decide the function, none of them a column. A tenth of the rows is kept back from
the points, and the noise variance is taken from these rows. In single precision.

    python examples/softki.py --output softki.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


def fit(X, Y, num_inducing, num_steps):
    kernel = gpflow.kernels.Matern32(lengthscales=gs.initialization.median_lengthscales(X))
    model = gs.models.SoftKI(
        kernel,
        gs.initialization.kmeans(X, num_inducing),
        noise_variance=0.1,
        temperature=0.3,  # in lengthscales, to start from
        tied=True,
        num_data=len(X),
    )
    adam = gs.training.adam(0.02, decay_steps=num_steps)
    steps = {"num_steps": num_steps, "batch_size": 512}
    gs.training.fit(model, (X, Y), optimizer=adam, **steps, progress=False)
    model.fit_posterior((X, Y))  # one pass over the rows
    return model


@click.command()
@click.option("--num-data", default=9000, show_default=True, help="Rows.")
@click.option("--num-inducing", default=256, show_default=True, help="Interpolation points.")
@click.option("--num-steps", default=800, show_default=True, help="Training steps.")
@click.option("--output", default="softki.png", show_default=True, help="Figure to write.")
def main(num_data, num_inducing, num_steps, output):
    """Fit SoftKI to a function of 100 columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_data + 1000, 100)).astype(np.float32)
    a, b, c = (X @ np.linalg.qr(rng.normal(size=(100, 3)))[0]).T
    Y = np.sin(1.5 * a) + b * np.cos(c) + 0.1 * rng.normal(size=len(X))
    X, Xnew, Y, Ynew = X[1000:], X[:1000], Y[1000:, None].astype(np.float32), Y[:1000, None]
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        model = fit(X, Y, num_inducing, num_steps)
        mean, var = (moment.numpy().astype(float) for moment in model.predict_y(Xnew))
    covered = gs.data.metrics.coverage(Ynew, mean, var)
    print(f"rmse={gs.data.metrics.rmse(Ynew, mean):.3f} coverage={covered:.3f}")
    figure, panel = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
    panel.errorbar(mean[:100, 0], Ynew[:100, 0], xerr=2 * var[:100, 0] ** 0.5, fmt=".", lw=0.5)
    panel.axline((0.0, 0.0), slope=1.0, color="0.5", lw=0.8)
    panel.set(xlabel="predicted, with 2 sd of y", ylabel="100 test rows")
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
