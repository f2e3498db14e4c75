"""The product for tables, above the models: files, choice of a method, estimators, command line.

It needs the extra ``tables``; nothing below imports it.
"""

from importlib.util import find_spec

_NEEDED = ("pandas", "pyarrow", "click", "jinja2")

if _missing := [name for name in _NEEDED if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"tables need {' and '.join(_missing)}, which the extra brings: "
        "pip install 'gpflow_sparse[tables]'"
    )
