"""Rules of the layout, read from the source: imports go downward, files stay short, no utils."""

import ast
import functools
from pathlib import Path

import pytest

import gpflow_sparse

PACKAGE = Path(gpflow_sparse.__file__).parent
NAME = PACKAGE.name

# Level of every file or folder at the top of the package, and of every folder of the product for
# tables: imports go to the same or a lower level.
LEVELS = {
    "_version": 0,
    "_names": 0,
    "numerics": 0,
    "validation": 0,
    "covariances": 1,
    "inference": 1,
    "likelihoods": 1,
    "mean_functions": 1,
    "initialization": 2,
    "bases": 2,
    "kernels": 3,
    "inducing_variables": 4,
    "posteriors": 5,
    "models": 6,
    "data": 7,
    "training": 8,
    "diagnosis": 8,
    "persistence": 8,
    "__init__": 8,  # the names a user types, loaded on first use
    "tables": 9,
    "tables/reading": 9,
    "tables/fitting": 10,
    "tables/methods": 10,
    "tables/recipes": 10,
    "tables/estimators": 11,
    "tables/report": 12,
    "tables/cli": 13,
    # public names of both layers, and of the product for tables
    "save_load": 12,
    "recipes": 12,
    "estimators": 12,
}
CORE = [name for name in LEVELS if LEVELS[name] < LEVELS["tables"]]
# Packages that come with the extra ``tables``.
OF_TABLES = {"pandas", "pyarrow", "narwhals", "click", "jinja2"}
# What else must not be imported, whatever the levels are.
APART = {
    "tables/reading": {"models", "training"},
}
# Public names that load on first use.
UPWARD_ON_PURPOSE = {
    (f"{NAME}.data", f"{NAME}.tables.reading.cells"),
    (f"{NAME}.data", f"{NAME}.tables.reading.tables"),
    (f"{NAME}.data", f"{NAME}.tables.reading.folders"),
}
# Methods that are made of other methods: these may import the faces of those.
MADE_OF = {
    "deep": {"solvegp", "swsgp"},
    "nearest_neighbor": {"swsgp"},
}
# The benchmarks, which are not installed, have the same limits of lines.
SOURCES = [
    path
    for folder in (PACKAGE, Path(__file__).parents[1] / "docs" / "benchmarks")
    for path in sorted(folder.rglob("*.py"))
]
# Lines of Python in every folder of the package and of the tests, files at their top by themselves.
# A ceiling falls with every commit that removes lines; it rises only with a sentence in the commit
# message on what the lines bought.
CEILINGS = {
    "gpflow_sparse": 595,
    "gpflow_sparse/bases": 1848,
    "gpflow_sparse/covariances": 550,
    "gpflow_sparse/data": 1547,
    "gpflow_sparse/diagnosis": 995,
    "gpflow_sparse/inducing_variables": 972,
    "gpflow_sparse/inference": 3439,
    "gpflow_sparse/initialization": 1423,
    "gpflow_sparse/kernels": 991,
    "gpflow_sparse/likelihoods": 1087,
    "gpflow_sparse/models": 13500,
    "gpflow_sparse/numerics": 2210,
    "gpflow_sparse/persistence": 1752,
    "gpflow_sparse/posteriors": 1235,
    "gpflow_sparse/tables": 160,
    "gpflow_sparse/tables/cli": 1755,
    "gpflow_sparse/tables/estimators": 1217,
    "gpflow_sparse/tables/fitting": 3310,
    "gpflow_sparse/tables/methods": 2346,
    "gpflow_sparse/tables/reading": 2285,
    "gpflow_sparse/tables/report": 509,
    "gpflow_sparse/training": 3393,
    "gpflow_sparse/validation": 1094,
    "tests": 5249,
    "tests/bases": 1156,
    "tests/bench": 1478,
    "tests/covariances": 155,
    "tests/data": 971,
    "tests/hostile": 3411,
    "tests/inducing_variables": 756,
    "tests/inference": 851,
    "tests/initialization": 608,
    "tests/kernels": 506,
    "tests/likelihoods": 594,
    "tests/models": 6119,
    "tests/numerics": 849,
    "tests/oracles": 2477,
    "tests/persistence": 2040,
    "tests/posteriors": 1023,
    "tests/tables": 0,
    "tests/tables/cli": 1427,
    "tests/tables/estimators": 1220,
    "tests/tables/fitting": 2462,
    "tests/tables/methods": 633,
    "tests/tables/reading": 1957,
    "tests/tables/report": 405,
    "tests/training": 3757,
    "tests/validation": 252,
}
MAX_SLACK = 50
MAX_FILE_LINES = 500
MAX_BODY_LINES = 40


