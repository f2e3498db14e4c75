"""The methods that the command line trains, from ``methods.toml``: names, groups and defaults."""

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


METHODS = read_toml(Path(__file__).with_suffix(".toml"))
"""By key on the command line: name, idea, family, for_classes, baseline, rounds, untrained and
defaults."""
FOR_CLASSES = {key: m["for_classes"] for key, m in METHODS.items() if "for_classes" in m}
"""Methods for regression only, and the methods to use for classification."""
SAMPLED_METHODS = tuple(key for key, m in METHODS.items() if m["family"] == "sampled")
BASIS_METHODS = tuple(key for key, m in METHODS.items() if m["family"] in ("basis", "sampled"))
IMAGE_METHODS = tuple(key for key, m in METHODS.items() if m["family"] == "images")
EXACT_METHODS = tuple(key for key, m in METHODS.items() if m["family"] == "exact")
ROUND_METHODS = tuple(key for key, m in METHODS.items() if m.get("rounds"))
UNTRAINED_METHODS = tuple(key for key, m in METHODS.items() if m.get("untrained"))
"""Methods whose starting hyperparameters are the final ones."""
BASELINES = tuple(key for key, m in METHODS.items() if m.get("baseline"))
