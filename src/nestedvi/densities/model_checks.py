"""What a run of a NumPyro model says about its data, before anything is compiled: errors where the
log density would be that of another model, sentences where it may be. Each names site and shape.

And what particles say of its bijections. One that leads to a bounded support rounds to the border
somewhere: beyond that place two particles are the same. Particles near it say that there is mass
beyond, which log Z then lacks. That is a sentence, and is not repaired.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpyro import handlers
from numpyro.distributions import Delta, Unit
from numpyro.distributions.transforms import Transform
from numpyro.primitives import Messenger

from nestedvi._types import Key
from nestedvi.densities.model_calls import Arguments, core, mask_of
from nestedvi.errors import ModelError

__all__ = [
    "check_left_out",
    "check_observations",
    "is_drawn",
    "latent_of",
    "latent_sites",
    "rounded_at_the_border",
]

Trace = Mapping[str, Any]
# So far from the place where a bijection rounds, in unconstrained units, a density that falls like
# the Jacobian has lost all but a few hundredths of its mass.
_NEAR = 3.0
_SHARE = 0.001


def is_drawn(site: Mapping[str, Any]) -> bool:
    """Whether the site is a latent one."""
    return site["type"] == "sample" and not site["is_observed"]


def latent_of(trace: Trace) -> dict[str, Any]:
    """The latent sites of a run."""
    return {name: site for name, site in trace.items() if is_drawn(site)}


def latent_sites(trace: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The latent sites, or the one sentence that says why the model cannot be used."""
    for name, site in trace.items():
        if site["type"] == "plate" and site["args"][0] != len(site["value"]):
            raise ModelError(
                f"The plate {name!r} of {model} sees {len(site['value'])} of its {site['args'][0]}"
                " rows: an evidence needs all of the data, so leave out subsample_size and"
                " subsample."
            )
    free = [name for name, site in trace.items() if site["type"] == "param"]
    if free:
        raise ModelError(
            f"{model} has numpyro.param at {_quoted(free)}: it has no prior to integrate over. Use"
            " numpyro.sample with a prior, or a constant."
        )
    latent = latent_of(trace)
    if not latent:
        raise ModelError(
            f"The model {model} has no latent sites: every numpyro.sample in it is observed, so"
            " there is nothing to infer. Leave out obs= at what is unknown."
            if any(site["type"] == "sample" for site in trace.values())
            else (
                f"The model {model} has no sample sites: nothing in it calls numpyro.sample. If it"
                " is a log density, say what one particle looks like: dim=<size of a vector>, or"
                " example=<a pytree>."
            )
        )
    discrete = [name for name, site in latent.items() if site["fn"].support.is_discrete]
    if discrete:
        raise ModelError(
            f"{model} has discrete latent sites, which have no gradient and no density to anneal:"
            f" {_quoted(discrete)}. Sum them out by hand or with a mixture"
            " (dist.MixtureSameFamily), or pass their data if they are observed."
        )
    fixed = [name for name, site in latent.items() if isinstance(core(site["fn"]), Delta)]
    if fixed:
        raise ModelError(
            f"{model} has a point mass (dist.Delta) at {_quoted(fixed)}: use numpyro.deterministic"
            " there."
        )
    return latent


def _quoted(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)


def observed_sites(trace: Trace) -> dict[str, Any]:
    """Sites with data; factors, which have none, are no such sites."""
    return {
        name: site
        for name, site in trace.items()
        if site["type"] == "sample"
        and site["is_observed"]
        # A plate makes an expanded distribution of a factor.
        and not isinstance(core(site["fn"]), Unit)
        and not isinstance(site["value"], jax.core.Tracer)
    }


