"""Setup of TensorFlow for a command: messages, float type, device, and the answer to Ctrl-C."""

import contextlib
import gc
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import click

# New objects between two searches for garbage; Python's default is 700.
_GARBAGE_THRESHOLD = 50_000


@contextlib.contextmanager
def session(float32: bool, device: str | None, jitter: float = 0.0) -> Iterator[None]:
    """
    TensorFlow, imported without its messages, in the given precision and on the given device.

    :param jitter: lower limit of GPflow's default jitter.
    :raises ValueError: for a device that the machine does not have.
    """
    with _quiet_import():
        import check_shapes

        # of GPflow's functions, which takes 2 s, and which nobody reads here
        check_shapes.set_rewrite_docstrings(None)
        import gpflow
        import numpy as np
        import tensorflow as tf
    precision = gpflow.config.Config(
        float=np.float32 if float32 else np.float64,
        jitter=max(jitter, gpflow.config.default_jitter()),
    )
    if float32:
        # on recent GPUs TensorFloat-32 would round products to 10 bits
        tf.config.experimental.enable_tensor_float_32_execution(False)
    placement = tf.device(_known_device(device)) if device else contextlib.nullcontext()
    with gpflow.config.as_context(precision), placement, _ctrl_c_acknowledged():
        yield


@contextlib.contextmanager
def model_session(path: Path, device: str | None) -> Iterator[None]:
    """A session with the precision and the jitter of a saved model, or of the model of a run."""
    from gpflow_sparse.persistence import read_header

    header = read_header(path / "model.safetensors" if path.is_dir() else path)
    with session(header["float"] == "float32", device, header["jitter"]):
        yield


@contextlib.contextmanager
def _ctrl_c_acknowledged() -> Iterator[None]:
    """
    Say on standard error that Ctrl-C has arrived, at once.

    Python handles a signal between two of its own instructions, so that a long operation of
    TensorFlow or SciPy delays it. The number of the signal, which Python writes into a socket, is
    not delayed, and a thread reads it. Signals are left as they are outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    previous = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    reader = threading.Thread(target=_acknowledge, args=(receiver,), daemon=True)
    reader.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        sender.close()  # ends the thread
        reader.join()
        receiver.close()


def _acknowledge(receiver: socket.socket) -> None:
    """Print a line for each Ctrl-C until the other end of a socket is closed."""
    while number := receiver.recv(1):
        if number[0] == signal.SIGINT:
            click.echo(
                "Ctrl-C: the present computation ends first, then what can be kept is kept",
                err=True,
            )


def _known_device(device: str) -> str:
    import tensorflow as tf

    names = [d.name.removeprefix("/physical_device:") for d in tf.config.list_physical_devices()]
    wanted = device.upper().lstrip("/")
    if wanted not in names and f"{wanted}:0" not in names:
        raise ValueError(
            f"device {device!r} is not available; this machine has {', '.join(names)}."
        )
    return f"/{wanted}"


@contextlib.contextmanager
def _quiet_import() -> Iterator[None]:
    """
    Hide messages of TensorFlow's import on standard error; show them if it fails.

    The import takes 2.9 s instead of 4.8 without Keras 3, since GPflow uses tf_keras, and without
    searches for garbage, and there is none. Later searches are rare, since tracing makes many
    objects, and do not visit the imported modules.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    gc.disable()
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        except BaseException:
            captured.seek(0)
            os.write(saved, captured.read())
            raise
        finally:
            gc.freeze()
            gc.set_threshold(_GARBAGE_THRESHOLD)
            gc.enable()
            os.dup2(saved, 2)
            os.close(saved)
