"""How a user's NumPyro model is called: with arguments that it can use, under handlers that keep
its log density exact, and with a sentence where it fails. Nothing here runs a sampler or judges
the data.

**Arguments.** Tables become arrays, and numbers are told from sizes. A scalar that only enters
arithmetic is data: another value of it must not compile anew. Whether it only does is found by
running the model with it unknown; a number that the model branches on, counts to or shapes arrays
by stays part of the program.

**Handlers.** Two things go wrong without them. A latent site under a mask leaves coordinates
without a density, and the posterior is improper in them although nothing depends on them:
`obs_mask` makes such sites. And a Beta or Dirichlet site near the border of its support is rounded
there before its density is computed.
"""

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.scipy.special import betaln
from numpyro.distributions import Beta, Dirichlet, Distribution, MaskedDistribution
from numpyro.primitives import Messenger

from nestedvi.arguments import check_arrays, shown
from nestedvi.errors import ModelCallError

__all__ = [
    "Arguments",
    "Exactly",
    "check_containers",
    "check_signature",
    "core",
    "explain",
    "is_exact",
    "mask_of",
    "readings",
    "without_mask",
]

_LAYERS = ("ExpandedDistribution", "Independent", "MaskedDistribution")
_LIBRARIES = ("jax", "jaxlib", "numpyro", "equinox", "nestedvi", "numpy", "jaxtyping", "beartype")
_TRACED = (
    "JAX traces the function once for all values, so Python cannot see the value of a latent or"
    " of a particle. Instead of `if` use jnp.where(condition, a, b) or jax.lax.cond, instead of"
    " `for` or `while` over values jax.lax.fori_loop, and jax.numpy instead of numpy, math, float()"
    " or int()"
)


class Arguments(NamedTuple):
    """The arguments of a model, positional and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def named(self) -> Iterator[tuple[str, Any]]:
        """Every argument with a name to speak of it by."""
        for position, value in enumerate(self.args):
            yield f"argument {position + 1}", value
        yield from ((repr(name), value) for name, value in self.kwargs.items())

    def places(self, whole: bool) -> tuple[int | str, ...]:
        """Where the scalars are; with `whole` the integers too."""
        items: list[tuple[int | str, Any]] = [*enumerate(self.args), *self.kwargs.items()]
        return tuple(place for place, value in items if _is_scalar(value, whole))

    def at(self, places: tuple[int | str, ...]) -> tuple[Any, ...]:
        return tuple(self.args[p] if isinstance(p, int) else self.kwargs[p] for p in places)

    def put(self, places: tuple[int | str, ...], values: Iterable[Any]) -> "Arguments":
        args, kwargs = list(self.args), dict(self.kwargs)
        for place, value in zip(places, values, strict=True):
            if isinstance(place, int):
                args[place] = value
            else:
                kwargs[place] = value
        return Arguments(tuple(args), kwargs)

    def copied(self) -> "Arguments":
        """The same with new arrays of NumPy: some versions of JAX remember an array that a function
        closes over in the precision that it was first seen in.
        """
        copies = jax.tree.map(lambda x: x.copy() if type(x) is np.ndarray else x, tuple(self))
        return Arguments(*copies)

    def scalars(self, run: Callable[["Arguments"], Any]) -> tuple[int | str, ...]:
        """Places of the scalars that `run` does not need to know: all, or those that are no
        integers, or none.
        """
        for whole in (True, False):
            places = self.places(whole)
            if not places:
                continue
            try:
                jax.eval_shape(lambda x, places=places: run(self.put(places, x)), self.at(places))
            except Exception:  # a model may raise anything where it needs a number
                continue
            return places
        return ()


def _is_scalar(value: Any, whole: bool) -> bool:
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.number | np.ndarray | jax.Array
    ):
        return False
    if np.shape(value) != ():
        return False
    kind = np.asarray(value).dtype.kind
    return kind == "f" or (whole and kind in "iu")


def check_containers(model_args: Any, model_kwargs: Any) -> None:
    """Arguments come in a tuple and a dict, and are arrays that JAX can read."""
    if not isinstance(model_args, tuple | list):
        raise TypeError(
            "model_args is a tuple of the model's arguments; got"
            f" {shown(model_args)}. For one argument write model_args=(x,)."
        )
    if model_kwargs is not None and not isinstance(model_kwargs, Mapping):
        raise TypeError(
            "model_kwargs is a dict of the model's arguments by name; got"
            f" {shown(model_kwargs)}. Write model_kwargs={{'y': y}}."
        )
    check_arrays({f"model_args[{i}]": x for i, x in enumerate(model_args)})
    check_arrays({f"model_kwargs[{name!r}]": x for name, x in (model_kwargs or {}).items()})


def check_signature(model: Callable, name: str, args: tuple, kwargs: dict) -> None:
    """Raises where the model cannot be called with them."""
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


def readings(args: Iterable[Any], kwargs: Mapping[str, Any] | None) -> Iterator[Arguments]:
    """Ways to read the arguments, the likeliest first.

    A data frame is a matrix, or a table whose columns the model takes by name, or is used by the
    model as the object that it is. Arrays are copied: their owner may change them later.
    """
    given = (tuple(args), dict(kwargs or {}))
    leaves = jax.tree.leaves(given, is_leaf=_is_table)
    ways: list[Callable[[Any], Any]] = [_matrix]
    if any(map(_is_frame, leaves)):
        ways += [_columns]
    if any(map(_is_table, leaves)):
        ways += [lambda x: x]
    for read in ways:
        try:
            yield Arguments(
                *jax.tree.map(lambda x, read=read: read(_own(x)), given, is_leaf=_is_table)
            )
        except (TypeError, ValueError):
            # Words in a table: no matrix, though its columns may be of use.
            continue


def _own(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _is_table(value: Any) -> bool:
    """A series or a data frame of pandas or of a library that follows it."""
    return hasattr(value, "to_numpy") and not isinstance(value, np.ndarray | jax.Array)


def _is_frame(value: Any) -> bool:
    return _is_table(value) and hasattr(value, "columns")


def _matrix(value: Any) -> Any:
    return _numbers(value.to_numpy()) if _is_table(value) else value


def _numbers(array: Any) -> np.ndarray:
    """As it is, or as floats where missing entries made it an array of objects."""
    array = np.array(array)
    return array if array.dtype.kind in "biuf" else array.astype(float)


def _columns(value: Any) -> Any:
    if not _is_frame(value):
        return _matrix(value)
    columns = {}
    for name in value.columns:
        column = value[name].to_numpy()
        try:
            columns[name] = _numbers(column)
        except (TypeError, ValueError):
            columns[name] = column
    return columns


def core(fn: Any) -> Any:
    """The distribution under expansions and masks."""
    while hasattr(fn, "base_dist") and type(fn).__name__ in _LAYERS:
        fn = fn.base_dist
    return fn


def without_mask(fn: Any) -> Any:
    while isinstance(fn, MaskedDistribution):
        fn = fn.base_dist
    return fn


def mask_of(fn: Any) -> Any:
    """What the masks of a distribution leave, True where there is none."""
    mask: Any = True
    while isinstance(fn, MaskedDistribution):
        mask, fn = fn._mask & mask, fn.base_dist
    return mask


def _log_det_name(site: str) -> str:
    """What NumPyro calls the factor that holds the log determinant of a site's bijection."""
    return f"_{site}_log_det"


