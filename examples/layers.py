"""What the hidden layers of a deep convolutional GP pass on: signal and noise.

Signal is the variance of a layer's mean over images, noise the variance that it has at an image.

    python examples/layers.py --output layers.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs


@click.command()
@click.option("--num-inducing", default=50, show_default=True, help="Patches of each layer.")
@click.option("--num-channels", default=4, show_default=True, help="Channels of a hidden layer.")
@click.option("--num-steps", default=400, show_default=True, help="Training steps.")
@click.option("--output", default="layers.png", show_default=True, help="Figure to write.")
def main(num_inducing, num_channels, num_steps, output):
    """Train two hidden layers and a last one on digits, and record their ratios."""
    data = gs.data.load("digits").standardized(per_channel=True)
    (X, Y), (Xnew, Ynew) = data.train, data.test
    hidden = gs.models.ConvSpec(3, 1, num_channels)  # 3 x 3 pixels, stride 1
    model = gs.models.deep_convolutional(
        X,
        data.image_shape,
        gpflow.likelihoods.MultiClass(10),
        num_inducing=num_inducing,
        architecture=[hidden, hidden, gs.models.ConvSpec(3)],
    )
    tf.random.set_seed(0)  # of what the hidden layers draw
    record = gs.training.LayerSignals(X[:100], every=20)
    record(gs.training.FitState(0, 0.0, model))  # before the first step
    gs.training.fit(
        model,
        (X, Y),
        optimizer=gs.training.adam(0.02, decay_steps=num_steps),
        num_steps=num_steps,
        batch_size=64,
        callbacks=[record],
        progress=False,
    )
    wrong = np.mean(np.argmax(model.predict_y(Xnew)[0], axis=1) != Ynew[:, 0])
    (_, start), (_, end) = record.history[0], record.history[-1]
    print(f"start={start[0]:.1f} end={end[0]:.1f} error_rate={wrong:.4f}")

    figure, panel = plt.subplots(figsize=(7.0, 3.8), layout="constrained")
    steps, ratios = zip(*record.history, strict=True)
    panel.semilogy(steps, ratios, label=["first hidden layer", "second hidden layer"])
    panel.axhline(1.0, color="0.6", lw=0.8)
    panel.set(xlabel="step", ylabel="signal / noise")
    panel.legend()
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
