"""What is no saved model, or a forged one, is refused with a ValueError, and nothing in it runs."""

import json
import os
import pickle
import zipfile

import gpflow
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_sparse as gs
from gpflow_sparse.persistence import files, names
from tests import battery
from tests.persistence import corruptions, zoo


@pytest.fixture
def saved(tmp_path):
    """The path of a good file."""
    gs.save(battery.MEMBERS["solvegp"].build(num_data=10), tmp_path / "model.gp")
    return tmp_path / "model.gp"


def refused(path, message, **options):
    with pytest.raises(ValueError, match=message) as caught:
        gs.load(path, **options)
    assert str(path.name) in str(caught.value)
    assert type(caught.value).__mro__.index(ValueError) <= 1


def forged(path, change):
    """Change the tree of a file, and sign it again; ``change`` gets the tree and the arrays."""
    header, arrays = files.read(path)
    tree = json.loads(header["tree"])
    change(tree, arrays)
    files.write(path, arrays, {**header, "tree": json.dumps(tree)})
    return path


def attributes_of(tree, name):
    (found,) = (o["attributes"] for o in tree["objects"] if o.get("class") == name)
    return found


SOLVEGP = "gpflow_sparse.models.SOLVEGP"
GAUSSIAN = "gpflow.likelihoods.Gaussian"


