"""SoftKI in high dimension: a study of our own, and that of Camano and Huang on molecules."""

import dataclasses

from gpflow_sparse.bench.papers.softki import (
    CITATION,
    MEDIAN,
    PAPER_SETTING,
    PROTOCOL,
    SGPR,
    SOFTKI_PAPER,
    SVGP,
    SVGP_TITLE,
    TIED,
    TIED_TITLE,
    published,
    rows,
)
from gpflow_sparse.bench.papers.spec import Size

_ARMS = ["robot_arm_10", "robot_arm_50", "robot_arm_100", "robot_arm_400"]
_MD22 = [
    "md22_Ac-Ala3-NHMe",
    "md22_DHA",
    "md22_stachyose",
    "md22_AT-AT",
    "md22_AT-AT-CG-CG",
    "md22_buckyball-catcher",
    "md22_double-walled_nanotube",
]

SOFTKI_ARMS = dataclasses.replace(
    SOFTKI_PAPER,
    name="softki_arms",
    title="SoftKI in high dimension: robot arms",
    citation=f"A study of our own. {CITATION}",
    datasets=tuple(_ARMS),
    sizes={
        "small": Size(
            rows(
                _ARMS,
                ("tied", TIED_TITLE, TIED | MEDIAN | {"epochs": 100}),
                ("sgpr", "GPflow SGPR 512, ARD", SGPR | MEDIAN),
                ("svgp", SVGP_TITLE, SVGP | MEDIAN | {"epochs": 100}),
            )
        )
    },
    published={},
    notes=(
        "Data: the distance between the tip of an arm of so many links and a fixed point, from its "
        "joint angles, with noise of 0.01 m (`gs.data.robot_arm`): 10,000 rows, the last tenth for "
        "testing. Links get shorter by 15 % each, so that the last joints of a long arm hardly "
        "matter. X and Y standardized with the training rows; 100 epochs, or 100 steps of SGPR. "
        "Lengthscales of all models start at the median distances between rows "
        "(`initialization.median_lengthscales`).",
        *PROTOCOL,
    ),
)

SOFTKI_MD22 = dataclasses.replace(
    SOFTKI_PAPER,
    name="softki_md22",
    title="SoftKI in high dimension: molecules",
    citation=f"{CITATION}, section 5.2, table 3",
    datasets=tuple(_MD22),
    sizes={
        "small": Size(
            rows(
                _MD22,
                ("paper", "SoftKI, the paper's setting", PAPER_SETTING),
                ("tied", TIED_TITLE, TIED | MEDIAN),
                ("svgp", SVGP_TITLE, SVGP | MEDIAN),
            )
        )
    },
    published={
        "SoftKI 512": published(
            _MD22,
            *("0.67 ± 0.006", "0.592 ± 0.004", "0.372 ± 0.004", "0.459 ± 0.012"),
            *("0.398 ± 0.006", "0.245 ± 0.017", "0.105 ± 0.004"),
        ),
        "SGPR 512": published(
            _MD22,
            *("0.861 ± 0.006", "0.899 ± 0.012", "0.68 ± 0.003", "0.594 ± 0.011"),
            *("0.595 ± 0.03", "0.776 ± 0.011", "1.001 ± 0.048"),
        ),
        "SVGP 1024": published(
            _MD22,
            *("0.859 ± 0.005", "0.902 ± 0.011", "0.613 ± 0.002", "0.644 ± 0.012"),
            *("0.569 ± 0.039", "0.468 ± 0.048", "0.518 ± 0.036"),
        ),
    },
    notes=(
        "Data: potential energies of molecules (MD22) in kcal/mol from the positions of all atoms "
        "in Angstrom, three columns each. The files are downloaded, without a known checksum; see "
        "`gs.data.load`. A random tenth of the rows for testing; X and Y standardized with the "
        "training rows; 50 epochs. The paper prints 354 columns for AT-AT, which has 60 "
        "atoms and so 180. In the rows other than the paper's setting, lengthscales start at the "
        "median distances between rows (`initialization.median_lengthscales`).",
        *PROTOCOL,
    ),
)
