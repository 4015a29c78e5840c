"""Shared set-up: every statistical test uses a fixed key, and tolerances come from standard errors."""

from pathlib import Path

import jax
import pytest

# The suite spends its time in the compiler, on programs that run once: half of that goes into optimising them.
jax.config.update("jax_disable_most_optimizations", True)


def pytest_configure(config):
    # Not in pyproject.toml: pytest would import the package to read it, before coverage is measured.
    config.addinivalue_line("markers", "slow: whole experiments and whole answers, which `make test-all` runs")
    config.addinivalue_line("filterwarnings", "error::nestedvi.errors.NestedviWarning")


def pytest_collection_modifyitems(items):
    """Whole experiments first: the long files must not be what one worker ends with while the other waits."""
    items.sort(key=lambda item: "experiments" not in item.path.parts)


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Every compiled program holds memory maps, of which a process may have 65 530; beyond that the compiler crashes."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(20211)


@pytest.fixture
def x64():
    """Runs a test in float64; enumerations and quadratures are compared to rounding there."""
    with jax.enable_x64(True):
        yield
