"""What tells one call of `sample` from another, so that a folder of finished stages is only
continued by the call that made it.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nestedvi._types import Key
from nestedvi.densities.base import Density
from nestedvi.inference.answer import Request
from nestedvi.inference.problem import Problem
from nestedvi.inference.traced import Traced
from nestedvi.storage.files import provenance
from nestedvi.storage.stages import KeptStages

__all__ = ["fingerprint", "open_stages"]

_VERSIONS = ("nestedvi", "jax", "jaxlib", "numpy", "numpyro", "equinox")


def open_stages(folder: str | Path, key: Key, problem: Problem, request: Request) -> KeptStages:
    """The stages of this call in `folder`; raises where they are another call's."""
    known = _densities(request)
    if request.other is not None:
        known |= {f"other {name}": x for name, x in _densities(request.other).items()}
    return KeptStages(folder, fingerprint(key, problem, request), known)


def _densities(request: Request) -> dict[str, Any]:
    known: dict[str, Any] = {"density": request.density}
    if isinstance(request.density, Density):
        known["log_gamma"] = request.density.fn
    if isinstance(request.exact, Density):
        known |= {"exact": request.exact, "exact_log_gamma": request.exact.fn}
    return known


def fingerprint(key: Key, problem: Problem, request: Request) -> dict[str, str]:
    """A text for everything that the answer depends on: the user's own words where they are short,
    digests of the rest.
    """
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        key_text = f"{jax.random.key_impl(key)} {np.asarray(jax.random.key_data(key)).tolist()}"
    else:
        key_text = str(np.asarray(key).tolist())
    made = provenance(0)
    options = ("num_particles", "num_levels", "num_steps")
    return {
        "model": _digest([_programs(problem, 0), problem.names, problem.dim]),
        "data": _digest(_programs(problem, 1)),
        "method": _without_addresses(repr(request.method)),
        "key": key_text,
        **{name: str(getattr(request, name)) for name in options},
        "precision": str(np.dtype(jax.numpy.result_type(float))),
        "device": made["device"],
        "versions": ", ".join(f"{n} {made['versions'].get(n)}" for n in _VERSIONS),
    }


def _programs(problem: Problem, part: int) -> list[str]:
    """One of the two digests of every program that the problem is made of."""
    programs: list[Any] = [getattr(problem.density, "fn", None), problem.finish]
    return [program.digests[part] for program in programs if isinstance(program, Traced)]


def _without_addresses(text: str) -> str:
    return re.sub(" at 0x[0-9a-f]+", "", text)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
