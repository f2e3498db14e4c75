"""The regression tables of Shi, Titsias and Mnih (2020), as plain data; no TensorFlow."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpflow_sparse.bench.papers.spec import Row
from gpflow_sparse.bench.papers.stepwise import StepwisePaper, StepwiseSize


def _solvegp_rows(
    sizes: tuple[tuple[str, tuple[int, ...], int | None], ...], whiten: bool
) -> tuple[Row, ...]:
    group = "whitened" if whiten else "un-whitened"
    titles = {"svgp": "GPflow SVGP", "odvgp": "ODVGP", "solvegp": "SOLVE-GP"}
    rows = []
    for method, points, num_columns in sizes:
        name = "+".join(map(str, points))
        options: dict[str, Any] = {"method": method, "points": [*points], "whiten": whiten}
        if num_columns is not None:
            options["num_columns"] = num_columns
        rows.append(
            Row(
                f"{method}-{name}{'' if whiten else '-unwhitened'}",
                f"{titles[method]} {name}, {group}",
                options,
                group,
            )
        )
    return tuple(rows)


def _build_solvegp(options: Mapping[str, Any], X: np.ndarray, seed: int) -> Any:
    from gpflow_sparse.bench.papers.solvegp_models import orthogonal_regression

    return orthogonal_regression(X, seed=seed, **options)


_SMALL = (
    ("svgp", (256,), None),
    ("solvegp", (256, 256), None),
    ("svgp", (512,), None),
    ("odvgp", (256, 2048), 256),
)
_FULL = (
    ("svgp", (1024,), None),
    ("solvegp", (1024, 1024), None),
    ("odvgp", (1024, 1024), None),
    ("odvgp", (1024, 8096), 1024),
    ("svgp", (1536,), None),
    ("svgp", (2048,), None),
)

SOLVEGP_PAPER = StepwisePaper(
    name="solvegp",
    title="SOLVE-GP: regression benchmarks",
    citation=(
        "Shi, Titsias and Mnih, Sparse Orthogonal Variational Inference for Gaussian Processes "
        "(2020, arXiv:1910.10596v5), section 6.3, appendix G.3, tables 2, 6 and 7"
    ),
    datasets=("kin40k", "protein", "keggdirected", "elevators"),
    sizes={
        "small": StepwiseSize(
            _solvegp_rows(_SMALL, True) + _solvegp_rows(_SMALL, False), 2000, 100
        ),
        "full": StepwiseSize(_solvegp_rows(_FULL, False) + _solvegp_rows(_FULL, True), None, 100),
    },
    batch_size=1024,
    learning_rate=0.01,
    build=_build_solvegp,
    published={
        "SVGP 1024": {
            "kin40k": (0.193, 0.094),
            "protein": (0.630, -0.963),
            "keggdirected": (0.098, 0.967),
            "elevators": (0.398, -0.516),
        },
        "SVGP 1536": {
            "kin40k": (0.182, 0.129),
            "protein": (0.621, -0.949),
            "keggdirected": (0.098, 0.944),
            "elevators": (0.396, -0.511),
        },
        "ODVGP 1024+1024": {
            "kin40k": (0.183, 0.137),
            "protein": (0.625, -0.956),
            "keggdirected": (0.176, -0.199),
            "elevators": (0.397, -0.518),
        },
        "ODVGP 1024+8096": {
            "kin40k": (0.180, 0.144),
            "protein": (0.618, -0.946),
            "keggdirected": (0.157, -0.136),
            "elevators": (0.399, -0.523),
        },
        "SOLVE-GP 1024+1024": {
            "kin40k": (0.172, 0.187),
            "protein": (0.618, -0.943),
            "keggdirected": (0.095, 0.973),
            "elevators": (0.395, -0.509),
        },
        "SVGP 2048": {
            "kin40k": (0.177, 0.137),
            "protein": (0.615, -0.940),
            "keggdirected": (0.100, 0.907),
            "elevators": (0.395, -0.507),
        },
    },
    notes=(
        "Protocol: a random 64 / 16 / 20 split of all rows into training, validation and test "
        "rows; X and Y standardized with the training rows; Matern 3/2 with one lengthscale for "
        "all columns; zero mean; Adam at a constant rate of 0.01 on all parameters together, "
        "batches of 1024 rows. The validation rows are not used: nothing is selected by them. The "
        "test rows are scored once, after the last step. RMSE and log-likelihood are of "
        "standardized outputs.",
        "All models start from lengthscale 1, variance 1, noise variance 0.1 (the only start the "
        "paper gives for regression, appendix G.1) and q at the prior. Inducing points start at "
        "k-means centers of the training rows: those of SOLVE-GP M+M2 are those of SVGP with M + "
        "M2 points, split at random. The orthogonal points of ODVGP are random training rows. The "
        "paper does not say where its points start.",
        "Times are wall clock of the machine as it was, with whatever else it did: "
        "`gpflow-sparse bench step` compares speed.",
        "The published numbers are means over five splits; the paper trains for 100 epochs "
        "and does not whiten.",
    ),
)
