"""Data sets turned into tasks of two classes."""

import dataclasses

import numpy as np

from gpflow_sparse.data import Dataset, Standardizer, load


def read_parity(split: int) -> Dataset:
    """Digits: 1 is odd, pixels are from 0 to 1."""
    digits = load("mnist", split)
    pixels = Standardizer(np.zeros(784), np.full(784, 255.0))
    train, test = ((pixels.transform_inputs(X), Y % 2.0) for X, Y in (digits.train, digits.test))
    return dataclasses.replace(
        digits, name="mnist_parity", train=train, test=test, num_classes=2, standardizer=pixels
    )


def read_delays(split: int) -> Dataset:
    """
    Flights out of New York in 2013, standardized: 1 is an arrival after the time planned.

    :raises ValueError: without a local file, ``flights2013.npz`` with minutes of delay.
    """
    flights = load("flights2013", split)
    train, test = ((X, 1.0 * (Y > 0.0)) for X, Y in (flights.train, flights.test))
    return dataclasses.replace(flights, train=train, test=test, num_classes=2).standardized()