class Payload:
    """A pickle of this makes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_files_that_are_not_ours_are_refused(tmp_path):
    sentinel = tmp_path / "it ran"
    contents = {
        "table.csv": b"a,b\n1,2\n" * 50,
        "model.pkl": pickle.dumps(Payload(sentinel)),
        "empty": b"",
        "short": b"\0\0\0",
        "noise": np.random.default_rng(0).bytes(10_000),
        "zeros": bytes(1000),
        "weights.safetensors": safetensors.numpy.save({"w": np.ones(3)}, {"format": "pt"}),
        "bare.safetensors": safetensors.numpy.save({"w": np.ones(3)}),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("model.gp", "text")
    np.save(tmp_path / "array.npy", np.ones(3))
    for name in [*contents, "archive.zip", "array.npy"]:
        refused(tmp_path / name, "is not a saved model: expected a file written by gs.save")
        with pytest.raises(ValueError, match="is not a saved model"):
            gs.persistence.read_header(tmp_path / name)
    refused(tmp_path, "is not a file")
    with pytest.raises(FileNotFoundError, match=r"no saved model at .*nowhere"):
        gs.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="path must be a str or a Path, got int"):
        gs.load(3)
    assert not sentinel.exists()


def test_truncated_and_damaged_files_are_refused(saved):
    content = saved.read_bytes()
    saved.write_bytes(content[:-1])
    refused(saved, "is truncated or damaged: it cannot be read")
    saved.write_bytes(content[: len(content) // 4])  # may or may not have the format's name left
    refused(saved, "is truncated or damaged|only a piece of one")
    saved.write_bytes(content[:-9] + b"\xff" + content[-8:])
    refused(saved, "is truncated or damaged: its checksum does not match")


def test_files_of_a_newer_format_are_refused(saved, monkeypatch):
    header, arrays = files.read(saved)
    monkeypatch.setattr(files, "FORMAT_VERSION", 12)
    files.write(saved, arrays, header)
    monkeypatch.undo()
    message = "saved by a newer gpflow_sparse: its format version is 12.*upgrade"
    refused(saved, message)
    with pytest.raises(ValueError, match=message):
        gs.persistence.read_header(saved)


def test_random_damage_is_refused_or_harmless(tmp_path):
    trial = corruptions.Trial(tmp_path)
    assert trial.load() == "equal"
    outcomes = [trial.outcome(seed) for seed in range(400)]
    assert [result for result in outcomes if not corruptions.acceptable(*result)] == []
    assert {name for name, _ in outcomes} >= {"forge", "flip", "truncate"}
    assert ("forge", "equal") in outcomes


@pytest.mark.parametrize("name", ["battery.softki", "battery.swsgp", "model.standardized"])
def test_a_forged_description_is_refused_in_one_plain_sentence(tmp_path, name):
    """With a valid checksum; without a KeyError or words of other packages in the sentence."""
    trial = corruptions.Trial(tmp_path, zoo.BUILDERS[name])
    content, outcomes = trial.path.read_bytes(), []
    for seed in range(60):
        trial.path.write_bytes(content)
        corruptions.forge(trial.path, np.random.default_rng(seed))
        outcomes.append(("forge", trial.load()))
    assert [result for result in outcomes if not corruptions.acceptable(*result)] == []
    assert ("forge", "refused") in outcomes


def set_class(name):
    def change(tree, arrays):
        for described in tree["objects"]:
            if described.get("class") == GAUSSIAN:
                described["class"] = name

    return change


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "subprocess.Popen",
        "tf.py_function",
        "gpflow.likelihoods.__builtins__",
        "gpflow.likelihoods.base.os",
        "gpflow.models.BayesianModel",
        "gpflow_sparse.models.VariationalModel",
        "tfp.bijectors.Inline",
        "tfp.bijectors.Softplus",
        "",
        None,
        7,
        ["os"],
    ],
)
def test_classes_outside_of_the_public_lists_are_refused(saved, name):
    refused(forged(saved, set_class(name)), "which is no known class")


def test_naming_a_module_does_not_import_it(saved, tmp_path, monkeypatch):
    (tmp_path / "intruder.py").write_text("import os; os.mkdir('it ran')\nclass Kernel: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    refused(
        forged(saved, set_class("intruder:Kernel")), r"pass gs.load\(path, classes=\[Kernel\]\)"
    )
    assert not (tmp_path / "it ran").exists()


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "tf.io.write_file", None, {}])
def test_functions_outside_of_the_list_are_refused(saved, name):
    def change(tree, arrays):
        attributes_of(tree, GAUSSIAN)["invlink"] = {"function": name}

    refused(forged(saved, change), "a model file may not name")


@pytest.mark.parametrize(
    "name",
    [
        "__class__",
        "__dict__",
        "__reduce__",
        "__call__",
        "_self_setattr_tracking",
        "_name",
        "predict_mean_and_var",
        "_scalar_log_prob",
        "trainable_variables",
        "not a name",
        "",
        "a.b",
    ],
)
def test_attributes_that_are_part_of_a_class_are_refused(saved, name):
    def change(tree, arrays):
        attributes_of(tree, GAUSSIAN)[name] = 1

    refused(forged(saved, change), "cannot be an attribute of|would replace a method or property")


def test_properties_that_can_be_set_are_no_attributes_either(saved):
    def change(tree, arrays):
        attributes_of(tree, "gpflow.kernels.Matern52")["active_dims"] = 1

    refused(forged(saved, change), "'active_dims' would replace a method or property of Matern52")


def nest(depth):
    node = 1
    for _ in range(depth):
        node = {"list": [node]}
    return node


def circle(tree, arrays):
    index = next(i for i, o in enumerate(tree["objects"]) if o["kind"] == "parameter")
    tree["objects"][index]["prior"] = {"ref": index}


def huge_shape(tree, arrays):
    described = next(o for o in tree["objects"] if o["kind"] == "variable")
    described["shape"] = {"shape": [10**12, 10**12]}


def object_without(key):
    def change(tree, arrays):
        for described in tree["objects"]:
            described.pop(key, None)

    return change


def shared_chain(depth):
    """A transform in which each part consists of the part before, twice."""

    def change(tree, arrays):
        parameter = next(o for o in tree["objects"] if o["kind"] == "parameter")
        kinds = {"kind": "constructed", "class": "tfp.bijectors.Exp", "arguments": {}}
        tree["objects"].append(kinds)
        for _ in range(depth):
            part = {"ref": len(tree["objects"]) - 1}
            arguments = {"bijectors": {"list": [part, part]}}
            chain = {"kind": "constructed", "class": "tfp.bijectors.Chain", "arguments": arguments}
            tree["objects"].append(chain)
        parameter["transform"] = {"ref": len(tree["objects"]) - 1}

    return change


def unused_array(tree, arrays):
    arrays["extra"] = np.ones(3)


@pytest.mark.parametrize(
    "change",
    [
        lambda tree, arrays: tree.clear(),
        lambda tree, arrays: tree.update(root=None),
        lambda tree, arrays: tree.update(root={"ref": 10**9}),
        lambda tree, arrays: tree.update(root={"ref": True}),
        lambda tree, arrays: tree.update(root={"eval": "1"}),
        lambda tree, arrays: tree.update(objects=None),
        lambda tree, arrays: attributes_of(tree, SOLVEGP).update(extra=nest(150)),
        lambda tree, arrays: attributes_of(tree, SOLVEGP).update(extra={"list": [0] * 200_000}),
        lambda tree, arrays: arrays.popitem(),
        circle,
        huge_shape,
        unused_array,
        shared_chain(16),
        shared_chain(40),
        object_without("kind"),
        object_without("data"),
        object_without("attributes"),
        object_without("transform"),
    ],
)
def test_descriptions_that_no_model_has_are_refused(saved, change):
    refused(forged(saved, change), "cannot load")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "", "null", "NaN", '{"root": Infinity}', "9" * 9999]
)
def test_trees_that_are_no_trees_are_refused(saved, text):
    header, arrays = files.read(saved)
    files.write(saved, arrays, {**header, "tree": text})
    refused(saved, "cannot load")


def set_attribute(name, value):
    return lambda tree, arrays: attributes_of(tree, SOLVEGP).update({name: value})


def exchange_kernel_and_likelihood(tree, arrays):
    model = attributes_of(tree, SOLVEGP)
    model["kernel"], model["likelihood"] = model["likelihood"], model["kernel"]


def reverse_q(tree, arrays):
    attributes_of(tree, SOLVEGP)["q_mu"]["tuple"].reverse()


def drop_kernel(tree, arrays):
    del attributes_of(tree, SOLVEGP)["kernel"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_attribute("kernel", 1), r"model\.kernel must be a Kernel, got int"),
        (drop_kernel, r"model\.kernel must be a Kernel, got NoneType"),
        (exchange_kernel_and_likelihood, r"model\.kernel must be a Kernel, got Gaussian"),
        (set_attribute("mean_function", None), r"model\.mean_function must be a Function"),
        (
            set_attribute("inducing_variable", "Z"),
            r"model\.inducing_variable must be InducingVariables, got str",
        ),
        (set_attribute("num_data", -3), r"model\.num_data must be None or a positive count"),
        (set_attribute("num_data", "many"), r"model\.num_data must be None or a positive count"),
        (set_attribute("num_latent_gps", 0), r"model\.num_latent_gps must be a positive count"),
        (set_attribute("whiten", "no"), r"model\.whiten must be a bool"),
        (set_attribute("jitter", -1.0), r"model\.jitter must be None or a positive number"),
        (
            set_attribute("jitter", 1e300),
            r"model\.jitter must be None or a positive number up to 1",
        ),
        (set_attribute("standardizer", 3), r"model\.standardizer must be a Standardizer"),
        (reverse_q, r"model\.q_mu must have shape \(5, 2\)"),
        (set_attribute("q_mu", {"tuple": []}), r"model\.q_mu must have 2 entries"),
        (set_attribute("q_mu", {"tuple": ["a", "b"]}), r"model\.q_mu must hold parameters"),
    ],
)
def test_models_that_would_predict_nonsense_are_refused(saved, change, message):
    refused(forged(saved, change), message)


GPNN = "gpflow_sparse.models.NearestNeighborGP"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda groups: groups + 7,
        lambda groups: groups - 1,
        lambda groups: groups[::-1],
        lambda groups: groups[:-1],
        lambda groups: groups.astype(np.float64),
    ],
    ids=["above", "below", "order", "length", "type"],
)
def test_groups_of_equal_rows_that_are_not_those_of_the_data_are_refused(tmp_path, wrong):
    X = np.array([[0.0], [1.0], [0.0], [2.0], [2.0]])
    model = gs.models.NearestNeighborGP((X, np.sin(X)), gpflow.kernels.Matern32())
    gs.save(model, tmp_path / "model.gp")
    np.testing.assert_array_equal(gs.load(tmp_path / "model.gp").groups[1], [0, 1, 0, 2, 2])

    def change(tree, arrays):
        node = attributes_of(tree, GPNN)["groups"]["tuple"][1]["ref"]
        key = tree["objects"][node]["data"]
        arrays[key] = np.ascontiguousarray(wrong(arrays[key]))

    refused(forged(tmp_path / "model.gp", change), r"model\.groups must number the distinct rows")


def test_a_standardizer_with_wrong_statistics_is_refused(tmp_path):
    path = tmp_path / "model.gp"
    gs.save(zoo.standardized(), path)

    def change(tree, arrays):
        (reference,) = attributes_of(tree, "gpflow_sparse.data.Standardizer")["x_scale"].values()
        arrays[tree["objects"][reference]["data"]] *= 0.0

    refused(forged(path, change), r"model\.standardizer\.x_scale must be positive")


def test_the_float_type_is_compared_with_the_current_one(tmp_path):
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        model = battery.perturb(battery.MEMBERS["solvegp"].build())
        gs.save(model, tmp_path / "single")
        loaded = gs.load(tmp_path / "single")
        X = zoo.inputs().astype(np.float32)
        np.testing.assert_array_equal(loaded.predict_f(X)[1], model.predict_f(X)[1])
        assert loaded.predict_f(X)[0].dtype == tf.float32
    refused(tmp_path / "single", r"set_default_float\(np.float32\) before gs.load, and keep it")
    assert gs.persistence.read_header(tmp_path / "single")["float"] == "float32"
    gs.save(zoo.svgp(), tmp_path / "double")
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        refused(tmp_path / "double", r"set_default_float\(np.float64\)")


def test_another_default_jitter_is_warned_of(saved, recwarn):
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-4)):
        with pytest.warns(UserWarning, match=r"set_default_jitter\(1e-06\)") as caught:
            gs.load(saved)
        assert caught[0].filename == __file__
        model = gs.load(saved)
        model.jitter = 1e-5  # then the default no longer counts
        gs.save(model, saved)
    recwarn.clear()
    assert gs.load(saved).jitter == 1e-5
    assert not recwarn.list


def test_the_lists_of_names_are_sound():
    for name, kind in names.constructed_classes().items():
        assert names.class_name(kind) == name
        assert isinstance(kind, type)
    for name, kind in names.assembled_classes().items():
        assert names.assembled_class(names.class_name(kind), ()) is kind
        assert name.startswith(("gpflow.", "gpflow_sparse."))
    assert names.assembled_classes()["gpflow_sparse.models.SOLVEGP"] is gs.models.SOLVEGP
    assert tfp.bijectors.Inline not in names.constructed_classes().values()


def test_parts_that_are_shared_a_few_times_are_loaded(saved):
    model = gs.load(forged(saved, shared_chain(4)))
    names = [parameter.transform.name for parameter in model.parameters]
    assert sum(name.startswith("chain_of_chain_of_chain") for name in names) == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("jitter", "1e300", r"jitter of .* must hold a number from 0 to 1, got 1e\+300"),
        ("jitter", "-1", "must hold a number from 0 to 1, got -1"),
        ("jitter", "1e999", "must hold a number from 0 to 1, got inf"),
        ("jitter", "NaN", "must hold a number from 0 to 1, got nan"),
        ("jitter", "[" * 100_000, "nested too deeply"),
        ("float", "banana", "float must be one of float16, float32, float64, got 'banana'"),
        ("float", "\x1b[2J", r"got '\\x1b\[2J'"),
        ("versions", "[1]", r"versions of .* must hold an object, got \[1\]"),
        ("versions", "[" * 100_000, "nested too deeply"),
    ],
)
def test_settings_of_the_header_are_checked(saved, name, text, message):
    header, arrays = files.read(saved)
    files.write(saved, arrays, {**header, name: text})
    refused(saved, message)
    with pytest.raises(ValueError, match=message):
        gs.persistence.read_header(saved)


def test_a_default_jitter_that_no_file_may_have_is_refused_when_saving(tmp_path):
    with (
        gpflow.config.as_context(gpflow.config.Config(jitter=2.0)),
        pytest.raises(ValueError, match=r"default jitter of 2: the largest in a file is 1"),
    ):
        gs.save(zoo.svgp(), tmp_path / "model")


def test_too_many_arrays_are_refused_before_they_are_read(tmp_path, monkeypatch):
    arrays = {str(i): np.zeros(1, np.uint8) for i in range(30_000)}
    header = {"format": files.FORMAT, "format_version": "1"}
    path = tmp_path / "many"
    path.write_bytes(safetensors.numpy.save(arrays, header))
    length = int.from_bytes(path.read_bytes()[:8], "little")
    monkeypatch.setattr(files, "_MAX_ARRAYS", 29_999)
    refused(path, f"has a header of {length} bytes and 30000 arrays, and a model file has at most")
    monkeypatch.setattr(files, "_MAX_HEADER", length - 1)
    monkeypatch.setattr(safetensors, "safe_open", None)
    refused(path, f"has a header of {length} bytes and 0 arrays")
    with pytest.raises(ValueError, match="30000 arrays, and a model file has at most"):
        files.write(tmp_path / "more", arrays, {})
    assert not (tmp_path / "more").exists()


def test_text_of_a_file_reaches_no_terminal_as_commands(saved):
    hostile = "\x1b[2J:\x1b]0;Kernel\x07"
    with pytest.raises(ValueError) as caught:
        gs.load(forged(saved, set_class(hostile)))
    assert "\x1b" not in str(caught.value)
    assert "\\x1b]0;Kernel" in str(caught.value)

    def name_array(tree, arrays):
        arrays["\x1b[2J"] = np.ones(3)

    gs.save(zoo.svgp(), saved)
    with pytest.raises(ValueError, match=r"its arrays \['\\x1b\[2J'\] belong to nothing"):
        gs.load(forged(saved, name_array))


@pytest.mark.parametrize("name", ["circle", "x" * 300])
def test_a_circle_of_links_or_a_long_name_is_no_saved_model(tmp_path, name):
    path = tmp_path / name
    if name == "circle":
        path.symlink_to(path)
    for read in (gs.load, files.read_header):
        with pytest.raises(FileNotFoundError, match="there is no such file"):
            read(path)


@pytest.mark.parametrize("place", ["x" * 300, "circle/model", "/proc/model", "/proc/new/model"])
def test_a_place_where_no_file_can_be_is_refused_in_one_sentence(tmp_path, place):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(ValueError, match=r"^path must [^\n]*$"):
        gs.save(zoo.svgp(), tmp_path / place)


def test_a_checkpoint_is_told_from_a_model(tmp_path):
    files.write(tmp_path / "checkpoint", {"a": np.zeros(2)}, {"kind": "checkpoint", "run": "{}"})
    for read in (gs.load, files.read_header):
        with pytest.raises(ValueError, match=r"is a checkpoint of a training run, not a model"):
            read(tmp_path / "checkpoint")
