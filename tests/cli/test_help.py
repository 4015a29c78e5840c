"""Help: it mentions every option, and every default that it shows is the configuration's own."""

import inspect
import re
from importlib import import_module

import pytest

from nestedvi.cli.main import app
from tests.helpers.command_line import RUNNER, commands

# Options that belong to the command: where to write, how many at a time, how to print.
OWN = {"cache", "out", "jobs", "quick", "as_json", "validation", "data_dir"}
CONFIGURED = [(path, command) for path, command in commands() if hasattr(command, "configuration")]


def name_of(x):
    return "-".join(x) or "nestedvi" if type(x) is tuple else ""


@pytest.mark.parametrize(
    ("path", "group"),
    list(commands()),
    ids=name_of,
)
def test_help_mentions_everything(path, group):
    result = RUNNER.invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    options = [option for parameter in group.params for option in parameter.opts]
    assert options or getattr(group, "commands", None)
    for name in [*options, *getattr(group, "commands", {})]:
        assert name in result.output


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=name_of)
def test_help_ends_with_examples_that_can_be_typed(path, command):
    """Each names the command itself, and parses: no option that it does not have."""
    examples = re.findall(r"^  nestedvi (.*)$", command.epilog or "", flags=re.MULTILINE)
    assert examples or path == ()
    for example in examples:
        words = example.split()
        assert tuple(words[: len(path)]) == path
        leaf = command
        words = words[len(path) :]
        while hasattr(leaf, "commands"):
            leaf, words = leaf.commands[words[0]], words[1:]
        leaf.make_context(leaf.name, words)
        assert example in RUNNER.invoke(app, [*path, "--help"]).output


def test_a_default_of_the_command_itself_is_shown():
    """`sample` keeps no compiled programs unless asked; the command does."""
    lines = RUNNER.invoke(app, ["sample", "--help"]).output.splitlines()
    (line,) = (x for x in lines if "--no-cache" in x)
    assert "[default: cache]" in line


def fields_of(command):
    """Every field of a command's configuration with its default, None where there is none."""
    fields = {}
    for source in command.configuration:
        module, name = source.split(":")
        for field in inspect.signature(getattr(import_module(module), name)).parameters.values():
            if field.default not in (field.empty, None) or field.name not in fields:
                fields[field.name] = None if field.default is field.empty else field.default
    return fields


def as_shown(option, value):
    if isinstance(value, bool):
        return option.opts[0].removeprefix("--") if value else ""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize(("path", "command"), CONFIGURED, ids=name_of)
def test_shown_defaults_are_the_configurations(path, command):
    """Not given, an option is None or off: the default is written in the configuration only."""
    lines = RUNNER.invoke(app, [*path, "--help"]).output.splitlines()
    fields = fields_of(command)
    for option in command.params:
        if option.name in OWN:
            continue
        assert option.name in fields, f"{option.name} is no field of {command.configuration}"
        assert not option.default
        (line,) = (x for x in lines if x[:1] == "│" and option.opts[0] in x.split()[1:3])
        shown = re.search(r"\[default: \((.*)\)\]", line)
        expected = fields[option.name]
        if expected is None:
            assert not shown or shown[1] == option.show_default
        else:
            assert (shown[1] if shown else "") == as_shown(option, expected)


def test_every_command_with_options_of_its_own_is_configured():
    plain = {path for path, command in commands() if not hasattr(command, "commands")}
    assert plain - {path for path, _ in CONFIGURED} == {
        ("methods",),
        ("targets",),
        ("doctor",),
    }
