"""The benchmarks of convolutional models: the work is the same in each way it is done."""

import json
import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from gpflow.covariances import Kuf, Kuu

from bench import commands, image_variants, steps
from bench.image_variants import GPFLOW, ONE_SHOT, OURS, Images
from gpflow_sparse.models import SOLVEGP

TINY = Images(5, 7, 3, num_classes=4, num_inducing=6, num_orthogonal=5)


def test_covariances_are_the_same_in_every_way():
    found = [
        image_variants.covariance_step(TINY.X, images=TINY, way=way)()
        for way in (OURS, ONE_SHOT, GPFLOW)
    ]
    assert [K.shape for K in found[0]] == [(11, 5), (5,)]
    for one, *others in zip(*found, strict=True):
        for other in others:
            np.testing.assert_allclose(one, other, rtol=1e-10)


def test_gradients_are_the_same_in_one_shot():
    (value, gradients), (other, others) = (
        image_variants.covariance_step(TINY.X, images=TINY, way=way, gradient=True)()
        for way in (OURS, ONE_SHOT)
    )
    np.testing.assert_allclose(value, other, rtol=1e-10)
    assert len(gradients) == 4  # patches, weights, lengthscale, variance
    for mine, theirs in zip(gradients, others, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)
        assert np.abs(mine).max() > 0.0


def test_models_with_stored_covariances_are_the_models():
    (whole, data), (stored, _) = (image_variants.image_models(TINY, s) for s in (False, True))
    assert list(whole) == list(stored)
    whole, stored = list(whole.values()), list(stored.values())
    assert [type(model) for model in whole] == [SOLVEGP, gpflow.models.SVGP, SOLVEGP]
    sizes = [model.inducing_variable.sizes for model in (whole[0], whole[2])]
    assert sizes == [(6, 5), (11,)]
    for one, other in zip(whole, stored, strict=True):
        np.testing.assert_allclose(one.elbo(data), other.elbo(data), rtol=1e-9)
    # the same at another q, so that Kuf counts
    mean = np.random.default_rng(0).normal(size=(11, 4))
    for models in (whole, stored):
        models[1].q_mu.assign(mean)
    np.testing.assert_allclose(whole[1].elbo(data), stored[1].elbo(data), rtol=1e-9)


def test_what_is_stored_is_trained_and_not_evaluated_again():
    models, data = image_variants.image_models(TINY, True)
    model = next(iter(models.values()))
    points = model.inducing_variable.sets[0]
    before = Kuf(points, model.kernel, data[0]).numpy()
    model.kernel.base_kernel.lengthscales.assign(1.0)
    np.testing.assert_array_equal(Kuf(points, model.kernel, data[0]), before)
    np.testing.assert_array_equal(model.kernel(data[0], full_cov=False), model.kernel.stored)
    assert np.ptp(Kuu(points, model.kernel).numpy()) > 0.0
    shapes = [tuple(v.shape) for v in model.trainable_variables]
    assert {(6, 5), (5, 5), (5,)} <= set(shapes)  # of both sets, and the variances
    with tf.GradientTape() as tape:
        loss = model.training_loss(data)
    assert all(g is not None for g in tape.gradient(loss, model.trainable_variables))


@pytest.mark.nightly
def test_steps_of_two_layers():
    steps = image_variants.two_layers(2, 10, (4, 3))
    assert list(steps) == ["SOLVE-GP(4+4, 3+3)", "SVGP(8, 6)", "SVGP(4, 3)"]
    loss, gradients = steps["SOLVE-GP(4+4, 3+3)"]()()
    assert np.isfinite(loss)
    shapes = [tuple(g.shape) for g in gradients]
    assert shapes.count((4, 75)) == shapes.count((3, 160)) == 2  # patches of both layers


def test_the_benchmarks_on_the_command_line(monkeypatch):
    """With sizes of images that are asked for; what is measured is tested above."""
    asked = []

    def times(variants, repeats, reference):
        assert repeats == 2
        return [{"title": title, "ratio": 1.0 + (title != reference)} for title in variants]

    def memory(title, prepare, build, calls):
        asked.append(build.keywords["images"])
        return {"title": title}

    monkeypatch.setattr(image_variants, "time_in_turn", times)
    monkeypatch.setattr(image_variants, "measure_memory", memory)
    command = ["step", "conv", "--num-inducing", "4", "--num-orthogonal", "3"]
    command += ["--batch-size", "5", "--repeats", "2"]
    result = CliRunner().invoke(commands.bench, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    ways = [f"Kuf and Kdiag, {way}" for way in (OURS, ONE_SHOT, GPFLOW)]
    covariances = [*(f"{way}, with gradient" for way in ways[:2]), *ways]
    models = ("SOLVE-GP(4+3)", "GPflow SVGP(7)", "SVGP(7) on our factorization")
    parts = ("whole step", "outside Kuf and Kdiag")
    assert {name: [row["title"] for row in rows] for name, rows in found.items()} == {
        "kernels": covariances,
        "steps": [f"{model}, {part}" for part in parts for model in models],
        "deep": ["SOLVE-GP(128+128, 320+320)", "SVGP(256, 640)", "SVGP(128, 320)"],
    }
    assert [rows[1]["ratio"] for rows in found.values()] == [1.0, 1.0, 1.0]
    result = CliRunner().invoke(commands.bench, [*command, "--memory", "--float32"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["memory"]
    assert [row["title"] for row in rows] == covariances
    assert asked == [Images(5, num_inducing=4, num_orthogonal=3)] * 5


@pytest.mark.nightly
def test_memory_is_measured_of_the_same_work(monkeypatch):
    peaks = []

    def in_this_process(title, prepare, build, calls):
        work = pickle.dumps((prepare, build))
        peaks.append(steps.grow(work, calls, True)["peak"])
        return {"title": title}

    monkeypatch.setattr(image_variants, "measure_memory", in_this_process)
    image_variants.covariance_memory(TINY)
    assert len(peaks) == 5