def module_name(path, package=PACKAGE):
    """``gpflow_sparse/models/base.py`` is ``gpflow_sparse.models.base``."""
    parts = [NAME, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source, module, is_package, modules):
    """The package's own modules that a file imports, wherever in the file it does so."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*above, *([node.module] if node.module else [])])
            # `from package import module` imports the module, `from module import name` the module
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in modules else base)
    return {name for name in found if name == NAME or name.startswith(f"{NAME}.")}


def folder(module):
    parts = module.split(".")[1:]
    return "/".join(parts[: 2 if parts[:1] == ["tables"] else 1]) or "__init__"


@functools.cache
def read_package(package=PACKAGE):
    paths = {module_name(path, package): path for path in sorted(package.rglob("*.py"))}
    return {
        module: imports(path.read_text(), module, path.name == "__init__.py", paths)
        for module, path in paths.items()
    }


def upward(graph):
    return sorted(
        (module, target)
        for module, targets in graph.items()
        for target in targets
        if (
            LEVELS[folder(target)] > LEVELS[folder(module)]
            or folder(target) in APART.get(folder(module), ())
        )
        and (module, target) not in UPWARD_ON_PURPOSE
    )


def circles(graph):
    """Circles of modules that import each other, the one import on purpose left out."""
    found, done = [], set()

    def visit(module, trail):
        if module in trail:
            found.append([*trail[trail.index(module) :], module])
        elif module not in done:
            for target in sorted(graph.get(module, ())):
                if (module, target) not in UPWARD_ON_PURPOSE:
                    visit(target, [*trail, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])
    return found


def body_lines(function):
    """Lines of a function from its first statement after the docstring."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def long_bodies(source):
    return [
        (node.name, body_lines(node))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and body_lines(node) > MAX_BODY_LINES
    ]


def test_every_folder_has_a_level():
    folders = {folder(module) for module in read_package()}
    assert folders - set(LEVELS) == set()
    assert {"numerics", "inference", "inducing_variables", "posteriors", "models"} <= folders


def test_imports_go_downward():
    assert upward(read_package()) == []


def method_of(module):
    """The folder of a method that a module lies in or is the face of; None for others."""
    parts = module.split(".")
    is_folder = (PACKAGE / "models" / parts[2]).is_dir() if len(parts) > 2 else False
    return parts[2] if parts[1:2] == ["models"] and is_folder else None


def across(graph):
    """Imports of the insides of another method, or of a method that this one is not made of."""
    found = []
    for module, targets in graph.items():
        mine = method_of(module)
        for target in targets:
            other = method_of(target)
            if other is None or other == mine:
                continue
            is_face = target.count(".") == 2
            allowed = mine is None or other in MADE_OF.get(mine, ())
            if not (is_face and allowed):
                found.append((module, target))
    return sorted(found)


def test_other_methods_are_imported_by_their_faces_along_a_short_list():
    assert across(read_package()) == []


