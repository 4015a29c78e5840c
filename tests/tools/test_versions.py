"""The package as users get it: built, installed in an empty environment, and tried."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import versions  # noqa: E402


def test_lowest_versions_are_those_of_the_bounds():
    pins = versions.lowest_versions()
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for pin in pins:
        name, version = pin.split("==")
        assert f'"{name}>={version}"' in text or name == "jaxlib"
    assert {pin.split("==")[0] for pin in pins} >= {"jax", "jaxlib", "equinox", "numpyro"}


@pytest.mark.slow
def test_wheel_and_source_hold_what_they_should(tmp_path):
    """Needs a package index for the build's own tools."""
    wheel = versions.build_wheel(tmp_path)
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("nestedvi/py.typed", "nestedvi/__main__.py", "nestedvi/inference/report.py"):
        assert wanted in names
    assert not [name for name in names if name.startswith(("tests", "docs", "tools"))]
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "CITATION.cff", "tests/conftest.py"} <= inside


@pytest.mark.slow
def test_installed_in_an_empty_environment():
    """As users get it, with the newest versions; `make test-versions` has the lowest too."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "versions.py"), "--newest", version],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Python {version}, newest: good with" in done.stdout


def test_a_name_that_leads_to_no_python_is_none(tmp_path, monkeypatch):
    shim = tmp_path / "python9.9"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert versions.find_python("9.9") is None and versions.find_python("9.8") is None
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert versions.find_python("9.9") == str(shim)
