"""Options of a command from the fields of a dataclass: default, help and limits in one place."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click


def option(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] = (),
    least: int | None = None,
    kind: type | None = None,
    off: str | None = None,
) -> Any:
    """
    A field of a dataclass.

    :param default: a tuple lets the option be given several times.
    :param help: text of ``--help``.
    :param choices: the allowed values; empty for no such restriction.
    :param least: the smallest allowed value, 0 or 1.
    :param kind: type of the value, where the default is None.
    :param off: flag for the value False of a bool; default ``--no-NAME``.
    """
    limits = {"choices": tuple(choices), "least": least}
    return dataclasses.field(
        default=default, metadata={"help": help, "kind": kind, "off": off, **limits}
    )


def require_valid(config: Any) -> None:
    """:raises ValueError: naming the first field of a dataclass that is out of its limits."""
    for field in dataclasses.fields(config):
        value, choices = getattr(config, field.name), field.metadata["choices"]
        if value is None and field.default is None:
            continue
        if choices and value not in choices:
            raise ValueError(f"{field.name} must be one of {', '.join(choices)}; got {value!r}.")
        least = field.metadata["least"]
        if least is not None and value < least:
            what = "positive" if least else "not negative"
            raise ValueError(f"{field.name} must be {what}, got {value}.")


def command_options(
    config: type, kinds: Mapping[str, click.ParamType] | None = None
) -> Callable[[Any], Any]:
    """
    A decorator that adds the fields of a dataclass to a command as options, in order.

    :param kinds: types of values, by field, that click does not derive from the default.
    """

    def decorate(command: Any) -> Any:
        for field in reversed(dataclasses.fields(config)):
            given = field.metadata
            flag = f"--{field.name.replace('_', '-')}"
            if isinstance(field.default, bool):
                flag += "/" + (given["off"] or flag.replace("--", "--no-", 1))
            kind = click.Choice(given["choices"]) if given["choices"] else given["kind"]
            command = click.option(
                field.name,
                flag,
                default=field.default,
                type=(kinds or {}).get(field.name, kind),
                multiple=isinstance(field.default, tuple),
                show_default=True,
                help=given["help"],
            )(command)
        return command

    return decorate
