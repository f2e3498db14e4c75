"""What is not a saved model, or a forged one, is a ValueError, and nothing in it runs."""

import json
import os
import pickle
import zipfile

import gpflow
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import gpflow_sparse as gs
from gpflow_sparse.persistence import files
from tests import battery
from tests.persistence import corruptions, zoo


def saved_as(path, model=None):
    gs.save(battery.MEMBERS["solvegp"].build(num_data=10) if model is None else model, path)
    return path


@pytest.fixture
def saved(tmp_path):
    """The path of a good file."""
    return saved_as(tmp_path / "model.gp")


def refused(path, message):
    with pytest.raises(ValueError, match=message) as caught:
        gs.load(path)
    assert str(path.name) in str(caught.value)
    assert type(caught.value).__mro__.index(ValueError) <= 1


def forged(path, change):
    """Change the tree of a file, and sign it again; ``change`` gets the tree and the arrays."""
    header, arrays = files.read(path)
    tree, arrays = json.loads(header["tree"]), dict(arrays)
    change(tree, arrays)
    files.write(path, arrays, {**header, "tree": json.dumps(tree)})
    return path


def attributes_of(tree, name):
    """Attributes of the last object of a class."""
    objects = [o for o in tree["objects"] if str(o.get("class")).rpartition(".")[2] == name]
    return objects[-1]["attributes"]


def attribute(kind, name, value):
    return lambda tree, arrays: attributes_of(tree, kind).update({name: value})


def numbers(kind, name, new):
    """Exchange the numbers of one variable, and say that this is its shape."""

    def change(tree, arrays):
        described = tree["objects"][attributes_of(tree, kind)[name]["ref"]]
        arrays[described["data"]] = np.ascontiguousarray(new(arrays[described["data"]]))
        described["shape"] = {"shape": list(arrays[described["data"]].shape)}

    return change


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
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("nowhere", "circle", "x" * 300):
        for read in (gs.load, gs.persistence.read_header):
            with pytest.raises(FileNotFoundError, match=r"no saved model at .*there is no such"):
                read(tmp_path / name)
    with pytest.raises(ValueError, match="path must be a str or a Path, got int"):
        gs.load(3)
    assert not sentinel.exists()


def test_truncated_and_damaged_files_and_checkpoints_are_refused(saved):
    content = saved.read_bytes()
    saved.write_bytes(content[:-1])
    refused(saved, "is truncated or damaged: it cannot be read")
    saved.write_bytes(content[: len(content) // 4])  # may or may not have the format's name left
    refused(saved, "is truncated or damaged|only a piece of one")
    saved.write_bytes(content[:-9] + b"\xff" + content[-8:])
    refused(saved, "is truncated or damaged: its checksum does not match")
    files.write(saved, {"a": np.zeros(2)}, {"kind": "checkpoint", "run": "{}"})
    for read in (gs.load, gs.persistence.read_header):
        with pytest.raises(ValueError, match=r"is a checkpoint of a training run, not a model"):
            read(saved)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (1, "saved by a gpflow_sparse before version 1.0, .*: train the model again and save it"),
        (12, "saved by a newer gpflow_sparse: its format version is 12, .*; upgrade gpflow_sparse"),
    ],
)
def test_files_of_other_formats_are_refused_in_one_sentence(version, message, saved, monkeypatch):
    header, arrays = files.read(saved)
    monkeypatch.setattr(files, "FORMAT_VERSION", version)
    files.write(saved, arrays, header)
    monkeypatch.undo()
    refused(saved, message)
    with pytest.raises(ValueError, match=message):
        gs.persistence.read_header(saved)


def test_random_damage_is_refused_or_harmless(tmp_path):
    trial = corruptions.Trial(tmp_path)
    assert trial.load() == "equal"
    outcomes = [trial.outcome(seed) for seed in range(200)]
    assert [result for result in outcomes if not corruptions.acceptable(*result)] == []
    assert {name for name, _ in outcomes} >= {"forge", "flip", "truncate"}


