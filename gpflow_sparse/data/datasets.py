"""Named data sets with their train/test splits, from a local folder or downloaded once."""

import dataclasses
import difflib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpflow_sparse.data import images
from gpflow_sparse.data.limits import listed, read_npz
from gpflow_sparse.data.robot_arm import robot_arm

if TYPE_CHECKING:
    from gpflow_sparse.data.standardize import Standardizer

ROOT_VARIABLE = "GPFLOW_SPARSE_DATA"
"""The environment variable that names the folder of local files."""

UCI_URL = (
    "https://raw.githubusercontent.com/treforevans/uci_datasets/"
    "f0737523712fe66a1640e4b980b927e8490b58eb/uci_datasets"
)
MNIST_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
MNIST_SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

# Energies of molecules: Chmiela et al., "Accurate global machine learning force fields for
# molecules with hundreds of atoms", Science Advances 9 (2023). The authors' address, by https,
# since there are no checksums. Unverified: nothing has been downloaded from it yet.
MD22_URL = "https://www.quantum-machine.org/gdml/repo/datasets"

Pair = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Dataset:
    """One train/test split of a data set.

    :param name: the name it was loaded by.
    :param train: training inputs X [N,D] and outputs Y [N,1], float64, in the units of the file.
    :param test: test inputs and outputs, as ``train``.
    :param feature_names: D names of the columns of X.
    :param target_name: the name of the column of Y.
    :param num_classes: None for regression; for classification Y holds integers below it.
    :param standardizer: the standardization of the arrays; None for arrays in the file's units.
    :param image_shape: (height, width, channels) where rows are known to be images, else None.
    :param notes: sentences on what was inferred when the file or the folder was read.
    :param weights: weights of the training rows [N], positive; None for 1.
    :param noise_variance: known variances of the noise of the training rows [N], in the units of
        their outputs squared; None for 0.
    :param groups: whole numbers of the groups of the training rows [N], which are held out
        together; None where each row is a group of its own.
    :param in_time: whether groups of larger numbers are later, and are held out before others.
    """

    name: str
    train: Pair
    test: Pair
    feature_names: tuple[str, ...]
    target_name: str
    num_classes: int | None
    standardizer: "Standardizer | None" = None
    image_shape: images.ImageShape | None = None
    notes: tuple[str, ...] = ()
    weights: np.ndarray | None = None
    noise_variance: np.ndarray | None = None
    groups: np.ndarray | None = None
    in_time: bool = False

    @property
    def num_train(self) -> int:
        """The number of training rows."""
        return len(self.train[0])

    def take(self, rows: np.ndarray) -> "Dataset":
        """The data set with some of its training rows.

        :param rows: their positions [n].
        """
        X, Y = self.train
        of_rows = {name: getattr(self, name) for name in ("weights", "noise_variance", "groups")}
        taken = {name: found[rows] for name, found in of_rows.items() if found is not None}
        return dataclasses.replace(self, train=(X[rows], Y[rows]), **taken)

    @property
    def scaler(self) -> "Standardizer":
        """The standardizer.

        :raises ValueError: if the data set has not been standardized.
        """
        if self.standardizer is None:
            raise ValueError(f"data set {self.name!r} must be standardized first.")
        return self.standardizer

    def in_original_units(self, pair: Pair) -> Pair:
        """Standardized rows, such as ``test``, in the units of the file."""
        scaler = self.scaler
        X = pair[0] * scaler.x_scale.numpy() + scaler.x_mean.numpy()
        return X, pair[1] if self.num_classes else scaler.inverse_outputs(pair[1])

    def standardized(
        self,
        *,
        per_channel: bool = False,
        outputs: bool = True,
        transform: str = "none",
        robust: bool = False,
    ) -> "Dataset":
        """Standardize with the means and standard deviations of the training rows.

        :param per_channel: all pixels of a channel share a mean and a scale, which keeps patches
            comparable; by default each column has its own.
        :param outputs: whether the outputs of a regression are standardized too.
        :param transform: transform of these outputs, see :class:`Standardizer`.
        :param robust: whether these outputs have units that outliers do not set, see
            :meth:`Standardizer.fit`.
        :return: a copy with standardized inputs and, for regression, outputs; its `standardizer`
            brings predictions back to original units.
        :raises ValueError: if this copy is standardized already, or channels are asked for and
            `image_shape` is None.
        """
        from gpflow_sparse.data.standardize import Standardizer

        if self.standardizer is not None:
            raise ValueError(f"data set {self.name!r} is already standardized; use it as it is")
        if per_channel and self.image_shape is None:
            raise ValueError(f"per_channel needs image_shape, which is not known for {self.name!r}")
        X, Y = self.train
        channels = self.image_shape[2] if per_channel and self.image_shape else None
        scaled = Y if outputs and self.num_classes is None else None
        scaler = Standardizer.fit(
            X,
            scaled,
            num_channels=channels,
            transform=transform,
            row_weights=self.weights,
            robust=robust,
        )
        return dataclasses.replace(
            self,
            train=scaler.transform(*self.train),
            test=scaler.transform(*self.test),
            standardizer=scaler,
        )