class Exactly(Messenger):
    """A model whose sites `unmasked` have their own density everywhere, and whose Beta and
    Dirichlet sites have it in the unconstrained coordinates `z`, where nothing is rounded.

    A coordinate that nothing depends on integrates to one under its own density, whatever the mask
    left of it: log Z stays as it is.
    """

    def __init__(
        self,
        fn: Callable,
        unmasked: frozenset[str] = frozenset(),
        z: Mapping[str, jax.Array] | None = None,
    ):
        self.unmasked, self.z = unmasked, dict(z or {})
        self._factors = {_log_det_name(name) for name in unmasked}
        self._replaced: set[str] = set()
        super().__init__(fn)

    def __enter__(self) -> Any:
        self._replaced = set()
        return super().__enter__()

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample":
            return
        name = msg["name"]
        if name in self.unmasked or name in self._factors:
            msg["fn"] = without_mask(msg["fn"])
        if name in self._replaced:
            msg["fn"] = msg["fn"].mask(False)
        elif name in self.z and not msg["is_observed"] and is_exact(msg):
            self._replaced |= {name, _log_det_name(name)}
            log_density = _log_density(msg["fn"], self.z[name])
            msg["fn"] = msg["fn"].mask(False)
            numpyro.factor(f"_{name}_exactly", log_density)


def is_exact(site: Mapping[str, Any]) -> bool:
    """Whether `Exactly` computes the density of this site in unconstrained coordinates.

    Inside of a scan these hold all steps, and the site is one of them.
    """
    return (
        isinstance(core(site["fn"]), Beta | Dirichlet)
        and mask_of(site["fn"]) is True
        and "_scan_current_index" not in site["infer"]
    )


def _log_density(fn: Distribution, z: jax.Array) -> jax.Array:
    """Of z = T⁻¹(x) with x ~ fn, a Beta or a Dirichlet: one number for each of fn's batch."""
    plain = core(fn)
    if isinstance(plain, Beta):
        log_density = _log_beta(plain.concentration1, plain.concentration0, z)
    else:
        # A broken stick: independent Beta shares of what is left, the logits shifted as NumPyro
        # does, so that z = 0 is the centre of the simplex.
        a = plain.concentration
        left = jnp.flip(jnp.cumsum(jnp.flip(a, -1), -1), -1)
        shift = jnp.log(jnp.arange(a.shape[-1] - 1, 0, -1).astype(z.dtype))
        log_density = jnp.sum(_log_beta(a[..., :-1], left[..., 1:], z - shift), axis=-1)
    more = fn.event_dim - plain.event_dim
    return jnp.sum(log_density, axis=tuple(range(-more, 0))) if more else log_density


def _log_beta(a: jax.Array, b: jax.Array, logit: jax.Array) -> jax.Array:
    return a * jax.nn.log_sigmoid(logit) + b * jax.nn.log_sigmoid(-logit) - betaln(a, b)


def explain(error: Exception) -> str:
    """The error in one sentence without its full stop, with the line of the user's file."""
    if isinstance(error, _TRACER_ERRORS):
        return f"it needs the value of something that is only traced{_where(error)}. {_TRACED}"
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return f"{text.rstrip('.')}{_where(error)}"


_TRACER_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def _where(error: Exception) -> str:
    """The innermost line that is not a library's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        parts = Path(frame.filename).parts
        if "site-packages" in parts or not frame.filename.endswith(".py"):
            continue
        if any(name in parts for name in _LIBRARIES) or "lib" in parts:
            continue
        return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""
