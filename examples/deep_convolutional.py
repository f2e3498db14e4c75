"""Deep convolutional GP: orthogonal patches in three layers, hidden ones of prior mean zero.

python examples/deep_convolutional.py --output deep_convolutional.png
"""

import click
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs


@click.command()
@click.option("--num-inducing", default=50, show_default=True, help="Patches of each set.")
@click.option("--num-steps", default=250, show_default=True, help="Training steps.")
@click.option("--output", default="deep_convolutional.png", show_default=True, help="Figure.")
def main(num_inducing, num_steps, output):
    """Classify handwritten digits by three layers, and show what these pass on."""
    data = gs.data.load("digits").standardized(per_channel=True)
    model = gs.models.deep_convolutional(
        data.train[0],
        data.image_shape,
        gpflow.likelihoods.MultiClass(10),
        num_inducing=num_inducing,
        num_orthogonal=num_inducing,
        architecture=[gs.models.ConvSpec(3, 1, channels) for channels in (5, 5, None)],
        zero_mean=True,
        sampling="marginal",
    )
    tf.random.set_seed(0)  # of what the hidden layers draw
    adam, steps = gs.training.adam(0.02, decay_steps=num_steps), {"num_steps": num_steps}
    gs.training.fit(model, data.train, optimizer=adam, batch_size=64, **steps, progress=False)
    (X, Y), probabilities = data.test, model.predict_y(data.test[0])[0].numpy()
    wrong = np.mean(np.argmax(probabilities, axis=1) != Y[:, 0])
    print(f"error_rate={wrong:.4f} nlpd={-np.mean(model.predict_log_density((X, Y))):.3f}")

    rows = np.argsort(probabilities.max(axis=1))[[-1, 1, 0]]  # the most and the least certain
    ratios, shown = [1, 5, 5, 2.5], X[rows].reshape(3, 8, 8, 1)
    figure, panels = plt.subplots(3, 4, figsize=(11, 3), width_ratios=ratios, layout="constrained")
    for column, layer in enumerate([None, *model.layers[:-1]]):
        if layer:  # the mean of f at every patch of what is shown
            patches = layer.grid.patches(shown.reshape(3, -1))  # [3, P, L]
            mean, _ = layer.posterior().posterior.fused_predict_f(tf.concat([*patches], axis=0))
            shown = mean.numpy().reshape(3, *layer.output_shape)
        panels[0, column].set_title(f"hidden layer {column}" if layer else "image", fontsize=10)
        gaps = np.pad(shown, [(0, 0), (0, 0), (0, 1), (0, 0)], constant_values=np.nan)
        for channels, panel in zip(np.moveaxis(gaps, 3, 2), panels[:, column], strict=True):
            panel.imshow(channels.reshape(len(channels), -1), cmap="RdBu" if layer else "Greys")
            panel.axis("off")
    for panel, i in zip(panels[:, 3], rows, strict=True):
        panel.bar(range(10), probabilities[i], color=np.where(np.arange(10) == Y[i], "C2", "0.6"))
        panel.set(ylim=(0, 1), xticks=range(10))
    panels[0, 3].set_title("probability of each digit", fontsize=10)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
