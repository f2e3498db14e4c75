"""The public names of the package: listing by ``dir``, hints for misspellings, moved modules.

Nothing here imports TensorFlow: the names of other modules are read from their sources.
"""

import ast
import difflib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]
_ROOT = Path(__file__).parent
# Modules that were at the root of the package in version 0.1, by their folder today.
_MOVED = {
    "numerics": "linalg block_elimination streaming neighbors counters",
    "validation": "checks component_checks",
    "covariances": "stationary",
    "inference": "blocks chevron collapsed neighborhoods rotation subsampling",
    "initialization": "hyperparameters image_patches",
}
_NEW_PLACES = {
    f"{_PACKAGE}.{name}": f"{_PACKAGE}.{folder}.{name}"
    for folder, names in _MOVED.items()
    for name in names.split()
} | {
    f"{_PACKAGE}.{old}": f"{_PACKAGE}.{new}"
    for old, new in {
        "images": "covariances.patch_grids",
        "labels": "validation.checks",
        "validation.labels": "validation.checks",
        "noise_profile": "inference.rotation",
        "recomputation": "numerics.streaming",
        "numerics.recomputation": "numerics.streaming",
        "patch_sums": "kernels.convolutional",
        "covariances.patch_sums": "kernels.convolutional",
        "inference.noise_profile": "inference.rotation",
        "models.conv_layer": "models.deep.layers",
        "models.guarded": "models.base",
        "models.held_data": "models.training_data",
        "models.rowwise": "models.partial_updates",
        "numerics.waves": "numerics.cosines",
        "runs.baselines": "recipes.baselines",
        "runs.build": "recipes.building",
        "runs.calibration": "recipes.calibration",
        "runs.choice": "recipes.choice",
        "runs.evaluation": "recipes.evaluation",
        "runs.observations": "recipes.observations",
        "runs.starts": "recipes.starts",
        "models.minibatch": "models.base",
        "models.orthogonal": "models.solvegp.model",
        "models.row_streaming": "models.training_data",
        "models.weight_space": "models.basis",
        "posteriors.components": "models.grief.posterior",
        "posteriors.composed": "models.deep.posterior",
        "posteriors.draws": "posteriors.pathwise",
        "posteriors.local_paths": "posteriors.pathwise",
        "posteriors.residual": "posteriors.pathwise",
        "posteriors.type_one": "models.grief.model",
        "bases.eigensystems": "bases.grid_eigenfunctions",
        "bases.grids": "bases.product",
        "bases.interpolation": "bases.product",
        "bases.reweighted": "bases.grid_eigenfunctions",
        "bases.search": "bases.grid_eigenfunctions",
        "training.row_steps": "training.sparse",
        "inference.batch_evidence": "models.softki.batch_evidence",
        "inference.quadrature": "models.grief.quadrature",
        "inference.sampling": "models.grief.sampling",
        "inference.type_one": "models.grief.type_one",
        "models.deep_gp": "models.deep.model",
        "models.layers": "models.deep.layers",
        "models.odvgp": "models.solvegp.odvgp",
        "models.qsgp_closed_form": "models.qsgp.closed_form",
        "models.qsgp_options": "models.qsgp.options",
        "models.qsgp_step": "models.qsgp.step",
        "models.rvm": "models.qsgp.rvm",
        "models.solvegpr": "models.solvegp.regression",
        "models.swsgp_checks": "models.swsgp.checks",
        "models.swsgp_closed_form": "models.swsgp.closed_form",
        "models.swsgp_usage": "models.swsgp.counts",
        "posteriors.cells": "models.swsgp.cell_posterior",
        "posteriors.chevron": "models.qsgp.posterior",
        "posteriors.decoupled": "models.solvegp.odvgp_posterior",
        "posteriors.deep": "models.deep.posterior",
        "posteriors.layer": "models.deep.layer_posterior",
        "posteriors.mixture": "models.grief.posterior",
        "posteriors.neighbor": "models.swsgp.posterior",
        "posteriors.orthogonal": "models.solvegp.posterior",
        "posteriors.rotated": "models.solvegp.rotated",
        "posteriors.sites": "models.swsgp.site_posterior",
        "batch_evidence": "models.softki.batch_evidence",
        "quadrature": "models.grief.quadrature",
        "sampling": "models.grief.sampling",
        "type_one": "models.grief.type_one",
    }.items()
}
# Modules of GPflow; the package has one of the same name beside each.
_GPFLOWS = ("models", "kernels", "likelihoods", "inducing_variables")
# Classes that have another name today, found under the old one in modules that moved.
_RENAMED = {"GuardedModel": "SparseGPModel", "MinibatchModel": "VariationalModel"}


class _MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Importer of modules by their old names, with a deprecation warning."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _NEW_PLACES:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        new = _NEW_PLACES[module.__name__]
        warnings.warn(f"{module.__name__} is now {new}", DeprecationWarning, stacklevel=2)
        found = importlib.import_module(new)

        def today(name: str) -> Any:
            return getattr(found, _RENAMED.get(name, name))

        module.__dict__["__getattr__"] = today
        module.__dict__["__all__"] = [name for name in dir(found) if name[0] != "_"]


sys.meta_path.append(_MovedModules())


def restrict_dir(
    module: str, names: Sequence[str], former: Mapping[str, str] = MappingProxyType({})
) -> None:
    """
    Let ``dir(module)`` list only ``names``, and errors about unknown attributes contain a hint.

    :param module: ``__name__`` of the module.
    :param names: its ``__all__``.
    :param former: names that the module had before, with a deprecation warning, and the present.
    """
    target: Any = sys.modules[module]
    target.__dir__ = lambda: sorted(names)
    target.__getattr__ = lambda name: attribute(module, {}, name, former)


def attribute(
    module: str,
    lazy: Mapping[str, str],
    name: str,
    former: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """
    The result of ``__getattr__`` of a module (PEP 562).

    :param lazy: names that are imported on first use, each with the module that defines it; for a
        submodule its own name.
    :param former: names that the module had before, with a deprecation warning, and the present.
    :raises AttributeError: for any other name, with the public name that is closest to it.
    """
    if name in former:
        warnings.warn(f"{module}.{name} is now {former[name]}", DeprecationWarning, stacklevel=3)
        return getattr(sys.modules[module], former[name])
    if name in lazy:
        found = importlib.import_module(lazy[name])
        return found if lazy[name] == f"{module}.{name}" else getattr(found, name)
    hint = None if name.startswith("_") else _closest(module, name)
    raise AttributeError(
        f"module {module!r} has no attribute {name!r}" + (f"; did you mean {hint}?" if hint else "")
    )


def former_attribute(name: str) -> property:
    """A property for the former name of an attribute, with a deprecation warning."""

    def read(owner: Any) -> Any:
        message = f"an attribute of {type(owner).__name__} has another name now: {name}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(owner, name)

    return property(read)


def deprecate_aliases(module: str, replaced: Mapping[str, tuple[str, Any]]) -> None:
    """
    Keep names of version 0.1 in a module, with a deprecation warning.

    :param module: ``__name__`` of the module.
    :param replaced: for every such name the present spelling, and its value.
    """

    def found(name: str) -> Any:
        if name not in replaced:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        today, value = replaced[name]
        warnings.warn(f"{module}.{name} is now {today}", DeprecationWarning, stacklevel=2)
        return value

    target: Any = sys.modules[module]
    target.__getattr__ = found


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
        for path in (_ROOT / name / "__init__.py", _ROOT / f"{name}.py"):
            if path.is_file():
                found[f"{_PACKAGE}.{name}"] = _listed(path)
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
