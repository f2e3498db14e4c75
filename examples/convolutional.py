"""Convolutional GP: a sum of one function over all patches of an image.

The kernel lets the function depend on where a patch is. Two orthogonal sets of inducing patches.

    python examples/convolutional.py --output convolutional.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_sparse as gs


@click.command()
@click.option("--num-inducing", default=100, show_default=True, help="Patches of each set.")
@click.option("--patch-size", default=3, show_default=True, help="Pixels, downward and across.")
@click.option("--num-steps", default=400, show_default=True, help="Training steps.")
@click.option("--output", default="convolutional.png", show_default=True, help="Figure to write.")
def main(num_inducing, patch_size, num_steps, output):
    """Classify handwritten digits by their patches."""
    data = gs.data.load("digits").standardized(per_channel=True)  # patches stay comparable
    (X, Y), (Xnew, Ynew) = data.train, data.test
    model = gs.models.deep_convolutional(
        X,
        data.image_shape,
        gpflow.likelihoods.MultiClass(10),
        num_inducing=num_inducing,
        num_orthogonal=num_inducing,
        architecture=[gs.models.ConvSpec(patch_size)],
    )
    adam = gs.training.adam(0.03, decay_steps=num_steps)
    steps = {"num_steps": num_steps, "batch_size": 100}
    gs.training.fit(model, (X, Y), optimizer=adam, **steps, progress=False)

    probabilities = model.predict_y(Xnew)[0].numpy()
    wrong = np.mean(np.argmax(probabilities, axis=1) != Ynew[:, 0])
    density = np.mean(model.predict_log_density((Xnew, Ynew)))
    print(f"error_rate={wrong:.4f} nlpd={-density:.3f}")

    figure = plt.figure(figsize=(10.0, 3.8), layout="constrained")
    left, right = figure.subfigures(1, 2)
    left.suptitle("inducing patches")
    patches = model.inducing_variable.sets[0].Z.numpy()
    for panel, patch in zip(left.subplots(6, 6).flat, patches, strict=False):
        panel.imshow(patch[: patch_size**2].reshape(patch_size, patch_size), cmap="gray")
    right.suptitle("least certain test images, with the probability of their digit")
    least = np.argsort(probabilities.max(axis=1))
    for panel, i in zip(right.subplots(2, 5).flat, least, strict=False):
        label = int(Ynew[i, 0])
        panel.imshow(Xnew[i].reshape(8, 8), cmap="gray_r")
        panel.set_title(f"{label}: {probabilities[i, label]:.2f}", fontsize=9)
    for panel in figure.get_axes():
        panel.axis("off")
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
