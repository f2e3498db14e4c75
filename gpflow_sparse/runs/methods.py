"""The methods that the command line trains, from ``methods.toml``: names, groups and defaults."""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
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
"""By key on the command line: name, idea, family, options, needs, for_classes, baseline, rounds,
untrained and defaults."""
AUTO = "auto"
"""The choice of a method by its predictions of held-out rows."""
OF_METHODS = frozenset(name for m in METHODS.values() for name in m["options"].split())
"""Options that not all methods have."""
_OF_AUTO = frozenset(("minutes", "trees"))
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


def takers(name: str) -> list[str]:
    """The methods that read an option; all of them, for one that is common."""
    if name in _OF_AUTO:
        return [AUTO]
    has = (m for m in METHODS if name not in OF_METHODS or name in METHODS[m]["options"].split())
    return [AUTO, *has]


def options_of(method: str) -> list[str]:
    """The options that a method has beside those that all methods have."""
    return list(_OF_AUTO) if method == AUTO else METHODS[method]["options"].split()


def needed(method: str, name: str) -> str | None:
    """The option without which a method does not read another one of its options."""
    found: str | None = METHODS.get(method, {}).get("needs", {}).get(name)
    return found


def read_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some options that a method reads."""
    return {
        name: value
        for name, value in options.items()
        if method in takers(name) and (needed(method, name) or name) in options
    }


def require_options(method: str, options: Mapping[str, Any]) -> None:
    """:raises ValueError: naming the first option that a method does not read, and who does."""
    for name in options.keys() - read_options(method, options):
        help = f"`gpflow-sparse fit {method} --help` lists the options of {method}."
        if method in takers(name):
            raise ValueError(f"{name} is for {method} with {needed(method, name)} alone. {help}")
        near = get_close_matches(name, options_of(method), n=1)
        hint = f"; {method} has {near[0]}" if near else ""
        others = [m for m in takers(name) if m != AUTO] or [AUTO]
        who = " and ".join(others if len(others) < 4 else [", ".join(others[:3]), "others"])
        raise ValueError(f"{name} is not for {method}, but for {who}{hint}. {help}")
