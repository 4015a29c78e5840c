"""What commands share: consoles, tables, options that several of them have, and help that shows a
configuration's own defaults.

An option that is not given is None, and the configuration decides. So no default is written here.
"""

import importlib
import inspect
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand

__all__ = [
    "Json",
    "Order",
    "Seed",
    "configured_by",
    "defaults_of",
    "err_console",
    "examples",
    "given",
    "names_in",
    "out_console",
    "print_json",
    "table_with_head",
]

out_console, err_console = Console(), Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed of all randomness; the same seed gives the same result.",
        # JAX drops higher bits without a word: 2³² would be the seed 0.
        min=0,
        max=2**32 - 1,
    ),
]
Order = Annotated[
    str | None,
    typer.Option(help="How levels are run in training: sequential, two-phase or level-parallel."),
]


def defaults_of(where: str) -> dict[str, Any]:
    """The defaults of a dataclass or function, `module:name`; None is none."""
    module, _, name = where.partition(":")
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    return {
        parameter.name: parameter.default
        for parameter in parameters.values()
        if parameter.default is not parameter.empty and parameter.default is not None
    }


def configured_by(*sources: str) -> type[TyperCommand]:
    """A command whose help shows the defaults of its configuration, a dataclass or function
    `module:name`: a parameter of the command stands for the field of the same name.

    Configurations may lie in modules that take long to import: they are read when help is asked
    for, not when the command line starts.
    """

    class Configured(TyperCommand):
        configuration = sources

        def format_help(self, ctx: Any, formatter: Any) -> None:
            defaults = {name: x for where in sources for name, x in defaults_of(where).items()}
            # A command's own default stays: it is what happens.
            options: list[Any] = [
                option for option in self.params if option.name in defaults and not option.default
            ]
            for option in options:
                option.show_default = _as_typed(option, defaults[option.name])
            # Lines of a docstring are as long as those of code, not as those of the terminal.
            paragraphs = (self.help or "").split("\n\n")
            self.help = "\n\n".join(" ".join(text.split()) for text in paragraphs)
            super().format_help(ctx, formatter)

    return Configured


def _as_typed(option: Any, value: Any) -> str | bool:
    """A default as a user would type it; nothing for a flag that is off or an empty text."""
    if isinstance(value, bool):
        flags = option.opts if value else option.secondary_opts
        return flags[0].lstrip("-") if flags else False
    return (", ".join(map(str, value)) if isinstance(value, tuple) else str(value)) or False


def given(**options: Any) -> dict[str, Any]:
    """The options that the user gave; the others keep the configuration's own defaults."""
    return {name: value for name, value in options.items() if value is not None}


def examples(*commands: str) -> str:
    """The end of a command's help: one line a command that can be typed as it is."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  {command}" for command in commands)])


def names_in(text: str | None) -> tuple[str, ...] | None:
    """The names of a list that is separated by commas."""
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def print_json(content: Any) -> None:
    """Content as JSON on standard output."""
    from nestedvi.storage.files import to_json

    typer.echo(to_json(content))


def table_with_head(title: str) -> Table:
    """An empty table with a line under its head, no wider than it must be."""
    return Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
