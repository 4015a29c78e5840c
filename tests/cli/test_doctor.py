"""`nestedvi doctor`: what it prints, and its exit code."""

import json

import pytest

import nestedvi.storage.environment as environment

pytestmark = pytest.mark.usefixtures("installed")


def test_a_sound_installation(command):
    code, stdout, _ = command("doctor")
    assert code == 0 and "Nothing that nestedvi always needs is missing." in stdout
    for name in ("devices", "precision", "cache", "equinox", "jax"):
        assert name in stdout
    content = json.loads(command("doctor", "--json")[1])
    assert content["problems"] == [] and content["devices"].startswith("cpu")


@pytest.mark.parametrize("name", ["equinox", "flowjax"])
def test_what_is_missing_is_named(command, monkeypatch, name):
    """A feature's package is a hint; one that is always needed is a problem and an exit code."""
    version = environment.importlib.metadata.version

    def without(package):
        if package == name:
            raise environment.importlib.metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(environment.importlib.metadata, "version", without)
    code, stdout, _ = command("doctor")
    said = " ".join(stdout.split())
    if name == "equinox":
        assert code == 1 and "equinox >=0.13 is needed; found none" in said
    else:
        assert code == 0 and "FlowJAX bijections: pip install 'nestedvi[flows]'" in said
