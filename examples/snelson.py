"""Figure 2 of SOLVE-GP's paper: what orthogonal points add to five inducing points.

100 more points change the mean alone, five orthogonal points do almost what ten points do.

    python examples/snelson.py --output snelson.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


@click.command()
@click.option("--data", help="An npz file with x and y, such as Snelson's, in place of made rows.")
@click.option("--num-steps", default=1000, show_default=True, help="L-BFGS iterations, at most.")
@click.option("--output", default="snelson.png", show_default=True, help="Figure to write.")
def main(data, num_steps, output):
    """Train all parameters of four sparse models of 100 rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, size=(100, 1))
    Y = np.sin(1.3 * X) + 0.7 * np.sin(3.1 * X) + 0.28 * rng.normal(size=X.shape)
    if data:
        rows = np.random.default_rng(0).permutation(200)[:100]
        X, Y = (np.load(data)[name][rows] for name in "xy")
    Z, O, many, ten = (np.quantile(X, np.linspace(0, 1, m))[:, None] for m in (5, 6, 100, 10))
    sets = gs.inducing_variables.OrthogonalInducingVariables
    kinds = {
        "SVGP(5)": (gpflow.models.SVGP, Z),
        "ODVGP(5+100)": (gs.models.ODVGP, sets(Z, many)),
        "SOLVE-GP(5+5)": (gs.models.SOLVEGP, sets(Z, (O[1:] + O[:-1]) / 2)),
        "SVGP(10)": (gpflow.models.SVGP, ten),
    }
    x, elbos = np.linspace(-1.5, 7.5, 300)[:, None], []
    figure, axes = plt.subplots(
        2, 2, figsize=(9, 5), sharex=True, sharey=True, layout="constrained"
    )
    for (name, (kind, points)), panel in zip(kinds.items(), axes.flat, strict=True):
        kernel = gpflow.kernels.SquaredExponential()
        model = kind(kernel, gpflow.likelihoods.Gaussian(0.1), points)
        loss, limit = model.training_loss_closure((X, Y)), {"maxiter": num_steps}
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options=limit)
        elbos.append(float(model.elbo((X, Y))))
        mean, var = (moment.numpy()[:, 0] for moment in model.predict_f(x))
        panel.plot(X, Y, "k.", ms=3)
        panel.plot(x, mean)
        panel.fill_between(x[:, 0], mean - 3 * var**0.5, mean + 3 * var**0.5, alpha=0.3)
        marked = getattr(points, "sets", [model.inducing_variable])
        for one, mark in zip(marked, ("k+", "C3^"), strict=False):
            panel.plot(one.Z, np.full(one.Z.shape, -3.4), mark, ms=5)
        panel.set(title=f"{name}: ELBO {elbos[-1]:.1f}", ylim=(-3.7, 3.2))
    print("svgp_5={:.1f} odvgp={:.1f} solvegp={:.1f} svgp_10={:.1f}".format(*elbos))
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
