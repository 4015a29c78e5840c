"""The command line, run in this process."""

from tests.helpers.entry_point import command

__all__ = ["command"]
