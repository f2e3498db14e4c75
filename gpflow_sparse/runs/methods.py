"""The methods that the command line trains: names, groups, and default options."""

from typing import Any

METHODS = {
    "solvegp": (
        "SOLVE-GP",
        "orthogonal inducing sets: M + M2 points, two small covariances in place of a large one",
    ),
    "odvgp": (
        "ODVGP",
        "orthogonally decoupled: M points for mean and covariance, M2 more for the mean alone",
    ),
    "solvegpr": (
        "SOLVE-GP regression",
        "SOLVE-GP with the best q in closed form: all rows in every step, Gaussian noise",
    ),
    "grief": (
        "GP-GRIEF",
        "regression with the leading eigenfunctions of a product kernel on a grid of any size",
    ),
    "basis_gpr": ("Basis regression", "exact regression with a finite basis, streamed over rows"),
    "basis_svgp": (
        "Basis SVGP",
        "variational inference over the weights of a finite basis: any likelihood, minibatches",
    ),
    "qsgp": (
        "QSGP",
        "steps on some rows and some basis functions, at a cost that depends on neither number",
    ),
    "rvm": (
        "RVM",
        "sub-sampled relevance vector machine: kernel functions around training rows, most unused",
    ),
    "softki": (
        "SoftKI",
        "regression by softmax interpolation between learned points, in any number of columns",
    ),
    "swsgp": (
        "SWSGP",
        "each row uses its nearest of up to 100,000 inducing points: steps at a cost free of M",
    ),
    "conv-solvegp": (
        "Convolutional SOLVE-GP",
        "images: a GP of patches, summed over an image, with M + M2 patches; one to three layers",
    ),
    "conv-svgp": ("Convolutional SVGP", "the same with one set of M patches; its baseline"),
    "svgp": ("SVGP", "GPflow's own, the baseline"),
}
SAMPLED_METHODS = ("qsgp", "rvm")
IMAGE_METHODS = ("conv-solvegp", "conv-svgp")
BASELINES = ("svgp", "conv-svgp")
BASIS_METHODS = ("grief", "basis_gpr", "basis_svgp", *SAMPLED_METHODS)
# Methods for regression only, and the methods to use for classification.
FOR_CLASSES = {
    "solvegpr": "solvegp",
    "grief": "basis_svgp",
    "basis_gpr": "basis_svgp",
    "softki": "basis_svgp --basis soft",
}
_IMAGES = {
    "kernel": "squared_exponential",
    "num_inducing": 100,
    "num_orthogonal": 100,
    "num_steps": 1000,
    "batch_size": 128,
    # under robust-max, natural gradients saturate all probabilities, and the gradient vanishes
    "natural_gradients": 0.0,
}
# Defaults of options by method, where they differ from those of RunConfig.
METHOD_DEFAULTS: dict[str, dict[str, Any]] = {
    # under random features alone, a mean-field q learns hyperparameters that are too noisy
    "qsgp": {"basis": "hybrid", "num_basis": 10_000, "batch_size": 500, "learning_rate": 0.1},
    "rvm": {"basis": "dictionary", "batch_size": 500, "learning_rate": 0.1},
    "swsgp": {
        "num_inducing": 10_000,
        "initialization": "random",
        "num_steps": 3000,
        "batch_size": 128,
        "learning_rate": 0.02,
    },
    **dict.fromkeys(IMAGE_METHODS, _IMAGES),
}