def test_nothing_below_the_models_imports_a_method():
    graph = read_package()
    below = [m for m in graph if LEVELS[folder(m)] < LEVELS["models"]]
    assert [(m, t) for m in below for t in graph[m] if method_of(t)] == []
    shared = [
        m for m in graph if folder(m) == "models" and method_of(m) is None and m.count(".") > 1
    ]
    assert [(m, t) for m in shared for t in graph[m] if method_of(t)] == []


def test_no_modules_import_each_other_in_a_circle():
    assert circles(read_package()) == []


def test_the_upward_imports_are_there():
    graph = read_package()
    assert all(target in graph[module] for module, target in UPWARD_ON_PURPOSE)


def packages_of(source):
    """Top names of everything that a file imports, wherever in the file it does so."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in names}


def test_the_core_imports_nothing_that_comes_with_tables():
    found = {
        str(path.relative_to(PACKAGE)): packages_of(path.read_text()) & OF_TABLES
        for path in PACKAGE.rglob("*.py")
        if folder(module_name(path)) in CORE
    }
    assert {path: names for path, names in found.items() if names} == {}
    assert packages_of("def f():\n    import pandas.api\n    from click import x") & OF_TABLES == {
        "pandas",
        "click",
    }


@pytest.mark.parametrize(
    ("path", "line", "target"),
    [
        ("inference/blocks.py", "import gpflow_sparse.models", "gpflow_sparse.models"),
        ("numerics/linalg.py", "def f():\n    from .. import models", "gpflow_sparse.models"),
        ("numerics/linalg.py", "import gpflow_sparse", "gpflow_sparse"),
        ("tables/reading/tables.py", "from gpflow_sparse import models", "gpflow_sparse.models"),
        ("tables/fitting/task.py", "from ..cli import main", "gpflow_sparse.tables.cli.main"),
    ],
)
def test_a_made_up_upward_import_is_caught(tmp_path, path, line, target):
    package = copy_with(tmp_path, {path: line})
    module = module_name(package / path, package)
    assert (module, target) in upward(read_package(package))


def copy_with(tmp_path, sources):
    """A package of empty files where ours has files, but for ``sources``."""
    for path in PACKAGE.rglob("*.py"):
        relative = path.relative_to(PACKAGE)
        target = tmp_path / NAME / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(sources.get(str(relative), ""))
    return tmp_path / NAME


def test_no_file_is_named_utils():
    stems = {path.stem for path in PACKAGE.rglob("*")}
    assert not stems & {"utils", "util", "helpers", "misc", "common"}


def test_files_have_at_most_500_lines():
    counts = {str(p): len(p.read_text().splitlines()) for p in SOURCES}
    assert {path: count for path, count in counts.items() if count > MAX_FILE_LINES} == {}


def lines_by_folder():
    root, found = PACKAGE.parent, dict.fromkeys(CEILINGS, 0)
    for top in (PACKAGE, Path(__file__).parent):
        for path in top.rglob("*.py"):
            parts = path.relative_to(root).parts[:-1]
            name = "/".join(parts[: 3 if parts[1:2] == ("tables",) else 2])
            found[name] = found.get(name, 0) + len(path.read_text().splitlines())
    return found


def test_folders_stay_below_their_ceilings_of_lines_which_fall_with_them():
    found = lines_by_folder()
    assert set(found) == set(CEILINGS)
    above = {name: count for name, count in found.items() if count > CEILINGS[name]}
    assert above == {}, "remove lines, or raise the ceiling and say in the commit what they bought"
    below = {name: count for name, count in found.items() if count < CEILINGS[name] - MAX_SLACK}
    assert below == {}, "lower the ceilings to these numbers"


def test_functions_have_at_most_40_lines_of_body():
    found = {str(p): long_bodies(p.read_text()) for p in SOURCES}
    assert {path: names for path, names in found.items() if names} == {}


# Without a seeded block, these take a seed from TensorFlow's global generator, as its documentation
# and ours says; the first also draws for all others.
DRAW_FROM_THE_GLOBAL_GENERATOR = {"random_draws", "pathwise"}
# Deterministic training needs a global seed, or random operations would raise; it says so.
SET_THE_GLOBAL_SEED = {"fit", "runs"}
STATEFUL = {"categorical", "gamma", "normal", "poisson", "shuffle", "truncated_normal", "uniform"}


def global_draws(source):
    """Names of calls ``tf.random.NAME`` and ``np.random.NAME`` with process-wide generators."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    names = [ast.unparse(call).rpartition("random.")[1:] for call in calls]
    return {name for found, name in names if found} & (STATEFUL | {"set_seed", "seed"})


