"""Options of a command from the fields of a dataclass."""

import dataclasses
import itertools
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import click

from gpflow_sparse.runs.methods import AUTO, METHODS, OF_METHODS, options_of


def option(default: Any, help: str) -> Any:
    """
    A field of a dataclass with the text of its ``--help``.

    :param default: a tuple lets the option be given several times.
    """
    return dataclasses.field(default=default, metadata={"help": help})


def require_valid(config: Any, limits: Mapping[str, Mapping[str, Any]]) -> None:
    """
    Compare the fields of a dataclass with their limits.

    :param limits: by field, ``choices``; ``least``, the smallest allowed value, 0 or 1;
        ``positive``; or ``between``, the smallest and the largest value.
    :raises ValueError: naming the first field that is out of its limits.
    """
    kinds = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name)
        if value is None and field.default is None:
            continue
        if not _has_type(value, kinds[name]):
            words = str(getattr(kinds[name], "__name__", kinds[name])).replace(" | None", "")
            raise ValueError(f"{name} must be of type {words}, got {value!r}.")
        given, expected = limits[name], ""
        if value not in given.get("choices", [value]):
            raise ValueError(f"{name} must be one of {', '.join(given['choices'])}; got {value!r}.")
        if value < given.get("least", value):
            expected = "positive" if given["least"] else "not negative"
        if "positive" in given and not 0 < value < float("inf"):
            expected = "positive"
        if "between" in given and not given["between"][0] <= value <= given["between"][1]:
            expected = "from {} to {}".format(*given["between"])
        if expected:
            raise ValueError(f"{name} must be {expected}, got {value}.")


def _has_type(value: Any, kind: Any) -> bool:
    """Whether a value has a plain type, or one of a union; numbers of NumPy are numbers."""
    if isinstance(kind, types.UnionType):
        return any(_has_type(value, choice) for choice in typing.get_args(kind))
    is_flag = type(value).__name__ in ("bool", "bool_")
    if kind is bool or is_flag:
        return is_flag and kind is bool
    return isinstance(value, {int: numbers.Integral, float: numbers.Real}.get(kind, kind))


def command_options(
    config: type, described: Mapping[str, Mapping[str, Any]] | None = None, **kinds: click.ParamType
) -> Callable[[Any], Any]:
    """
    A decorator that adds the fields of a dataclass to a command as options, in order.

    :param described: ``help``, ``choices`` and ``off``, the flag for false, by field; None for a
        dataclass whose fields are made by :func:`option`.
    :param kinds: types of values, by field, that are not those of the fields.
    """

    def decorate(command: Any) -> Any:
        types = typing.get_type_hints(config)
        for field in reversed(dataclasses.fields(config)):
            given = field.metadata if described is None else described[field.name]
            flag = f"--{field.name.replace('_', '-')}"
            if isinstance(field.default, bool):
                flag += "/" + given.get("off", flag.replace("--", "--no-", 1))
            kind: Any = click.Choice(given["choices"]) if "choices" in given else None
            if types[field.name] == int | None:
                kind = int
            command = click.option(
                field.name,
                flag,
                default=field.default,
                type=kinds.get(field.name, kind),
                multiple=isinstance(field.default, tuple),
                show_default=True,
                help=given["help"],
            )(command)
        return command

    return decorate


class MethodCommand(click.Command):
    """
    A command that may begin with a method: ``fit swsgp`` is ``fit --method swsgp``.

    Its help lists the options that all methods have, or with a method those of that method.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """:raises click.UsageError: for an unknown method."""
        if args and not args[0].startswith("-"):
            if args[0] not in (AUTO, *METHODS):
                near = get_close_matches(args[0], METHODS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"got {args[0]!r}."
                known = ", ".join((AUTO, *METHODS))
                raise click.UsageError(f"METHOD must be one of {known}; {hint}")
            args = ["--method", *args]
        given = [second for first, second in itertools.pairwise(args) if first == "--method"]
        ctx.meta["method"] = given[-1] if given else AUTO
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The words after the name of the command."""
        return ["[METHOD]", *super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does, or the idea of a method."""
        method = METHODS.get(ctx.meta.get("method", AUTO))
        if method is None:
            super().format_help_text(ctx, formatter)
            return
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Train {method['name']}: {method['idea']}.")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of a method, or those of all methods."""
        method, params = ctx.meta.get("method", AUTO), self.get_params(ctx)
        common = [p for p in params if p.name not in OF_METHODS]
        if method not in METHODS:
            self._write(ctx, formatter, "Options", common)
            formatter.write_paragraph()
            formatter.write_text(
                f"`{ctx.command_path} METHOD --help` lists the options of a method; METHOD is one "
                f"of {', '.join(METHODS)}."
            )
            return
        ctx.default_map = METHODS[method].get("defaults", {})
        own = [p for p in params if p.name in options_of(method)]
        self._write(ctx, formatter, f"Options of {METHODS[method]['name']}", own)
        formatter.write_paragraph()
        names = ", ".join(p.opts[0] for p in common if p.name not in (*options_of(AUTO), "method"))
        formatter.write_text(f"Common options, see `{ctx.command_path} --help`: {names}.")

    def _write(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, params: Any
    ) -> None:
        with formatter.section(title):
            formatter.write_dl([record for p in params if (record := p.get_help_record(ctx))])
