"""Operations of the compiled training steps that TensorFlow has no kernel for on a GPU.

Read from TensorFlow's own registry, which lists kernels for GPUs in builds with CUDA, with or
without a GPU in the machine. It does not tell how fast they are, or that they are right.
"""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

import gpflow_sparse as gs
from gpflow_sparse.numerics import devices, random_draws
from gpflow_sparse.training import SparseAdam, adam
from gpflow_sparse.training.contract import PartialUpdateModel
from gpflow_sparse.training.feed import data_guard, open_feed
from gpflow_sparse.training.step import compile_step
from tests.training.replicated import MODELS, N, data, gaussian, kernel

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
# Kernels of these devices run where a GPU is: "DEFAULT" ones on the host, without arithmetic.
ON_GPU = {"GPU", "DEFAULT"}
# Of the search by a tree among many points.
SEARCH = "PyFuncStateless"

pytestmark = pytest.mark.nightly


def many_points(gs):
    """A model with more inducing points than are searched in the graph without a GPU."""
    Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(5000, 2))
    points = gs.inducing_variables.NeighborInducingPoints(Z, 3)
    return gs.models.SWSGP(kernel(), gaussian(), points, num_data=N), False


ALL = MODELS | {"swsgp, 5,000 points": many_points}


def make_step(name):
    """The model, its compiled step, and its arguments for the first batch."""
    model, natural = ALL[name](gs)
    feed = open_feed(data(), 15, 0, data_guard(model))
    optimizer = SparseAdam(0.01) if isinstance(model, PartialUpdateModel) else adam()
    batch = feed.lookup(*feed.at(0))
    for hook, arguments in {
        "prepare_data": (data(),),
        "start_training": (data(),),
        "prepare_step": (0, lambda: batch),
    }.items():
        getattr(model, hook, lambda *_: None)(*arguments)
    step = compile_step(model, feed, optimizer, 0.1 if natural else 0.0)
    return model, step, (tf.constant(True), tf.constant([0, 0], tf.int64), *feed.at(0))


def nodes_of_step(name):
    _, step, inputs = make_step(name)
    definition = step.get_concrete_function(*inputs).graph.as_graph_def()
    return [*definition.node, *(n for f in definition.library.function for n in f.node_def)]


def has_kernel(node):
    """Whether a kernel takes the types of this node; inputs and messages need none."""
    message = node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum
    if message or node.op in ("_Arg", "_Retval"):  # messages are those of assertions
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
    return sorted({node.op for node in nodes if not has_kernel(node)})


@pytest.mark.skipif(not tf.test.is_built_with_cuda(), reason="lists only CPU kernels")
@pytest.mark.parametrize("name", ALL)
def test_all_operations_but_the_one_on_the_page_have_kernels_for_gpus(name, monkeypatch):
    """Where a GPU is visible, the search is in the graph too."""
    page = " ".join(PAGE.read_text("utf-8").split())
    assert "but the search among more than 4,096 inducing points by a tree" in page
    for gpu in (False, True):
        monkeypatch.setattr(devices, "sees_gpu", lambda gpu=gpu: gpu)
        outside = name == "swsgp, 5,000 points" and not gpu
        assert only_on_cpu(name) == ([SEARCH] if outside else [])


@pytest.mark.parametrize(
    ("name", "gpu"),
    [*((name, True) for name in MODELS), *((n, False) for n in ("solvegp", "swsgp", "qsgp"))],
)
def test_steps_compiled_by_xla_equal_those_of_the_graph(name, gpu, monkeypatch):
    """At the same draws: those of XLA differ. Also as they are traced for a GPU."""
    monkeypatch.setattr(devices, "sees_gpu", lambda: gpu)
    monkeypatch.setattr(
        random_draws, "different", lambda size, count, sets=1: [tf.range(count) * 2 % size] * sets
    )
    ones = {"normal": 0.3, "rademacher": 1.0}
    for name_of_draw, value in ones.items():
        monkeypatch.setattr(
            random_draws, name_of_draw, lambda shape, dtype, v=value: v * tf.ones(shape, dtype)
        )
    ends = []
    for xla in (False, True):
        model, step, inputs = make_step(name)
        compiled = tf.function(step.python_function, autograph=False, jit_compile=xla)
        losses = [compiled(inputs[0], inputs[1] + k, *inputs[2:])[0] for k in range(3)]
        ends.append([losses, *(v.numpy() for v in model.variables)])
    for got, expected in zip(*ends, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9)
