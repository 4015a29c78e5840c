"""`python -m nestedvi` is the command `nestedvi`."""

from nestedvi.cli.main import run

if __name__ == "__main__":
    run()
