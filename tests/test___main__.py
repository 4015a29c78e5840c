"""`python -m nestedvi` is the command, and says so in its help."""

from nestedvi import __version__
from tests.cli.test_main import in_a_process


def test_as_a_module():
    done = in_a_process("--version", module=True)
    assert (done.returncode, done.stdout) == (0, f"nestedvi {__version__}\n")
    assert "Usage: python -m nestedvi" in in_a_process("--help", module=True).stdout
