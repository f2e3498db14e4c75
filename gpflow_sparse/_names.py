"""The public names of the package: listing by ``dir``, and hints for misspellings.

Nothing here imports TensorFlow: the names of other modules are read from their sources.
"""

import ast
import difflib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]
_ROOT = Path(__file__).parent
# Modules of GPflow; the package has one of the same name beside each.
_GPFLOWS = ("models", "kernels", "likelihoods", "inducing_variables")


def restrict_dir(module: str, names: Sequence[str]) -> None:
    """
    Let ``dir(module)`` list only ``names``, and errors about unknown attributes contain a hint.

    :param module: ``__name__`` of the module.
    :param names: its ``__all__``.
    """
    target: Any = sys.modules[module]
    target.__dir__ = lambda: sorted(names)
    target.__getattr__ = lambda name: attribute(module, {}, name)


def attribute(module: str, lazy: Mapping[str, str], name: str) -> Any:
    """
    The result of ``__getattr__`` of a module (PEP 562).

    :param lazy: names that are imported on first use, each with the module that defines it; for a
        module its own name.
    :raises AttributeError: for any other name, with the public name that is closest to it.
    """
    if name in lazy:
        found = importlib.import_module(lazy[name])
        return found if lazy[name].endswith(f".{name}") else getattr(found, name)
    hint = None if name.startswith("_") else _closest(module, name)
    raise AttributeError(
        f"module {module!r} has no attribute {name!r}" + (f"; did you mean {hint}?" if hint else "")
    )


def _closest(module: str, name: str) -> str | None:
    """
    The public name closest to ``name``, ignoring case and underscores; own names first. A name of
    GPflow's module of the same name is that one, unless the package has it too.
    """
    spelled: dict[str, str] = {}
    for owner, names in sorted(_public_names().items(), key=lambda item: item[0] == module):
        if owner.endswith(".recipes") and owner != module:
            continue  # its functions have the names of classes, but for case
        spelled |= {_plain(known): f"{owner}.{known}" for known in names}
    if _plain(name) not in spelled:
        spelled |= {
            _plain(known): f"gpflow.{each}.{known}"
            for each in _GPFLOWS
            if module in (_PACKAGE, f"{_PACKAGE}.{each}")
            for known in _gpflow_classes(each)
            if _plain(known) == _plain(name)
        }
    found = difflib.get_close_matches(_plain(name), spelled, n=1, cutoff=0.75)
    return spelled[found[0]] if found else None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


@functools.cache
def _public_names() -> dict[str, list[str]]:
    """``__all__`` of every public module; models last, so that they have priority."""
    own = [name for name in sys.modules[_PACKAGE].__all__ if not name.startswith("_")]
    found = {_PACKAGE: own}
    for name in sorted(own, key="models".__eq__):
        files = (f"{name}/__init__.py", f"tables/{name}.py", f"{name}.py")
        paths = (path for path in (_ROOT / file for file in files) if path.is_file())
        found[f"{_PACKAGE}.{name}"] = [each for path in paths for each in _listed(path)]
    return found


@functools.cache
def _gpflow_classes(module: str) -> list[str]:
    """Public names of a module of GPflow, without its files and functions."""
    spec = importlib.util.find_spec("gpflow")
    if spec is None or spec.origin is None:
        return []
    names = _listed(Path(spec.origin).parent / module / "__init__.py")
    return [name for name in names if not name.islower()]


def _listed(path: Path) -> list[str]:
    """``__all__`` of a module, from its source."""
    return [
        listed
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for listed in ast.literal_eval(node.value)
    ]
