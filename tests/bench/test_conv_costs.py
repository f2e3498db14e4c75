"""What convolutional models cost: the work is the same in each way it is done, and is reported."""

import json

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from gpflow.covariances import Kuf, Kuu

from gpflow_sparse.bench import conv_deep_steps, conv_kernels, conv_memory, conv_steps
from gpflow_sparse.bench.conv_sizes import (
    GPFLOW,
    ONE_SHOT,
    OURS,
    DeepSizes,
    ImageSizes,
    KernelMemory,
)
from gpflow_sparse.cli import main
from gpflow_sparse.models import SOLVEGP, DeepGP

TINY = ImageSizes(5, 7, 3, num_classes=4, num_inducing=6, num_orthogonal=5)
DEEP = DeepSizes(num_images=2, image_size=10, hidden=4, last=3)


def test_covariances_are_the_same_in_every_way():
    X, works = conv_kernels.made_work(TINY)
    assert set(works) == {OURS, ONE_SHOT, GPFLOW}
    found = {title: work.forward(X)() for title, work in works.items()}
    cross, own = found[OURS]
    assert cross.shape == (11, 5)
    assert own.shape == (5,)
    for title in (ONE_SHOT, GPFLOW):
        np.testing.assert_allclose(found[title][0], cross, rtol=1e-10)
        np.testing.assert_allclose(found[title][1], own, rtol=1e-10)


def test_gradients_are_the_same_in_one_shot():
    X, works = conv_kernels.made_work(TINY)
    (value, gradients), (other, others) = (works[t].gradient(X)() for t in (OURS, ONE_SHOT))
    np.testing.assert_allclose(value, other, rtol=1e-10)
    assert len(gradients) == 4  # patches, weights, lengthscale, variance
    for mine, theirs in zip(gradients, others, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)
        assert np.abs(mine).max() > 0.0


def test_ratios_are_those_asked_for():
    times = [
        conv_kernels.KernelTime(OURS, True, 10.0),
        conv_kernels.KernelTime(ONE_SHOT, True, 20.0),
        conv_kernels.KernelTime(OURS, False, 3.0),
        conv_kernels.KernelTime(ONE_SHOT, False, 12.0),
        conv_kernels.KernelTime(GPFLOW, False, 4.0),
    ]
    assert list(conv_kernels.kernel_ratios(times).values()) == [0.5, 0.25, 0.75]


def test_models_with_stored_covariances_are_the_models():
    whole, data = conv_steps.made_models(TINY, stored=False)
    stored, _ = conv_steps.made_models(TINY, stored=True)
    assert [type(model) for model in whole] == [SOLVEGP, gpflow.models.SVGP, SOLVEGP]
    sizes = [model.inducing_variable.sizes for model in (whole[0], whole[2])]
    assert sizes == [(6, 5), (11,)]
    for one, other in zip(whole, stored, strict=True):
        np.testing.assert_allclose(one.elbo(data), other.elbo(data), rtol=1e-9)
    # the same at another q, so that Kuf counts
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(11, 4))
    for models in (whole, stored):
        models[1].q_mu.assign(mean)
    np.testing.assert_allclose(whole[1].elbo(data), stored[1].elbo(data), rtol=1e-9)


def test_what_is_stored_is_trained_and_not_evaluated_again(monkeypatch):
    (model, *_), data = conv_steps.made_models(TINY, stored=True)
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


def test_steps_of_one_layer():
    steps = conv_steps.image_steps(TINY, repeats=1)
    assert [(step.title, step.part) for step in steps] == [
        (title, part)
        for part in (conv_steps.WHOLE, conv_steps.ALGEBRA)
        for title in ("SOLVE-GP(6+5)", "GPflow SVGP(11)", "SVGP(11) on our factorization")
    ]
    for part in (steps[:3], steps[3:]):
        assert part[1].ratio == 1.0
        for step in part:
            np.testing.assert_allclose(step.ratio, step.milliseconds / part[1].milliseconds)


