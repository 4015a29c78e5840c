"""From what a user has (a NumPyro model, a density, a function) to a density on vectors, in the
precision at hand and in double; the way back, and the names of sites and their elements. It runs no
sampler.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree
from numpyro.distributions import Distribution

from nestedvi._types import Key
from nestedvi.arguments import check_whole
from nestedvi.densities.base import AbstractDensity, Density, as_density
from nestedvi.densities.model_calls import explain
from nestedvi.densities.model_checks import rounded_at_the_border
from nestedvi.densities.numpyro_model import NumpyroModel
from nestedvi.errors import ModelCallError, ModelError
from nestedvi.inference.answer import PriorDraws
from nestedvi.inference.traced import Traced, check_indices, constants_apart, trace
from nestedvi.precision import double_precision

__all__ = [
    "Problem",
    "element_names",
    "in_double",
    "make_problem",
    "named_sites",
    "nothing",
]

Vector = Float[Array, " dim"]
_SHAPE = (
    "Say what one particle looks like: dim=<size of a vector>, or example=<a pytree>, and only one"
    " of them."
)


def _on_vectors(
    density: AbstractDensity, unravel: Callable[[Vector], PyTree], dim: int
) -> AbstractDensity:
    """A density of pytrees as one of vectors."""
    traced = _trace("log density", lambda z: density.log_gamma(unravel(z)), jnp.zeros(dim))
    return _checked(traced, "log density", {})


def _checked(traced: Traced, name: str, shapes: Mapping[str, Any]) -> AbstractDensity:
    check_indices(traced.closed, name, shapes, traced.held)
    return Density(traced)


def _trace(name: str, fn: Callable, *like: Any, hold: tuple[Any, ...] = ()) -> Traced:
    """A function as a program, or why it cannot be one."""
    try:
        return trace(fn, *like, hold=hold)
    except Exception as error:
        raise ModelError(f"The {name} cannot be traced: {explain(error)}.") from error


def nothing(z: Float[Array, "particles dim"], weights: np.ndarray) -> tuple[str, ...]:
    """What there is to say of particles whose coordinates are the user's own."""
    return ()


class Problem(NamedTuple):
    """A density on vectors of size `dim`, each coordinate's name, the map to what the user sees,
    draws of the prior where there is one, what has to be said before anything is run, what
    particles that were found make worth saying, and the density in double precision where it is not
    and can be. `hierarchical` is the model, if some of its sites may be in standard units; `other`
    is the same problem with them so."""

    density: AbstractDensity
    dim: int
    names: tuple[str, ...]
    finish: Callable[[Vector], PyTree]
    prior: PriorDraws | None = None
    remarks: tuple[str, ...] = ()
    remarks_on: Callable[[Float[Array, "particles dim"], np.ndarray], tuple[str, ...]] = nothing
    exact: AbstractDensity | None = None
    hierarchical: NumpyroModel | None = None
    other: "Problem | None" = None


def make_problem(
    thing: Any,
    *,
    model_args: Iterable[Any] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    dim: int | None = None,
    example: PyTree = None,
    with_other: bool = True,
) -> Problem:
    """With `dim` or `example` (or a NumPyro distribution, which knows its shape) it is a log
    density, else a NumPyro model; `with_other` coordinates, where it has hierarchies.
    """
    with constants_apart():
        problem = _make_problem(thing, model_args, model_kwargs, dim, example)
        if with_other and problem.hierarchical is not None:
            model = problem.hierarchical.in_standard_units()
            problem = problem._replace(other=_from_model(model, False))
        return problem


def _make_problem(
    thing: Any,
    model_args: Iterable[Any],
    model_kwargs: Mapping[str, Any] | None,
    dim: int | None,
    example: PyTree,
) -> Problem:
    has_data = _has_data(model_args, model_kwargs)
    if dim is not None and example is not None:
        raise ValueError(_SHAPE)
    if dim is None and example is None:
        if isinstance(thing, NumpyroModel):
            return _from_model(thing, has_data)
        if isinstance(thing, Distribution):
            example = jnp.zeros(thing.shape())
        elif isinstance(thing, AbstractDensity):
            raise ValueError(_SHAPE)
        else:
            model = _model(thing, model_args, model_kwargs, has_data)
            hierarchical = model if model.hierarchical else None
            return _from_model(model, False)._replace(hierarchical=hierarchical)
    if has_data:
        raise ValueError(
            "model_args and model_kwargs are the data of a NumPyro model, which takes no dim or"
            " example; a log density takes one particle and nothing else (bind its data with a"
            " lambda)."
        )
    return _from_density(as_density(thing), dim, example)


def _has_data(model_args: Any, model_kwargs: Any) -> bool:
    """Whether there is any; what is neither a tuple nor a dict is refused where it is used."""
    plain = isinstance(model_args, tuple | list) and isinstance(model_kwargs, Mapping | None)
    return not plain or bool(model_args) or bool(model_kwargs)


