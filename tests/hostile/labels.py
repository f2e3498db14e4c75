"""Kinds of Y against the likelihoods, whose support decides which of them mean something."""

from collections.abc import Iterator

import numpy as np
from gpflow import likelihoods

from gpflow_sparse.likelihoods import BernoulliLogit, Laplace
from tests.hostile.judging import N, Verdict, X, Y, captured, judge, seeded
from tests.hostile.orthogonal import model


def column(*values):
    return np.resize(np.array(values, dtype=float), (N, 1))


INDEX = column(0, 1)
CASES = {
    "Bernoulli": (likelihoods.Bernoulli, 1, column(0, 1)),
    "BernoulliLogit": (BernoulliLogit, 1, column(0, 1)),
    "Poisson": (likelihoods.Poisson, 1, column(0, 3, 1)),
    "Poisson binned": (lambda: likelihoods.Poisson(binsize=0.5), 1, column(0, 3, 1)),
    "Exponential": (likelihoods.Exponential, 1, column(0.5, 2)),
    "Gamma": (likelihoods.Gamma, 1, column(0.5, 2)),
    "Beta": (likelihoods.Beta, 1, column(0.2, 0.7)),
    "Ordinal": (lambda: likelihoods.Ordinal(np.array([-0.5, 0.5])), 1, column(0, 1, 2)),
    "MultiClass": (lambda: likelihoods.MultiClass(3), 3, column(0, 1, 2)),
    "Softmax": (lambda: likelihoods.Softmax(3), 3, column(0, 1, 2)),
    "StudentT": (likelihoods.StudentT, 1, column(-3, 0.5)),
    "Laplace": (Laplace, 1, column(-3, 0.5)),
    "Switched": (
        lambda: likelihoods.SwitchedLikelihood([likelihoods.Gaussian(), likelihoods.StudentT()]),
        1,
        np.hstack([Y, INDEX]),
    ),
    "Heteroskedastic": (likelihoods.HeteroskedasticTFPConditional, 2, Y),
}
# Kinds of Y, and the likelihoods that can take them.
REALS = ("StudentT", "Laplace", "Heteroskedastic")
LABELS = {
    "minus_one_and_one": (lambda G: column(-1, 1), REALS),
    "negative": (lambda G: column(-2, -3), REALS),
    "halves": (lambda G: column(0.5), (*REALS, "Exponential", "Gamma", "Beta")),
    "huge": (lambda G: column(1e12), (*REALS, "Poisson", "Poisson binned", "Exponential", "Gamma")),
    "one_based": (
        lambda G: column(1, 2, 3),
        (*REALS, "Poisson", "Poisson binned", "Exponential", "Gamma"),
    ),
    "zeros": (lambda G: column(0), tuple(set(CASES) - {"Gamma", "Beta", "Switched"})),
    "ones": (lambda G: column(1), tuple(set(CASES) - {"Beta", "Switched"})),
    "one_hot": (lambda G: np.eye(3)[np.arange(N) % 3], ()),
    "two_columns": (lambda G: np.hstack([G[:, :1], G[:, :1]]), ()),
    "rank_1": (lambda G: G[:, 0], ()),
    "one_row": (lambda G: G[:1], ()),
    "nan": (lambda G: np.full_like(G, np.nan), ()),
    "strings": (lambda G: G.astype(str), ()),
    "objects": (lambda G: G.astype(object), ()),
    "bool": (
        lambda G: column(0, 1).astype(bool),
        tuple(set(CASES) - {"Gamma", "Beta", "Switched"}),
    ),
    "integers": (lambda G: G.astype(int), tuple(set(CASES) - {"Beta", "Gamma"})),
    "float32": (lambda G: G.astype(np.float32), tuple(CASES)),
    "good": (lambda G: G, tuple(CASES)),
}
LABEL_DOORS = {
    "elbo": lambda m: lambda y: m.elbo((X, y)),
    "training_loss_closure": lambda m: lambda y: m.training_loss_closure((X, y), compile=False)(),
    "predict_log_density": lambda m: seeded(lambda y: m.predict_log_density((X, y))),
    "captured: elbo": lambda m: captured(lambda y: m.elbo((X, y))),
}


def labels(cases=CASES, doors=LABEL_DOORS) -> Iterator[tuple[str, str, Verdict]]:
    for case in cases:
        make_likelihood, latents, good = CASES[case]

        def build(make_likelihood=make_likelihood, latents=latents):
            return model(likelihood=make_likelihood(), num_latent_gps=latents)

        for kind, (make, takers) in LABELS.items():
            for door, bind in doors.items():
                value = make(good)
                fits = case in takers
                call = seeded(lambda y, bind=bind, build=build: bind(build())(y))
                names = ("Y", "Ordinal")
                clean = value.astype(np.float64) if fits else None
                yield kind, f"{case}: {door}", judge(call, value, clean, names=names)