def check_observations(trace: Trace, arguments: Arguments, model: str) -> tuple[str, ...]:
    """Raises `ModelError` for data that cannot be meant; returns sentences on data that may not
    be.
    """
    sites = observed_sites(trace)
    empty = [name for name, site in sites.items() if np.size(site["value"]) == 0]
    for name, site in sites.items():
        _check_shape(name, site, model)
        _check_finite(name, site, model)
    _check_arguments(sites, arguments, model)
    if empty and len(empty) == len(sites):
        shapes = ", ".join(f"{name!r} of shape {np.shape(sites[name]['value'])}" for name in empty)
        raise ModelError(
            f"The data of {model} are empty: {shapes}. An evidence needs observations; check what"
            " was passed."
        )
    return (
        *(f"The site {name!r} has no observations: its data are empty." for name in empty),
        *(sentence for name, site in sites.items() for sentence in _outside(name, site)),
    )


def _check_shape(name: str, site: Mapping[str, Any], model: str) -> None:
    """A scalar may stand for many equal observations; anything else that is stretched is counted
    more often than it was seen.
    """
    shape = np.shape(site["value"])
    try:
        expected = tuple(site["fn"].shape())
    except (AttributeError, NotImplementedError, ValueError):
        return
    try:
        whole = np.broadcast_shapes(shape, expected)
    except ValueError:
        raise ModelError(
            f"The observations at {name!r} of {model} have shape {shape}, its distribution has"
            f" {expected}: these do not fit."
        ) from None
    if shape != () and int(np.prod(whole)) != int(np.prod(shape)):
        raise ModelError(
            f"The observations at {name!r} of {model} have shape {shape}, its distribution has"
            f" {expected}: together they are stretched to {whole}, which counts each observation"
            f" {int(np.prod(whole)) // max(int(np.prod(shape)), 1)} times. Give them the shape"
            f" {expected}, or broadcast them by hand if that is meant."
        )


def _seen(site: Mapping[str, Any]) -> np.ndarray:
    """Which elements of the value count, in the value's shape."""
    value, mask = np.asarray(site["value"]), mask_of(site["fn"])
    mask = np.asarray(mask)
    if mask.ndim:
        mask = mask.reshape(mask.shape + (1,) * site["fn"].event_dim)
    try:
        return np.broadcast_to(mask, value.shape)
    except ValueError:
        return np.ones(value.shape, dtype=bool)


def _check_finite(name: str, site: Mapping[str, Any], model: str) -> None:
    value = np.asarray(site["value"])
    if value.dtype.kind != "f" and not jnp.issubdtype(value.dtype, jnp.floating):
        return
    bad = ~np.isfinite(value) & _seen(site)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        where = f", the first at {list(first)}" if first else ""
        raise ModelError(
            f"The observations at {name!r} of {model} (shape {value.shape}) hold {int(bad.sum())}"
            f" NaN or infinite values{where}. Leave those rows out, or say which are missing by"
            " obs_mask= of numpyro.sample."
        )


def _check_arguments(sites: Trace, arguments: Arguments, model: str) -> None:
    """NaN in an argument is an error only if it reaches the density of an observation."""
    holes = {
        name: int(np.isnan(value).sum())
        for name, value in arguments.named()
        if isinstance(value, np.ndarray | jax.Array)
        and jnp.issubdtype(value.dtype, jnp.floating)
        and np.isnan(value).any()
    }
    if not holes:
        return
    for name, site in sites.items():
        log_prob = np.asarray(site["fn"].log_prob(site["value"]))
        if np.isnan(log_prob).any():
            counts = ", ".join(f"{count} in {name}" for name, count in holes.items())
            raise ModelError(
                f"The arguments of {model} hold NaN ({counts}), and the log density at {name!r}"
                f" (shape {log_prob.shape}) is NaN with them. Leave those rows out or fill them."
            )


def _outside(name: str, site: Mapping[str, Any]) -> Iterator[str]:
    """Counts and classes that the distribution does not have: their log probability is a number
    without a meaning. A continuous density is zero outside of its support, which speaks for itself.
    """
    support = site["fn"].support
    if support is None or not support.is_discrete:
        return
    value = np.asarray(site["value"])
    try:
        inside = np.asarray(support(value))
    except (TypeError, ValueError, NotImplementedError):
        return
    seen = _seen(site)
    by_event = seen if inside.shape == seen.shape else seen.reshape(*inside.shape, -1)[..., 0]
    bad = int(np.sum(~inside & by_event))
    if bad:
        kind = type(support).__name__.strip("_").lower().replace("_", " ")
        yield (
            f"{bad} of the observations at {name!r} (shape {value.shape}) are outside of the"
            f" distribution's support ({kind}): log Z is not that of the model. Check their coding."
        )


