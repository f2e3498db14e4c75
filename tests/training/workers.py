"""Worker processes on this machine: each runs the same command, with its place in ``TF_CONFIG``."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Any

# Seconds that workers have to end by themselves after one of them has failed.
_GRACE = 30.0


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
    """Start ``count`` workers, the chief first; ``options`` are those of ``subprocess.Popen``."""
    return [subprocess.Popen(command, env=env, **options) for env in environments(count)]


def wait(processes: Sequence[subprocess.Popen[Any]]) -> int:
    """
    Wait until all workers have ended; those that go on after one has failed are ended.

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
