"""Installs the built package in empty environments and runs a smoke test in each: with the lowest
versions that pyproject.toml allows, and with the newest, under every Python that is there.

    python tools/versions.py                      # all
    python tools/versions.py --lowest             # lowest versions, lowest Python
    python tools/versions.py --newest 3.12 3.13   # newest versions, these Pythons
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")


def lowest_versions() -> list[str]:
    """Every dependency of the core pinned to its bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = []
    for text in project["dependencies"]:
        requirement = Requirement(text)
        (bound,) = (s.version for s in requirement.specifier if s.operator == ">=")
        pins.append(f"{requirement.name}=={bound}")
        if requirement.name == "jax":
            # JAX allows later builds of its compiled half; the lowest is the one of its version.
            pins.append(f"jaxlib=={bound}")
    return pins


def build_wheel(folder: Path) -> Path:
    """The wheel, made from the source distribution: what is missing there is missing here."""
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def smoke(python: str, wheel: Path, pins: list[str], folder: Path) -> str:
    """Installs and runs the smoke test; its last line."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    inside = folder / "bin" / "python"
    install = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, str(wheel), *pins], check=True)
    done = subprocess.run(
        [str(inside), str(ROOT / "tools" / "smoke.py")],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip().splitlines()[-1]


def find_python(version: str) -> str | None:
    """A Python of that version that runs: managers of versions have names that lead to none."""
    python = shutil.which(f"python{version}")
    if python is None:
        return None
    runs = subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    return python if runs else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lowest", action="store_true", help="only the lowest versions")
    parser.add_argument("--newest", nargs="*", metavar="PYTHON", help="only the newest versions")
    args = parser.parse_args()
    both = not args.lowest and args.newest is None
    runs = [("lowest", PYTHONS[0])] if args.lowest or both else []
    if args.newest is not None or both:
        runs += [("newest", python) for python in (args.newest or PYTHONS)]
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        wheel = build_wheel(Path(name) / "dist")
        for which, version in runs:
            python = find_python(version)
            if python is None:
                print(f"Python {version}, {which}: skipped, no python{version} here", flush=True)
                continue
            pins = lowest_versions() if which == "lowest" else []
            try:
                said = smoke(python, wheel, pins, Path(name) / f"{which}-{version}")
                print(f"Python {version}, {which}: {said}", flush=True)
            except subprocess.CalledProcessError as error:
                failed += 1
                print(f"Python {version}, {which}: failed\n{error.stderr or error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
