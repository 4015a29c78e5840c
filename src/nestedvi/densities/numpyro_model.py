"""A NumPyro model as a density on unconstrained coordinates. It knows one particle at a time: no
samplers, no weights.

Every latent site is moved to ℝⁿ by NumPyro's own bijection of its support, and log γ holds the log
determinant of that bijection:

    log γ(z) = log p(x, T(z)) + log |det ∂T/∂z|,    so that    Z = ∫ γ(z) dz = ∫ p(x, θ) dθ,

the evidence of the model in its own parameterisation. Refused, each with a sentence that names the
site: discrete latent sites, point masses, `numpyro.param`, plates that subsample, and supports
without a bijection to ℝⁿ.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import Delta, ImproperUniform, biject_to
from numpyro.infer import init_to_uniform
from numpyro.infer.util import constrain_fn, potential_energy

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity
from nestedvi.errors import ModelCallError, ModelError

__all__ = ["NumpyroModel"]

Sites = dict[str, jax.Array]


class NumpyroModel(AbstractDensity):
    """A NumPyro model with its arguments: particles are dicts of unconstrained latent sites.

    `example` is one such particle, `improper` names the sites whose prior has no normaliser: log Z
    then means nothing by itself.

    Args:
        model: a NumPyro model with continuous latent sites.
        model_args: its positional arguments.
        model_kwargs: its keyword arguments.

    Example:
        ```python
        def coin(flips):
            p = numpyro.sample("p", dist.Beta(2.0, 2.0))
            numpyro.sample("x", dist.Bernoulli(p), obs=flips)

        density = nvi.NumpyroModel(coin, (np.array([1, 0, 1, 1]),))
        density.log_gamma(density.example), density.constrain(density.example)
        ```
    """

    # Functions rather than model and arguments: data must stay constants of the density, never
    # become traced leaves of it.
    _log_joint: Callable[[Sites], Scalar]
    _constrain: Callable[[Sites], Sites]
    _draw_all: Callable[[Key], Sites]
    example: Sites
    name: str
    improper: tuple[str, ...]

    def __init__(
        self,
        model: Callable,
        model_args: Iterable[Any] = (),
        model_kwargs: Mapping[str, Any] | None = None,
    ):
        # Copies: arrays that their owner changes later must not change here, nor be taken by JAX
        # for what they were.
        def own(x):
            return x.copy() if isinstance(x, np.ndarray) else x

        args, kwargs = jax.tree.map(own, (tuple(model_args), dict(model_kwargs or {})))
        self.name = getattr(model, "__name__", type(model).__name__)
        _check_signature(model, self.name, args, kwargs)
        try:
            trace = _trace(jax.random.key(0), model, args, kwargs)
        except Exception as error:
            raise ModelCallError(
                f"The model {self.name} failed when it was run once: {_first_line(error)}"
            ) from error
        latent = _latent_sites(trace, self.name)
        self.example = _unconstrained(latent)
        self.improper = tuple(name for name, site in latent.items() if _is_improper(site["fn"]))
        self._log_joint = lambda z: -potential_energy(model, args, kwargs, z)
        self._constrain = partial(constrain_fn, model, args, kwargs, return_deterministic=True)
        self._draw_all = jax.vmap(
            lambda key: _unconstrained(_latent(_trace(key, model, args, kwargs)))
        )

    def log_gamma(self, z: Sites) -> Scalar:
        """log p(x, T(z)) + log |det ∂T/∂z|."""
        return jnp.asarray(self._log_joint(z))

    def constrain(self, z: Sites) -> Sites:
        """Every latent site in its own support, and every deterministic site."""
        return self._constrain(z)

    def prior_draws(self, key: Key, num: int) -> Sites | None:
        """`num` unconstrained draws of the latent sites as the model samples them, data and factors
        left out.

        None where a prior is improper. A draw at the border of its support has no place in ℝⁿ:
        another one takes its place.
        """
        if self.improper:
            return None
        draws = self._draw_all(jax.random.split(key, num))
        inside = np.ones(num, dtype=bool)
        for x in draws.values():
            inside &= np.isfinite(np.asarray(x)).reshape(num, -1).all(axis=1)
        if not inside.any():
            raise ModelError(
                f"None of {num} draws from the prior of {self.name} is finite: check its scales."
            )
        rows = np.where(inside, np.arange(num), np.resize(np.flatnonzero(inside), num))
        return {name: x[rows] for name, x in draws.items()}


def _first_line(error: Exception) -> str:
    """The first line of an error: messages end in one sentence, the cause is chained."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _check_signature(model: Callable, name: str, args: tuple, kwargs: dict) -> None:
    if not callable(model):
        raise TypeError(f"A NumPyro model is a function of its data; got {type(model).__name__}.")
    try:
        signature = inspect.signature(model)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ModelCallError(
            f"The model {name}{signature} cannot be called with these arguments: {error}. "
            "Give them as model_args=(…) and model_kwargs={…}."
        ) from error


def _trace(key: Key, model: Callable, args: tuple, kwargs: dict) -> dict[str, Any]:
    """One run of the model with its latent sites drawn; a site whose prior has no draws starts near
    the origin.
    """

    def fill(site):
        drawn = site["type"] == "sample" and not site["is_observed"]
        return init_to_uniform(site) if drawn and _is_improper(site["fn"]) else None

    return handlers.trace(
        handlers.substitute(handlers.seed(model, key), substitute_fn=fill)
    ).get_trace(*args, **kwargs)


def _latent(trace: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: site
        for name, site in trace.items()
        if site["type"] == "sample" and not site["is_observed"]
    }


def _latent_sites(trace: Mapping[str, Any], model: str) -> dict[str, Any]:
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
            f"{model} has numpyro.param at {_names(free)}: it has no prior to integrate over. Use"
            " numpyro.sample with a prior, or a constant."
        )
    latent = _latent(trace)
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
            f" {_names(discrete)}. Sum them out by hand or with a mixture (dist.MixtureSameFamily),"
            " or pass their data if they are observed."
        )
    fixed = [name for name, site in latent.items() if isinstance(_core(site["fn"]), Delta)]
    if fixed:
        raise ModelError(
            f"{model} has a point mass (dist.Delta) at {_names(fixed)}: use numpyro.deterministic"
            " there."
        )
    return latent


def _names(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _core(fn: Any) -> Any:
    """The distribution under expansions and masks."""
    while hasattr(fn, "base_dist") and type(fn).__name__ in (
        "ExpandedDistribution",
        "Independent",
        "MaskedDistribution",
    ):
        fn = fn.base_dist
    return fn


def _is_improper(fn: Any) -> bool:
    return isinstance(_core(fn), ImproperUniform)


def _unconstrained(latent: Mapping[str, Any]) -> Sites:
    """T⁻¹ of the drawn values, each by the support it had in this run (supports may depend on other
    sites).
    """
    coordinates = {}
    for name, site in latent.items():
        try:
            bijection = biject_to(site["fn"].support)
        except NotImplementedError as error:
            support = type(site["fn"].support).__name__.strip("_")
            raise ModelError(
                f"The latent site {name!r} has the support {support}, which has no bijection to ℝⁿ."
                " Write it through sites that do."
            ) from error
        coordinates[name] = jnp.asarray(bijection.inv(site["value"]), dtype=jnp.result_type(float))
    return coordinates
