"""Multi-output kernels: against one model per latent function, GPflow, and the definition."""

import gpflow
import numpy as np
import pytest

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models import ODVGP, SOLVEGP
from tests.models.test_solvegp import data, randomize, sets

FLAGS = [(False, False), (True, False), (False, True), (True, True)]
W = np.array([[1.0, 0.3], [-0.5, 0.8], [0.2, 0.6]])


def latents():
    return [gpflow.kernels.Matern52(lengthscales=0.7), gpflow.kernels.SquaredExponential()]


def kernels():
    return {
        "shared": gpflow.kernels.SharedIndependent(gpflow.kernels.Matern32(), 3),
        "separate": gpflow.kernels.SeparateIndependent(latents()),
        "mixed": gpflow.kernels.LinearCoregionalization(latents(), W=W),
    }


every_kernel = pytest.mark.parametrize("name", list(kernels()))


def build(kernel, rng, model=SOLVEGP, inducing=None, **options):
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    inducing = OrthogonalInducingVariables(*(inducing or sets(rng)))
    made = model(kernel, likelihood, inducing, **options)
    for q_mu in made.q_mu:
        q_mu.assign(rng.normal(size=q_mu.shape))
    return randomize(made, rng)


def outputs_of(model, rng, N=9):
    return data(rng, N=N, P=model.num_outputs)


def single_models(model):
    """One model per latent function, with its kernel and its columns of q."""
    kernel = model.kernel
    each = [kernel.kernel] * 3 if hasattr(kernel, "kernel") else kernel.kernels
    return [
        type(model)(
            k,
            model.likelihood,
            model.inducing_variable,
            whiten=model.whiten,
            q_mu=[q.numpy()[:, i : i + 1] for q in model.q_mu],
            q_sqrt=[q.numpy()[i : i + 1] for q in model.q_sqrt],
        )
        for i, k in enumerate(each)
    ]


@pytest.mark.parametrize(
    ("name", "model", "whiten"),
    [
        *((name, SOLVEGP, name != "mixed") for name in kernels()),
        *(("separate", ODVGP, False), ("mixed", ODVGP, True), ("mixed", SOLVEGP, True)),
    ],
)
def test_outputs_are_the_mixture_of_single_output_models(rng, name, whiten, model):
    """``mean = W E[g]`` and ``cov[f_p(x), f_q(x')] = sum_l W_pl W_ql cov[g_l(x), g_l(x')]``."""
    model = build(kernels()[name], rng, model, whiten=whiten)
    singles = single_models(model)
    X, Y = outputs_of(model, rng)
    weights = W if name == "mixed" else np.eye(len(singles))
    parts = [single.predict_f(X, full_cov=True) for single in singles]
    mean = np.concatenate([m for m, _ in parts], axis=1) @ weights.T
    g = np.stack([c.numpy()[0] for _, c in parts])
    cov = np.einsum("pl,ql,lnm->npmq", weights, weights, g)
    diagonal = np.einsum("npnq->npq", cov)
    expected = {
        (True, True): cov,
        (True, False): np.einsum("npmp->pnm", cov),
        (False, True): diagonal,
        (False, False): np.einsum("npp->np", diagonal),
    }
    for predict in (model.predict_f, model.posterior().predict_f):
        for flags in FLAGS:
            got = predict(X, *flags)
            np.testing.assert_allclose(got[0], mean, atol=1e-9)
            np.testing.assert_allclose(got[1], expected[flags], atol=1e-9)
    np.testing.assert_allclose(
        model.prior_kl(), sum(float(single.prior_kl()) for single in singles), rtol=1e-10
    )
    expectations = model.likelihood.variational_expectations(X, mean, expected[(False, False)], Y)
    np.testing.assert_allclose(
        model.elbo((X, Y)), np.sum(expectations) - float(model.prior_kl()), rtol=1e-10
    )


@every_kernel
def test_one_set_equals_gpflow_on_shared_points(rng, name):
    """With the same jitter: unit variances, where relative and absolute agree."""
    Z = sets(rng)[0]
    model = build(kernels()[name], rng, inducing=[Z])
    points = gpflow.inducing_variables.InducingPoints(Z)
    stock = gpflow.models.SVGP(
        model.kernel,
        model.likelihood,
        gpflow.inducing_variables.SharedIndependentInducingVariables(points),
        num_latent_gps=model.num_latent_gps,
        q_mu=model.q_mu[0],
        q_sqrt=model.q_sqrt[0],
    )
    X, Y = outputs_of(model, rng)
    np.testing.assert_allclose(model.elbo((X, Y)), stock.elbo((X, Y)), rtol=1e-9)
    for flags in FLAGS:
        for a, b in zip(model.predict_f(X, *flags), stock.predict_f(X, *flags), strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, atol=1e-9)


def test_conflicts_are_refused(rng):
    likelihood, inducing = gpflow.likelihoods.Gaussian(), OrthogonalInducingVariables(*sets(rng))
    separate, mixed = kernels()["separate"], kernels()["mixed"]
    k, rough = gpflow.kernels, gpflow.kernels.Matern32
    for kernel, message, options in (
        (separate, "num_latent_gps must be 2, the number of latent", {"num_latent_gps": 3}),
        (mixed, "num_latent_gps must be 2", {"num_latent_gps": 3}),
        (mixed, "num_latent_gps must be 2", {"num_latent_gps": 1}),
        (k.LinearCoregionalization(latents(), W=np.ones((3, 4))), r"shape \[P, 2\]", {}),
        (k.SharedIndependent(separate, 2), r"its kernels must be single-output", {}),
        (k.SeparateIndependent([rough(active_dims=[5])] * 2), r"kernel.kernels\[0\]", {}),
        (k.SharedIndependent(rough(lengthscales=np.ones(5)), 2), r"kernel.kernel\b", {}),
    ):
        for model in (SOLVEGP, ODVGP):
            with pytest.raises(ValueError, match=message):
                model(kernel, likelihood, inducing, **options)
    with pytest.raises(ValueError, match="must be 3 for this"):
        SOLVEGP(separate, gpflow.likelihoods.MultiClass(3), inducing)
    model = SOLVEGP(mixed, likelihood, inducing)
    with pytest.raises(ValueError, match=r"Y must have 3 column\(s\)"):
        model.elbo(data(rng, P=2))
    model.kernel = separate
    assert model.posterior().predict_f(np.zeros((1, 2)))[0].shape == (1, 2)
    model.kernel = kernels()["shared"]
    with pytest.raises(ValueError, match="num_latent_gps must be 3"):
        model.predict_f(np.zeros((1, 2)))
