"""Options of the command line, from the fields of recipes."""

import dataclasses
import itertools
import typing
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from gpflow_sparse.tables.methods.base import Recipe
from gpflow_sparse.tables.methods.registry import AUTO, COMMON, OF_METHODS, RECIPES, Auto, kind_of


def _names(field: Any) -> tuple[str, ...]:
    """The argument of the command and its flags."""
    flag = f"--{field.name.replace('_', '-')}"
    if isinstance(field.default, bool):
        flag += "/" + field.metadata.get("off", flag.replace("--", "--no-", 1))
    return field.name, flag


def _settings(config: type, field: Any) -> dict[str, Any]:
    """Type, default and help of an option."""
    given, hint = field.metadata, typing.get_type_hints(config)[field.name]
    kind: Any = click.Choice(given["choices"]) if "choices" in given else None
    if hint in (int | None, float | None):
        kind = typing.get_args(hint)[0]
    elif hint == int | str:  # a number, or several with commas
        kind = click.STRING
    return {
        "default": field.default,
        "type": kind,
        "multiple": isinstance(field.default, tuple),
        "show_default": True,
        "help": given["help"],
    }


def options_of(kind: type, names: Sequence[str]) -> list[click.Option]:
    """Options of the command line for fields of a dataclass."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    found = [fields[name] for name in names if name in fields]
    return [click.Option(_names(field), **_settings(kind, field)) for field in found]


def _foreign(known: Sequence[str]) -> list[click.Option]:
    """Options of other methods, hidden, with any value: they are refused, or left to candidates."""
    found = []
    for name in sorted(OF_METHODS - set(known)):
        owner = next(kind for kind in RECIPES.values() if name in kind.own_options())
        (option,) = options_of(owner, [name])
        option.hidden, option.default = True, None
        if isinstance(option.type, click.Choice):
            option.type = click.STRING
        found.append(option)
    return found


def is_chosen(name: str) -> bool:
    """Whether the user gave this option."""
    source = click.get_current_context().get_parameter_source(name)
    return source not in (None, ParameterSource.DEFAULT)


def chosen_options(method: str) -> dict[str, Any]:
    """The options of a method, or of any method for the automatic choice, that the user gave."""
    context = click.get_current_context()
    names = {*COMMON, *kind_of(method).own_options(), *OF_METHODS}
    return {name: context.params[name] for name in sorted(names) if is_chosen(name)}


_READING: dict[str, dict[str, Any]] = {
    "--encoding": {"help": "Encoding of a text file; default utf-8."},
    "--separator": {"help": r"Character between the cells of a text file, such as ; or \t."},
    "--header/--no-header": {
        "default": None,
        "help": "Whether the first row of a text file has the names of the columns.",
    },
    "--skip-rows": {"type": click.IntRange(min=0), "help": "Lines above the first row."},
    "--decimal": {
        "type": click.Choice([".", ","]),
        "help": "Character before decimals, where no cell shows it.",
    },
    "--thousands": {
        "type": click.Choice([".", ","]),
        "help": "Character between thousands; the other one stands before decimals.",
    },
    "--na-values": {
        "multiple": True,
        "help": "A text or number that stands for missing, such as -99.9; may be repeated.",
    },
    "--day-first": {
        "is_flag": True,
        "help": "Dates have the day before the month where no cell shows the order.",
    },
    "--lonlat": {
        "metavar": "LON,LAT",
        "help": "Columns of longitudes and latitudes, points of the sphere; none for no such; "
        "default by name, where they range over 30 degrees or more.",
    },
}


def reading_options(command: Any) -> Any:
    """Decorator of a command with options of how a table is read."""
    for flags, settings in reversed(_READING.items()):
        command = click.option(flags, **settings)(command)
    return command


def chosen_reading(known: Any = None) -> Any:
    """
    The :class:`~gpflow_sparse.data.ReadingOptions` that the user gave.

    :param known: the options of training, used where none is given; None for the defaults.
    """
    from gpflow_sparse.tables.reading.cells import ReadingOptions

    given = {flags[2:].partition("/")[0].replace("-", "_") for flags in _READING}
    params = click.get_current_context().params
    chosen = {name: params[name] for name in given if is_chosen(name)}
    if "separator" in chosen:
        chosen["separator"] = chosen["separator"].replace(r"\t", "\t")
    if "lonlat" in chosen:
        pair = chosen["lonlat"].split(",")
        chosen["lonlat"] = () if pair == ["none"] else tuple(pair)
    return dataclasses.replace(known or ReadingOptions(), **chosen)


class MethodCommand(click.Command):
    """
    A command that may begin with a method: ``fit swsgp`` is ``fit --method swsgp``.

    It has the options of that method, and the options of all methods.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """:raises click.UsageError: for an unknown method."""
        if args and not args[0].startswith("-"):
            args = ["--method", *args]
        given = [second for first, second in itertools.pairwise(args) if first == "--method"]
        given += [arg.partition("=")[2] for arg in args if arg.startswith("--method=")]
        try:
            ctx.meta["recipe"] = kind_of(given[-1] if given else AUTO)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Options of the command, all methods and this method; hidden options of other methods."""
        kind = self._kind(ctx)
        own = kind.own_options()
        method = click.Option(
            ["--method"],
            default=AUTO,
            show_default=True,
            help="See `methods`. auto measures those that suit the data on held-out rows and "
            "trains the best.",
        )
        *declared, help = super().get_params(ctx)
        shown = options_of(kind, [*own, *COMMON])
        return [*declared, method, *shown, *_foreign(own), help]

    def _kind(self, ctx: click.Context) -> type[Recipe]:
        kind: type[Recipe] = ctx.meta.get("recipe", Auto)
        return kind

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The words after the name of the command."""
        return ["[METHOD]", *super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does, or the idea of a method."""
        kind = self._kind(ctx)
        if kind is Auto:
            super().format_help_text(ctx, formatter)
            return
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Train {kind.title}: {kind.idea}.")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of a method, or the options of all methods."""
        kind, params = self._kind(ctx), self.get_params(ctx)
        if kind is Auto:
            self._write(ctx, formatter, "Options", params)
            formatter.write_paragraph()
            formatter.write_text(
                f"`{ctx.command_path} METHOD --help` lists the options of a method; METHOD is one "
                f"of {', '.join(RECIPES)}."
            )
            return
        own = [p for p in params if p.name in kind.own_options()]
        self._write(ctx, formatter, f"Options of {kind.title}", own)
        formatter.write_paragraph()
        others = ("method", "help", "" if kind.takes_conformal else "conformal")
        rest = [p for p in params if p not in own and p.name not in others]
        names = [p.opts[0] for p in rest if not getattr(p, "hidden", False)]
        formatter.write_text(
            f"Common options, see `{ctx.command_path} --help`: {', '.join(names)}."
        )

    def _write(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, params: Any
    ) -> None:
        with formatter.section(title):
            formatter.write_dl([record for p in params if (record := p.get_help_record(ctx))])
