"""Hierarchies of a NumPyro model in other coordinates: x ~ p(loc, scale), whose scale is a latent
site, becomes x = loc + scale · ε with ε ~ p(0, 1).

Where data say little of x its width is that of the prior, and a scale that is unknown makes a
funnel of it, which no step size and no mixture of Gaussians suits. ε does not depend on the scale.
Where data say much of x it is the other way round. log Z is the same in both. Nothing here chooses.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpyro import handlers
from numpyro.distributions import Cauchy, Laplace, Logistic, Normal, StudentT
from numpyro.infer.reparam import LocScaleReparam

from nestedvi.densities.model_calls import core, mask_of

__all__ = ["hierarchical_sites", "in_standard_units", "standard_site"]

# Sites by name.
Run = Mapping[str, Any]
_FAMILIES = (Cauchy, Laplace, Logistic, Normal, StudentT)


def standard_site(name: str) -> str:
    """What NumPyro calls the site of ε."""
    return f"{name}_decentered"


def hierarchical_sites(run: Run, run_again: Callable[[], Run]) -> tuple[str, ...]:
    """Latent sites of a location-scale family whose scale differs between two runs of the model
    with other values of its latent sites, so that it depends on them.
    """
    names = [name for name, site in run.items() if _can_be_moved(name, site, run)]
    other = run_again() if names else {}
    return tuple(
        name
        for name in names
        if name in other
        and not np.array_equal(core(run[name]["fn"]).scale, core(other[name]["fn"]).scale)
    )


def _can_be_moved(name: str, site: Mapping[str, Any], run: Run) -> bool:
    """Sites under a mask and inside of a scan stay as they are."""
    return (
        site["type"] == "sample"
        and not site["is_observed"]
        and isinstance(core(site["fn"]), _FAMILIES)
        and mask_of(site["fn"]) is True
        and "_scan_current_index" not in site["infer"]
        and standard_site(name) not in run
    )


def in_standard_units(model: Callable, sites: tuple[str, ...]) -> Callable:
    """The same model, with a standard site in place of each of those named."""

    def reparam(site: Mapping[str, Any]) -> LocScaleReparam | None:
        if site["name"] not in sites:
            return None
        shape = ("df",) if isinstance(core(site["fn"]), StudentT) else ()
        return LocScaleReparam(0.0, shape_params=shape)

    moved = handlers.reparam(model, config=reparam)

    # Errors speak of the user's function and its signature.
    @functools.wraps(model)
    def again(*args: Any, **kwargs: Any) -> Any:
        return moved(*args, **kwargs)

    return again