def test_random_numbers_come_from_own_generators():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in global_draws(path.read_text()):
            found.setdefault("seed" if name.endswith("seed") else "draw", set()).add(path.stem)
    assert found == {"seed": SET_THE_GLOBAL_SEED, "draw": DRAW_FROM_THE_GLOBAL_GENERATOR}
    assert global_draws("x = np.random.normal(size=3); tf.random.set_seed(1)") == {
        "normal",
        "set_seed",
    }


# The one file that uses private names of TensorFlow and TensorFlow Probability; it says which.
PRIVATE = "numerics/tracing.py"
# Other names with an underscore that the package uses and does not define.
OF_GPFLOW = {"_quadrature_log_prob", "_quadrature_reduction", "_reduce", "_shape", "_training_loss"}
OF_SCIKIT_LEARN = {"_baseline_prediction", "_predictors"}
OF_PYTHON = {"_asdict", "_getframe", "_replace"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def defined_names(source):
    """Names of methods, attributes of classes, and attributes that are set on ``self``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield from (part.name for part in node.body if isinstance(part, ast.FunctionDef))
            lines = (line for line in node.body if isinstance(line, ast.Assign | ast.AnnAssign))
            parts = (part for line in lines for part in ast.walk(line))
            yield from (part.id for part in parts if isinstance(part, ast.Name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) == "self":
                yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__setattr__":
            yield getattr(node.args[1], "value", "")


def used_names(source):
    """Private modules that are imported, private attributes, and exchanged classes of objects."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{getattr(node, 'module', '')}."
            names = [f"{module}{alias.name}".strip(".") for alias in node.names]
            for name in (name for name in names if not name.startswith(NAME)):
                if "tensorflow.python" in name or any(map(is_private, name.split("."))):
                    yield name
        elif isinstance(node, ast.Attribute):
            is_exchanged = node.attr == "__class__" and isinstance(node.ctx, ast.Store)
            if is_private(node.attr) or node.attr == "__internal__" or is_exchanged:
                yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(name.value):
                yield name.value


def private_names_of_others(sources):
    """By file: private names that no file defines."""
    own = {name for source in sources.values() for name in defined_names(source)}
    found = {path: set(used_names(source)) - own for path, source in sources.items()}
    return {path: names for path, names in found.items() if names}


def test_one_file_uses_private_names_of_tensorflow():
    sources = {str(p.relative_to(PACKAGE)): p.read_text() for p in PACKAGE.rglob("*.py")}
    found = private_names_of_others(sources)
    assert found.pop(PRIVATE) == {
        "tensorflow.python.framework.ops",
        "_registry",
        "_cache",
        "_flatten",
    }
    assert set().union(*found.values()) == OF_GPFLOW | OF_SCIKIT_LEARN | OF_PYTHON, found


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from tensorflow.python.eager import context", "tensorflow.python.eager.context"),
        ("import tensorflow as tf; tf.__internal__.FuncGraph", "__internal__"),
        ("value.__class__ = Other", "__class__"),
        ("function._call_flat([])", "_call_flat"),
        ("getattr(model, '_flatten')", "_flatten"),
    ],
)
def test_a_private_name_of_another_package_is_found(line, name):
    own = "class A:\n    _first = 1\n    def f(self):\n        self._own = self._first + self._own"
    assert private_names_of_others({"a.py": line, "b.py": own}) == {"a.py": {name}}
