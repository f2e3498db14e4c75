"""Data sets of the papers' tables, split into training and test rows and standardized."""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
from sklearn.model_selection import train_test_split

from bench.papers.workloads import WORKLOADS
from gpflow_sparse.data import Dataset, Standardizer, load, robot_arm
from gpflow_sparse.data.images import read_digits

_FEW_ROWS = 2000
# Rows of a robot arm, the last tenth of which is for testing.
_ARM_ROWS = 10_000


def published(name: str, split: int) -> Dataset:
    """
    A split that is published with the data set.

    "mnist_parity" are the digits with 1 for odd ones and pixels from 0 to 1; "flights2013" has 1
    for an arrival after the scheduled time, "flights2013_delay" the delay; "robot_arm_K" is an arm
    of K links, generated with ``split`` as seed.

    :raises ValueError: if the data set cannot be had.
    """
    if name == "mnist_parity":
        return _parity(split)
    if name.startswith("robot_arm_"):
        return _robot_arm(name, split)
    dataset = load(name.removesuffix("_delay"), split)
    if name == "flights2013":
        train, test = ((X, 1.0 * (Y > 0.0)) for X, Y in (dataset.train, dataset.test))
        dataset = dataclasses.replace(dataset, train=train, test=test, num_classes=2)
    return dataset.standardized()


def random_split(name: str, seed: int) -> Dataset:
    """
    All rows, split again at random: 64 % for training, 16 % for validation, 20 % for testing.

    80 % of the rows, rounded down, are not for testing, and 80 % of those, rounded down, are for
    training: the N of the tables of Shi, Titsias and Mnih (2020). The validation rows are dropped.
    """
    dataset = load(name)
    X, Y = (np.concatenate([a, b]) for a, b in zip(dataset.train, dataset.test, strict=True))
    order = np.random.default_rng(seed).permutation(len(X))
    num_kept = 4 * len(X) // 5
    return _chosen(dataset, (X, Y), order[: 4 * num_kept // 5], order[num_kept:])


def validation(name: str, split: int) -> Dataset:
    """The training rows of a published split alone, a random tenth of them as test rows."""
    dataset = load(name, split)
    num_train = len(dataset.train[0])
    order = np.random.default_rng(split).permutation(num_train)
    kept, held_out = np.split(order, [num_train - num_train // 10])
    return _chosen(dataset, dataset.train, kept, held_out)


def few_rows(name: str, split: int, num_rows: int | None = None) -> Dataset:
    """A published split with 2,000 random ones of its training rows, or another number."""
    dataset = load(name, split)
    X, Y = dataset.train
    rows = np.random.default_rng(split).permutation(len(X))[: num_rows or _FEW_ROWS]
    return dataclasses.replace(dataset, train=(X[rows], Y[rows])).standardized()


def images(name: str, split: int) -> Dataset:
    """Images standardized by channel; "digits" are split again, a fifth of each class for tests."""
    dataset = load(name, split if name != "digits" else 0)
    if name == "digits":
        X, Y, _ = read_digits()
        parts = train_test_split(X, Y, test_size=0.2, stratify=Y, random_state=split)
        train, test = (parts[0], parts[2]), (parts[1], parts[3])
        dataset = dataclasses.replace(dataset, train=train, test=test)
    return dataset.standardized(per_channel=True)


def tables_and_images(name: str, split: int) -> Dataset:
    """Images of classes as :func:`images` reads them, all else as published."""
    read = images if name in ("digits", "mnist", "cifar10_20k") else published
    return read(name, split)


READERS: Mapping[str, Callable[[str, int], Dataset]] = {
    "published": published,
    "random_split": random_split,
    "validation": validation,
    "few_rows": few_rows,
    "5000_rows": functools.partial(few_rows, num_rows=5000),
    "15000_rows": functools.partial(few_rows, num_rows=15_000),
    "images": images,
    "workloads": lambda name, split: WORKLOADS[name](split),
    "evidence": tables_and_images,
}


def _chosen(
    dataset: Dataset, pair: tuple[np.ndarray, np.ndarray], train: np.ndarray, test: np.ndarray
) -> Dataset:
    X, Y = pair
    chosen = dataclasses.replace(dataset, train=(X[train], Y[train]), test=(X[test], Y[test]))
    return chosen.standardized()


def _parity(split: int) -> Dataset:
    digits = load("mnist", split)
    pixels = Standardizer(np.zeros(784), np.full(784, 255.0))
    train, test = ((pixels.transform_inputs(X), Y % 2.0) for X, Y in (digits.train, digits.test))
    return dataclasses.replace(
        digits, name="mnist_parity", train=train, test=test, num_classes=2, standardizer=pixels
    )


def _robot_arm(name: str, seed: int) -> Dataset:
    num_links = int(name.removeprefix("robot_arm_"))
    X, Y = robot_arm(_ARM_ROWS, num_links, seed=seed)
    kept = _ARM_ROWS - _ARM_ROWS // 10
    joints = tuple(f"joint_{i}_radians" for i in range(num_links))
    train, test = (X[:kept], Y[:kept]), (X[kept:], Y[kept:])
    return Dataset(name, train, test, joints, "distance_meters", None).standardized()
