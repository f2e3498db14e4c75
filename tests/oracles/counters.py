"""SplitMix64 in NumPy's uint64: numbers that are a hash of ``(seed, index, lane)``."""

import numpy as np
from scipy import special

GAMMA = np.uint64(0x9E3779B97F4A7C15)


def mix(words):
    """The output function of SplitMix64."""
    words = np.asarray(words, np.uint64)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def stream(start, numbers):
    """The outputs of that number of the generator whose state starts at ``start``."""
    with np.errstate(over="ignore"):
        steps = np.asarray(numbers).astype(np.uint64) + np.uint64(1)
        return mix(np.asarray(start, np.uint64) + steps * GAMMA)


def words(seed, indices, lanes):
    """``[k, len(lanes)]``: a generator for the seed starts one per index, which makes the lanes."""
    key = stream(stream(seed, 0), 0)
    return stream(stream(key, indices)[:, None], np.asarray(lanes)[None, :])


def uniforms(seed, indices, lanes, bits=52):
    kept = words(seed, np.asarray(indices), lanes) >> np.uint64(64 - bits)
    return (kept.astype(np.float64) + 0.5) / 2.0**bits


def normals(seed, indices, lanes, bits=52):
    return special.ndtri(uniforms(seed, indices, lanes, bits))
