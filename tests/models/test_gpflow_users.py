"""What users of GPflow write: it works here too, or one sentence says what to write instead."""

import logging

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_sparse as gs

rng = np.random.default_rng(0)
X = rng.uniform(size=(60, 2))
Y = np.sin(6 * X[:, :1]) + 0.1 * rng.normal(size=(60, 1))


def noise():
    return gpflow.likelihoods.Gaussian(0.1)


def orthogonal(kind=gs.models.SOLVEGP):
    sets = gs.inducing_variables.OrthogonalInducingVariables(X[:8], X[-6:])
    return kind(gpflow.kernels.Matern52(), noise(), sets, num_data=len(X))


def neighbors(covariance="diag"):
    points = gs.inducing_variables.NeighborInducingPoints(X[:20], 5)
    return gs.models.SWSGP(
        gpflow.kernels.Matern52(), noise(), points, covariance=covariance, num_data=len(X)
    )


def sampled(**options):
    basis = gs.bases.RandomFourier(gpflow.kernels.Matern52(), 40)
    return gs.models.QSGP(basis, noise(), num_data=len(X), basis_batch_size=40, **options)


def interpolation():
    return gs.models.SoftKI(gpflow.kernels.Matern52(), X[:9], num_data=len(X))


class Scaled(gpflow.inducing_variables.InducingVariables):
    """A user's inducing variables, ``2 f(Z)``: GPflow's ``Kuu`` and ``Kuf`` are registered."""

    def __init__(self, Z):
        super().__init__()
        self.Z = gpflow.Parameter(Z)

    num_inducing = property(lambda self: tf.shape(self.Z)[0])
    shape = property(lambda self: (*self.Z.shape, 1))


@gpflow.covariances.Kuu.register(Scaled, gpflow.kernels.Kernel)
def _(inducing_variable, kernel, *, jitter=0.0):
    return 4.0 * kernel(inducing_variable.Z) + jitter * tf.eye(
        inducing_variable.num_inducing, dtype=tf.float64
    )


@gpflow.covariances.Kuf.register(Scaled, gpflow.kernels.Kernel, object)
def _(inducing_variable, kernel, X):
    return 2.0 * kernel(inducing_variable.Z, X)


def test_a_new_kind_of_inducing_variables_needs_one_covariance_with_each_other_kind():
    """A sentence says which to register; it serves both orders of the sets."""
    kernel, Kuv = gpflow.kernels.Matern52(), gs.inducing_variables.Kuv
    made = gs.inducing_variables.OrthogonalInducingVariables
    orders = [made(Scaled(X[:8]), X[-6:]), made(X[:8], Scaled(X[-6:]))]
    models = [gs.models.SOLVEGP(kernel, noise(), sets, num_data=len(X)) for sets in orders]
    for model, pair in zip(
        models, ["InducingPoints, Scaled", "Scaled, InducingPoints"], strict=True
    ):
        with pytest.raises(ValueError, match=rf"Kuv\.register\({pair}, gpflow\.kernels\.Kernel\)"):
            model.elbo((X, Y))
    Kuv.register(Scaled, gpflow.inducing_variables.InducingPoints, gpflow.kernels.Kernel)(
        lambda first, second, kernel: 2.0 * kernel(first.Z, second.Z)
    )
    plain = orthogonal()
    for model in models:  # scaled variables have the same span; the jitter is relative
        np.testing.assert_allclose(model.elbo((X, Y)), plain.elbo((X, Y)), rtol=1e-6)


def test_a_kernel_without_a_known_spectral_density_is_answered_with_what_to_write():
    sets = orthogonal().inducing_variable
    for kernel in (gpflow.kernels.Linear(), gpflow.kernels.RBF() + gpflow.kernels.White()):
        posterior = gs.models.SOLVEGP(kernel, noise(), sets).posterior()
        told = r"got (Linear|White): give its class a method draw_frequencies.*predict_f_samples"
        with pytest.raises(ValueError, match=told):
            posterior.sample_functions(2)


def wrapped(inducing):
    return gpflow.inducing_variables.SharedIndependentInducingVariables(inducing)


def test_gpflows_wrapper_of_shared_inducing_variables_is_taken_by_every_model():
    kernel, made = gpflow.kernels.Matern52(), gs.models
    sets, points = orthogonal().inducing_variable, neighbors().inducing_variable
    builders = [
        (lambda iv: made.SOLVEGP(kernel, noise(), iv), sets),
        (lambda iv: made.ODVGP(kernel, noise(), iv), sets),
        (lambda iv: made.SOLVEGPR((X, Y), kernel, iv), sets),
        (lambda iv: made.SWSGP(kernel, noise(), iv), points),
        (lambda iv: made.DeepGP([made.GPLayer(kernel, iv, num_latent_gps=1)], noise()), sets),
        (lambda iv: made.DeepGP([made.GPLayer(kernel, iv, num_latent_gps=1)], noise()), points),
    ]
    for build, inducing in builders:
        bounds = []
        for model in (build(inducing), build(wrapped(inducing))):
            data = () if isinstance(model, made.SOLVEGPR) else ((X, Y),)
            tf.random.set_seed(0)
            bounds.append(float(model.elbo(*data)))
        assert bounds[0] == bounds[1]


