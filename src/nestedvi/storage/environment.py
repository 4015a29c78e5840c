"""The installation that the library runs in: versions against the bounds that its own metadata
state, devices, precision, the cache folder. It looks, and refuses to change anything.
"""

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import jax
from packaging.requirements import Requirement

from nestedvi.storage.compiled import user_folder

__all__ = ["examine"]

# What a user gets with each optional set of packages.
FEATURES = {
    "core": "always needed",
    "mcmc": "BlackJAX kernels, nestedvi bench targets",
    "flows": "FlowJAX bijections",
    "arviz": "posterior.to_arviz(), posterior.nc",
    "targets": "the target breast-cancer",
    "cuda": "NVIDIA GPUs",
}


def examine() -> dict[str, Any]:
    """Everything as plain values. `problems` are sentences on what nestedvi always needs and does
    not have; `hints` on what a feature needs.
    """
    packages = [
        _package(requirement, extra)
        for extra in FEATURES
        for requirement in _requirements(extra)
        if extra != "cuda" or _gpu_expected()
    ]
    devices, trouble = _devices()
    problems = [
        f"{row['package']} {row['bound']} is needed; found {row['installed'] or 'none'}. Run pip"
        f" install '{row['package']}{row['bound']}'."
        for row in packages
        if row["needed_by"] == "core" and not row["suits"]
    ]
    missing = {
        row["needed_by"] for row in packages if not row["suits"] and row["needed_by"] != "core"
    }
    hints = [
        f"For {FEATURES[extra]}: pip install 'nestedvi[{extra}]'."
        for extra in FEATURES
        if extra in missing
    ]
    cache = _cache()
    if not cache["writable"]:
        hints.append(
            f"The cache folder {cache['folder']} cannot be written: compiled programs are not kept."
            " Set XDG_CACHE_HOME to a folder that can."
        )
    return {
        "nestedvi": importlib.metadata.version("nestedvi"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores",
        "devices": devices,
        "precision": "double" if jax.config.values["jax_enable_x64"] else "single",
        "cache": f"{cache['folder']} ({cache['megabytes']:.0f} MB)",
        "packages": packages,
        "problems": [*problems, *trouble],
        "hints": hints,
    }


def _requirements(extra: str) -> list[Requirement]:
    """Those of the core, or those that an optional set adds to it."""
    stated = map(Requirement, importlib.metadata.requires("nestedvi") or ())
    environment = {"extra": "" if extra == "core" else extra}
    wanted = []
    for requirement in stated:
        optional = requirement.marker is not None and "extra" in str(requirement.marker)
        applies = requirement.marker is None or requirement.marker.evaluate(environment)
        if applies and optional == (extra != "core"):
            wanted.append(requirement)
    return wanted


def _package(requirement: Requirement, extra: str) -> dict[str, Any]:
    extras = sorted(requirement.extras)
    try:
        installed = importlib.metadata.version(requirement.name)
        # JAX with CUDA is a package of its own besides JAX.
        for part in extras:
            importlib.metadata.version(f"{requirement.name}-{part}-plugin")
    except importlib.metadata.PackageNotFoundError:
        installed = ""
    return {
        "package": requirement.name + (f"[{','.join(extras)}]" if extras else ""),
        "bound": str(requirement.specifier),
        "installed": installed,
        "suits": bool(installed) and requirement.specifier.contains(installed, prereleases=True),
        "needed_by": extra,
        "what_for": FEATURES[extra],
    }


def _gpu_expected() -> bool:
    """Whether there is an NVIDIA driver: without one the CUDA packages are no loss."""
    return shutil.which("nvidia-smi") is not None


def _devices() -> tuple[str, list[str]]:
    """The devices in words, and what is wrong with them."""
    try:
        devices = jax.devices()
    except RuntimeError as error:
        return "none", [f"JAX finds no device: {str(error).splitlines()[0]}"]
    kinds = [f"{device.platform}: {device.device_kind}" for device in devices]
    words = ", ".join(
        f"{kinds.count(kind)} × {kind}" if kinds.count(kind) > 1 else kind
        for kind in dict.fromkeys(kinds)
    )
    return words, []


def _cache() -> dict[str, Any]:
    chosen = jax.config.values["jax_compilation_cache_dir"]
    folder = Path(chosen) if chosen else user_folder()
    size = sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return {
        "folder": str(folder),
        "megabytes": size / 1e6,
        "writable": os.access(there, os.W_OK),
    }
