"""Every fit compiles its own step; trainings of one configuration share a quick compilation through a cache on disk."""

import os

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    # As for the whole suite; named here because other processes get these settings too, and must end in the same bits.
    "jax_disable_most_optimizations": True,
}


@pytest.fixture(scope="session")
def compilation_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def compiled_once(compilation_folder):
    """The cache, for one module; it is empty at the start of a test run, so that nothing stale is ever tested."""
    settings = {"jax_compilation_cache_dir": str(compilation_folder), **SETTINGS}
    before = {name: jax.config.values[name] for name in settings}
    _apply(settings)
    yield {**os.environ, **{name.upper(): str(value) for name, value in settings.items()}}
    _apply(before)


def _apply(settings):
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
