"""The methods that can be trained, what they are called, and what may be chosen; plain data."""

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
        "a step sees some rows and some of the basis functions, at a cost free of both numbers",
    ),
    "rvm": (
        "RVM",
        "relevance vector machine, sub-sampled: functions around training rows, most switched off",
    ),
    "softki": (
        "SoftKI",
        "regression by softmax interpolation between learned points, in any number of columns",
    ),
    "swsgp": (
        "SWSGP",
        "each row sees the nearest of up to 100,000 inducing points: steps at a cost free of M",
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
BASES = ("grid", "fourier", "hybrid", "dictionary", "soft")
COVARIANCES = ("diag", "block", "chevron", "dense", "low_rank")
KL_WEIGHTINGS = ("usage", "paper", "chain")
REDUCTIONS = ("anchored", "eq3", "tracked", "none", "literal")
SITE_ESTIMATORS = ("split", "absorbed", "strict")
LIKELIHOODS = ("gaussian", "laplace", "bernoulli", "bernoulli_logit", "multiclass")
_IMAGES = {
    "kernel": "squared_exponential",
    "num_inducing": 100,
    "num_orthogonal": 100,
    "num_steps": 1000,
    "batch_size": 128,
    # under robust-max they run to where all is saturated, and no gradient is left
    "natural_gradients": 0.0,
}
# What the command line takes where an option is not given, by method.
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
INFERENCES = ("type2", "type1")
KERNELS = ("matern12", "matern32", "matern52", "squared_exponential")
SCHEDULES = ("cosine", "constant")
INITIALIZATIONS = ("kmeans", "greedy", "random")
