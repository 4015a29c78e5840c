"""A NumPyro model as a density on unconstrained coordinates. It knows one particle at a time: no
samplers, no weights.

Every latent site is moved to ℝⁿ by NumPyro's own bijection of its support, and log γ holds the log
determinant of that bijection:

    log γ(z) = log p(x, T(z)) + log |det ∂T/∂z|,    so that    Z = ∫ γ(z) dz = ∫ p(x, θ) dθ,

the evidence of the model in its own parameterisation. Refused, each with a sentence that names the
site: discrete latent sites, point masses, `numpyro.param`, plates that subsample, and supports
without a bijection to ℝⁿ.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers, validation_enabled
from numpyro.distributions import ImproperUniform, biject_to
from numpyro.distributions.transforms import IdentityTransform, Transform
from numpyro.infer import init_to_uniform
from numpyro.infer.util import constrain_fn, log_density, potential_energy

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity
from nestedvi.densities.model_calls import (
    Arguments,
    Exactly,
    check_containers,
    check_signature,
    core,
    explain,
    is_exact,
    mask_of,
    readings,
    without_mask,
)
from nestedvi.densities.model_checks import (
    check_left_out,
    check_observations,
    is_drawn,
    latent_of,
    latent_sites,
)
from nestedvi.densities.noncentred import (
    hierarchical_sites,
    in_standard_units,
    standard_site,
)
from nestedvi.errors import ModelCallError, ModelError, UnknownNameError

__all__ = ["NumpyroModel"]

Sites = dict[str, jax.Array]
Scalars = tuple[Any, ...]
_TRIES = 8


class NumpyroModel(AbstractDensity):
    """A NumPyro model with its arguments: particles are dicts of unconstrained latent sites.

    `example` is one such particle, `improper` names the sites whose prior has no normaliser: log Z
    then means nothing by itself. `remarks` are sentences on the data, `exact` the sites whose
    density is computed where nothing is rounded, `shapes` those of the latent sites, `scalars` the
    numbers among the arguments that are data and no part of the program. `hierarchical` are sites
    of a location-scale family whose scale is made of other latent sites.

    Args:
        model: a NumPyro model with continuous latent sites.
        model_args: its positional arguments.
        model_kwargs: its keyword arguments.
        noncentred: hierarchical sites x whose coordinates are to be (x − loc) / scale. They are
            sites of the particle under the name `x_decentered`, and of `constrain` under their own.

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
    _log_joint: Callable[[Scalars, Sites], Scalar]
    _constrain: Callable[[Scalars, Sites], Sites]
    draw: Callable[[Key], Sites]
    _draw_all: Callable[[Key], Sites] | None
    example: Sites
    name: str
    improper: tuple[str, ...]
    exact: tuple[str, ...]
    remarks: tuple[str, ...]
    scalars: Scalars
    shapes: dict[str, tuple[int, ...]]
    hierarchical: tuple[str, ...]
    noncentred: tuple[str, ...]
    _made_of: Callable[[], tuple[Any, ...]]
    _supports: Callable[[], dict[str, Any]]

    def __init__(
        self,
        model: Callable,
        model_args: Iterable[Any] = (),
        model_kwargs: Mapping[str, Any] | None = None,
        *,
        noncentred: Iterable[str] = (),
    ):
        self.name = getattr(model, "__name__", type(model).__name__)
        check_containers(model_args, model_kwargs)
        arguments, trace = _first_run(model, self.name, model_args, model_kwargs)
        check_left_out(jax.random.key(0), model, arguments, trace, self.name)
        latent_sites(trace, self.name)
        # Near the origin: draws of a vague prior are infinite more than once.
        near = partial(_quiet_trace, jax.random.key(_TRIES), model, arguments, is_drawn)
        self.hierarchical = hierarchical_sites(trace, near, partial(_moved, model, arguments))
        self.noncentred = _checked_sites(noncentred, self.hierarchical, self.name)
        self._made_of = partial(tuple, (model, *arguments))
        if self.noncentred:
            trace = _moved(model, arguments, self.noncentred)
            model = in_standard_units(model, self.noncentred)
        latent = latent_of(trace)
        self.remarks = check_observations(trace, arguments, self.name)
        unmasked = _without_effect(model, arguments, latent)
        self.example = _unconstrained(latent)
        self.improper = tuple(_improper(latent, unmasked))
        self.exact = tuple(
            name
            for name, site in latent.items()
            if is_exact({**site, "fn": without_mask(site["fn"])} if name in unmasked else site)
        )
        self.shapes = {name: np.shape(site["value"]) for name, site in latent.items()}
        self._supports = partial(dict, {name: x["fn"].support for name, x in latent.items()})

        def log_joint(arguments: Arguments, z: Sites) -> Scalar:
            exactly = Exactly(model, unmasked, {name: z[name] for name in self.exact})
            # Extreme values are the sampler's business: they have no mass, and are no error.
            with validation_enabled(False):
                return -potential_energy(exactly, *arguments.copied(), z)

        def constrain(arguments: Arguments, z: Sites) -> Sites:
            with validation_enabled(False):
                return constrain_fn(model, *arguments, z, return_deterministic=True)

        places = arguments.scalars(lambda known: log_joint(known, self.example))
        self.scalars = arguments.at(places)
        self._log_joint = lambda scalars, z: log_joint(arguments.put(places, scalars), z)
        self._constrain = lambda scalars, z: constrain(arguments.put(places, scalars), z)
        self.draw = lambda key: _unconstrained(latent_of(_trace(key, model, *arguments)))
        self._draw_all = None

    def log_gamma(self, z: Sites, scalars: Scalars | None = None) -> Scalar:
        """log p(x, T(z)) + log |det ∂T/∂z|; with other `scalars` for those that were given."""
        return jnp.asarray(self._log_joint(self.scalars if scalars is None else scalars, z))

    def constrain(self, z: Sites, scalars: Scalars | None = None) -> Sites:
        """Every latent site in its own support, and every deterministic site."""
        sites = self._constrain(self.scalars if scalars is None else scalars, z)
        standard = {standard_site(name) for name in self.noncentred}
        return {name: x for name, x in sites.items() if name not in standard}

    def in_standard_units(self) -> "NumpyroModel":
        """The same model with all of its hierarchical sites not centred."""
        return NumpyroModel(*self._made_of(), noncentred=self.hierarchical)

    def called(self) -> dict[str, str]:
        """The user's name of every site of a particle."""
        own = {standard_site(name): name for name in self.noncentred}
        return {name: own.get(name, name) for name in self.example}

    def bijections(self) -> dict[str, Transform]:
        """From unconstrained coordinates to each latent site, by the support that it had in the
        first run.
        """
        return {name: biject_to(support) for name, support in self._supports().items()}

    def bijections_that_round(self) -> dict[str, Transform]:
        """Those of sites of independent numbers whose density is computed behind them."""
        return {
            name: bijection
            for name, bijection in self.bijections().items()
            if name not in self.exact
            and not isinstance(bijection, IdentityTransform)
            and bijection.domain.event_dim == bijection.codomain.event_dim == 0
        }

    def drawing_with(self, draw_all: Callable[[Key], Sites]) -> "NumpyroModel":
        """The same model, with a compiled program in place of `draw` for many keys."""
        return eqx.tree_at(
            lambda model: model._draw_all, self, draw_all, is_leaf=lambda x: x is None
        )

    def prior_draws(self, key: Key, num: int) -> Sites | None:
        """`num` unconstrained draws of the latent sites as the model samples them, data and factors
        left out.

        None where a prior is improper. A draw at the border of its support has no place in ℝⁿ:
        another one takes its place.
        """
        if self.improper:
            return None
        draw_all = jax.vmap(self.draw) if self._draw_all is None else self._draw_all
        draws = draw_all(jax.random.split(key, num))
        inside = np.ones(num, dtype=bool)
        for x in draws.values():
            inside &= np.isfinite(np.asarray(x)).reshape(num, -1).all(axis=1)
        if not inside.any():
            raise ModelError(
                f"None of {num} draws from the prior of {self.name} is finite: check its scales."
            )
        rows = np.where(inside, np.arange(num), np.resize(np.flatnonzero(inside), num))
        return {name: x[rows] for name, x in draws.items()}


