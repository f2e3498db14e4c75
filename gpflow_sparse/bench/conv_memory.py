"""What a process grows by when it takes covariances of images; no TensorFlow until one is there."""

from gpflow_sparse.bench.conv_sizes import GPFLOW, ONE_SHOT, OURS, ImageSizes, KernelMemory
from gpflow_sparse.bench.qsgp_memory import in_own_process, megabytes
from gpflow_sparse.runs.session import session

# Images of the rehearsal, after which threads and libraries have what they always need.
_REHEARSED = 2


def kernel_memory(sizes: ImageSizes, *, float32: bool) -> list[KernelMemory]:
    """
    Take Kuf and Kdiag of all inducing patches, twice, each time in a process of its own.

    :raises ValueError: where the system does not say how much memory a process has.
    """
    works = ((OURS, True), (ONE_SHOT, True), (OURS, False), (ONE_SHOT, False), (GPFLOW, False))
    return [in_own_process(_measure, *work, sizes, float32) for work in works]


def _measure(title: str, gradient: bool, sizes: ImageSizes, float32: bool) -> KernelMemory:
    with session(float32, None):
        from gpflow_sparse.bench.conv_kernels import made_work

        X, works = made_work(sizes)
        make = works[title].gradient if gradient else works[title].forward
        make(X[:_REHEARSED])()
        before = megabytes("VmRSS")
        step = make(X)
        for _ in range(2):
            step()
        return KernelMemory(title, gradient, megabytes("VmHWM") - before)
