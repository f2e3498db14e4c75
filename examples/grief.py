"""GP-GRIEF: leading eigenfunctions of a product kernel on a grid that is never formed.

Noisy values of a function of two inputs. There are no points to place: the basis is chosen by the
eigenvalues, again between rounds of training. Kernel and noise are trained on all rows.

    python examples/grief.py --output grief.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


def function(X):
    return np.sin(X[:, :1]) * np.sin(X[:, 1:]) + 0.5 * np.cos(2.0 * X[:, :1] - X[:, 1:])


@click.command()
@click.option("--num-data", default=5000, show_default=True, help="Rows.")
@click.option("--num-eigenfunctions", default=100, show_default=True, help="Basis functions.")
@click.option("--num-rounds", default=3, show_default=True, help="Rounds of ten iterations.")
@click.option("--output", default="grief.png", show_default=True, help="Figure to write.")
def main(num_data, num_eigenfunctions, num_rounds, output):
    """Fit GP-GRIEF to noisy values of a function of two inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-np.pi, np.pi, size=(num_data, 2))
    Y = function(X) + 0.3 * rng.normal(size=(num_data, 1))

    model = gs.models.GRIEF(
        (X, Y),
        gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
        num_eigenfunctions=num_eigenfunctions,
        points_per_dimension=20,
        noise_variance=0.1,
    )
    gs.training.fit_with_basis_refresh(model, num_rounds=num_rounds, progress=False)

    x = np.linspace(-np.pi, np.pi, 60)
    Xnew = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    truth, mean = function(Xnew), model.predict_f(Xnew)[0].numpy()
    explained = model.basis.explained_variance()  # share of the prior variance
    print(f"rmse={gs.data.metrics.rmse(truth, mean):.4f} explained={explained:.4f}")

    panels = {"function": truth, "mean": mean}
    panels |= {f"eigenfunction {i}": model.basis(Xnew).numpy()[:, i] for i in (1, 20)}
    figure, axes = plt.subplots(1, 4, figsize=(12.0, 3.2), layout="constrained")
    for panel, (title, values) in zip(axes, panels.items(), strict=True):
        panel.imshow(values.reshape(60, 60), origin="lower", extent=(-np.pi, np.pi) * 2)
        panel.set_title(title)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
