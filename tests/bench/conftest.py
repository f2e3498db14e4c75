"""The benchmarks read TOML files by a module that Python has from 3.11 on."""

import sys

collect_ignore_glob = [] if sys.version_info >= (3, 11) else ["test_*.py"]