def _first_run(
    model: Callable, name: str, args: Iterable[Any], kwargs: Mapping[str, Any] | None
) -> tuple[Arguments, dict[str, Any]]:
    """The arguments as the model can use them, and the sites of its first run."""
    first = None
    for arguments in readings(args, kwargs):
        check_signature(model, name, *arguments)
        # A draw from a wide prior may be infinite, which is no mistake of the model's:
        # distributions that validate what they are given have more than one try.
        for seed in range(_TRIES):
            try:
                return arguments, _quiet_trace(jax.random.key(seed), model, arguments)
            except Exception as error:
                first = first or error
                if not isinstance(error, ValueError):
                    break
    if first is None:
        raise ModelCallError(f"The data of {name} hold words: a model takes numbers.")
    empty = [
        f"{argument} of shape {np.shape(value)}"
        for argument, value in arguments.named()
        if isinstance(value, np.ndarray | jax.Array) and np.size(value) == 0
    ]
    hint = f" Its data are empty: {', '.join(empty)}." if empty else ""
    raise ModelCallError(
        f"The model {name} failed when it was run once: {explain(first)}.{hint}"
    ) from first


def _checked_sites(
    names: Iterable[str], hierarchical: tuple[str, ...], model: str
) -> tuple[str, ...]:
    names = tuple(names)
    for name in names:
        if name not in hierarchical:
            raise UnknownNameError(f"hierarchical site of {model}", name, hierarchical)
    return names