@pytest.mark.parametrize(
    "name", ["battery.deep_convolution", "battery.swsgp", "model.standardized"]
)
def test_a_forged_description_is_refused_in_one_plain_sentence(tmp_path, name):
    """With a valid checksum; without a KeyError or words of other packages in the sentence."""
    trial = corruptions.Trial(tmp_path, zoo.BUILDERS[name])
    content, outcomes = trial.path.read_bytes(), []
    for seed in range(30):
        trial.path.write_bytes(content)
        corruptions.forge(trial.path, np.random.default_rng(seed))
        outcomes.append(("forge", trial.load()))
    assert [result for result in outcomes if not corruptions.acceptable(*result)] == []
    assert ("forge", "refused") in outcomes


# Names that a forged file may hold: of a class, of a function, of an attribute.
CLASSES = ("os.system", "builtins.eval", "tf.py_function", "gpflow.likelihoods.__builtins__")
CLASSES += ("gpflow.likelihoods.base.os", "gpflow.models.BayesianModel", "tfp.bijectors.Inline")
CLASSES += ("gpflow_sparse.models.VariationalModel", "tfp.bijectors.Softplus", "", None, 7, ["os"])
FUNCTIONS = ("os.system", "builtins.eval", "tf.io.write_file", None, {})
ATTRIBUTES = ("__class__", "__dict__", "__reduce__", "__call__", "_self_setattr_tracking", "_name")
ATTRIBUTES += ("predict_mean_and_var", "_scalar_log_prob", "trainable_variables", "not a name")
ATTRIBUTES += ("", "a.b")


def set_class(name):
    def change(tree, arrays):
        for described in tree["objects"]:
            if described.get("class") == "gpflow.likelihoods.Gaussian":
                described["class"] = name

    return change


def test_names_outside_of_the_public_lists_are_refused(tmp_path):
    content = saved_as(tmp_path / "model.gp").read_bytes()
    reserved = "cannot be an attribute of|would replace a method or property"
    changes = [
        *((set_class(name), "which is not a known class") for name in CLASSES),
        *((attribute("Gaussian", "invlink", {"function": n}), "may not name") for n in FUNCTIONS),
        *((attribute("Gaussian", name, 1), reserved) for name in ATTRIBUTES),
        (attribute("Matern52", "active_dims", 1), "'active_dims' would replace .* of Matern52"),
    ]
    for change, message in changes:
        (tmp_path / "model.gp").write_bytes(content)
        refused(forged(tmp_path / "model.gp", change), message)


