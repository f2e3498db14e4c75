"""Type checks of JSON records in files: ``result.json``, ``config.json``, checkpoint headers.

Files may be damaged or written by someone else, so every field is compared with a declared type
before anything uses it. Does not import TensorFlow.
"""

import dataclasses
import json
import reprlib
import types
import typing
from pathlib import Path
from typing import Any, NamedTuple

_WORDS = {
    bool: "true or false",
    int: "an integer of at most 63 bits",
    float: "a number",
    str: "text",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


class Between(NamedTuple):
    """The type of a number from ``low`` to ``high``, both included, and optionally null."""

    low: float
    high: float
    or_null: bool = False


class Given(NamedTuple):
    """The type of an object whose fields may in part be missing, and may be more."""

    fields: dict[str, Any]
    """Types by field."""


def read_json(path: Path, schema: Any, remedy: str) -> Any:
    """
    The record in a JSON file, see :func:`parse_json`.

    :raises ValueError: naming the file, if it cannot be read or does not match.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}; {remedy}.") from error
    return parse_json(text, schema, str(path), remedy)


def parse_json(text: str, schema: Any, source: str, remedy: str) -> Any:
    """
    A JSON value of the declared type.

    :param schema: a dict from field to type, all fields required and others allowed; or a
        dataclass, no field required and others refused. A type is ``bool``, ``int``,
        ``float``, ``str``, ``dict``, ``list``, :class:`Between`, a union such as ``int | None``,
        ``list[str]``, ``dict[str, str]``, ``tuple[str, ...]``, ``[type]`` for a list with at least
        one entry, :class:`Given`, or a nested schema.
    :param source: origin of the text, for errors.
    :param remedy: advice on a damaged record, for errors.
    :raises ValueError: in one sentence, naming ``source`` and the field.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{source} is damaged: {reason}; {remedy}.") from error
    require_type(record, schema, source, remedy)
    return record


def require_type(value: Any, schema: Any, source: str, remedy: str) -> None:
    """
    Refuse a value that does not have the declared type, see :func:`parse_json`.

    :raises ValueError: in one sentence, naming ``source`` and the field.
    """
    found = _mismatch(value, schema, "")
    if found is not None:
        field, expected, part = found
        name = f"{field} must be" if field else "it must hold"
        got = reprlib.repr(part)
        raise ValueError(f"{source} is damaged: {name} {expected}, got {got}; {remedy}.")


def _mismatch(value: Any, kind: Any, field: str) -> tuple[str, str, Any] | None:
    """The first field of the wrong type, its expected type and its value; None if all match."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        if not isinstance(value, dict):
            return field, "an object", value
        unknown = next((name for name in value if name not in hints), None)
        if unknown is not None:
            return field, "known options only", unknown
        kind = {name: hints[name] for name in value}
    if isinstance(kind, Given):
        kind = {n: k for n, k in kind.fields.items() if not isinstance(value, dict) or n in value}
    elif typing.get_origin(kind) is dict:
        kind = dict.fromkeys(value if isinstance(value, dict) else (), typing.get_args(kind)[1])
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return field, "an object", value
        missing = next((name for name in kind if name not in value), None)
        if missing is not None:
            return f"{field}.{missing}".strip("."), "present", list(value)
        parts = [(value[name], kind[name], f"{field}.{name}".strip(".")) for name in kind]
    elif isinstance(kind, list) or typing.get_origin(kind) in (list, tuple):
        entry = (kind if isinstance(kind, list) else typing.get_args(kind))[0]
        if not isinstance(value, list) or (isinstance(kind, list) and not value):
            return field, "a list" if value else "a list with an entry", value
        parts = [(part, entry, f"{field}[{i}]") for i, part in enumerate(value)]
    else:
        return None if _is_plain(value, kind) else (field, _words(kind), value)
    found = (_mismatch(*part) for part in parts)
    return next((mismatch for mismatch in found if mismatch is not None), None)


def _is_plain(value: Any, kind: Any) -> bool:
    """Whether a value has a type whose entries are not checked."""
    if isinstance(kind, types.UnionType):
        return any(_is_plain(value, choice) for choice in typing.get_args(kind))
    if isinstance(kind, Between):
        if value is None:
            return kind.or_null
        return _is_plain(value, float) and bool(kind.low <= value <= kind.high)
    if type(value) is int:  # not bool; larger integers fit into no array
        return kind in (int, float) and abs(value) < 2**63
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def _words(kind: Any) -> str:
    if isinstance(kind, types.UnionType):
        return " or ".join(_words(choice) for choice in typing.get_args(kind))
    if isinstance(kind, Between):
        return f"a number from {kind.low:g} to {kind.high:g}{' or null' * kind.or_null}"
    return _WORDS[kind]
