"""The image tables of Shi, Titsias and Mnih (2020), as plain data; no TensorFlow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpflow_sparse.bench.papers.budget import TimedTraining
from gpflow_sparse.bench.papers.spec import Record, Row, Size
from gpflow_sparse.bench.papers.timed import TimedPaper

if TYPE_CHECKING:
    from gpflow_sparse.data import Dataset

_DIGITS, _MNIST, _SUBSET, _CIFAR = "digits", "mnist", "cifar10_20k", "cifar10"

# What a row is built and trained with. "model" goes to `gs.models.deep_convolutional` as it is.
_OPTIONS: dict[str, dict[str, Any]] = {
    "digits": {
        "dataset": _DIGITS,
        "splits": 5,
        "minutes": 0.5,
        "model": {"architecture": [[3, 1, None]]},
        "batch_size": 128,
        "learning_rate": 0.02,
        "natural_gradients": 0.0,
        "float32": False,
        "num_watched": 360,
    },
    "mnist-1": {
        "dataset": _MNIST,
        "splits": 1,
        "minutes": 15.0,
        "model": {"architecture": [[5, 2, None]]},
        "batch_size": 128,
        "learning_rate": 0.02,
        "natural_gradients": 0.0,
        "float32": True,
        "num_watched": 500,
    },
    "cifar-1": {
        "dataset": _SUBSET,
        "splits": 1,
        "minutes": 10.0,
        "model": {"architecture": [[5, 2, None]]},
        "batch_size": 64,
        "learning_rate": 0.02,
        "natural_gradients": 0.0,
        "float32": True,
        "num_watched": 500,
    },
}
# Twice as fast as "marginal" here, and closer to the model.
_SHARED = {"sampling": "shared_inducing"}
# Patch size, stride and channels of each layer.
_TWO, _THREE = [[5, 2, 10], [4, 2, None]], [[5, 2, 10], [4, 2, 10], [3, 1, None]]
_OPTIONS["mnist-2"] = _OPTIONS["mnist-1"] | {
    "model": {"architecture": _TWO, **_SHARED},
    "batch_size": 64,
}
_OPTIONS["cifar-2"] = _OPTIONS["cifar-1"] | {"model": {"architecture": _TWO, **_SHARED}}
_OPTIONS["cifar-3"] = _OPTIONS["cifar-1"] | {"model": {"architecture": _THREE, **_SHARED}}
# The paper's own, for as long as a machine can be spared.
_TABLE_5: dict[int, list[list[int | None]]] = {
    1: [[5, 1, None]],
    2: [[5, 1, 10], [4, 2, None]],
    3: [[5, 1, 10], [4, 2, 10], [5, 1, None]],
}
_FULL = {
    "dataset": _CIFAR,
    "minutes": 2880.0,
    "batch_size": 64,
    "learning_rate": 0.003,
    "num_watched": 1000,
}


def _row(key: str, base: str, num_inducing: Any, num_orthogonal: Any = 0, **changes: Any) -> Row:
    """A row with these patches in its layers: a number, or one for each layer."""
    options = {**_OPTIONS[base], **changes}
    sizes = {"num_inducing": num_inducing, "num_orthogonal": num_orthogonal}
    options["model"] = {**options["model"], **sizes}
    name, layers = (
        "SVGP" if not num_orthogonal else "SOLVE-GP",
        len(options["model"]["architecture"]),
    )
    text = ", ".join(_sizes(num_inducing, num_orthogonal))
    title = f"{name} {text}" + (f", {layers} layers" if layers > 1 else "")
    return Row(key, title, options, "all")


def _sizes(num_inducing: Any, num_orthogonal: Any) -> list[str]:
    first = [num_inducing] if isinstance(num_inducing, int) else num_inducing
    second = [num_orthogonal] * len(first) if isinstance(num_orthogonal, int) else num_orthogonal
    return [f"{M}+{M2}" if M2 else f"{M}" for M, M2 in zip(first, second, strict=True)]


_SMALL_ROWS = (
    _row("digits-solvegp", "digits", 100, 100),
    _row("digits-svgp", "digits", 100),
    _row("digits-svgp-double", "digits", 200),
    _row("mnist-1", "mnist-1", 400, 400),
    _row("mnist-2", "mnist-2", [100, 300], [100, 300]),
    _row("cifar-svgp", "cifar-1", 400),
    _row("cifar-solvegp", "cifar-1", 400, 400),
    _row("cifar-svgp-double", "cifar-1", 800),
    _row("cifar-2", "cifar-2", [100, 300], [100, 300]),
    _row("cifar-3", "cifar-3", [100, 100, 300], [100, 100, 300]),
)
_FULL_ROWS = tuple(
    _row(
        f"{name}-{layers}",
        f"cifar-{layers}",
        sizes,
        others,
        model={"architecture": _TABLE_5[layers]},
        **_FULL,
    )
    for layers, M in ((1, [1000]), (2, [384, 1000]), (3, [384, 384, 1000]))
    for name, sizes, others in (
        ("svgp", M, 0),
        ("solvegp", M, M),
        ("svgp-double", [2 * size for size in M], 0),
    )
)


def _cells(accuracy: str, nlpd: str, milliseconds: str) -> Mapping[str, Mapping[str, str]]:
    """On CIFAR-10, beside whose subset they stand too."""
    cells = {"accuracy, %": accuracy, "NLPD": nlpd, "ms per step": milliseconds}
    return {_SUBSET: cells, _CIFAR: cells}


def _read(dataset: str, split: int) -> "Dataset":
    from gpflow_sparse.bench.papers.conv_models import read

    return read(dataset, split)


def _fit(options: Mapping[str, Any], dataset: "Dataset", training: TimedTraining) -> Record:
    from gpflow_sparse.bench.papers.conv_models import fit_images

    return fit_images(dataset, training, options)


CONV_PAPER = TimedPaper(
    name="conv",
    title="Convolutional and deep convolutional GPs",
    citation=(
        "Shi, Titsias and Mnih, Sparse Orthogonal Variational Inference for Gaussian Processes "
        "(2020, arXiv:1910.10596v5), section 6.2, appendix G.2, tables 1, 3, 8, 9 and 10"
    ),
    datasets=(_DIGITS, _MNIST, _SUBSET, _CIFAR),
    sizes={"small": Size(_SMALL_ROWS), "full": Size(_FULL_ROWS)},
    published={
        "SVGP 1000": _cells("66.07", "1.59", "241"),
        "SVGP 1600": _cells("67.18", "1.54", "380"),
        "SOLVE-GP 1000+1000": _cells("68.19", "1.51", "370"),
        "SVGP 2000": _cells("68.06", "1.48", "474"),
        "SVGP 384, 1000, 2 layers": _cells("76.35", "1.04", "392"),
        "SOLVE-GP 384+384, 1000+1000, 2 layers": _cells("77.80", "0.98", "657"),
        "SVGP 768, 2000, 2 layers": _cells("77.46", "0.98", "1104"),
        "SVGP 384, 384, 1000, 3 layers": _cells("78.76", "0.88", "418"),
        "SOLVE-GP 384+384, 384+384, 1000+1000, 3 layers": _cells("80.30", "0.79", "752"),
        "SVGP 768, 768, 2000, 3 layers": _cells("80.33", "0.82", "1246"),
    },
    read=_read,
    fit=_fit,
    notes=(
        "Protocol: every row trains for the same time on its data set and is scored on all test "
        "rows once, after the last step; looks on the way, at some test rows, are not counted. "
        "digits: scikit-learn's, `train_test_split(test_size=0.2, stratify=y, random_state=split)`."
        " mnist: its 60,000 + 10,000 images. cifar10_20k: 15,000 training and 5,000 test images of "
        "CIFAR-10, from a local file; the published numbers beside it are of all 50,000 + 10,000. "
        "Pixels are standardized by channel with the training images; no augmentation.",
        "Models: `gs.models.deep_convolutional`, with the options in the results: squared "
        "exponential patch kernels, TICK in the last layer, robust-max, a sum over patches that is "
        "divided by their number; SVGP is the same model with one set of patches in each layer, on "
        "the same factorizations. In the small size, but for the digits, patches of the first "
        "layer are two pixels apart (the paper: one).",
        "Training: Adam on all parameters, q included, at a rate that falls to zero as a cosine of "
        "the time that has gone. The paper: 300,000 steps of Adam at 0.003, times 0.25 every "
        "50,000, on a GPU.",
        "Times are wall clock of the machine as it was, with whatever else it did; ms per step is "
        "a median. The paper's are on its GPU.",
    ),
)
