"""What `gpflow-sparse bench step` does for each method. No TensorFlow until it is done."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from gpflow_sparse.bench.conv_sizes import DeepSizes, ImageSizes
from gpflow_sparse.runs.methods import BASELINES, IMAGE_METHODS, METHODS
from gpflow_sparse.runs.terminal import print_table

CHOICES = (*(key for key in METHODS if key not in (*BASELINES, *IMAGE_METHODS)), "conv")
# Options that only some methods have.
_OWN = {
    "num_basis": ("qsgp",),
    "num_data": ("qsgp",),
    "basis_batch_size": ("qsgp",),
    "num_support": ("qsgp",),
    "output": ("qsgp",),
    "surface": ("swsgp",),
    "memory": ("swsgp", "conv"),
}
# M and M2 for conv.
_PATCHES = 500


def run(method: str, float32: bool, options: dict[str, Any]) -> None:
    """
    Time steps of a method and print the table.

    :param options: of the command line, all of them.
    :raises ValueError: for options of other methods.
    """
    for name, methods in _OWN.items():
        if method not in methods and not is_default(name):
            raise ValueError(
                f"--{name.replace('_', '-')} is for {', '.join(methods)}, not for {method}."
            )
    options["input_dim"] = options["input_dim"] or (10 if method == "softki" else 8)
    sizes = {name: value for name, value in options.items() if name not in _OWN}
    if method == "qsgp":
        _step_of_qsgp(options, float32)
    elif method == "softki":
        _step_of_softki(sizes)
    elif method == "swsgp":
        _step_of_swsgp(options, float32)
    elif method == "conv":
        _step_of_conv(options, float32)
    else:
        _step_against_svgp(method, sizes)


def _step_against_svgp(method: str, sizes: dict[str, Any]) -> None:
    from gpflow_sparse.bench.steps import bench_step

    rows, rate = bench_step(method, **{**sizes, "batch_size": sizes["batch_size"] or 512})
    table = [
        (
            row.title,
            f"{row.milliseconds:.1f}",
            f"{row.ratio:.3f}",
            "" if row.fraction is None else f"{row.fraction:.2f}",
        )
        for row in rows
    ]
    print_table(("model", "ms per step", "ratio to GPflow", "of the matmul rate"), table)
    click.echo(f"matmul rate {rate:.0f} GFLOP/s", err=True)
    click.echo(json.dumps({"rows": [dataclasses.asdict(r) for r in rows], "matmul_gflops": rate}))


def _step_of_qsgp(options: dict[str, Any], float32: bool) -> None:
    from gpflow_sparse.bench import qsgp_costs
    from gpflow_sparse.bench.qsgp_memory import step_memory
    from gpflow_sparse.bench.qsgp_sizes import StepSizes

    names = ("basis_batch_size", "num_support", "input_dim", "num_inducing")
    sizes = StepSizes(options["batch_size"] or 500, *(options[name] for name in names))
    num_basis, num_data = (whole_numbers(options[name], name) for name in ("num_basis", "num_data"))
    costs = qsgp_costs.step_costs(num_basis, num_data, sizes, repeats=options["repeats"])
    memory = [step_memory(m, sizes, float32=float32) for m in num_basis]
    header, rows = qsgp_costs.cost_table(costs, memory)
    print_table(header, rows)
    record = {
        "rows": [dataclasses.asdict(cost) for cost in costs],
        "memory": [dataclasses.asdict(grown) for grown in memory],
    }
    if options["output"] is not None:
        qsgp_costs.write_costs(options["output"], costs, memory)
        click.echo(f"table and picture in {options['output']}", err=True)
    click.echo(json.dumps(record))


def _step_of_softki(sizes: dict[str, Any]) -> None:
    from gpflow_sparse.bench.softki_steps import softki_steps

    if not is_default("num_orthogonal"):
        raise ValueError("--num-orthogonal is not for softki, which has one set of points.")
    del sizes["num_orthogonal"]
    rows = softki_steps(**{**sizes, "batch_size": sizes["batch_size"] or 1024})
    table = [(row.title, f"{row.milliseconds:.1f}", f"{row.ratio:.3f}") for row in rows]
    print_table(("model", "ms per step", "ratio to GPflow's SGPR"), table)
    click.echo(json.dumps({"rows": [dataclasses.asdict(row) for row in rows]}))


def _step_of_swsgp(options: dict[str, Any], float32: bool) -> None:
    from gpflow_sparse.bench import swsgp_memory, swsgp_steps

    for name in ("num_inducing", "num_orthogonal"):
        if not is_default(name):
            raise ValueError(f"--{name.replace('_', '-')} is not for swsgp: its sizes are fixed.")
    sizes = {name: options[name] for name in ("input_dim", "surface")}
    sizes["batch_size"] = options["batch_size"] or 64
    if options["memory"]:
        grown = dataclasses.asdict(swsgp_memory.neighbor_memory(float32=float32, **sizes))
        print_table(("what", "value"), [(name, f"{value:.4g}") for name, value in grown.items()])
        click.echo(json.dumps(grown))
        return
    rows = swsgp_steps.swsgp_steps(**sizes, repeats=options["repeats"])
    print_table(("model", "ms per step"), [(row.name, f"{row.milliseconds:.2f}") for row in rows])
    ratios = swsgp_steps.step_ratios(rows)
    print_table(("times", "ratio"), [(name, f"{ratio:.3f}") for name, ratio in ratios.items()])
    record = {"rows": [dataclasses.asdict(row) for row in rows], "ratios": ratios}
    click.echo(json.dumps(record))


def _step_of_conv(options: dict[str, Any], float32: bool) -> None:
    from gpflow_sparse.bench import conv_deep_steps, conv_kernels, conv_memory, conv_steps

    if not is_default("input_dim"):
        raise ValueError("--input-dim is not for conv, which has images of 28 x 28 pixels.")
    names = ("num_inducing", "num_orthogonal")
    M, M2 = (_PATCHES if is_default(name) else options[name] for name in names)
    images, repeats = options["batch_size"] or 64, options["repeats"]
    sizes = ImageSizes(num_images=images, num_inducing=M, num_orthogonal=M2)
    if options["memory"]:
        grown = conv_memory.kernel_memory(sizes, float32=float32)
        table = [(m.title, "yes" if m.gradient else "no", f"{m.peak:.0f}") for m in grown]
        print_table(("Kuf and Kdiag", "gradient", "peak, MB"), table)
        click.echo(json.dumps({"memory": [dataclasses.asdict(m) for m in grown]}))
        return
    times = conv_kernels.kernel_times(sizes, repeats=repeats)
    table = [(t.title, "yes" if t.gradient else "no", f"{t.milliseconds:.0f}") for t in times]
    print_table(("Kuf and Kdiag", "gradient", "ms"), table)
    ratios = conv_kernels.kernel_ratios(times)
    print_table(("times", "ratio"), [(name, f"{ratio:.3f}") for name, ratio in ratios.items()])
    steps = conv_steps.image_steps(sizes, repeats=repeats)
    parts = [(s.title, s.part, f"{s.milliseconds:.0f}", f"{s.ratio:.3f}") for s in steps]
    print_table(("model", "part", "ms per step", "ratio to GPflow"), parts)
    deep = conv_deep_steps.deep_steps(DeepSizes(), repeats=repeats)
    table = [(s.title, f"{s.milliseconds:.0f}", f"{s.ratio:.3f}") for s in deep]
    print_table(("two layers", "ms per step", "ratio to the double size"), table)
    measured: dict[str, Sequence[Any]] = {"kernels": times, "steps": steps, "deep": deep}
    record: dict[str, Any] = {
        name: [dataclasses.asdict(row) for row in rows] for name, rows in measured.items()
    }
    click.echo(json.dumps(record | {"ratios": ratios}))


def split_list(text: str) -> tuple[str, ...]:
    """What stands between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def whole_numbers(text: str, name: str = "splits") -> tuple[int, ...]:
    """:raises ValueError: for a list with anything but whole numbers."""
    if not all(part.isdecimal() for part in split_list(text)):
        raise ValueError(f"{name} must be numbers such as 0,1,2; got {text!r}.")
    return tuple(int(part) for part in split_list(text))


def is_default(name: str) -> bool:
    """Whether the command running has an option's default."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.DEFAULT
