"""Papers whose tables can be run again; no TensorFlow until one is.

A paper is data sets, rows, published numbers, and one function that builds the model of a row: a
file of its own, and one more entry of ``PAPERS``. ``runner`` runs it, ``records`` keeps what was
run, ``table`` prints it.
"""

from gpflow_sparse.experiments.papers.solvegp import SOLVEGP_PAPER
from gpflow_sparse.experiments.papers.spec import Paper

PAPERS: dict[str, Paper] = {paper.name: paper for paper in (SOLVEGP_PAPER,)}
