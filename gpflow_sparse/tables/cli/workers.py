"""Worker processes: each runs the same command, with its place in ``TF_CONFIG``; no TensorFlow."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from gpflow_sparse.tables.methods.base import Recipe

# Seconds that workers have to end by themselves after one of them has failed.
_GRACE = 30.0


def is_worker() -> bool:
    """Whether ``TF_CONFIG`` says that this process is one of several workers."""
    return len(_place().get("cluster", {}).get("worker", ())) > 1


def is_chief() -> bool:
    """Whether this process is the only one, or the worker that writes files."""
    return not is_worker() or int(_place()["task"]["index"]) == 0


def require_divisible(recipe: Recipe, *, among_workers: bool) -> None:
    """
    Whether the training of a method can be shared among workers, or devices of one process.

    :param among_workers: False for devices.
    :raises ValueError: if it cannot, and for a time, from which each worker would find another
        number of steps.
    """
    if not recipe.by_minibatches or (recipe.is_choice and among_workers):
        raise ValueError(
            "--workers and --devices need a --method that is trained by minibatches, which "
            f"{recipe.name} is not."
        )
    if recipe.minutes is not None and not recipe.is_choice and among_workers:
        raise ValueError("--minutes is not for --workers, which take the same number of steps.")


def leave() -> None:
    """End this process at once: TensorFlow would wait for, or complain about, other workers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run_command(count: int) -> int:
    """
    Run the command of this process in ``count`` workers on this machine, and wait for them.

    Messages of the chief are printed, and messages of the others if one of them fails. Ctrl-C in a
    terminal goes to all.

    :return: 0, or the status of the first that failed.
    """
    command = [
        sys.executable,
        "-c",
        "from gpflow_sparse.tables.cli.main import main; main()",
        *sys.argv[1:],
    ]
    with tempfile.TemporaryFile() as others:
        quiet: dict[str, Any] = {"stdout": others, "stderr": others}
        processes = [
            subprocess.Popen(command, env=env, **(quiet if place else {}))
            for place, env in enumerate(environments(count))
        ]
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            status = wait(processes)
        finally:
            signal.signal(signal.SIGINT, before)
        if status and not processes[0].returncode:
            others.seek(0)
            sys.stderr.write(others.read().decode(errors="replace"))
    return status


def _place() -> dict[str, Any]:
    found = json.loads(os.environ.get("TF_CONFIG", "{}"))
    return found if isinstance(found, dict) else {}


def environments(count: int) -> list[dict[str, str]]:
    """The environment of each of ``count`` workers, the chief first; ports are free ones."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:  # all are open at once, so that the ports differ
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    cluster = {"worker": addresses}
    return [
        {
            **os.environ,
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}),
        }
        for i in range(count)
    ]


def start(command: Sequence[str], count: int, **options: Any) -> list[subprocess.Popen[Any]]:
    """Start ``count`` workers, the chief first; ``options`` go to ``subprocess.Popen``."""
    return [subprocess.Popen(command, env=env, **options) for env in environments(count)]


def wait(processes: Sequence[subprocess.Popen[Any]]) -> int:
    """
    Wait until all workers have ended; after a failure of one the others are ended.

    :return: 0, or the status of the first that failed.
    """
    deadline, failed = float("inf"), 0
    while any(process.poll() is None for process in processes):
        time.sleep(0.05)
        found = [process.returncode for process in processes if process.returncode]
        if found and not failed:
            failed, deadline = found[0], time.monotonic() + _GRACE
        if time.monotonic() > deadline:
            for process in processes:
                process.kill()
    return failed or next((p.returncode for p in processes if p.returncode), 0)
