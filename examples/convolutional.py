"""Handwritten digits by their patches: one convolutional layer, two of them, and none.

The images are scikit-learn's, 8 x 8 pixels. "pixels" is SOLVE-GP with a squared exponential kernel
on all 64 pixels; "conv" sums a function of 3 x 3 patches over the image, and lets it depend on
where a patch is; "deep" does so on the output of a hidden layer, an image of few channels. All have
as many inducing points or patches in their last layer. Shi, Titsias and Mnih (2020,
arXiv:1910.10596v5), sections 4 and 6.2, at the size of an example.

    python examples/convolutional.py --output convolutional.png
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_sparse as gs
from _frame import new_figure, option, print_numbers, run, save_figure
from gpflow_sparse.models import ConvSpec

IMAGE_SHAPE = (8, 8, 1)
NUM_CLASSES = 10
SHOWN = 12  # images that the model is least certain of


@dataclass(frozen=True)
class Config:
    """Digits by their patches: one layer, two layers, and pixels for comparison."""

    num_data: int = option(300, "N, training images; the rest of 1,797 is for testing.")
    num_inducing: int = option(100, "M, patches of the base set of the last layer.")
    num_orthogonal: int = option(100, "M2, patches of its orthogonal set.")
    num_hidden: int = option(50, "Patches of either set of the hidden layer.")
    num_channels: int = option(16, "Channels of the output of the hidden layer.")
    patch_size: int = option(3, "Pixels of a patch, downward and across.")
    num_steps: int = option(400, "Training steps.")
    batch_size: int = option(100, "Rows per step.")
    learning_rate: float = option(0.03, "Rate of Adam at the start; it falls to 0.")
    seed: int = option(0, "Seed of patches, filters, batches and draws.")
    output: str | None = option(None, "Figure to write.")


def make_data(config: Config) -> gs.data.Dataset:
    """With one mean and one scale for all pixels: patches must stay comparable."""
    data = gs.data.load("digits")
    X, Y = (np.concatenate(parts) for parts in zip(data.train, data.test, strict=True))
    N = config.num_data
    split = replace(data, train=(X[:N], Y[:N]), test=(X[N:], Y[N:]))
    return split.standardized(per_channel=True)


def build_pixels(X: np.ndarray, config: Config) -> gs.models.SOLVEGP:
    """On whole images, for comparison."""
    sizes = config.num_inducing, config.num_orthogonal
    return gs.models.SOLVEGP(
        gpflow.kernels.SquaredExponential(variance=5.0, lengthscales=np.sqrt(X.shape[1])),
        gpflow.likelihoods.MultiClass(NUM_CLASSES),
        gs.inducing_variables.OrthogonalInducingVariables(
            *gs.initialization.split_orthogonal(X, *sizes, seed=config.seed)
        ),
        num_latent_gps=NUM_CLASSES,
        num_data=len(X),
    )


def build_convolutional(X: np.ndarray, num_layers: int, config: Config) -> Any:
    """SOLVE-GP over patches, or a deep GP of such layers; whitened."""
    last = ConvSpec(config.patch_size)
    hidden = last._replace(num_outputs=config.num_channels)
    few = [config.num_hidden] * (num_layers - 1)
    return gs.models.deep_convolutional(
        X,
        IMAGE_SHAPE,
        gpflow.likelihoods.MultiClass(NUM_CLASSES),
        num_inducing=[*few, config.num_inducing],
        num_orthogonal=[*few, config.num_orthogonal],
        architecture=[*[hidden] * (num_layers - 1), last],
        whiten=True,
        seed=config.seed,
    )


def train(model: Any, data: tuple[np.ndarray, np.ndarray], config: Config) -> float:
    """Seconds that it took, compiling included."""
    begin = time.perf_counter()
    gs.training.fit(
        model,
        data,
        optimizer=gs.training.adam(config.learning_rate, decay_steps=config.num_steps),
        num_steps=config.num_steps,
        batch_size=config.batch_size,
        seed=config.seed,
        progress=False,
    )
    return time.perf_counter() - begin


def scores(model: Any, test: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Share of the test images that are recognized, and their mean negative log probability."""
    X, Y = test
    classes = np.argmax(model.predict_y(X)[0], axis=1)
    return {
        "accuracy": float(np.mean(classes == Y[:, 0])),
        "nlpd": -float(np.mean(model.predict_log_density(test))),
    }


def main(config: Config) -> dict[str, dict[str, float]]:
    """
    Train the three, print one line, draw if asked to.

    :return: of "pixels", "conv" and "deep": ``accuracy`` and ``nlpd`` of the test images, and
        ``seconds`` of training.
    """
    data = make_data(config)
    X = data.train[0]
    models = {
        "pixels": build_pixels(X, config),
        "conv": build_convolutional(X, 1, config),
        "deep": build_convolutional(X, 2, config),
    }
    tf.random.set_seed(config.seed)  # of what the hidden layer draws
    numbers = {}
    for name, model in models.items():
        seconds = train(model, data.train, config)
        numbers[name] = scores(model, data.test) | {"seconds": seconds}
    print_numbers(numbers, ".3g")
    if config.output is not None:
        draw(config, models["conv"], data)
    return numbers


def tiles(images: np.ndarray, across: int, gap: int = 1) -> np.ndarray:
    """Images ``[n, h, w]`` side by side, ``across`` in a row, NaN in between."""
    padded = np.pad(
        images, ((0, -len(images) % across), (0, gap), (0, gap)), constant_values=np.nan
    )
    n, h, w = padded.shape
    rows = padded.reshape(n // across, across, h, w).transpose(0, 2, 1, 3)
    return rows.reshape(n // across * h, across * w)[:-gap, :-gap]


def draw(config: Config, model: gs.models.SOLVEGP, data: gs.data.Dataset) -> None:
    """Learned patches, which class is taken for which, and the least certain images."""
    X, Y = data.test
    labels = Y[:, 0].astype(int)
    probabilities = np.asarray(model.predict_y(X)[0])
    classes = probabilities.argmax(axis=1)
    figure = new_figure(11.0, 4.0)
    left, middle, right = figure.subplots(1, 3)
    size = config.patch_size
    patches = model.inducing_variable.sets[0].Z.numpy().reshape(-1, size, size)
    left.imshow(tiles(patches, 10), cmap="gray")
    left.set_title("inducing patches, base set", fontsize=9)
    table = np.zeros((NUM_CLASSES, NUM_CLASSES), dtype=int)
    np.add.at(table, (labels, classes), 1)
    middle.imshow(np.sqrt(table), cmap="Blues")
    for row, column in np.argwhere(table):
        color = "white" if row == column else "black"
        text = {"ha": "center", "va": "center", "fontsize": 7}
        middle.text(column, row, table[row, column], color=color, **text)
    middle.set_title("digit, and what it is taken for", fontsize=9)
    middle.set(xticks=range(NUM_CLASSES), yticks=range(NUM_CLASSES))
    least = np.argsort(probabilities.max(axis=1))[:SHOWN]
    right.imshow(tiles(X[least].reshape(-1, 8, 8), 4, gap=3), cmap="gray_r")
    for place, i in enumerate(least):
        row, column = divmod(place, 4)
        text = f"{labels[i]}: {probabilities[i, labels[i]]:.2f}"
        right.text(11 * column + 3.5, 11 * row + 9.2, text, ha="center", va="center", fontsize=7)
    right.set_title("least certain, with the probability of the truth", fontsize=9)
    for panel in (left, right):
        panel.axis("off")
    save_figure(figure, config.output, middle)


if __name__ == "__main__":
    run(main, Config)
