"""Compiled programs kept on disk: a new process does not compile what an earlier one did."""

import os
from pathlib import Path

import jax

__all__ = ["keep_compiled", "user_folder"]


def keep_compiled(folder: str | Path | None = None) -> Path:
    """Turns on JAX's compilation cache, in `folder` or in the user's cache folder; a folder that
    JAX was told of already stays. Programs are found again by their content, the versions and the
    device, so that a stale one is never used.
    """
    chosen = jax.config.values["jax_compilation_cache_dir"]
    if folder is not None or chosen is None:
        chosen = str(user_folder() if folder is None else folder)
        jax.config.update("jax_compilation_cache_dir", chosen)
        # Hundreds of small programs add up to seconds: all are kept.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    path = Path(chosen)
    path.mkdir(parents=True, exist_ok=True)
    return path


def user_folder() -> Path:
    """Where compiled programs of this user are kept."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nestedvi" / "compiled"
    )
