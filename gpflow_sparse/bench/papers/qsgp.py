"""The regression and classification studies of Evans and Nair (2020), as plain data."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpflow_sparse.bench.papers.budget import Training
from gpflow_sparse.bench.papers.curves import CurvesPaper
from gpflow_sparse.bench.papers.spec import Record, Row, Size

if TYPE_CHECKING:
    from gpflow_sparse.data import Dataset

_REGRESSION = ["kin40k", "protein", "keggdirected"]
_PARITY = "mnist_parity"
# Of the hyperparameters, where they are learned; the paper's is 1e-5 at twenty times the steps.
_DENSE_RATE = 1e-3


def _regression(key: str, title: str, **options: Any) -> Row:
    common = {
        "datasets": _REGRESSION,
        "steps": 5000,
        "batch_size": 500,
        "basis_batch_size": 10_000,
        "num_support": 500,
        "learning_rate": 0.1,
        "dense_rate": 0.0,
    }
    return Row(key, title, common | options, "regression")


def _parity(key: str, title: str, **options: Any) -> Row:
    common = {
        "datasets": [_PARITY],
        "basis": "fourier",
        "batch_size": 100,
        "basis_batch_size": 20_000,
        "num_support": 200,
        "learning_rate": 0.1,
        "dense_rate": 0.0,
        "variance": 25.0,
        "lengthscale": 5.0,
        "site_estimator": "split",
    }
    return Row(key, title, common | options, "classification")


_FOURIER = {"basis": "fourier", "num_basis": 100_000, "covariance": "diag"}
# What is left to sample is small, and a step costs 512 times as much per sampled function.
_HYBRID = {
    "basis": "hybrid",
    "num_basis": 100_000,
    "num_leading": 512,
    "covariance": "block",
    "basis_batch_size": 2000,
}
_ROWS = (
    _regression("rff0", "QSGP-0, random Fourier, fixed", **_FOURIER),
    _regression(
        "rff0-learned", "QSGP-0, random Fourier, learned", **_FOURIER, dense_rate=_DENSE_RATE
    ),
    _regression("hybrid", "QSGP, hybrid basis 512, fixed", **_HYBRID),
    _regression(
        "hybrid-learned", "QSGP, hybrid basis 512, learned", **_HYBRID, dense_rate=_DENSE_RATE
    ),
    _regression(
        "rff100",
        "QSGP-100, random Fourier, fixed",
        **_FOURIER | {"covariance": "chevron", "num_dense_columns": 100},
    ),
    _regression(
        "dictionary",
        "QSGP-0, functions at all training rows, fixed, augmented",
        datasets=["kin40k"],
        basis="dictionary",
        covariance="diag",
        batch_size=3000,
        basis_batch_size=3000,
        num_support=200,
        # these functions add up: at 0.1 the first steps lead far away
        learning_rate=0.01,
    ),
    _regression("svgp", "GPflow SVGP 512", basis="svgp", num_inducing=512, learning_rate=0.01),
    _parity("parity-1e6", "QSGP-0, m = 10^6", num_basis=10**6, steps=1500, num_test=10_000),
    _parity("parity-1e7", "QSGP-0, m = 10^7", num_basis=10**7, steps=500, num_test=1000),
)


def _read(dataset: str, split: int) -> "Dataset":
    from gpflow_sparse.bench.papers.qsgp_models import read

    return read(dataset, split)


def _fit(options: Mapping[str, Any], dataset: "Dataset", training: Training) -> Record:
    from gpflow_sparse.bench.papers.qsgp_models import fit_qsgp

    return fit_qsgp(dataset, training, options)


def _cells(
    rmse: str, nlpd: str, rmse_standardized: str = "", nlpd_standardized: str = ""
) -> dict[str, str]:
    return {
        "RMSE": rmse,
        "NLPD": nlpd,
        "RMSE, standardized": rmse_standardized,
        "NLPD, standardized": nlpd_standardized,
    }


QSGP_PAPER = CurvesPaper(
    name="qsgp",
    title="QSGP: large regression sets, and odd against even digits",
    citation=(
        "Evans and Nair, Quadruply Stochastic Gaussian Processes (2020, arXiv:2006.03015), "
        "section 4, appendices I.1 and I.2, tables 2 and 3"
    ),
    datasets=(*_REGRESSION, _PARITY),
    sizes={"small": Size(_ROWS)},
    published={
        "QSGP-0, random Fourier, learned": {
            "kin40k": _cells("0.174", "0.135", "0.175", "0.138"),
            "protein": _cells("0.602", "1.34", "0.779", "1.60"),
            "keggdirected": _cells("0.135", "-0.821", "0.098", "-1.14"),
        },
        "QSGP-100, random Fourier, learned": {
            "kin40k": _cells("0.175", "0.139"),
            "protein": _cells("0.602", "1.34"),
            "keggdirected": _cells("0.135", "-0.794"),
        },
        "QSGP-0, functions at all training rows": {
            "kin40k": _cells("0.154", "-0.348"),
            "protein": _cells("0.598", "1.157"),
            "keggdirected": _cells("0.124", "-0.554"),
        },
        "SVGP 512": {
            "kin40k": _cells("0.247", "0.055"),
            "protein": _cells("0.542", "1.06"),
            "keggdirected": _cells("0.124", "-0.953"),
        },
        "QSGP-0, m = 10^6": {_PARITY: {"error rate": "0.0215", "NLPD": "0.068"}},
        "QSGP-0, m = 10^7": {_PARITY: {"NLPD": "0.063"}},
        "SVGP of Hensman et al. (2015)": {_PARITY: {"error rate": "0.022", "NLPD": "0.069"}},
    },
    read=_read,
    fit=_fit,
    columns={
        "RMSE": ("rmse", ".4f"),
        "NLPD": ("nlpd", ".3f"),
        "RMSE, standardized": ("rmse_standardized", ".4f"),
        "NLPD, standardized": ("nlpd_standardized", ".3f"),
        "NLPD as trained, standardized": ("nlpd_as_trained", ".3f"),
        "error rate": ("error_rate", ".4f"),
        "noise variance": ("noise_variance", ".3g"),
        "95 % coverage": ("coverage_95", ".3f"),
        "ms per step": ("milliseconds_per_step", ".0f"),
    },
    notes=(
        "Protocol: the first of the ten splits published with the data sets, 90 % of the rows for "
        "training; X and Y standardized with the training rows; squared exponential with one "
        "lengthscale per column; zero mean. All rows start from the hyperparameters of an exact GP "
        "on 1,000 random training rows (appendix I.1), by at most 200 iterations of L-BFGS: "
        "*fixed* keeps them, *learned* trains them with the weights by Adam at a rate that is 0 "
        "for the first tenth of the steps, as in the paper, and falls from 1e-3 to 0 after it. "
        "Weights start at the prior and move by Adagrad, whose rate falls from 0.1 to 0 (for "
        "functions at all training rows, which add up, from 0.01). A step has 500 rows, two draws "
        "of 10,000 of the 100,000 functions and 500 support rows (for functions at all training "
        "rows 3,000, 3,000 and 200, as in appendix I.2). Single precision.",
        "Where q has closed forms for its covariance given the mean (proposition 1, and the dense "
        "block), they are applied once after training, over all training rows, and to *learned* "
        "rows also at the start and at every tenth, over 4,000 rows; *NLPD as trained* "
        "is that before. The dense columns of QSGP-100 have none of use at this size: they are "
        "scored as trained. The paper trains for 100,000 steps and reports the mean RMSE over "
        "five splits and the NLPD of the first; its numbers are in the units of the files, and "
        "standardized ones are conversions.",
        "GPflow's SVGP has 512 inducing points from k-means, and trains everything by Adam at "
        "0.01, double precision, batches of 500 rows, for as many steps.",
        "Digits: odd is 1; pixels from 0 to 1; one lengthscale for all pixels. That is 5, half of "
        "the median distance, where an exact GP on 8,000 training rows had its lowest error on "
        "4,000 others; the variance is 25. Both are fixed, where the paper learns them. Sites are "
        "*split* estimates, 100 rows and two draws of 20,000 functions per step. The row of 10^7 "
        "functions is scored on 1,000 random test rows.",
        "Times are wall clock of the machine as it was, with whatever else it did.",
    ),
)
