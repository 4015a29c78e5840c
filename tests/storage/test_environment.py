"""The installation: versions against the stated bounds, devices, precision and the cache folder."""

import importlib.metadata

import jax
import pytest
from packaging.requirements import Requirement

import nestedvi.storage.environment as environment
from nestedvi.storage.environment import FEATURES, examine

pytestmark = pytest.mark.usefixtures("installed")


def test_every_optional_set_for_users_has_its_feature():
    extras = set(importlib.metadata.metadata("nestedvi").get_all("Provides-Extra"))
    assert set(FEATURES) == {"core"} | extras - {"dev", "docs"}


def test_packages_are_those_of_the_metadata():
    rows = {row["package"]: row for row in examine()["packages"]}
    assert {"jax", "equinox", "optax", "numpyro", "blackjax", "flowjax", "arviz"} <= set(rows)
    assert rows["jax"]["installed"] == jax.__version__ and rows["jax"]["suits"]
    assert rows["jax"]["needed_by"] == "core" and rows["blackjax"]["needed_by"] == "mcmc"
    assert "pytest" not in rows and "mkdocs" not in rows


@pytest.mark.parametrize(("bound", "suits"), [(">=0.1", True), (">=999", False), ("<0.1", False)])
def test_a_bound_is_compared(bound, suits):
    row = environment._package(Requirement(f"jax{bound}"), "core")
    assert row["suits"] is suits and row["bound"] == bound


def test_jax_without_its_gpu_plugin_is_not_enough():
    row = environment._package(Requirement("jax[cuda13]>=0.7"), "cuda")
    assert row["package"] == "jax[cuda13]" and not row["suits"]


def test_precision_and_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "nestedvi" / "compiled"
    folder.mkdir(parents=True)
    (folder / "program").write_bytes(bytes(3_000_000))
    report = examine()
    assert report["precision"] == "single" and report["cache"] == f"{folder} (3 MB)"
    with jax.enable_x64(True):
        assert examine()["precision"] == "double"


def test_a_cache_that_cannot_be_written_is_a_hint(monkeypatch):
    monkeypatch.setattr(environment.os, "access", lambda *_: False)
    assert any("XDG_CACHE_HOME" in hint for hint in examine()["hints"])


def test_no_device_is_a_problem(monkeypatch):
    def fail():
        raise RuntimeError("Unable to initialize backend 'tpu'\nmore")

    monkeypatch.setattr(environment.jax, "devices", fail)
    report = examine()
    assert report["devices"] == "none"
    assert report["problems"] == ["JAX finds no device: Unable to initialize backend 'tpu'"]