def test_naming_a_module_does_not_import_it(saved, tmp_path, monkeypatch):
    (tmp_path / "intruder.py").write_text("import os; os.mkdir('it ran')\nclass Kernel: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    refused(forged(saved, set_class("intruder:Kernel")), r"pass gs.load\(path, classes=\[Kernel\]")
    assert not (tmp_path / "it ran").exists()


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


def without(key):
    return lambda tree, arrays: [described.pop(key, None) for described in tree["objects"]]


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


NO_MODEL = [
    lambda tree, arrays: tree.clear(),
    lambda tree, arrays: tree.update(root=None),
    lambda tree, arrays: tree.update(root={"ref": 10**9}),
    lambda tree, arrays: tree.update(root={"ref": True}),
    lambda tree, arrays: tree.update(root={"eval": "1"}),
    lambda tree, arrays: tree.update(objects=None),
    attribute("SOLVEGP", "extra", nest(150)),
    attribute("SOLVEGP", "extra", {"list": [0] * 200_000}),
    lambda tree, arrays: arrays.popitem(),
    lambda tree, arrays: arrays.update(extra=np.ones(3)),
    *(circle, huge_shape, shared_chain(16), shared_chain(40)),
    *map(without, ("kind", "data", "attributes", "transform")),
]


def test_descriptions_that_no_model_has_are_refused(saved):
    content = saved.read_bytes()
    for change in NO_MODEL:
        saved.write_bytes(content)
        refused(forged(saved, change), "cannot load")


def exchange_kernel_and_likelihood(tree, arrays):
    model = attributes_of(tree, "SOLVEGP")
    model["kernel"], model["likelihood"] = model["likelihood"], model["kernel"]


def zero_scale(tree, arrays):
    (reference,) = attributes_of(tree, "Standardizer")["x_scale"].values()
    arrays[tree["objects"][reference]["data"]] *= 0.0


def with_attributes(kind, **rows):
    """Rows of one attribute each: its value and words of the message."""
    return [
        (attribute(kind, name, value), f"{name}{words}") for name, (value, words) in rows.items()
    ]


def of_sizes(kind, name, *sizes):
    """Rows of one integer each that does not fit the arrays."""
    return [
        (attribute(kind, name, size), f"{kind} has {name}={size}, which is neg.* fit its arrays")
        for size in sizes
    ]


WEIGHTS = r"model\.weights\.q_mu must be"
# By model, changes and words of the message.
FORGERIES = {
    "battery.solvegp": [
        *with_attributes(
            "SOLVEGP",
            kernel=(1, " must be a Kernel, got int"),
            mean_function=(None, " must be a Function"),
            inducing_variable=("Z", " must be InducingVariables, got str"),
            num_latent_gps=(0, " must be a positive count"),
            whiten=("no", " must be a bool"),
            jitter=(-1.0, " must be None or a positive number"),
            standardizer=(3, " must be a Standardizer"),
            q_mu=({"tuple": ["a", "b"]}, " must hold parameters"),
        ),
        (attribute("SOLVEGP", "num_data", -3), r"model\.num_data must be None or a positive count"),
        (attribute("SOLVEGP", "num_data", "many"), "num_data must be None or a positive count"),
        (attribute("SOLVEGP", "jitter", 1e300), "jitter must be None or a positive number up to 1"),
        (attribute("SOLVEGP", "q_mu", {"tuple": []}), r"model\.q_mu must have 2 entries"),
        (lambda tree, _: attributes_of(tree, "SOLVEGP").pop("kernel"), "kernel must .* NoneType"),
        (exchange_kernel_and_likelihood, "kernel must be a Kernel, got Gaussian"),
        (
            lambda tree, _: attributes_of(tree, "SOLVEGP")["q_mu"]["tuple"].reverse(),
            r"model\.q_mu must have shape \(5, 2\)",
        ),
    ],
    "model.standardized": [(zero_scale, r"model\.standardizer\.x_scale must be positive")],
    "battery.softki": [
        (numbers("FittedWeights", "q_mu", lambda q: q[:-1]), WEIGHTS),
        (numbers("FittedWeights", "q_mu", lambda q: np.hstack([q, q])), WEIGHTS),
        (numbers("FittedWeights", "q_mu", lambda q: q[:, 0]), WEIGHTS),
        (numbers("FittedWeights", "q_mu", lambda q: q.astype(np.float32)), f"{WEIGHTS} a float64"),
        (numbers("FittedWeights", "q_sqrt", lambda q: q[:2, :2]), r"weights\.q_sqrt must be a fl"),
        (numbers("FittedWeights", "q_mu", lambda q: q * np.nan), r"weights\.q_mu must be finite"),
        (numbers("FittedWeights", "q_sqrt", lambda q: q + np.inf), r"weights\.q_sqrt must be fini"),
        *with_attributes(
            "SoftKI",
            basis=(None, " must be a SoftInterp"),
            objective=("x", " must be one of"),
        ),
        (attribute("SoftKI", "num_latent_gps", 3), "num_latent_gps=3"),
    ],
    # sizes that would ask for memory in predictions
    "battery.solvegp_multiclass": [
        *of_sizes("MultiClass", "num_classes", 10**9, -5, 4),
        *of_sizes("MultiClass", "latent_dim", 10**9, -5),
        *of_sizes("MultiClass", "num_gauss_hermite_points", 10**9, -5),
        # which is compared with that of its likelihood
        *(
            (attribute("RobustMax", "num_classes", size), "MultiClass has num_classes=3, which")
            for size in (10**9, 4)
        ),
    ],
    "battery.basis_gpr_fourier": [
        *of_sizes("RandomFourier", "num_basis", 10**9, -5),
        (attribute("BasisGPR", "num_latent_gps", 10**9), "num_latent_gps=1000000000 column"),
    ],
    "battery.deep": of_sizes("DeepGP", "num_prediction_samples", 10**9, -5),
    "basis_gpr.soft": of_sizes("SoftInterpolation", "num_basis", 10**9, -5, 5),
    "likelihood.our_ordinal": [
        *of_sizes("Ordinal", "num_bins", 10**9, -5, 4),
        *of_sizes("TrapezoidQuadrature", "num_nodes", 10**9, -5),
    ],
    "kernel.convolutional": [
        (attribute("Convolutional", "image_shape", {"list": [size, 3]}), f"image_shape={size}")
        for size in (10**9, -5)
    ],
    "model.sgpr": [
        (attribute("SGPR", "num_latent_gps", 10**9), "num_latent_gps must be 1"),
        *of_sizes("Zero", "output_dim", 10**9, -5),
    ],
}


@pytest.mark.parametrize("name", FORGERIES)
def test_models_that_would_predict_nonsense_are_refused(name, tmp_path):
    content = saved_as(tmp_path / "model.gp", zoo.BUILDERS[name]()).read_bytes()
    for change, message in FORGERIES[name]:
        (tmp_path / "model.gp").write_bytes(content)
        refused(forged(tmp_path / "model.gp", change), f"cannot load .*{message}")


OTHER_GROUPS = [
    lambda groups: groups + 7,
    lambda groups: groups - 1,
    lambda groups: groups[::-1],
    lambda groups: groups[:-1],
    lambda groups: groups.astype(np.float64),
]


def test_groups_of_equal_rows_that_are_not_those_of_the_data_are_refused(tmp_path):
    X = np.array([[0.0], [1.0], [0.0], [2.0], [2.0]])
    Y = np.arange(5.0)[:, None]  # of equal rows too, or they would be copies
    model = gs.models.NearestNeighborGP((X, Y), gpflow.kernels.Matern32())
    path = saved_as(tmp_path / "model.gp", model)
    np.testing.assert_array_equal(gs.load(path).groups[1], [0, 1, 0, 2, 2])

    content = path.read_bytes()
    for wrong in OTHER_GROUPS:

        def change(tree, arrays, wrong=wrong):
            node = attributes_of(tree, "NearestNeighborGP")["groups"]["tuple"][1]["ref"]
            key = tree["objects"][node]["data"]
            arrays[key] = np.ascontiguousarray(wrong(arrays[key]))

        path.write_bytes(content)
        refused(forged(path, change), r"model\.groups must number the distinct rows")


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
    with (
        gpflow.config.as_context(gpflow.config.Config(jitter=2.0)),
        pytest.raises(ValueError, match=r"default jitter of 2: the largest in a file is 1"),
    ):
        gs.save(zoo.svgp(), saved)


HEADERS = [
    ("jitter", "1e300", r"jitter of .* must hold a number from 0 to 1, got 1e\+300"),
    ("jitter", "-1", "must hold a number from 0 to 1, got -1"),
    ("jitter", "1e999", "must hold a number from 0 to 1, got inf"),
    ("jitter", "NaN", "must hold a number from 0 to 1, got nan"),
    ("jitter", "[" * 100_000, "nested too deeply"),
    ("float", "banana", "float must be one of float16, float32, float64, got 'banana'"),
    ("float", "\x1b[2J", r"got '\\x1b\[2J'"),
    ("versions", "[1]", r"versions of .* must hold an object, got \[1\]"),
    ("versions", "[" * 100_000, "nested too deeply"),
    *(
        ("tree", text, "cannot load")
        for text in ("[" * 100_000, "", "null", "NaN", '{"root": Infinity}', "9" * 9999)
    ),
]


def test_settings_of_the_header_are_checked(saved):
    content = saved.read_bytes()
    for name, text, message in HEADERS:
        saved.write_bytes(content)
        header, arrays = files.read(saved)
        files.write(saved, arrays, {**header, name: text})
        refused(saved, message)
        if name != "tree":
            with pytest.raises(ValueError, match=message):
                gs.persistence.read_header(saved)


def test_too_many_arrays_are_refused_before_they_are_read(tmp_path, monkeypatch):
    arrays = {str(i): np.zeros(1, np.uint8) for i in range(30_000)}
    path = tmp_path / "many"
    path.write_bytes(
        safetensors.numpy.save(arrays, {"format": files.FORMAT, "format_version": "2"})
    )
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
    saved_as(saved, zoo.svgp())
    forged(saved, lambda tree, arrays: arrays.update({"\x1b[2J": np.ones(3)}))
    refused(saved, r"its arrays \['\\x1b\[2J'\] belong to nothing")


@pytest.mark.parametrize("place", ["x" * 300, "circle/model", "/proc/model", "/proc/new/model"])
def test_a_place_where_no_file_can_be_is_refused_in_one_sentence(tmp_path, place):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(ValueError, match=r"^path must [^\n]*$"):
        gs.save(zoo.svgp(), tmp_path / place)
