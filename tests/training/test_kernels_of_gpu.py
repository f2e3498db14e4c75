"""Operations of the compiled training steps that TensorFlow has no kernel for on a GPU.

Read from TensorFlow's own registry, which lists kernels for GPUs in builds with CUDA, with or
without a GPU in the machine. It does not tell how fast they are, or that they are right.
"""

from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

import gpflow_sparse as gs
from gpflow_sparse.training import SparseAdam, adam
from gpflow_sparse.training.contract import RowwiseModel
from gpflow_sparse.training.feed import data_guard, open_feed
from gpflow_sparse.training.step import compile_step
from tests.training.replicated import MODELS, data

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
# Kernels of these devices run where a GPU is: "DEFAULT" ones on the host, without arithmetic.
ON_GPU = {"GPU", "DEFAULT"}

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not tf.test.is_built_with_cuda(), reason="lists only CPU kernels"),
]


def nodes_of_step(name):
    model, natural = MODELS[name](gs)
    feed = open_feed(data(), 15, 0, data_guard(model))
    optimizer = SparseAdam(0.01) if isinstance(model, RowwiseModel) else adam()
    batch = feed.lookup(*feed.at(0))
    for hook, arguments in {
        "prepare_data": (data(),),
        "start_training": (data(),),
        "prepare_step": (0, lambda: batch),
    }.items():
        getattr(model, hook, lambda *_: None)(*arguments)
    step = compile_step(model, feed, optimizer, 0.1 if natural else 0.0)
    inputs = tf.constant(True), tf.constant([0, 0], tf.int64), *feed.at(0)
    definition = step.get_concrete_function(*inputs).graph.as_graph_def()
    return [*definition.node, *(n for f in definition.library.function for n in f.node_def)]


def has_kernel(node, functions):
    """Whether a kernel takes the types of this node; calls of functions and inputs need none."""
    if node.op in functions or node.op in ("_Arg", "_Retval"):
        return True
    return any(
        kernel.device_type in ON_GPU
        and all(
            node.attr[limit.name].type in limit.allowed_values.list.type
            or not node.attr[limit.name].type
            for limit in kernel.constraint
        )
        for kernel in get_registered_kernels_for_op(node.op).kernel
    )


def only_on_cpu(name):
    nodes = nodes_of_step(name)
    return sorted({node.op for node in nodes if not has_kernel(node, ())})


def table():
    """The rows of the page: operations by model."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {row[1].strip(" `"): row[2].replace("`", "").replace(",", " ").split() for row in rows}


@pytest.mark.parametrize("name", MODELS)
def test_the_page_lists_operations_without_a_kernel_for_gpus(name):
    listed = table()[name]
    assert only_on_cpu(name) == ([] if listed == ["none"] else listed)
