"""Shared set-up: every statistical test uses a fixed key, and tolerances come from standard
errors.
"""

import importlib.metadata
import os
import signal
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

# The suite spends its time in the compiler, on programs that run once: half of that goes into
# optimising them.
jax.config.update("jax_disable_most_optimizations", True)
# Its older way to emit loops takes a third off the rest. A flag that another version does not
# know would end the process; processes that tests start get it as well.
if jax.__version_info__[:2] == (0, 10):
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_use_fusion_emitters=false".strip()


# A shell without job control starts what is in its background with Ctrl-C ignored, and so would
# every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    # Not in pyproject.toml: pytest would import the package to read it, before coverage is
    # measured.
    config.addinivalue_line(
        "markers", "slow: whole experiments and whole answers, which `make test-all` runs"
    )
    config.addinivalue_line("filterwarnings", "error::nestedvi.errors.NestedviWarning")
    # pytest-xdist would begin with the files that have most tests, which are short ones; the order
    # is `pytest_collection_modifyitems`'s.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


# Files that take longest, most of them because they start other processes, and then folders with
# whole experiments, trainings and answers.
_LONGEST = (
    "test_devices.py",
    "test_examples.py",
    "test_checkpoints.py",
    "test_distributed.py",
    "test_faults.py",
    "test_sample.py",
)
_LONG_FOLDERS = ("paper", "train", "inference")


def pytest_collection_modifyitems(items):
    """Long files first: they must not be what one worker ends with while the other waits."""
    items.sort(key=lambda item: _rank(item.path))


def _rank(path):
    if path.name in _LONGEST:
        return 0
    return 1 if set(_LONG_FOLDERS) & set(path.parts) else 2


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Every compiled program holds memory maps, of which a process may have 65 530; beyond that the
    compiler crashes.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(20211)


@pytest.fixture
def installed():
    """For what reads the metadata of the package: `make test-gpu` also runs where it is not
    installed.
    """
    try:
        importlib.metadata.version("nestedvi")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed")


@pytest.fixture
def x64():
    """Runs a test in float64; enumerations and quadratures are compared to rounding there."""
    with jax.enable_x64(True):
        yield


SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    # As for the whole suite; named here because other processes get these settings too, and must
    # end in the same bits.
    "jax_disable_most_optimizations": True,
}


@pytest.fixture(scope="session")
def compilation_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def compiled_once(compilation_folder):
    """The cache, for one module; it is empty at the start of a test run, so that nothing stale is
    ever tested.
    """
    settings = {"jax_compilation_cache_dir": str(compilation_folder), **SETTINGS}
    before = {name: jax.config.values[name] for name in settings}
    _apply(settings)
    yield {**os.environ, **{name.upper(): str(value) for name, value in settings.items()}}
    _apply(before)


def _apply(settings):
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