class _Absent:
    """Stands for data that were not given. Only a sample statement can do anything with it."""


class _WhereAbsent(Messenger):
    """Notes the sites that are given the stand-in, and leaves them to be drawn."""

    def __init__(self, fn: Callable, absent: _Absent):
        self.absent, self.sites = absent, list[str]()
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["value"] is self.absent:
            self.sites.append(msg["name"])
            msg["value"], msg["is_observed"] = None, False


def check_left_out(
    key: Key, model: Callable, arguments: Arguments, trace: Trace, name: str
) -> None:
    """Raises `ModelError` if a site is latent only because an argument that may be None was not
    given. None that was given is meant.
    """
    latent = {n for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    for argument in _left_out(model, arguments):
        sites = _sites_of(key, model, arguments, argument)
        if sites is None:
            sites = [argument]
        sites = [site for site in sites if site in latent]
        if sites:
            site = sites[0]
            raise ModelError(
                f"The argument {argument!r} of {name} was not given, and so the site {site!r}"
                f" (shape {np.shape(trace[site]['value'])}) has no data. Give {argument}=…, or"
                f" {argument}=None if {site!r} is what you want to infer."
            )


def _left_out(model: Callable, arguments: Arguments) -> list[str]:
    """Arguments that are None by default and were not given."""
    while isinstance(model, Messenger) and model.fn is not None:
        model = model.fn
    try:
        signature = inspect.signature(model)
        given = signature.bind(*arguments.args, **arguments.kwargs).arguments
    except (TypeError, ValueError):
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is None and parameter.kind in named and parameter.name not in given
    ]


def _sites_of(key: Key, model: Callable, arguments: Arguments, argument: str) -> list[str] | None:
    """The sites that the argument is the data of; None where the model does more with it than pass
    it on.
    """
    absent = _Absent()
    probe = _WhereAbsent(model, absent)
    kwargs = {**arguments.kwargs, argument: absent}

    def run(key: Key) -> None:
        handlers.seed(probe, key)(*arguments.args, **kwargs)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            jax.eval_shape(run, key)
    except Exception:  # whatever the model does with an object that is no array
        return None
    return probe.sites


def rounded_at_the_border(
    bijections: Mapping[str, Transform],
    unravel: Callable[[Array], PyTree],
    z: Float[Array, "particles dim"],
    weights: Float[np.ndarray, " particles"],
) -> tuple[str, ...]:
    """A sentence for each site with more than a thousandth of its mass at the border; `bijections`
    are those of sites whose density is computed where they round.
    """
    if not bijections:
        return ()
    sites = jax.vmap(unravel)(jnp.asarray(z))
    sentences = []
    for name, bijection in bijections.items():
        x = np.asarray(sites[name])
        near = np.zeros(x.shape, dtype=bool)
        for step in (-_NEAR, _NEAR):
            near |= _same(bijection, x + x.dtype.type(step), x + x.dtype.type(2 * step))
        share = float(np.sum(weights * near.reshape(len(x), -1).any(axis=1)))
        if share > _SHARE:
            sentences.append(
                f"{100 * share:.2g} % of the mass of {name!r} is at the border of its support,"
                f" where {x.dtype} rounds: mass beyond is missing from log Z. Use"
                ' jax.config.update("jax_enable_x64", True), or a site on the logit or log scale.'
            )
    return tuple(sentences)


def _same(bijection: Callable, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether two coordinates have one image."""
    with np.errstate(all="ignore"):
        return np.asarray(bijection(jnp.asarray(x)) == bijection(jnp.asarray(y)))
