"""The command line's app, its commands, and the form of its errors."""

import typer
from typer.testing import CliRunner

from nestedvi.cli.main import app

# Wide enough that no line of help is wrapped.
RUNNER = CliRunner(env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"})


def one_sentence(stderr):
    """The message of an expected failure: a line on standard error and no traceback."""
    lines = stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and "Traceback" not in stderr, stderr
    return lines[0]


def commands(group=None, path=()):
    """Every command of the app with the names that lead to it."""
    group = typer.main.get_command(app) if group is None else group
    yield path, group
    for name, child in getattr(group, "commands", {}).items():
        yield from commands(child, (*path, name))
