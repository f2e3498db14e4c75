"""Data sets from a folder, from a loopback server, and from generators."""

import gzip
import hashlib
import io
import tarfile
import threading
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pooch
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_sparse.data import datasets, load, robot_arm

ROWS = np.arange(30.0).reshape(10, 3)
MASK = np.eye(10, dtype=bool)


@pytest.fixture(autouse=True)
def no_root(monkeypatch):
    monkeypatch.delenv("GPFLOW_SPARSE_DATA", raising=False)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@dataclass
class Server:
    """A folder served on the loopback interface, and the checksums of its files."""

    folder: Path
    http: ThreadingHTTPServer
    registry: dict[str, str | None]
    patch: pytest.MonkeyPatch

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_port}"

    def put(self, path, content, known=True):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        self.registry[f"uci_datasets/{path}"] = sha256 if known else None
        return sha256

    def serve(self, name, path, content):
        """Instead of the file of that name in the module."""
        self.patch.setattr(datasets, f"{name}_SHA256", self.put(path, content), raising=False)
        self.patch.setattr(datasets, f"{name}_URL", f"{self.url}/{path}")

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "served").mkdir()
    handler = partial(QuietHandler, directory=str(tmp_path / "served"))
    server = Server(
        tmp_path / "served", ThreadingHTTPServer(("127.0.0.1", 0), handler), {}, monkeypatch
    )
    threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.05}).start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(datasets, "UCI_URL", server.url)
    monkeypatch.setattr(datasets, "_registry", lambda: server.registry)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    yield server
    server.stop()


def compressed(rows, fmt="%.17g"):
    text = io.StringIO()
    np.savetxt(text, rows, delimiter=",", fmt=fmt)
    return gzip.compress(text.getvalue().encode())


def put_uci(server, name):
    server.put(f"{name}/data.csv.gz", compressed(ROWS))
    server.put(f"{name}/test_mask.csv.gz", compressed(MASK, "%d"))


def check_split(data, split):
    assert_array_equal(data.test[0], ROWS[[split], :2])
    assert_array_equal(data.test[1], ROWS[[split], 2:])
    kept = np.delete(ROWS, split, axis=0)
    assert_array_equal(data.train[0], kept[:, :2])
    assert_array_equal(data.train[1], kept[:, 2:])


def test_a_file_with_another_checksum_is_refused_and_not_kept(server, tmp_path):
    put_uci(server, "yacht")
    server.registry["uci_datasets/yacht/data.csv.gz"] = "0" * 64
    with pytest.raises(ValueError, match=r"does not have the expected SHA-256 0000.*not kept"):
        load("yacht")
    assert list((tmp_path / "cache").rglob("*.gz")) == []


def test_a_cached_file_that_was_damaged_is_downloaded_again(server, tmp_path):
    put_uci(server, "yacht")
    load("yacht")
    (tmp_path / "cache/gpflow_sparse/uci/yacht/data.csv.gz").write_bytes(b"damaged")
    check_split(load("yacht"), 0)


def test_without_a_network_the_error_names_the_local_folder(server):
    put_uci(server, "yacht")
    server.stop()
    with pytest.raises(ValueError, match=r"could not download .*root= or set GPFLOW_SPARSE_DATA"):
        load("yacht")


def test_song_is_stacked_from_two_files_with_a_warning_that_they_are_unverified(server):
    server.put("song/data.csv.gz", compressed(ROWS[:6]), known=False)
    server.put("song/data1.csv.gz", compressed(ROWS[6:]), known=False)
    server.put("song/test_mask.csv.gz", compressed(MASK, "%d"))
    with pytest.warns(UserWarning, match="could not be verified") as caught:
        check_split(load("song", split=7), 7)
    files = [str(warning.message).split()[0].rsplit("/", 1)[1] for warning in caught]
    assert files == ["data.csv.gz", "data1.csv.gz"]


def test_mnist_is_flattened_to_pixel_values(server):
    pixels = np.arange(3 * 28 * 28).reshape(3, 28, 28).astype(np.uint8)
    labels = np.array([7, 0, 9], dtype=np.uint8)
    content = io.BytesIO()
    np.savez(content, x_train=pixels, y_train=labels, x_test=pixels[::-1], y_test=labels[::-1])
    server.serve("MNIST", "mnist.npz", content.getvalue())
    data = load("mnist")
    assert_array_equal(data.train[0], pixels.reshape(3, 784))
    assert_array_equal(data.test[1], [[9], [0], [7]])
    assert data.num_classes == 10
    with pytest.raises(ValueError, match="split must be 0 for 'mnist'"):
        load("mnist", split=1)


