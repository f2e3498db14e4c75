"""SiteVGP: three classes on few rows, without an optimizer of q.

One latent function tells each class from the rest; hyperparameters have priors.

    python examples/site_vgp.py --output site_vgp.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


def draw(num_rows, rng):
    """Points of three arms of a spiral, with their labels."""
    radius = rng.uniform(0.2, 2.0, size=num_rows)
    labels = rng.integers(0, 3, size=num_rows)
    angle = 1.2 * radius + 2.0 * np.pi * labels / 3.0 + 0.25 * rng.normal(size=num_rows)
    X = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return X, labels[:, None].astype(float)


@click.command()
@click.option("--num-data", default=150, show_default=True, help="Rows.")
@click.option("--output", default="site_vgp.png", show_default=True, help="Figure to write.")
def main(num_data, output):
    """Tell the arms of a spiral from each other."""
    rng = np.random.default_rng(0)
    (X, Y), test = draw(num_data, rng), draw(1000, rng)

    kernel = gs.kernels.table_kernel(gpflow.kernels.Matern32, 2, for_classes=True)
    model = gs.models.SiteVGP((X, Y), kernel, gs.likelihoods.OneVersusRest(3))
    elbo = model.fit_hyperparameters()
    wrong = np.argmax(model.predict_y(test[0])[0], axis=1) != test[1][:, 0]
    nlpd = -np.mean(model.predict_log_density(test))
    print(f"elbo={elbo:.1f} error_rate={np.mean(wrong):.3f} nlpd={nlpd:.3f}")

    line = np.linspace(-2.4, 2.4, 120)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    P = model.predict_y(grid)[0].numpy().reshape(120, 120, 3)
    figure, panel = plt.subplots(figsize=(5.0, 4.6), layout="constrained")
    panel.imshow(P, origin="lower", extent=(-2.4, 2.4, -2.4, 2.4), alpha=0.6)
    for label, color in enumerate(("darkred", "darkgreen", "darkblue")):
        panel.plot(*X[Y[:, 0] == label].T, ".", color=color, label=f"class {label}")
    panel.set(xlabel="x1", ylabel="x2")
    panel.legend(fontsize=8)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
