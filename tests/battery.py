"""Every model of the package that the battery runs over; a new method adds one line below."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP

N, D = 12, 2


def inputs(seed=1, rows=N):
    return np.random.default_rng(seed).normal(size=(rows, D))


def reals(P):
    return lambda: (
        np.sin(2.0 * inputs()[:, :1]) + 0.3 * np.random.default_rng(2).normal(size=(N, P))
    )


def labels():
    return (inputs()[:, :1] > 0).astype(float)


def classes():
    return np.arange(float(N))[:, None] % 3


class Member(NamedTuple):
    """How to build a model of one kind, and what the battery may expect of it."""

    build: Callable[..., gpflow.models.GPModel]
    """``build(num_data=None)``: the same model at every call, not yet trained."""
    outputs: Callable[[], np.ndarray]
    """``Y [N, P]`` for :func:`inputs`."""
    guarded: bool = True
    """Whether the model is ours; stock GPflow models run without our guards."""
    float32: bool = True
    """Whether float32 is supported away from the prior; un-whitened models say no."""

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return inputs(), self.outputs()


def solvegp(sizes=(5, 4), *, model=SOLVEGP, P=1, likelihood=None, **fixed) -> Callable[..., Any]:
    """A builder of a model over orthogonal sets; the drop-in form if ``model`` is stock SVGP."""

    def build(num_data=None):
        rng = np.random.default_rng(3)
        return model(
            gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.8, 1.2]),
            gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood(),
            OrthogonalInducingVariables(*(rng.normal(size=(M, D)) for M in sizes)),
            mean_function=gpflow.functions.Linear(np.full((D, P), 0.2), np.full(P, 0.5)),
            num_latent_gps=P,
            num_data=num_data,
            **fixed,
        )

    return build


def multiclass():
    return gpflow.likelihoods.MultiClass(3)


MEMBERS = {
    "solvegp": Member(solvegp(P=2), reals(2)),
    "solvegp_unwhitened": Member(solvegp(P=2, whiten=False), reals(2), float32=False),
    "solvegp_three_sets": Member(solvegp((5, 3, 2)), reals(1)),
    "solvegp_bernoulli": Member(solvegp(likelihood=gpflow.likelihoods.Bernoulli), labels),
    "solvegp_multiclass": Member(solvegp(P=3, likelihood=multiclass), classes),
    "stock_svgp": Member(solvegp(model=gpflow.models.SVGP, P=2), reals(2), guarded=False),
}


def perturb(model, seed=4, scale=0.3):
    """Move every trainable variable at random, so that no special case hides a mistake."""
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add((scale * rng.normal(size=variable.shape)).astype(variable.dtype.name))
    return model