def test_models_of_two_layers():
    model = conv_deep_steps.two_layers(10, np.random.default_rng(0), (4, 3), 2)
    assert isinstance(model, DeepGP)
    assert model.layers[0].output_shape == (6, 6, 10)
    assert model.layers[1].kernel.grid.shape == (2, 2)
    assert [layer.inducing_variable.sizes for layer in model.layers] == [(4, 4), (3, 3)]
    assert [layer.whiten for layer in model.layers] == [False, False]
    steps = conv_deep_steps.deep_steps(DEEP, repeats=1)
    titles = ["SOLVE-GP(4+4, 3+3)", "SVGP(8, 6)", "SVGP(4, 3)"]
    assert [step.title for step in steps] == titles
    assert steps[1].ratio == 1.0


@pytest.fixture
def here(monkeypatch):
    """Measure in this process: another takes seconds to begin."""
    monkeypatch.setattr(conv_memory, "in_own_process", lambda work, *rest: work(*rest))
    monkeypatch.setattr(conv_memory, "_REHEARSED", 1)


def test_memory_is_measured_of_each_way(here):
    found = conv_memory.kernel_memory(TINY, float32=False)
    assert [(row.title, row.gradient) for row in found] == [
        (OURS, True),
        (ONE_SHOT, True),
        (OURS, False),
        (ONE_SHOT, False),
        (GPFLOW, False),
    ]
    assert all(row.peak > -1e3 for row in found)


def test_the_step_benchmark_of_images_on_the_command_line(monkeypatch):
    """What is measured is tested above; here with which sizes, and what is printed."""
    asked = []

    def times(sizes, *, repeats):
        asked.append((sizes, repeats))
        keys = ((OURS, True), (ONE_SHOT, True), (OURS, False), (ONE_SHOT, False), (GPFLOW, False))
        return [conv_kernels.KernelTime(*key, 2.0) for key in keys]

    def steps(sizes, *, repeats):
        asked.append((sizes, repeats))
        return [conv_steps.ImageStep("SOLVE-GP(4+3)", conv_steps.WHOLE, 12.0, 0.8)]

    def deep(sizes, *, repeats):
        return [conv_deep_steps.DeepStep("SVGP(8, 6)", 34.0, 1.0)]

    def memory(sizes, *, float32):
        asked.append((sizes, float32))
        return [KernelMemory(OURS, True, 144.4)]

    monkeypatch.setattr(conv_kernels, "kernel_times", times)
    monkeypatch.setattr(conv_steps, "image_steps", steps)
    monkeypatch.setattr(conv_deep_steps, "deep_steps", deep)
    monkeypatch.setattr(conv_memory, "kernel_memory", memory)
    options = ["--num-inducing", "4", "--num-orthogonal", "3", "--batch-size", "5"]
    result = CliRunner().invoke(main, ["bench", "step", "conv", *options, "--repeats", "2"])
    assert result.exit_code == 0, result.output
    sizes = ImageSizes(num_images=5, num_inducing=4, num_orthogonal=3)
    assert asked == [(sizes, 2), (sizes, 2)]
    record = json.loads(result.stdout.splitlines()[-1])
    assert [len(record[name]) for name in ("kernels", "steps", "deep")] == [5, 1, 1]
    assert record["steps"][0]["ratio"] == 0.8
    assert record["ratios"]["value, ours over GPflow Convolutional"] == 1.0
    for text in ("GPflow Convolutional", "whole step", "SVGP(8, 6)"):
        assert text in result.stdout
    result = CliRunner().invoke(main, ["bench", "step", "conv", "--memory", "--float32"])
    assert result.exit_code == 0, result.output
    assert asked[-1] == (ImageSizes(), True)  # 64 images, 500 + 500 patches
    (row,) = json.loads(result.stdout.splitlines()[-1])["memory"]
    assert (row["title"], row["gradient"], row["peak"]) == (OURS, True, 144.4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input-dim", "3"], "--input-dim is not for conv"),
        (["--surface"], "--surface is for swsgp, not for conv."),
        (["--num-basis", "9"], "--num-basis is for qsgp, not for conv."),
    ],
)
def test_options_that_are_not_for_images(options, message):
    result = CliRunner().invoke(main, ["bench", "step", "conv", *options])
    assert result.exit_code == 1
    assert message in result.output
