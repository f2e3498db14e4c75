"""Likelihoods that GPflow lacks or computes less accurately.

A site is one factor ``p(y_n | f_n)`` of a likelihood. If its logarithm is concave in ``f``, the
expectation over unbiased estimates of ``f`` is at most its value at ``f`` (Jensen's inequality), on
which bounds by sub-sampling are based.
"""

from gpflow_sparse._names import restrict_dir
from gpflow_sparse.likelihoods.bernoulli import BernoulliLogit
from gpflow_sparse.likelihoods.classes import OneVersusRest, Softmax
from gpflow_sparse.likelihoods.counts import NegativeBinomial, ZeroInflatedPoisson
from gpflow_sparse.likelihoods.heteroskedastic import HeteroskedasticGaussian
from gpflow_sparse.likelihoods.known_variance import GaussianWithKnownVariance
from gpflow_sparse.likelihoods.laplace import Laplace
from gpflow_sparse.likelihoods.missing import MissingOutputs
from gpflow_sparse.likelihoods.ordinal import OrderedProbit, Ordinal
from gpflow_sparse.likelihoods.quadrature import TrapezoidQuadrature
from gpflow_sparse.likelihoods.student_t import StudentT

__all__ = [
    "BernoulliLogit",
    "GaussianWithKnownVariance",
    "HeteroskedasticGaussian",
    "Laplace",
    "MissingOutputs",
    "NegativeBinomial",
    "OneVersusRest",
    "OrderedProbit",
    "Ordinal",
    "Softmax",
    "StudentT",
    "TrapezoidQuadrature",
    "ZeroInflatedPoisson",
]

restrict_dir(__name__, __all__)