@dataclass(frozen=True)
class DatasetInfo:
    """Size and origin of a data set that :func:`load` can obtain.

    :param name: the name to load it by.
    :param num_data: the number of rows, training and test together.
    :param input_dim: the number of input columns.
    :param task: "regression" or "classification".
    :param source: "download", "scikit-learn", or "generated".
    """

    name: str
    num_data: int
    input_dim: int
    task: str
    source: str


def list_datasets() -> list[DatasetInfo]:
    """The data sets that :func:`load` can obtain without a local file.

    :return: one record per data set, by name.
    """
    table = (line.split() for line in _resource("known_datasets.txt"))
    return [DatasetInfo(name, int(N), int(D), *rest) for name, N, D, *rest in table]


def load(name: str, split: int = 0, root: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by name.

    A local file `root/NAME.npz` or `root/uci/NAME.npz` has priority. It holds x [N,D] and y [N,1]
    with test_mask [N,K], whose column `split` marks the test rows, or without it, when rows are
    permuted with `numpy.random.default_rng(split)` and the last tenth is the test part; an array
    `columns` names the inputs. Images x_train, y_train, x_test, y_test have one split, 0.

    Otherwise "robot_arm" is generated with seed `split`, "digits" comes from scikit-learn, and
    everything else is downloaded into pooch's cache folder and checked against its SHA-256: the
    regression sets of github.com/treforevans/uci_datasets with their ten published splits, MNIST
    as Keras distributes it, and the binary version of CIFAR-10. The molecules of MD22 (energies in
    kcal/mol from positions in Angstrom) have no known checksum, which causes a warning, and
    come from an unverified address. They are split like files without a mask; a
    local file of such a name is the published one, with R and E.

    :param name: one of :func:`list_datasets`, or the name of a local file without ".npz".
    :param split: which train/test split, from 0.
    :param root: the folder of local files; by default the environment variable
        GPFLOW_SPARSE_DATA, if set.
    :return: the data in the units of the file.
    :raises ValueError: for an unknown name or split, a malformed file, or a failed download.
    :raises FileNotFoundError: if `root` is not a folder.
    """
    if isinstance(split, bool) or not isinstance(split, (int, np.integer)) or split < 0:
        raise ValueError(f"split must be an integer of at least 0, got {split!r}")
    local = _local_file(name, root)
    known = {info.name for info in list_datasets()}
    if name in known and name.startswith("md22_"):
        arrays = _read_md22(local or _fetch(f"{MD22_URL}/{name}.npz", None, "md22"))
        return _from_arrays(name, arrays, split, "energy_kcal_per_mol")
    if local is not None:
        return _from_arrays(name, read_npz(local), split)
    if name not in known:
        raise ValueError(_unknown_name(name))
    if name == "robot_arm":
        X, Y = robot_arm(num_data=5000, seed=split)
        columns = [f"joint_{i}_radians" for i in range(X.shape[1])]
        arrays = {"x": X, "y": Y, "columns": np.array(columns)}
        return _from_arrays(name, arrays, split, "distance_meters")
    if name == "digits":
        X, Y, pixels = images.read_digits()
        arrays = {"x": X, "y": Y, "columns": np.array(pixels)}
        found = _from_arrays(name, arrays, split, "label")
        return dataclasses.replace(found, num_classes=10, image_shape=(8, 8, 1))
    if name == "mnist":
        return _from_images(name, read_npz(_fetch(MNIST_URL, MNIST_SHA256, name)), split)
    if name == "cifar10":
        archive = _fetch(CIFAR10_URL, CIFAR10_SHA256, name)
        return _from_images(name, images.read_cifar10(archive), split)
    return _from_arrays(name, _fetch_uci(name), split)


def _unknown_name(name: str) -> str:
    known = [info.name for info in list_datasets()]
    close = difflib.get_close_matches(name, known)
    hint = f"; did you mean {' or '.join(close)}?" if close else "."
    return (
        f"name must be a known data set or a file NAME.npz under root= or ${ROOT_VARIABLE}, got "
        f"{name!r}{hint} Known names: {', '.join(known)}"
    )


def _local_file(name: str, root: str | os.PathLike[str] | None) -> Path | None:
    folder = os.environ.get(ROOT_VARIABLE) if root is None else root
    if not folder:
        return None
    if not os.path.isdir(folder):
        origin = f"${ROOT_VARIABLE}" if root is None else "root"
        raise FileNotFoundError(f"{origin} must be a folder with data sets, got {folder}")
    # A name with separators would lead out of the folder; no data set has one.
    if Path(name).name != name:
        raise ValueError(_unknown_name(name))
    candidates = (Path(folder) / f"{name}.npz", Path(folder) / "uci" / f"{name}.npz")
    return next((path for path in candidates if os.path.isfile(path)), None)


def _from_arrays(
    name: str, arrays: Mapping[str, np.ndarray], split: int, target_name: str = "y"
) -> Dataset:
    """The split of the arrays of a file, which :func:`load` describes."""
    if "x_train" in arrays:
        return _from_images(name, arrays, split)
    if "x" not in arrays or "y" not in arrays:
        raise ValueError(
            f"{name}: expected the arrays x and y (and test_mask), or {list(images.IMAGE_KEYS)}, "
            f"got {sorted(arrays)}"
        )
    X, Y = (np.asarray(arrays[key], dtype=np.float64) for key in ("x", "y"))
    if X.ndim != 2 or Y.shape != (len(X), 1):
        raise ValueError(f"{name}: expected x [N,D] and y [N,1], got {X.shape} and {Y.shape}")
    if not (np.isfinite(X).all() and np.isfinite(Y).all()):
        raise ValueError(f"{name}: x and y must be finite, got NaN or infinity; clean the file")
    columns = np.asarray(arrays.get("columns", [f"x{i}" for i in range(X.shape[1])]))
    features = tuple(map(str, columns.reshape(-1).tolist()))
    if not len(features) == len(set(features)) == X.shape[1]:
        got = f"{len(features)}: {listed(features)}"
        raise ValueError(f"{name}: columns must hold {X.shape[1]} names, all different, got {got}")
    train, test = _split_rows(name, len(X), arrays.get("test_mask"), split)
    return Dataset(name, (X[train], Y[train]), (X[test], Y[test]), features, target_name, None)


def _split_rows(name: str, num_rows: int, mask: np.ndarray | None, split: int) -> Pair:
    """Training and test rows: a mask [N] each by the file's masks [N,K], else permuted indices."""
    if mask is None:
        if num_rows < 2:
            raise ValueError(f"{name}: at least 2 rows are needed for a split, got {num_rows}")
        order = np.random.default_rng(split).permutation(num_rows)
        num_test = max(1, num_rows // 10)
        return order[:-num_test], order[-num_test:]
    if mask.dtype != bool or mask.ndim != 2 or len(mask) != num_rows:
        raise ValueError(
            f"{name}: test_mask must be boolean [{num_rows},K], got {mask.dtype} {mask.shape}"
        )
    if split >= mask.shape[1]:
        raise ValueError(f"split must be below {mask.shape[1]} for {name!r}, got {split}")
    return ~mask[:, split], mask[:, split]


def _from_images(name: str, arrays: Mapping[str, np.ndarray], split: int) -> Dataset:
    if split != 0:
        raise ValueError(
            f"split must be 0 for {name!r}, which has one published split, got {split}"
        )
    train, test = images.split_images(name, arrays)
    pixels = tuple(f"pixel_{i}" for i in range(train[0].shape[1]))
    shape = images.shape_of_images(arrays["x_train"])
    return Dataset(name, train, test, pixels, "label", num_classes=10, image_shape=shape)


def _read_md22(path: Path) -> dict[str, np.ndarray]:
    """Arrays for :func:`_from_arrays` from positions R [N,A,3] and energies E [N] or [N,1]."""
    arrays = read_npz(path, ("R", "E"))
    if sorted(arrays) != ["E", "R"]:
        raise ValueError(f"{path}: expected the arrays R and E, got {sorted(arrays)} of them")
    R, E = arrays["R"], arrays["E"]
    if R.dtype.kind != "f" or E.dtype.kind != "f":
        raise ValueError(f"{path}: R and E must be floating, got {R.dtype} and {E.dtype}")
    if R.ndim != 3 or R.shape[2] != 3 or E.shape not in ((len(R),), (len(R), 1)):
        raise ValueError(
            f"{path}: expected R [N,A,3] and E [N] or [N,1], got {R.shape} and {E.shape}"
        )
    if not (np.isfinite(R).all() and np.isfinite(E).all()):
        raise ValueError(f"{path}: R and E must be finite, got NaN or infinity")
    columns = [f"atom_{i}_{axis}_angstrom" for i in range(R.shape[1]) for axis in "xyz"]
    return {"x": R.reshape(len(R), -1), "y": E.reshape(-1, 1), "columns": np.array(columns)}


def _resource(name: str) -> list[str]:
    return resources.files("gpflow_sparse.data").joinpath(name).read_text().splitlines()


def _registry() -> dict[str, str | None]:
    """SHA-256 of each file of the UCI sets by path; None where it is not known."""
    lines = (line.split() for line in _resource("uci_registry.txt"))
    return {path: None if sha256 == "unknown" else sha256 for path, sha256 in lines}


def _fetch_uci(name: str) -> dict[str, np.ndarray]:
    registry = _registry()

    def read(file_name: str) -> np.ndarray:
        sha256 = registry[f"uci_datasets/{name}/{file_name}"]
        path = _fetch(f"{UCI_URL}/{name}/{file_name}", sha256, f"uci/{name}")
        return np.loadtxt(path, delimiter=",", ndmin=2)

    data = read("data.csv.gz")
    if f"uci_datasets/{name}/data1.csv.gz" in registry:
        data = np.concatenate([data, read("data1.csv.gz")])
    return {"x": data[:, :-1], "y": data[:, -1:], "test_mask": read("test_mask.csv.gz") != 0}


def _fetch(url: str, sha256: str | None, folder: str) -> Path:
    """A file that is downloaded once into a folder of pooch's cache, and checked on every use."""
    import pooch

    cache, file_name = Path(pooch.os_cache("gpflow_sparse")) / folder, url.rsplit("/", 1)[-1]
    if sha256 is None:
        warnings.warn(f"{url} has no known checksum: the file could not be verified", stacklevel=2)
    try:
        return Path(pooch.retrieve(url, known_hash=sha256, fname=file_name, path=cache))
    except OSError as error:
        raise ValueError(
            f"could not download {url} into {cache}: {error}. Without a network, pass root= or set "
            f"{ROOT_VARIABLE} to a folder that holds the data set as NAME.npz"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"the file at {url} does not have the expected SHA-256 {sha256}, so it was not kept; "
            "try again later, or pass root= with a copy that you trust"
        ) from error
