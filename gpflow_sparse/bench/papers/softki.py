"""The regression study of Camano and Huang (SoftKI), as plain data."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpflow_sparse.bench.papers.budget import Training
from gpflow_sparse.bench.papers.curves import CurvesPaper
from gpflow_sparse.bench.papers.spec import Record, Row, Size

if TYPE_CHECKING:
    from gpflow_sparse.data import Dataset

_UCI = ["kin40k", "protein", "elevators", "keggdirected"]

# What the paper says in section 5.1; where lengthscales start it does not say.
PAPER_SETTING: dict[str, Any] = {
    "model": "softki",
    "num_inducing": 512,
    "batch_size": 1024,
    "epochs": 50,
    "learning_rate": 0.01,
    "decay": False,
    "float32": True,
    "ard": False,
    "lengthscale": 1.0,
    "objective": "exact",
    "temperature": 1.0,
    "tied": False,
    "learn_temperature": False,
    "noise_variance": 1e-3,
    "learn_noise": False,
    "refit_noise": False,
}
TIED = PAPER_SETTING | {
    "learning_rate": 0.02,
    "decay": True,
    "ard": True,
    "temperature": 0.3,
    "tied": True,
    "learn_temperature": True,
    "noise_variance": 0.1,
    "learn_noise": True,
    "refit_noise": True,
}
_PEER: dict[str, Any] = {
    "num_inducing": 512,
    "batch_size": 1024,
    "decay": False,
    "float32": False,
    "ard": True,
    "lengthscale": 1.0,
    "noise_variance": 0.1,
}
SVGP = _PEER | {"model": "svgp", "learning_rate": 0.01, "epochs": 50}
# The full batch in every step, as for the SGPR of the paper.
SGPR = _PEER | {"model": "sgpr", "learning_rate": 0.1, "steps": 100}
MEDIAN = {"lengthscale": "median"}


def rows(datasets: list[str], *models: tuple[str, str, Mapping[str, Any]]) -> tuple[Row, ...]:
    """Of a key, a title and options each, on all these data sets."""
    return tuple(
        Row(key, title, {"datasets": datasets, **options}, "all") for key, title, options in models
    )


def _fit(options: Mapping[str, Any], dataset: "Dataset", training: Training) -> Record:
    from gpflow_sparse.bench.papers.softki_models import fit_softki

    return fit_softki(dataset, training, options)


def _read(name: str, split: int) -> "Dataset":
    from gpflow_sparse.bench.papers.softki_models import read

    return read(name, split)


def _read_validation(name: str, split: int) -> "Dataset":
    from gpflow_sparse.bench.papers.softki_models import read_validation

    return read_validation(name, split)


def published(datasets: list[str], *cells: str) -> dict[str, dict[str, str]]:
    """What the paper prints of a model: RMSE of standardized outputs, for each data set."""
    return {name: {"RMSE, standardized": cell} for name, cell in zip(datasets, cells, strict=True)}


TIED_TITLE = "SoftKI, tied temperature"
SVGP_TITLE = "GPflow SVGP 512, ARD"
_UCI_ROWS = rows(
    _UCI,
    ("paper", "SoftKI, the paper's setting", PAPER_SETTING),
    (
        "paper-pseudo",
        "SoftKI, the paper's setting, pseudo-loss",
        PAPER_SETTING | {"objective": "pseudo"},
    ),
    (
        "scalar",
        "SoftKI, learned temperature",
        PAPER_SETTING | {"learn_temperature": True, "refit_noise": True},
    ),
    ("tied", TIED_TITLE, TIED),
    (
        "uncollapsed",
        "the same basis, uncollapsed bound",
        TIED | {"model": "uncollapsed", "natural_gradients": 0.1},
    ),
    ("svgp", SVGP_TITLE, SVGP),
)
CITATION = (
    "Camano and Huang, High-Dimensional Gaussian Process Regression with Soft Kernel Interpolation"
)
PROTOCOL = (
    "All SoftKI rows: squared exponential with a learned variance, zero mean, points from k-means, "
    "single precision, batches of 1024 rows. *The paper's setting* has one lengthscale "
    "for all columns, which starts at 1 (the paper does not say where), T = 1, a noise variance "
    "fixed at 1e-3, and Adam at 0.01, constant. *Learned temperature* learns one number T beside "
    "it. *Tied* has one lengthscale for each column, T of 0.3 lengthscales at the start and "
    "learned, a noise variance that starts at 0.1 and is learned, and Adam at a rate that falls "
    "from 0.02 to 0 as a cosine. *Uncollapsed*, where it is run, is `BasisSVGP` over the basis of "
    "*tied*, trained like it, and q by natural gradients of 0.1.",
    "RMSE and NLPD are those of the row as it is meant: with the noise as trained for the paper's "
    "setting, elsewhere re-fitted to all training rows after training. The columns to the right, "
    "in standardized units, show every SoftKI row both ways; *filled* adds, to predictions with "
    "the re-fitted noise, what the prior variance of the interpolation lacks of the kernel's, "
    "which leaves means as they are.",
    "GPflow's models train everything by Adam, in double precision, with one lengthscale for each "
    "column and points from k-means: SVGP at 0.01 on batches of 1024 rows, SGPR at 0.1 on all "
    "rows.",
    "Training seconds include ten looks at the learning curve, for which SoftKI fits its posterior "
    "each time. Times are wall clock of the machine as it was, with whatever else it did.",
)
_COLUMNS = {
    "RMSE": ("rmse", ".4g"),
    "NLPD": ("nlpd", ".3f"),
    "RMSE, standardized": ("rmse_standardized", ".4f"),
    "NLPD, standardized": ("nlpd_standardized", ".3f"),
    "95 % coverage": ("coverage_95", ".3f"),
    "noise variance": ("noise_variance", ".3g"),
    "temperature": ("temperature", ".3g"),
    "NLPD, noise as trained": ("nlpd_as_trained", ".3f"),
    "RMSE, noise re-fitted": ("rmse_refitted", ".4f"),
    "NLPD, noise re-fitted": ("nlpd_refitted", ".3f"),
    "NLPD, filled": ("nlpd_filled", ".3f"),
    "ms per step": ("milliseconds_per_step", ".0f"),
    "training s": ("training_seconds", ".0f"),
    "posterior s": ("posterior_seconds", ".1f"),
}

SOFTKI_PAPER = CurvesPaper(
    name="softki",
    title="SoftKI: regression sets",
    citation=f"{CITATION}, section 5.1, table 1",
    datasets=tuple(_UCI),
    sizes={"small": Size(_UCI_ROWS)},
    published={
        "SoftKI 512": published(
            _UCI, "0.237 ± 0.008", "0.649 ± 0.01", "0.389 ± 0.01", "0.081 ± 0.005"
        ),
        "SGPR 512": published(
            _UCI, "0.205 ± 0.008", "0.66 ± 0.009", "0.401 ± 0.007", "0.096 ± 0.007"
        ),
        "SVGP 1024": published(
            _UCI, "0.192 ± 0.006", "0.659 ± 0.008", "0.389 ± 0.009", "0.088 ± 0.005"
        ),
        "SoftKI 512, learned noise (table 5)": published(
            _UCI, "0.385 ± 0.004", "0.725 ± 0.004", "0.393 ± 0.005", "0.083 ± 0.005"
        ),
    },
    read=_read,
    fit=_fit,
    columns=_COLUMNS,
    printed=(
        *("RMSE, standardized", "NLPD, standardized", "NLPD, noise re-fitted"),
        *("ms per step", "training s"),
    ),
    notes=(
        "Protocol: the first of the ten splits published with the data sets, 90 % of the rows for "
        "training; X and Y standardized with the training rows; 50 epochs. The published numbers "
        "are means and deviations over three seeds, with random splits of those proportions.",
        *PROTOCOL,
    ),
)

SOFTKI_VALIDATION = dataclasses.replace(
    SOFTKI_PAPER,
    name="softki_validation",
    title="SoftKI: settings, chosen without the test rows",
    sizes={
        "small": Size(
            (
                *_UCI_ROWS,
                *rows(
                    _UCI,
                    (
                        "tied-median",
                        f"{TIED_TITLE}, lengthscales from the median",
                        TIED | MEDIAN,
                    ),
                ),
            )
        )
    },
    published={},
    read=_read_validation,
    notes=(
        "Protocol: the training rows of the first of the ten splits published with the data sets, "
        "and they alone. A random tenth of them is held out, and is what this page calls test "
        "rows; X and Y are standardized with the others; 50 epochs. Where a row says so, "
        "lengthscales start at the median distances between rows instead "
        "(`initialization.median_lengthscales`).",
        *PROTOCOL,
    ),
)
