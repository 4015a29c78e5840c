"""The command line, run in this process: a fixture."""

import sys
import warnings

import pytest

from nestedvi.cli.main import run


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the entry point in this process: exit code, standard output, standard error."""

    # The user's own cache is none of the tests' business.
    monkeypatch.setattr("nestedvi.storage.compiled.keep_compiled", lambda folder=None: None)

    def leave(say, message):
        say(message)
        raise SystemExit(130)

    # The process that would end is that of the tests.
    monkeypatch.setattr("nestedvi.cli.main.leave", leave)

    def go(*arguments):
        monkeypatch.setattr(sys, "argv", ["nestedvi", *map(str, arguments)])
        show = warnings.showwarning
        with warnings.catch_warnings():
            try:
                run()
                code = 0
            except SystemExit as stop:
                code = stop.code
        warnings.showwarning = show
        return code, *capsys.readouterr()

    return go
