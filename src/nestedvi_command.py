"""The entry point of the command `nestedvi`. Imports take seconds, and Ctrl-C may come before they
are done: this module imports nothing else first. Everything after that is `nestedvi.cli`'s.
"""

import os
import signal

__all__ = ["run"]


def _leave(*_: object) -> None:
    os.write(2, b"Interrupted: stopped by Ctrl-C before anything was begun\n")
    os._exit(130)


def run() -> None:
    """Runs the command."""
    signal.signal(signal.SIGINT, _leave)
    from nestedvi.cli.main import run as run_command

    try:
        run_command()
    finally:
        # The work is done and its exit code known: nothing is left to interrupt.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
