"""What a record says of where it was made: commit, processor, cores, versions."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gpflow_sparse
from bench.steps import num_threads

_PACKAGES = ("gpflow_sparse", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
_CPU_INFO = Path("/proc/cpuinfo")


def provenance() -> dict[str, Any]:
    """Cores of the machine, those of this process, the commit and versions of packages."""
    return {
        "cores": os.cpu_count(),
        "threads": num_threads(),
        "commit": commit(),
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
    }


def commit() -> str:
    """The commit of the package's source, with "+" if it was changed; empty if not in git."""
    git = ("git", "-C", str(Path(gpflow_sparse.__file__).parent))
    try:
        found, changed = (
            subprocess.run([*git, *command], capture_output=True, text=True, check=False).stdout
            for command in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "."))
        )
    except OSError:
        return ""
    return found.strip() + "+" * bool(changed.strip())


def processor() -> str:
    """The model of the processor, and whether it has AVX-512, where Linux reports it."""
    if not _CPU_INFO.is_file():
        return platform.processor()
    lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    vectors = "AVX-512" if "avx512f" in named.get("flags", "").split() else "no AVX-512"
    return f"{named.get('model name', platform.processor())} ({vectors})"