def cifar_archive(records):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, raw in records.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return content.getvalue()


def cifar_records():
    """One image per file; its label is the file's number, its planes hold that, 100, and rows."""
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    planes = {name: bytes([i]) * 1025 + b"\x64" * 1024 for i, name in enumerate(names)}
    gradient = bytes((np.arange(1024) // 4).tolist())
    return {"readme.html": b"text"} | {name: raw + gradient for name, raw in planes.items()}


def test_cifar10_records_become_images_with_channels_last(server):
    server.serve("CIFAR10", "cifar-10.tar.gz", cifar_archive(cifar_records()))
    data = load("cifar10")
    assert_array_equal(data.train[1], [[0], [1], [2], [3], [4]])
    assert_array_equal(data.test[1], [[5]])
    image = data.test[0].reshape(32, 32, 3)
    assert_array_equal(image[:, :, 0], 5)
    assert_array_equal(image[:, :, 1], 100)
    assert_array_equal(image[:, :, 2], np.arange(1024).reshape(32, 32) // 4)


def molecule():
    """Three atoms in 20 frames, with forces, and an array that must not be read."""
    R = np.random.default_rng(0).normal(size=(20, 3, 3))
    E = -600_000.0 + np.arange(20.0)[:, None]
    return {"R": R, "E": E, "F": -R, "z": np.array([8, 1, 1]), "notes": np.array([{"a": 1}])}


def check_molecule(data, arrays, split):
    order = np.random.default_rng(split).permutation(20)
    assert_array_equal(data.train[0], arrays["R"].reshape(20, 9)[order[:18]])
    assert_array_equal(data.test[1], arrays["E"].reshape(20, 1)[order[18:]])
    assert data.feature_names[:4] == (
        *("atom_0_x_angstrom", "atom_0_y_angstrom", "atom_0_z_angstrom", "atom_1_x_angstrom"),
    )
    assert data.target_name == "energy_kcal_per_mol"


def test_a_molecule_is_downloaded_with_a_warning_and_only_positions_and_energies_are_read(
    server, monkeypatch
):
    content = io.BytesIO()
    np.savez(content, **molecule())
    server.put("md22_AT-AT.npz", content.getvalue())
    monkeypatch.setattr(datasets, "MD22_URL", server.url)
    with pytest.warns(UserWarning, match=r"md22_AT-AT\.npz has no known checksum"):
        check_molecule(load("md22_AT-AT", split=2), molecule(), 2)


def test_a_local_molecule_has_energies_in_a_column_or_not(tmp_path):
    arrays = molecule() | {"E": np.arange(20.0)}
    save(tmp_path / "md22_DHA.npz", **arrays)
    check_molecule(load("md22_DHA", root=tmp_path), arrays, 0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"R": np.zeros((20, 9))}, r"expected R \[N,A,3\] .* got \(20, 9\)"),
        ({"R": np.zeros((20, 9, 2))}, r"expected R \[N,A,3\] .* got \(20, 9, 2\)"),
        ({"E": np.zeros(19)}, r"expected R .* and \(19,\)"),
        ({"E": np.zeros(20, int)}, "R and E must be floating"),
        ({"E": np.full(20, np.nan)}, "R and E must be finite"),
        ({"E": np.array([None] * 20)}, "not a readable .npz file"),
    ],
)
def test_a_malformed_molecule_is_refused(tmp_path, changed, message):
    save(tmp_path / "md22_DHA.npz", **molecule() | changed)
    with pytest.raises(ValueError, match=message):
        load("md22_DHA", root=tmp_path)


def save(path, **arrays):
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)


def test_without_a_mask_the_last_tenth_of_a_seeded_permutation_is_the_test_part(tmp_path):
    X = np.arange(25.0)[:, None]
    save(tmp_path / "mine.npz", x=X, y=2 * X, columns=np.array(["speed"]))
    data = load("mine", split=2, root=tmp_path)
    order = np.random.default_rng(2).permutation(25)
    assert_array_equal(data.train[0][:, 0], order[:23])
    assert_array_equal(data.test[1][:, 0], 2 * order[23:])
    assert data.feature_names == ("speed",)


