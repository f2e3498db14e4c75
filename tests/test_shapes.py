"""The shapes that public methods declare by ``check_shapes``, and that a wrong shape is refused."""

import inspect

import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.covariances import Kuf, Kuu

import gpflow_sparse as gs
from gpflow_sparse.inducing_variables.covariances import Kuv
from tests import battery

METHODS = (
    *("predict_f", "fused_predict_f", "predict_f_samples", "predict_y", "predict_log_density"),
    *("elbo", "maximum_log_likelihood_objective", "log_marginal_likelihood", "prior_kl"),
    *("leave_one_out_log_density", "compute_qu", "marginals_and_kl"),
    *("K", "K_diag", "_log_prob", "_predict_mean_and_var", "_predict_log_density"),
)
# Methods that only raise, and abstract ones.
WITHOUT = {"NearestNeighborGP.elbo", "NearestNeighborClassifier.elbo", "RegressionModel.elbo"}
OBJECTIVES = ("elbo", "log_marginal_likelihood", "leave_one_out_log_density", "_log_likelihoods")
MEMBERS = {**battery.MEMBERS, **battery.REGRESSIONS}
OURS = ("solvegp", "odvgp", "solvegp_separate", "basis_svgp", "qsgp", "swsgp", "deep", "solvegpr")
OURS += ("basis_gpr", "softki", "grief", "mixture", "gpnn", "gpnn_classes", "site_vgp")


def declaring():
    """Functions of ours that a GPflow user reads, by the class or the dispatcher that has them."""
    for place in (gs.models, gs.posteriors, gs.kernels, gs.likelihoods, gs.mean_functions):
        for kind in filter(inspect.isclass, (getattr(place, name) for name in dir(place))):
            names = (*METHODS, *["__call__"] * (place is gs.mean_functions))
            for base in kind.__mro__:
                if base.__module__.startswith("gpflow_sparse"):
                    own = vars(base)
                    yield from ((f"{base.__name__}.{n}", own[n]) for n in names if n in own)
    for dispatcher in (Kuu, Kuf, Kuv):
        for kinds, function in dispatcher.funcs.items():
            if function.__module__.startswith("gpflow_sparse") and function.__name__ != "refuse":
                yield f"{dispatcher.name}{[kind.__name__ for kind in kinds]}", function


def test_public_methods_declare_their_shapes():
    found = {name: hasattr(function, "__check_shapes__") for name, function in declaring()}
    assert len(found) > 60
    assert {name for name, declares in found.items() if not declares} == WITHOUT


@pytest.mark.parametrize("name", OURS)
def test_a_wrong_shape_is_refused(name, monkeypatch):
    member, X = MEMBERS[name], battery.inputs(seed=9, rows=3)
    model = member.build()
    posterior = model.posterior()
    mean, variance = posterior.predict_f(X)
    # a column of the mean is lost, as by an indexing mistake in a subclass
    monkeypatch.setattr(posterior, "predict", lambda *_: (mean[:, 0], variance))
    with pytest.raises(ShapeMismatchError, match=r"Posterior\.predict_f\n"):
        posterior.predict_f(X)
    with pytest.raises(ShapeMismatchError, match=r"Posterior\.fused_predict_f\n"):
        posterior.fused_predict_f(X)
    monkeypatch.setattr(model, "posterior", lambda *_: posterior)
    with pytest.raises(ShapeMismatchError, match=r"Model\.predict_f\n"):
        model.predict_f(X)
    for objective in filter(lambda name: hasattr(model, name), OBJECTIVES):
        monkeypatch.setattr(model, objective, lambda *_: [tf.zeros([2])])
    held = isinstance(model, gs.models.VariationalModel) or name == "softki"
    with pytest.raises(ShapeMismatchError, match="maximum_log_likelihood_objective"):
        model.maximum_log_likelihood_objective(*[member.data] * held)
