"""
Operations of training steps and cached predictions of every model, as TensorFlow traces them for a
CPU and for a GPU; no GPU is needed.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.training.saver import export_meta_graph
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from bench.device_models import Case, Cases, Sizes
from bench.devices import Made, batch_step, prediction, value_and_gradient
from bench.papers.tables import grid
from bench.steps import Row, Tables
from gpflow_sparse.numerics import devices
from gpflow_sparse.persistence import files

PARTS: dict[str, Callable[[Case, bool], Made]] = {
    "value and gradient": value_and_gradient,
    "step": batch_step,
    "prediction": prediction,
}
_HOST = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
# Entries of the executor that cost nothing on any device.
_FREE = ("NoOp", "Identity", "Const", "_Arg", "_Retval")
_PAGE = """# Operations of a step

`python docs/benchmarks/run.py graph`, TensorFlow {version}; counted on a CPU, so equal on every
machine. Operations that one evaluation runs, with the bodies of loops as often as they are run,
without constants and identities, as traced for a CPU and for a GPU, where each is a launch. The
command also prints nodes of the graph, Cholesky factorizations, triangular solves and operations on
the host. 20,000 rows of 8 columns, batches of 1,024, 10,000 predicted rows; 64 images of 28 x 28
pixels.

{table}
"""


def graph(output: Path | None, quick: bool) -> Tables:
    """
    Counts of all models; with ``output`` also the page.

    :param quick: small models, to test the benchmark.
    """
    sizes = Sizes(400, 64, 32, 8, 100, 200, 8, 50) if quick else Sizes()
    tables = {
        f"{part}, as for a {device}": [
            {"model": title} | counted(case, part, device) for title, case in cases_of(sizes, part)
        ]
        for part in PARTS
        for device in ("CPU", "GPU")
    }
    if output is not None:
        page = _PAGE.format(version=tf.__version__, table=_table(tables))
        files.write_text(output / "graph.md", page)
    return tables


def cases_of(sizes: Sizes, part: str) -> Iterator[tuple[str, Case]]:
    """The models, without those that have no such part."""
    for title, case in Cases(sizes).all().items():
        if part != "step" or case.trained == "batch":
            yield title, case


def counted(case: Case, part: str, device: str) -> Row:
    """Counts of one part of a model, as traced for "CPU" or "GPU"."""
    with mock.patch.object(devices, "sees_gpu", return_value=device == "GPU"):
        function, arguments = PARTS[part](case, False)
        function(*arguments(0))
        ran = executed(lambda: function(*arguments(1)))
        nodes = optimized(function.get_concrete_function(*arguments(0)))
    return {
        "nodes": sum(nodes.values()),
        "executed": sum(ran.values()),
        "Cholesky": ran["Cholesky"],
        "solves": ran["MatrixTriangularSolve"],
        "host": sum(ran[name] for name in _HOST),
    }


def optimized(traced: Any) -> Counter[str]:
    """Nodes by operation after TensorFlow's optimizer, of a traced function and what it calls."""
    graph_of_call = traced.graph
    meta = export_meta_graph(graph_def=graph_of_call.as_graph_def(), graph=graph_of_call)
    fetched = meta.collection_def["train_op"].node_list.value
    outputs = tf.nest.flatten(traced.structured_outputs, expand_composites=True)
    fetched.extend(part.op.name for part in outputs if part is not None)
    fetched.extend(op.name for op in graph_of_call.control_outputs)
    found = tf_optimizer.OptimizeGraph(config_pb2.ConfigProto(), meta)
    reached, functions = list(found.node), {f.signature.name: f for f in found.library.function}
    for node in reached:  # which grows by the nodes of functions that are called
        for attribute in node.attr.values():
            for called in (attribute.func, *attribute.list.func):
                if called.name in functions:
                    reached += functions.pop(called.name).node_def
    return Counter(node.op for node in reached)


def executed(function: Callable[[], Any]) -> Counter[str]:
    """Operations that are run, by TensorFlow's own profiler."""
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=3, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder, options):
            function()
        (path,) = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
    found: Counter[str] = Counter()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name, _, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                if name and not name.endswith(":") and kind.isidentifier() and kind not in _FREE:
                    found[kind.removeprefix("_Mkl")] += 1
    return found


def _table(tables: Tables) -> str:
    """Executed operations of every part, a row for each model."""
    found = {(r["model"], name): str(r["executed"]) for name, rows in tables.items() for r in rows}
    models = dict.fromkeys(model for model, _ in found)
    names = [name.replace("as for a ", "") for name in tables]
    rows = [(model, *(found.get((model, name), "") for name in tables)) for model in models]
    return grid(("model", *names), rows)