def _model(
    thing: Any, model_args: Iterable[Any], model_kwargs: Mapping[str, Any] | None, has_data: bool
) -> NumpyroModel:
    if not callable(thing):
        as_density(thing)  # its error lists what would do
    try:
        return NumpyroModel(thing, model_args, model_kwargs)
    except ModelCallError as error:
        if has_data:
            raise
        # Without dim and example the function was taken for a model; a log density looks the same
        # until it is called.
        hint = (
            "If it is a log density and no NumPyro model, give dim=… or example=…, and only one of"
            " them."
        )
        raise ModelCallError(f"{error} {hint}") from error


def _from_model(model: NumpyroModel, has_data: bool) -> Problem:
    if has_data:
        raise ValueError(
            "This NumpyroModel holds its data already: leave out model_args and model_kwargs."
        )
    flat, unravel = ravel_pytree(model.example)
    draws = None
    if not model.improper:
        # Traced as the density is: the same model draws again without compiling.
        draw = _trace(f"model {model.name}", model.draw, jax.random.key(0))
        drawing = model.drawing_with(partial(_draw_all, draw))
        draws = lambda key, num: _ravel_all(drawing.prior_draws(key, num))  # noqa: E731
    remarks = model.remarks
    if model.improper:
        named = ", ".join(repr(name) for name in model.improper)
        remarks = (
            *remarks,
            (
                f"The prior of {named} is improper: log Z has an arbitrary constant and cannot be"
                " compared between models."
            ),
        )

    def held(fn: Callable) -> Traced:
        """A function of coordinates, in which the model's scalars are data."""
        name = f"model {model.name}"
        if not model.scalars:
            return _trace(name, lambda z: fn(unravel(z)), flat)
        return _trace(name, lambda scalars, z: fn(unravel(z), scalars), flat, hold=model.scalars)

    return Problem(
        _checked(held(model.log_gamma), f"model {model.name}", model.shapes),
        flat.size,
        _names(model.example, model.called()),
        held(model.constrain),
        draws,
        remarks,
        partial(rounded_at_the_border, model.bijections_that_round(), unravel),
        in_double(model, model.example),
    )


@eqx.filter_jit
def _draw_all(draw: Traced, keys: Key) -> PyTree:
    return jax.vmap(draw)(keys)


def _ravel_all(draws: PyTree) -> Float[np.ndarray, "particles dim"]:
    # As `ravel_pytree` orders them, with nothing to compile.
    rows = [np.asarray(x).reshape(len(x), -1) for x in jax.tree.leaves(draws)]
    return np.concatenate(rows, axis=1)


def _from_density(density: AbstractDensity, dim: int | None, example: PyTree) -> Problem:
    if dim is not None:
        dim = check_whole("dim", dim, why="A particle has at least one coordinate.")
    try:
        like = (
            jnp.zeros(dim)
            if dim is not None
            else jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), example)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The example of a particle must be a pytree of numbers: {_first_line(error)}"
        ) from error
    flat, unravel = ravel_pytree(like)
    if not flat.size:
        raise ValueError("A particle has at least one coordinate; the example has none.")
    shapes = jax.tree.map(lambda x: x.shape, like)
    try:
        value = jax.eval_shape(density.log_gamma, like)
    except Exception as error:
        given = f"dim={dim}" if dim is not None else f"example, of shapes {shapes}"
        raise ValueError(
            f"The log density cannot score a particle shaped as {given} says"
            f" ({explain(error)}); make the two agree."
            if not isinstance(error, jax.errors.JAXTypeError)
            else f"The log density cannot be traced: {explain(error)}."
        ) from error
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"A log density returns one real number; got {value.dtype}.")
    return Problem(
        _on_vectors(density, unravel, flat.size),
        flat.size,
        _names(like),
        trace(unravel, flat),
        exact=in_double(density, like),
    )


def in_double(density: AbstractDensity, like: PyTree) -> AbstractDensity | None:
    """The density on vectors, traced in double precision; None where it already is, or where it
    cannot be.
    """
    if jnp.result_type(float) == jnp.float64:
        return None
    with double_precision():
        flat, unravel = ravel_pytree(jax.tree.map(lambda x: np.asarray(x, np.float64), like))
        try:
            traced = trace(lambda z: density.log_gamma(unravel(z)), flat)
            value = jax.eval_shape(traced, flat)
        except Exception:  # whatever the user's code raises: single precision it is
            return None
    return Density(traced) if value.dtype == jnp.float64 else None


def _names(like: PyTree, called: Mapping[str, str] = MappingProxyType({})) -> tuple[str, ...]:
    """A name for every coordinate, in the order that `ravel_pytree` gives them, with sites as they
    are `called`.
    """
    return tuple(
        name
        for site, x in named_sites(like).items()
        for name in element_names(called.get(site, site), np.shape(x))
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def named_sites(samples: PyTree) -> dict[str, jax.Array]:
    """Arrays by name: a dict's own keys, the path of other pytrees' leaves (`a.0`), and `z` for a
    bare array.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(samples)
    return {".".join(_key(part) for part in path) or "z": leaf for path, leaf in leaves}


def _key(part) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(part, attribute):
            return str(getattr(part, attribute))
    return str(part)


def element_names(site: str, shape: tuple[int, ...]) -> Iterator[str]:
    """`theta[0, 1]` for every element of a site, in C order; a scalar is its site."""
    for index in np.ndindex(*shape):
        yield f"{site}[{', '.join(map(str, index))}]" if index else site