@pytest.mark.parametrize("build", [neighbors, sampled], ids=["SWSGP", "QSGP"])
def test_dense_variables_are_trained_alone_by_an_optimizer_of_keras(build):
    model = build()
    q = model.q_mu.numpy(), model.q_log_scale.numpy()
    noise_before, before = model.likelihood.variance.numpy(), -float(model.training_loss((X, Y)))
    adam = tf_keras.optimizers.Adam(0.01)
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y))
        gradients = tape.gradient(loss, model.dense_variables)
        adam.apply_gradients(zip(gradients, model.dense_variables, strict=True))
    assert -float(model.training_loss((X, Y))) > before
    assert model.likelihood.variance.numpy() != noise_before
    np.testing.assert_array_equal(model.q_mu, q[0])
    np.testing.assert_array_equal(model.q_log_scale, q[1])


def test_a_closure_of_drawn_functions_says_what_an_optimizer_would_do():
    basis = gs.bases.RandomFourier(gpflow.kernels.Matern52(), 40)
    model = gs.models.QSGP(basis, noise(), num_data=len(X), basis_batch_size=10)
    with pytest.raises(ValueError, match=r"would update q of all 40.*basis_batch_size=40"):
        model.training_loss_closure((X, Y))


ARGUMENTS = [
    (
        lambda: gs.models.SoftKI(gpflow.kernels.Matern52(), noise(), X[:5]),
        r"too many positional arguments; write SoftKI\(kernel, Z\) and, by name, noise_var",
    ),
    (
        lambda: gs.models.SoftKI(gpflow.kernels.Matern52(), X[:5], likelihood=noise()),
        r"write SoftKI\(kernel, Z\).*with noise_variance in place of likelihood\.",
    ),
    (
        lambda: gs.models.SoftKI(gpflow.kernels.Matern52(), inducing_variable=X[:5]),
        r"write SoftKI\(kernel, Z\).*with Z in place of inducing_variable\.",
    ),
    (
        lambda: gs.models.GRIEF((X, Y), gpflow.kernels.Matern52(), noise()),
        r"write GRIEF\(data, kernel\)",
    ),
    (
        lambda: gs.models.SOLVEGP(gpflow.kernels.Matern52(), noise()),
        r"write SOLVEGP\(kernel, likelihood, inducing_variable\)",
    ),
    (lambda: fit(learning_rate=0.1), r"optimizer=gs\.training\.adam\(learning_rate\) in place"),
    (lambda: fit(epochs=2), "with num_epochs in place of epochs"),
    (lambda: fit(steps=2), "with num_steps in place of steps"),
    (lambda: gs.training.fit(orthogonal(), X, Y), r"write fit\(model, \(X, Y\), num_steps=100"),
    (lambda: gs.training.fit(orthogonal(), X=X, Y=Y), r"\(X, Y\) in place of X"),
]


def test_arguments_of_another_package_are_answered_with_ours():
    for call, told in ARGUMENTS:
        with pytest.raises(ValueError, match=told):
            call()


def fit(**options):
    return gs.training.fit(orthogonal(), (X, Y), **options)


MODELS = {
    "SOLVEGP": orthogonal,
    "SWSGP": neighbors,
    "QSGP": sampled,
    "SoftKI": interpolation,
    "SVGP on our sets": lambda: gpflow.models.SVGP(
        gpflow.kernels.Matern52(), noise(), orthogonal().inducing_variable, num_data=len(X)
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
def test_a_users_function_compiles_without_warnings_of_autograph(build):
    """`tf.function` converts the functions it meets, and warns where it cannot."""
    model, heard = build(), []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    try:
        value = tf.function(lambda X, Y: model.elbo((X, Y)))(tf.constant(X), tf.constant(Y))
        if not isinstance(model, gs.models.SoftKI):  # predicts after fit_posterior
            mean, _ = tf.function(lambda x: model.predict_f(x))(tf.constant(X))
            np.testing.assert_allclose(mean, model.predict_f(X)[0], atol=1e-10)
    finally:
        tf.get_logger().removeHandler(handler)
    assert np.isfinite(value)
    assert [message for message in heard if "AutoGraph" in message] == []
