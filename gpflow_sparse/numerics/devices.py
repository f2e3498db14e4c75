"""How work is divided on a CPU and on a GPU; whatever differs between them asks this file.

On a CPU operations are split: among cores, into blocks that fit into caches, and so that zeros are
not multiplied. On a GPU an operation uses the whole device, and a training step of usual size takes
as long as the number of its operations, each of which is launched: nothing is split that fits into
the memory, covariances of several sets of points are evaluated together, and nothing in a step is
computed on the host.
"""

import tensorflow as tf

# Entries of the largest tensor of a block on a GPU, 1 GiB of float64; a few such exist at a time.
_GPU_ENTRIES = 2**27


def sees_gpu() -> bool:
    """Whether TensorFlow has a GPU."""
    return bool(tf.config.list_logical_devices("GPU"))


def block_entries(on_cpu: int) -> int:
    """
    Entries of the largest tensor of one block of rows.

    :param on_cpu: as measured for a method on a CPU, where a block should fit into caches.
    """
    return max(on_cpu, _GPU_ENTRIES) if sees_gpu() else on_cpu