def _without_effect(
    model: Callable, arguments: Arguments, latent: Mapping[str, Any]
) -> frozenset[str]:
    """Latent sites under a mask whose masked coordinates nothing depends on: those that `obs_mask`
    makes, and those that leave the log density as it is when they move.
    """
    names = set()
    for name, site in latent.items():
        mask = np.asarray(mask_of(site["fn"]))
        if mask.all():
            continue
        drawn = {other: x["value"] for other, x in latent.items()}
        again = site["fn"].sample(jax.random.key(1))
        keep = mask.reshape(mask.shape + (1,) * site["fn"].event_dim) if mask.ndim else mask
        moved = {**drawn, name: jnp.where(keep, site["value"], again)}
        with validation_enabled(False):
            here, there = (
                float(log_density(handlers.seed(model, 0), *arguments, values)[0])
                for values in (drawn, moved)
            )
        if here == there or (np.isnan(here) and np.isnan(there)):
            names.add(name)
    return frozenset(names)


def _quiet_trace(
    key: Key, model: Callable, arguments: Arguments, near: Callable[..., bool] | None = None
) -> dict[str, Any]:
    with warnings.catch_warnings(), validation_enabled(False):
        warnings.simplefilter("ignore", UserWarning)
        return _trace(key, model, *arguments, near or _has_no_draws)


def _moved(model: Callable, arguments: Arguments, sites: tuple[str, ...]) -> dict[str, Any]:
    """A run with `sites` in standard units."""
    return _quiet_trace(jax.random.key(0), in_standard_units(model, sites), arguments)


def _has_no_draws(site: Mapping[str, Any]) -> bool:
    return is_drawn(site) and _is_improper(site["fn"])


def _trace(
    key: Key,
    model: Callable,
    args: tuple,
    kwargs: dict,
    near: Callable[..., bool] = _has_no_draws,
) -> dict[str, Any]:
    """One run of the model with its latent sites drawn, those that are to be `near` the origin from
    there: by default those whose prior has no draws.
    """

    def fill(site):
        return init_to_uniform(site) if near(site) else None

    return handlers.trace(
        handlers.substitute(handlers.seed(model, key), substitute_fn=fill)
    ).get_trace(*args, **kwargs)


def _improper(latent: Mapping[str, Any], unmasked: frozenset[str]) -> Iterator[str]:
    """Sites without a prior, or with one that a mask hides in part."""
    for name, site in latent.items():
        hidden = name not in unmasked and not np.all(np.asarray(mask_of(site["fn"])))
        if hidden or _is_improper(site["fn"]):
            yield name


def _is_improper(fn: Any) -> bool:
    return isinstance(core(fn), ImproperUniform)


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
