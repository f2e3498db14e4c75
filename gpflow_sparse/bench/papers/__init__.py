"""Papers whose tables can be run again; no TensorFlow until one is.

A paper is data sets, rows, published numbers, and one function that builds or fits the model of a
row: a file of its own, and one more entry of ``PAPERS``. What kind of table it is, ``stepwise``
(Adam on one split), ``splits`` (means over published splits), ``curves`` (steps on a published
split, with learning curves) or ``timed`` (minutes, with learning curves), says how a task is run
and printed; ``runner`` runs the tasks of any kind within a budget of time, and ``records`` keeps
what was run.
"""

from gpflow_sparse.bench.papers.conv import CONV_PAPER
from gpflow_sparse.bench.papers.grief import GRIEF_PAPER
from gpflow_sparse.bench.papers.qsgp import QSGP_PAPER
from gpflow_sparse.bench.papers.softki import SOFTKI_PAPER, SOFTKI_VALIDATION
from gpflow_sparse.bench.papers.softki_dimension import SOFTKI_ARMS, SOFTKI_MD22
from gpflow_sparse.bench.papers.solvegp import SOLVEGP_PAPER
from gpflow_sparse.bench.papers.spec import Paper
from gpflow_sparse.bench.papers.swsgp import SWSGP_PAPER, SWSGP_UNION

_ALL: tuple[Paper, ...] = (
    SOLVEGP_PAPER,
    GRIEF_PAPER,
    QSGP_PAPER,
    *(SOFTKI_PAPER, SOFTKI_VALIDATION, SOFTKI_ARMS, SOFTKI_MD22),
    *(SWSGP_PAPER, SWSGP_UNION),
    CONV_PAPER,
)
PAPERS: dict[str, Paper] = {paper.name: paper for paper in _ALL}
