"""What a process grows by when it trains QSGP; no TensorFlow until one has been started."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

from gpflow_sparse.bench.qsgp_sizes import StepMemory, StepSizes
from gpflow_sparse.runs.session import session

# Where Linux says how much of a process is in memory.
_STATUS = Path("/proc/self/status")
_Measured = TypeVar("_Measured")


def step_memory(
    num_basis: int, sizes: StepSizes, *, float32: bool, num_steps: int = 10
) -> StepMemory:
    """
    Make a model and take steps in a process of their own.

    :raises ValueError: where the system does not say how much memory a process has.
    """
    return in_own_process(_measure, num_basis, sizes, float32, num_steps)


def in_own_process(measure: Callable[..., _Measured], *arguments: object) -> _Measured:
    """
    What a function of a module returns in a new process, where only its own memory counts.

    :raises ValueError: where the system does not say how much memory a process has.
    """
    if not _STATUS.is_file():
        raise ValueError(f"memory is measured where there is {_STATUS}, that is on Linux.")
    # a forked process would begin with the memory of this one
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, *arguments).result()


def _measure(num_basis: int, sizes: StepSizes, float32: bool, num_steps: int) -> StepMemory:
    with session(float32, None):
        from gpflow_sparse.bench.qsgp_costs import made_rows, qsgp_step

        data = made_rows(sizes.input_dim)
        before = megabytes("VmRSS")
        step = qsgp_step(num_basis, data, sizes)
        for _ in range(num_steps):
            step()
        held = 4.0 * num_basis * data[0].dtype.size / 2**20
        grown, peak = megabytes("VmRSS") - before, megabytes("VmHWM") - before
        return StepMemory(num_basis, held, grown, peak)


def megabytes(field: str) -> float:
    """A field of what Linux says of this process: VmRSS, or VmHWM for the most there was."""
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kilobytes) / 1024.0
