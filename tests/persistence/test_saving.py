"""What a file cannot hold is refused when saving, by name, and nothing is written."""

import os
import stat
from types import SimpleNamespace

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_sparse as gs
from gpflow_sparse.models import GRIEF, BasisGPR
from gpflow_sparse.persistence import files
from gpflow_sparse.persistence.codec import Encoder
from gpflow_sparse.persistence.differences import first_difference
from gpflow_sparse.persistence.saving import save_of_run
from gpflow_sparse.training import fit
from tests import battery
from tests.hostile.judging import on_disk
from tests.persistence import zoo


def with_attribute(owner, name, value):
    def build():
        model = zoo.svgp()
        setattr(owner(model), name, value)
        return model

    return build


def unconstrained(transform):
    return gpflow.Parameter(0.5, transform=transform)


def traced_tensor():
    """A tensor that a compiled function left behind."""
    left = []
    tf.function(lambda: left.append(tf.constant(1.0) + 1.0), autograph=False)()
    return left[0]


def deep(levels):
    value = 1
    for _ in range(levels):
        value = (value,)
    return value


def changing():
    """A module that does not keep what is set."""

    class Changing(gpflow.Module):
        def __setattr__(self, name, value):
            super().__setattr__(name, value + 1 if name == "count" else value)

    module = Changing()
    module.count = 1
    return module


def square(x):
    return x**2


def inline():
    return tfp.bijectors.Inline(forward_fn=square, inverse_fn=tf.sqrt, forward_min_event_ndims=0)


whole = lambda model: model  # noqa: E731
kernel = lambda model: model.kernel  # noqa: E731
likelihood = lambda model: model.likelihood  # noqa: E731


NOT_HELD = [
    (
        with_attribute(likelihood, "invlink", lambda x: x),
        r"model\.likelihood\.invlink is a lambda.*holds no code.*tf\.exp.*classes=\[",
    ),
    (
        with_attribute(likelihood, "invlink", square),
        r"model\.likelihood\.invlink is the function square",
    ),
    (
        with_attribute(whole, "compiled", tf.function(square)),
        r"model\.compiled is a compiled function.*delete it",
    ),
    (
        with_attribute(kernel, "notes", [1, {"a": {1, 2}}]),
        r"model\.kernel\.notes\[1\]\['a'\] is a builtins\.set",
    ),
    (
        with_attribute(kernel, "variance", unconstrained(inline())),
        r"model\.kernel\.variance\.transform is a Inline.*use one that TensorFlow Prob",
    ),
    (with_attribute(whole, "when", np.array(["now"])), r"model\.when is an array of str"),
    (
        with_attribute(whole, "names", np.array([object()])),
        r"model\.names is an array of object",
    ),
    (with_attribute(whole, "words", tf.constant(["a"])), r"model\.words is an array of object"),
    (with_attribute(whole, "left", traced_tensor()), r"model\.left is a tensor of a tf\.func"),
    (with_attribute(whole, "deep", deep(150)), r"model\.deep(\[0\])+ is nested too deeply"),
    (with_attribute(whole, "many", tuple([0] * 200_000)), r"model\.many\[\d+\] is .* too many"),
    (with_attribute(whole, "predict_f", 1), r"could not be loaded again: 'predict_f' would"),
    (
        with_attribute(whole, "part", changing()),
        r"because model\.part\.count would come back ch",
    ),
    (with_attribute(whole, "kernel", None), r"model\.kernel must be a Kernel"),
    (gpflow.kernels.Matern52, "model must be a GPflow model, got Matern52"),
    (
        lambda: SimpleNamespace(model_=zoo.svgp()),
        r"got SimpleNamespace, whose model is its .mod",
    ),
]


def test_what_a_file_cannot_hold_is_refused_by_name(tmp_path):
    for build, message in NOT_HELD:
        with pytest.raises(ValueError, match=message):
            gs.save(build(), tmp_path / "folder" / "model")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            with_attribute(whole, "part", changing()),
            r"because model\.part\.count would come back ch",
        ),
        (
            with_attribute(whole, "predict_f", 1),
            r"because it could not be loaded again: 'predict_f",
        ),
    ],
)
def test_the_model_of_a_run_is_written_whatever_comes_back_of_it(build, message, tmp_path):
    model, path = build(), tmp_path / "model"
    with pytest.warns(UserWarning, match=rf"model is written, but .*, {message}"):
        save_of_run(model, path)
    _, arrays = files.read(path)
    assert any(np.array_equal(array, model.inducing_variable.Z) for array in arrays.values())


def other_float(model):
    model.jitter = 2e-6


def other_array(model):
    model.inducing_variable.Z.assign_add(np.eye(*model.inducing_variable.Z.shape))


def other_list(model):
    model.notes.append(3)


def other_sharing(model):
    model.twin = gpflow.utilities.deepcopy(model.kernel)


