"""Orthogonal inducing sets: construction, refusals, dispatch, and the drop-in route."""

import os
import subprocess
import sys

import gpflow
import numpy as np
import pytest
from gpflow.inducing_variables import (
    InducingPatches,
    InducingPoints,
)

from gpflow_sparse.inducing_variables import Kuv, OrthogonalInducingVariables
from gpflow_sparse.models import SOLVEGP

Z, V = np.linspace(-1.0, 1.0, 8).reshape(4, 2), np.linspace(2.0, 3.0, 6).reshape(3, 2)

MULTIOUTPUT_KERNELS = {
    "shared": gpflow.kernels.SharedIndependent,
    "separate": gpflow.kernels.SeparateIndependent,
    "mixed": gpflow.kernels.LinearCoregionalization,
}


def multioutput_kernel(name):
    parts = [gpflow.kernels.Matern52(), gpflow.kernels.SquaredExponential()]
    if name == "shared":
        return gpflow.kernels.SharedIndependent(parts[0], output_dim=2)
    if name == "separate":
        return gpflow.kernels.SeparateIndependent(parts)
    return gpflow.kernels.LinearCoregionalization(parts, W=np.array([[1.0, 0.5], [0.2, 1.0]]))


def test_kuv_of_points_equals_numpy():
    kernel = gpflow.kernels.SquaredExponential(variance=1.7, lengthscales=[0.5, 2.0])
    scaled = (Z[:, None] - V[None]) / [0.5, 2.0]
    expected = 1.7 * np.exp(-0.5 * (scaled**2).sum(-1))
    got = Kuv(InducingPoints(Z), InducingPoints(V), kernel)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_kuv_of_patches_is_the_base_kernel_between_patches(rng):
    base = gpflow.kernels.SquaredExponential()
    kernel = gpflow.kernels.Convolutional(base, [4, 4], [2, 2])
    first, second = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
    got = Kuv(InducingPatches(first), InducingPatches(second), kernel)
    expected = np.exp(-0.5 * ((first[:, None] - second[None]) ** 2).sum(-1))
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("name", list(MULTIOUTPUT_KERNELS))
def test_multioutput_kernels_inside_one_another_are_refused_by_the_model_and_by_stock_svgp(name):
    made = OrthogonalInducingVariables(Z, V)
    kernel = gpflow.kernels.SharedIndependent(multioutput_kernel(name), 2)
    message = r"holds a \w+; its kernels must be single-output"
    with pytest.raises(ValueError, match=message):
        SOLVEGP(kernel, gpflow.likelihoods.Gaussian(), made, num_latent_gps=2)
    stock = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), made, num_latent_gps=2)
    for call in (
        lambda: stock.predict_f(Z),
        lambda: stock.posterior(),
        lambda: stock.prior_kl(),
        lambda: stock.elbo((Z, np.zeros((4, 2)))),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def run(code):
    """A fresh process; TensorFlow chatters on its standard error, so only the end is shown."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.nightly
def test_in_a_fresh_process_stock_svgp_finds_the_posterior():
    """One import is all that a user of the drop-in route writes."""
    out = run(
        "from gpflow_sparse.inducing_variables import OrthogonalInducingVariables\n"
        "import gpflow\n"
        "sets = OrthogonalInducingVariables([[0.0], [1.0]], [[0.5]])\n"
        "kernel = gpflow.kernels.Matern52(variance=1.5)\n"
        "m = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), sets)\n"
        "mean, var = m.predict_f([[0.3]])\n"
        "print(abs(mean.numpy().item()), round(var.numpy().item(), 8), abs(float(m.prior_kl())))\n"
    )
    assert out.split() == ["0.0", "1.5", "0.0"]  # q starts at the prior


def test_in_a_fresh_process_importing_the_package_alone_leaves_tensorflow_out():
    run(
        "import gpflow_sparse, sys\n"
        "assert gpflow_sparse.__version__\n"
        "assert 'tensorflow' not in sys.modules\n"
        "assert 'gpflow' not in sys.modules\n"
    )


@pytest.mark.nightly
def test_in_a_fresh_process_importing_everything_creates_no_tensor():
    """Threads and memory must still be configurable; TensorFlow refuses after the first tensor."""
    out = run(
        "import gpflow_sparse.data, gpflow_sparse.initialization, gpflow_sparse.models\n"
        "import gpflow_sparse.training\n"
        "import tensorflow as tf\n"
        "tf.config.threading.set_inter_op_parallelism_threads(1)\n"
        "tf.constant(1.0)\n"
        "try:\n"
        "    tf.config.threading.set_inter_op_parallelism_threads(2)\n"
        "except RuntimeError:\n"
        "    print('only now')\n"
    )
    assert out.split() == ["only", "now"]