GOOD = {"x": ROWS[:, :2], "y": ROWS[:, 2:]}
IMAGES = {
    "x_train": np.zeros((2, 3, 3), np.uint8),
    "y_train": np.array([0, 1]),
    "x_test": np.zeros((1, 3, 3), np.uint8),
    "y_test": np.array([2]),
}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": ROWS}, r"expected the arrays x and y .* got \['a'\]"),
        (GOOD | {"y": ROWS[:, 2]}, r"expected x \[N,D\] and y \[N,1\], got \(10, 2\) and \(10,\)"),
        (GOOD | {"x": np.full((10, 2), np.nan)}, "x and y must be finite"),
        (GOOD | {"test_mask": MASK[:9]}, r"test_mask must be boolean \[10,K\], got bool \(9, 10\)"),
        (GOOD | {"test_mask": MASK.astype(int)}, "test_mask must be boolean"),
        (GOOD | {"test_mask": MASK[:, :0]}, "split must be below 0"),
        (GOOD | {"columns": np.array(["a"])}, "columns must hold 2 names, all different, got 1"),
        ({"x": ROWS[:1, :2], "y": ROWS[:1, 2:]}, "at least 2 rows"),
        (GOOD | {"x": np.array([[{}]])}, "not a readable .npz file"),
        ({k: v for k, v in IMAGES.items() if k != "y_test"}, r"\['y_test'\] missing"),
        (IMAGES | {"x_test": np.zeros((1, 3, 3))}, "images must be uint8"),
        (IMAGES | {"y_train": np.array([0, 10])}, "labels must be from 0 to 9, got 0 to 10"),
        (IMAGES | {"y_train": np.array([0])}, "labels must be 2 integers"),
        (IMAGES | {"x_test": np.zeros((1, 2, 3), np.uint8)}, "must have the same size"),
    ],
)
def test_a_malformed_local_file_is_refused(tmp_path, arrays, message):
    save(tmp_path / "mine.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load("mine", root=tmp_path)


def test_an_unknown_name_lists_the_known_names_and_the_closest():
    with pytest.raises(ValueError, match=r"'kin40'; did you mean kin40k.* Known names: 3droad, "):
        load("kin40")


def test_a_name_cannot_lead_out_of_the_folder(tmp_path):
    save(tmp_path / "secret.npz", **GOOD)
    (tmp_path / "root").mkdir()
    with pytest.raises(ValueError, match=r"got '\.\./secret'"):
        load("../secret", root=tmp_path / "root")


@pytest.mark.parametrize("split", [-1, 1.0, True, "0"])
def test_a_split_that_is_no_count_is_refused(split):
    with pytest.raises(ValueError, match="split must be an integer of at least 0"):
        load("robot_arm", split=split)


def test_a_folder_that_does_not_exist_is_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"root must be a folder .*nowhere"):
        load("kin40k", root=tmp_path / "nowhere")
    monkeypatch.setenv("GPFLOW_SPARSE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"\$GPFLOW_SPARSE_DATA must be a folder"):
        load("kin40k")


def test_the_robot_arm_is_generated_with_the_split_as_seed():
    data, (X, Y) = load("robot_arm", split=3), robot_arm(seed=3)
    order = np.random.default_rng(3).permutation(5000)
    assert_array_equal(data.train[0], X[order[:4500]])
    assert_array_equal(data.test[1], Y[order[4500:]])
    assert data.target_name == "distance_meters"


def test_digits_have_ten_classes_and_pixels_up_to_sixteen():
    data, other = load("digits"), load("digits", split=1)
    assert (len(data.train[0]), len(data.test[0]), data.num_classes) == (1618, 179, 10)
    assert data.train[0].max() == 16
    labels = np.concatenate([data.train[1], data.test[1]])
    assert_array_equal(np.bincount(labels[:, 0].astype(int))[:3], [178, 182, 177])
    assert (data.test[1] != other.test[1]).mean() > 0.5


def test_standardized_data_use_the_statistics_of_the_training_rows():
    raw = load("robot_arm")
    data = raw.standardized()
    assert_allclose(data.train[0].mean(axis=0), 0, atol=1e-12)
    assert_allclose(data.train[1].std(), 1)
    assert_allclose(data.test[0], (raw.test[0] - raw.train[0].mean(0)) / raw.train[0].std(0))
    assert data.standardizer is not None
    assert_allclose(data.standardizer.inverse_outputs(data.test[1]), raw.test[1], atol=1e-14)
    with pytest.raises(ValueError, match="already standardized"):
        data.standardized()
