"""What the hidden layers of a deep convolutional model pass on: signal, and noise.

A hidden layer passes on ``mean + sqrt(variance) eps``. Its signal is the variance of the mean over
images, its noise the variance, both averaged over patches and channels. Three layers are trained on
scikit-learn's digits, and their ratios are recorded on the way. In "filters" the hidden layers
start at random filters; "prior" is the same model with the paper's prior of hidden layers, of zero
mean and variance 5, which starts without any signal (erratum C8).

    python examples/layers.py --output layers.png
"""

from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs
from _frame import BLUE, GREEN, RED, new_figure, option, print_numbers, run, save_figure
from gpflow_sparse.models import ConvSpec

IMAGE_SHAPE = (8, 8, 1)
NUM_CLASSES = 10
SHOWN = 3  # channels of each layer in the figure


@dataclass(frozen=True)
class Config:
    """Signal and noise of hidden layers, over training, and what they make of a digit."""

    num_inducing: int = option(50, "M, patches of each layer.")
    num_channels: int = option(4, "Channels of the output of a hidden layer.")
    patch_size: int = option(3, "Pixels of a patch, downward and across.")
    num_steps: int = option(400, "Training steps.")
    batch_size: int = option(64, "Rows per step.")
    learning_rate: float = option(0.02, "Rate of Adam at the start; it falls to 0.")
    every: int = option(20, "Steps between records.")
    num_watched: int = option(100, "Images whose layers are recorded.")
    seed: int = option(0, "Seed of patches, filters, batches and draws.")
    output: str | None = option(None, "Figure to write.")


def build(X: np.ndarray, config: Config, at_prior: bool) -> gs.models.DeepGP:
    """Two hidden layers and one over the patches of their output."""
    hidden = ConvSpec(config.patch_size, 1, config.num_channels)
    model = gs.models.deep_convolutional(
        X,
        IMAGE_SHAPE,
        gpflow.likelihoods.MultiClass(NUM_CLASSES),
        num_inducing=config.num_inducing,
        architecture=[hidden, hidden, ConvSpec(config.patch_size)],
        seed=config.seed,
    )
    for layer in model.layers[:-1] if at_prior else ():
        layer.mean_function = gpflow.functions.Zero()
        layer.kernel.variance.assign(5.0)
    return model


def train(model: Any, data: tuple[np.ndarray, np.ndarray], config: Config) -> list[Any]:
    """Steps with the ratios of both hidden layers, from before the first step."""
    record = gs.training.LayerSignals(data[0][: config.num_watched], every=config.every)
    record(gs.training.FitState(0, 0.0, model))
    gs.training.fit(
        model,
        data,
        optimizer=gs.training.adam(config.learning_rate, decay_steps=config.num_steps),
        num_steps=config.num_steps,
        batch_size=config.batch_size,
        callbacks=[record],
        seed=config.seed,
        progress=False,
    )
    return record.history


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Train both, print one line, draw if asked to.

    :return: of "filters" and "prior": ratios of the ``first`` and ``second`` hidden layer before
        and after training, and ``accuracy`` on the test images.
    """
    data = gs.data.load("digits").standardized(per_channel=True)
    X, Y = data.test
    numbers, histories, models = {}, {}, {}
    for name in ("filters", "prior"):
        model = build(data.train[0], config, name == "prior")
        tf.random.set_seed(config.seed)  # of what the hidden layers draw
        history = train(model, data.train, config)
        (_, before), (_, after) = history[0], history[-1]
        classes = np.argmax(model.predict_y(X)[0], axis=1)
        numbers[name] = {
            "first_start": before[0],
            "second_start": before[1],
            "first": after[0],
            "second": after[1],
            "accuracy": float(np.mean(classes == Y[:, 0])),
        }
        histories[name], models[name] = history, model
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, histories, models["filters"], X[:1])
    return numbers


def passed_on(model: gs.models.DeepGP, x: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each hidden layer the mean and one draw at an image, ``[H', W', G]`` each."""
    shown, H, rng = [], tf.constant(x), np.random.default_rng(0)
    for layer in model.layers[:-1]:
        posterior = layer.posterior()
        moments = posterior.moments(posterior.posterior._tensors(), H[:, None, :])
        mean, var = (np.asarray(part)[0, 0] for part in moments[:2])  # [p, G]
        drawn = mean + np.sqrt(var) * rng.normal(size=var.shape)
        shown.append(tuple(part.reshape(layer.output_shape) for part in (mean, drawn)))
        H = tf.reshape(tf.constant(drawn), [1, -1])
    return shown


def draw(config: Config, histories: dict[str, Any], model: Any, x: np.ndarray) -> None:
    """Ratios over steps, and an image with some channels of both layers."""
    figure = new_figure(11.0, 4.4)
    left, right = figure.subfigures(1, 2, width_ratios=(1.0, 1.25))
    panel = left.subplots()
    for name, color in (("filters", BLUE), ("prior", RED)):
        steps = [step for step, _ in histories[name]]
        for place, style in enumerate(("-", "--")):
            ratios = [ratios[place] for _, ratios in histories[name]]
            label = f"{name}, layer {place + 1}"
            panel.plot(steps, np.maximum(ratios, 1e-4), style, color=color, lw=1.6, label=label)
    panel.axhline(1.0, color=GREEN, lw=0.8)
    panel.set(xlabel="step", ylabel="signal / noise", yscale="log", ylim=(1e-4, None))
    panel.legend(fontsize=8, frameon=False)
    panels = right.subplots(4, SHOWN + 1)
    for row in panels:
        for cell in row:
            cell.axis("off")
    panels[0, 0].imshow(x.reshape(IMAGE_SHAPE[:2]), cmap="gray_r")
    panels[0, 0].set_title("digit", fontsize=8)
    for place, both in enumerate(passed_on(model, x)):
        for kind, images in enumerate(both):
            row = panels[2 * place + kind]
            for channel in range(min(SHOWN, config.num_channels)):
                scale = np.abs(both[1][..., channel]).max()
                limits = {"vmin": -scale, "vmax": scale}
                row[channel + 1].imshow(images[..., channel], cmap="RdBu_r", **limits)
            title = f"layer {place + 1}, {('mean', 'one draw')[kind]}"
            row[1].set_title(title, fontsize=8, loc="left")
    save_figure(figure, config.output)


if __name__ == "__main__":
    run(main, Config)
