"""Optimizer steps in naive NumPy: one row at a time, each with a history of its own."""

import numpy as np


class Rows:
    """Vectors that are moved one by one; ``moments`` and ``count`` belong to each."""

    def __init__(self, values, initial=0.0):
        self.values = np.array(values, dtype=float)
        self.first, self.second = np.zeros_like(self.values), np.full_like(self.values, initial)
        self.count = np.zeros(len(self.values), dtype=int)

    def sgd(self, i, g, rate):
        self.values[i] -= rate * g

    def adagrad(self, i, g, rate, epsilon):
        self.second[i] += g**2
        self.values[i] -= rate * g / (np.sqrt(self.second[i]) + epsilon)

    def adam(self, i, g, rate, beta_1, beta_2, epsilon):
        self.count[i] += 1
        self.first[i] = beta_1 * self.first[i] + (1 - beta_1) * g
        self.second[i] = beta_2 * self.second[i] + (1 - beta_2) * g**2
        t = self.count[i]
        rate = rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        self.values[i] -= rate * self.first[i] / (np.sqrt(self.second[i]) + epsilon)


def summed(indices, gradients):
    """The gradient of each index that occurs, as a dictionary."""
    found = {}
    for i, g in zip(indices, gradients, strict=True):
        found[i] = found.get(i, 0.0) + g
    return found