def other_prior(model):
    model.kernel.lengthscales.prior = tfp.distributions.Normal(0.0, 2.0)


def without_attribute(model):
    del model.q_mu


CHANGES = [
    (other_float, "model.jitter"),
    (other_array, "model.inducing_variable.Z"),
    (other_list, "model.notes"),
    (other_sharing, "model.twin"),
    (without_attribute, "model.q_mu"),
    (other_prior, "model.kernel.lengthscales.prior.scale"),
    (lambda model: None, "the order of the attributes of model"),
]


def test_the_value_that_differs_is_named_by_its_path():
    for change, path in CHANGES:
        found = []
        for do in (lambda model: None, change):
            model, encoder = zoo.svgp(), Encoder()
            model.jitter, model.notes, model.twin = 1e-6, [1, 2], model.kernel
            model.kernel.lengthscales.prior = tfp.distributions.Normal(0.0, 1.0)
            do(model)
            found.append((encoder.encode_model(model), encoder.arrays))
        assert first_difference(*found) == path


def test_the_path_is_the_file_itself(tmp_path):
    model = zoo.svgp()
    gs.save(model, str(tmp_path / "new" / "folder" / "model"))
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == ["model"]
    gs.save(model, tmp_path / "with.two.dots")
    (tmp_path / "link").symlink_to(tmp_path / "with.two.dots")
    (tmp_path / "with.two.dots").write_text("old")
    gs.save(model, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    gs.load(tmp_path / "with.two.dots")
    with pytest.raises(ValueError, match=r"path must name a file, but .* is a folder"):
        gs.save(model, tmp_path)
    with pytest.raises(ValueError, match=r"path must lie in a folder, but .*with\.two\.dots is a"):
        gs.save(model, tmp_path / "with.two.dots" / "model")
    with pytest.raises(ValueError, match="path must be a str or a Path, got NoneType"):
        gs.save(model, None)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_file_that_is_replaced_keeps_its_permissions(mode, tmp_path):
    path = tmp_path / "file"
    (tmp_path / "other").write_text("")
    gs.save(zoo.svgp(), path)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (path, tmp_path / "other")]
    assert modes[0] == modes[1]
    path.write_text("old")
    path.chmod(mode)
    gs.save(zoo.svgp(), path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_bytes() != b"old"


def test_the_content_is_never_readable_by_more_than_the_file_it_replaces(tmp_path, monkeypatch):
    path, seen = tmp_path / "file", []
    path.write_text("old")
    path.chmod(0o600)
    real = os.fsync

    def look(number):
        seen.append({stat.S_IMODE(piece.stat().st_mode) for piece in tmp_path.iterdir()})
        real(number)

    monkeypatch.setattr(os, "fsync", look)
    gs.save(zoo.svgp(), path)
    assert seen == [{0o600}]


USES = [
    lambda path: gs.save(zoo.svgp(), path),
    lambda path: gs.load(path),
    lambda path: gs.export(zoo.svgp(), path),
    lambda path: fit(
        zoo.svgp(), (np.eye(100, zoo.D), np.eye(100, 1)), num_steps=1, checkpoint_dir=path
    ),
]


def test_the_home_folder_of_an_unknown_user_is_one_sentence():
    for use in USES:
        with pytest.raises(
            ValueError, match=r"~nosuchuser/x.* names the home folder of an unknown"
        ):
            use("~nosuchuser/x")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_file(step, tmp_path, monkeypatch):
    path = tmp_path / "model"
    gs.save(zoo.svgp(), path)
    before = path.read_bytes()

    def fail(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises((OSError, ValueError)):
        gs.save(zoo.svgp(), path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    gs.load(path)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("source", "reweighted"), [(on_disk, "rotated"), (tf.data.Dataset.from_tensors, None)]
)
def test_a_model_that_reads_its_rows_in_passes_is_saved_as_what_it_has_learned(
    source, reweighted, tmp_path
):
    rows = battery.inputs(), battery.reals(1)()
    options = {"num_eigenfunctions": 9, "points_per_dimension": 5, "noise_variance": 0.2}
    models = [
        GRIEF(source(rows), battery.gaussian_product(), reweighted=reweighted, **options),
        BasisGPR(source(rows), battery.fourier(), noise_variance=0.2),
    ]
    for model in map(battery.perturb, models):
        with pytest.raises(ValueError, match=r"model\.data is read .* save model\.to_svgp\(\)"):
            gs.save(model, tmp_path / "folder" / "model")
        assert not (tmp_path / "folder").exists()
        expected = model.predict_y(battery.inputs(seed=5))
        gs.save(model.to_svgp(), tmp_path / "small")
        gs.export(model, tmp_path / "export")
        exported = tf.saved_model.load(str(tmp_path / "export"))
        for twin in (gs.load(tmp_path / "small"), exported):
            for a, b in zip(twin.predict_y(battery.inputs(seed=5)), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
