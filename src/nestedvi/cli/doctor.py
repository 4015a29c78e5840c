"""`nestedvi doctor`: what is installed, where it computes, and what is missing for which feature.
What is looked at is `storage.environment`'s; this prints it.
"""

from typing import Any

import typer
from rich.markup import escape

from nestedvi.cli.options import Json, out_console, print_json, table_with_head

__all__ = ["doctor"]


def doctor(as_json: Json = False) -> None:
    """Check the installation: versions, devices, precision, cache folder, optional features.

    Exit code 1 if something that nestedvi always needs is missing, too old or broken.
    """
    from nestedvi.storage.environment import examine

    installation = examine()
    if as_json:
        print_json(installation)
    else:
        _print(installation)
    if installation["problems"]:
        raise typer.Exit(1)


def _print(installation: dict[str, Any]) -> None:
    facts = table_with_head("Installation")
    facts.show_header = False
    for name in ("nestedvi", "python", "platform", "devices", "precision", "cache"):
        facts.add_row(name, escape(str(installation[name])))
    out_console.print(facts)
    table = table_with_head("Packages")
    for column in ("package", "needed", "installed", "for"):
        table.add_column(column, no_wrap=column == "package")
    for row in installation["packages"]:
        state = escape(row["installed"] or "missing")
        colour = "green" if row["suits"] else "red" if row["needed_by"] == "core" else "yellow"
        table.add_row(
            escape(row["package"]), row["bound"], f"[{colour}]{state}[/{colour}]", row["what_for"]
        )
    out_console.print(table)
    for sentence in [*installation["problems"], *installation["hints"]]:
        out_console.print(escape(sentence), highlight=False, soft_wrap=True)
    if not installation["problems"]:
        out_console.print("Nothing that nestedvi always needs is missing.")
