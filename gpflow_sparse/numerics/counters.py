"""Counter-based random numbers: each is a hash of ``(seed, index, lane)`` and is never stored.

Any rows of a table of random numbers can be computed without the others, and a table of 1e7 rows
takes no memory. The hash is SplitMix64, Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
Generators" (2014), figure 17: a state that grows by a constant, and a mixing of its 64 bits. One
such generator makes the states of the rows from the seed, and from each row another makes its
lanes, so that results for neighboring seeds, indices and lanes are independent. Not for
cryptography.
"""

import tensorflow as tf

# 2^64 over the golden ratio, and the multipliers of the mixing.
_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
# Random bits of a uniform number, one less than a significand has, so that the half added in
# the middle of its cell is exact and none rounds to 1: with 24 in float32 some would.
_BITS = {tf.float32: 23, tf.float64: 52}


def uniforms(
    seed: int, indices: tf.Tensor, num_lanes: int, dtype: tf.DType, first_lane: int = 0
) -> tf.Tensor:
    """
    Uniform numbers strictly between 0 and 1, independent over seeds, indices and lanes.

    Multiples ``(i + 1/2) 2^-52``, in float32 ``(i + 1/2) 2^-23`` of the same leading bits. Time
    O(k num_lanes); works eagerly, in graphs and under XLA, with the same bits.

    :param seed: from 0 to 2^32 - 1.
    :param indices: integers ``[k]``.
    :param num_lanes: random numbers for each index.
    :param dtype: float32 or float64.
    :param first_lane: lanes ``first_lane`` to ``first_lane + num_lanes - 1`` are returned.
    :return: ``[k, num_lanes]``.
    """
    gamma = _signed(_GAMMA)
    key = _mix(_mix(tf.constant(seed, tf.int64) + gamma) + gamma)
    rows = _mix(key + (tf.cast(indices, tf.int64) + 1) * gamma)  # [k]
    lanes = tf.range(first_lane + 1, first_lane + num_lanes + 1, dtype=tf.int64)
    words = _mix(rows[:, None] + lanes * gamma)  # [k, num_lanes]
    bits = _BITS[dtype]
    return (tf.cast(_shift(words, 64 - bits), dtype) + 0.5) * 2.0**-bits


def normals(
    seed: int, indices: tf.Tensor, num_lanes: int, dtype: tf.DType, first_lane: int = 0
) -> tf.Tensor:
    """
    Standard normal numbers ``[k, num_lanes]``, the quantiles of :func:`uniforms`.

    They are at most 8.2 in absolute value, in float32 5.3, which a normal exceeds once in 1e7.
    """
    return tf.math.ndtri(uniforms(seed, indices, num_lanes, dtype, first_lane))


def _mix(words: tf.Tensor) -> tf.Tensor:
    """SplitMix64's bijection of 64 bits; products of int64 wrap around."""
    words = (words ^ _shift(words, 30)) * _signed(_FIRST)
    words = (words ^ _shift(words, 27)) * _signed(_SECOND)
    return words ^ _shift(words, 31)


def _shift(words: tf.Tensor, count: int) -> tf.Tensor:
    """Shift to the right with zeros; TensorFlow's shift of int64 repeats the sign bit."""
    shifted = tf.bitwise.right_shift(words, tf.constant(count, tf.int64))
    return tf.bitwise.bitwise_and(shifted, tf.constant((1 << (64 - count)) - 1, tf.int64))


def _signed(word: int) -> tf.Tensor:
    """The int64 with the bits of an unsigned word."""
    return tf.constant(word - 2**64 if word >= 2**63 else word, tf.int64)
