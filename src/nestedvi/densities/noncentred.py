"""Hierarchies of a NumPyro model in other coordinates: x ~ p(loc, scale), whose scale is a latent
site, becomes x = loc + scale · ε with ε ~ p(0, 1).

Where data say little of x its width is that of the prior, and a scale that is unknown makes a
funnel of it, which no step size and no mixture of Gaussians suits. ε does not depend on the scale.
Where data say much of x it is the other way round. log Z is the same in both. Nothing here chooses.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.distributions import (
    Cauchy,
    Laplace,
    Logistic,
    MaskedDistribution,
    Normal,
    StudentT,
)
from numpyro.infer.reparam import LocScaleReparam

from nestedvi.densities.model_calls import core

__all__ = ["hierarchical_sites", "in_standard_units", "standard_site"]

# Sites by name.
Run = Mapping[str, Any]
_FAMILIES = (Cauchy, Laplace, Logistic, Normal, StudentT)


def standard_site(name: str) -> str:
    """What NumPyro calls the site of ε."""
    return f"{name}_decentered"


def hierarchical_sites(
    run: Run, run_again: Callable[[], Run], run_moved: Callable[[tuple[str, ...]], Run]
) -> tuple[str, ...]:
    """Latent sites of a location-scale family whose scale differs between two runs of the model
    with other values of its latent sites, so that it depends on them; and that a run with such
    sites in standard units has, each in the shape that it had. None of them where a run fails.
    """
    names = tuple(name for name, site in run.items() if _can_be_moved(name, site, run))
    if not names:
        return ()
    try:
        again = run_again()
        names = tuple(
            name
            for name in names
            if name in again and not _are_equal(_scale(run[name]), _scale(again[name]))
        )
        moved = run_moved(names) if names else {}
    except Exception:  # a model may raise anything at values that it was not written for
        return ()
    return tuple(
        name
        for name in names
        if standard_site(name) in moved
        and np.shape(moved[standard_site(name)]["value"]) == np.shape(run[name]["value"])
    )


def _scale(site: Mapping[str, Any]) -> Any:
    return core(site["fn"]).scale


def _are_equal(one: Any, other: Any) -> bool:
    return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True)


def _can_be_moved(name: str, site: Mapping[str, Any], run: Run) -> bool:
    """Sites under a mask, inside of a scan, whose density counts more than once, or with a shape
    of samples stay as they are.
    """
    return (
        site["type"] == "sample"
        and not site["is_observed"]
        and type(core(site["fn"])) in _FAMILIES
        and not _is_masked(site["fn"])
        and site["scale"] is None
        and not site["kwargs"].get("sample_shape")
        and "_scan_current_index" not in site["infer"]
        and standard_site(name) not in run
    )


def _is_masked(fn: Any) -> bool:
    """In any of its layers."""
    while not isinstance(fn, MaskedDistribution) and hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return isinstance(fn, MaskedDistribution)


class _StandardUnits(LocScaleReparam):
    """As NumPyro's own with nothing left of the location and scale, and no density where a scale is
    negative: the site itself has none there, and ε would not know. A scale that is rounded to zero
    is the limit of those above it.
    """

    def __call__(self, name: str, fn: Any, obs: Any) -> Any:
        is_scale = jnp.all(core(fn).scale >= 0)
        numpyro.factor(f"{name}_has_a_scale", jnp.where(is_scale, 0.0, jnp.nan))
        return super().__call__(name, fn, obs)


def in_standard_units(model: Callable, sites: tuple[str, ...]) -> Callable:
    """The same model, with a standard site in place of each of those named."""

    def reparam(site: Mapping[str, Any]) -> _StandardUnits | None:
        if site["name"] not in sites:
            return None
        shape = ("df",) if isinstance(core(site["fn"]), StudentT) else ()
        return _StandardUnits(0.0, shape_params=shape)

    moved = handlers.reparam(model, config=reparam)

    # Errors speak of the user's function and its signature.
    @functools.wraps(model)
    def again(*args: Any, **kwargs: Any) -> Any:
        return moved(*args, **kwargs)

    return again
