"""Methods as rows of a table: path, kernels, resampling, what is minimised over what. They differ
in their row, not in code.

A new method is a new `Method(...)`; nothing else in the library asks which method it serves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from nestedvi._types import Key
from nestedvi.arguments import check_key
from nestedvi.densities.base import AbstractSampleable, as_density, as_sampleable
from nestedvi.errors import UnknownNameError
from nestedvi.kernels.base import AbstractTransition, Transition, stack
from nestedvi.kernels.chain import Chain
from nestedvi.kernels.gaussian import ResidualGaussian
from nestedvi.kernels.langevin import DriftNetwork, LangevinTransition
from nestedvi.kernels.mcmc import RandomWalk
from nestedvi.kernels.planar import PlanarFlow
from nestedvi.particles.resampling import Resampling
from nestedvi.paths.annealing import Annealing
from nestedvi.paths.schedules import (
    AbstractSchedule,
    LearnedSchedule,
    LinearSchedule,
    check_num_levels,
)
from nestedvi.sampler.nested import NestedSampler, Stacked
from nestedvi.train.objective import Objective

__all__ = ["KERNELS", "METHODS", "PATHS", "Built", "Method", "build", "get_method"]


def _gaussian(key: Key, dim: int) -> AbstractTransition:
    forward, reverse = (ResidualGaussian(dim, key=k) for k in jax.random.split(key))
    return Transition(forward, reverse)


def _flow(key: Key, dim: int) -> AbstractTransition:
    # Initial densities are several units wide, and so must be the offsets and what a step of Adam
    # changes: with narrower ones a single flow ends with less ESS on the ring. Nearer to the
    # identity at the start, fewer restarts lose a mode.
    return PlanarFlow(dim, key=key, scale=0.01, spread=4.0, unit=3.0)


def _random_walk(key: Key, dim: int) -> AbstractTransition:
    return RandomWalk(jnp.full((dim,), 2.38 / dim**0.5), steps=5)


def _step(dim: int) -> jax.Array:
    """The Langevin step sizes that training starts from: small, since too long a step may leave for
    infinity at once.
    """
    return jnp.full((dim,), 0.1)


def _langevin(key: Key, dim: int) -> AbstractTransition:
    return LangevinTransition(_step(dim))


def _langevin_reverse(key: Key, dim: int) -> AbstractTransition:
    return LangevinTransition(_step(dim), reverse_drift=DriftNetwork(dim, key=key))


def _langevin_opposite(key: Key, dim: int) -> AbstractTransition:
    return LangevinTransition(_step(dim), drift=DriftNetwork(dim, key=key), opposite=True)


KERNELS: dict[str, Callable[[Key, int], AbstractTransition]] = {
    "gaussian": _gaussian,
    "flow": _flow,
    "random-walk": _random_walk,
    "langevin": _langevin,
    "langevin-reverse": _langevin_reverse,
    "langevin-opposite": _langevin_opposite,
}

PATHS: dict[str, Callable[[int], AbstractSchedule]] = {
    "linear": LinearSchedule,
    "learned": LearnedSchedule,
}


@dataclass(frozen=True)
class Method:
    """One row. `path` "none" means no intermediate densities: all K-1 transitions form one level.

    `kernels` and `path` are names from `KERNELS` and `PATHS`, or functions of the same signatures;
    `objective` holds arguments of `nvi.Objective`, None for samplers that learn nothing.

    Args:
        label: how tables name it.
        about: a sentence.
        kernels: a name from the table of kernels, or a function (key, dim) -> transition.
        path: "none", "linear", "learned", or a function num_levels -> schedule.
        resampling: when and how.
        objective: arguments of `nvi.Objective`; None for samplers that learn nothing.

    Example:
        ```python
        mine = nvi.Method(
            "mine",
            path="learned",
            resampling=nvi.Resampling("residual", when=0.5),
            objective={"learn": ["forward", "path"]},
        )
        initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
        sampler, objective = nvi.build(
            jax.random.key(0), mine, target=nvi.targets.ring(), initial=initial, num_levels=4
        )
        ```
    """

    label: str
    about: str = ""
    kernels: str | Callable[[Key, int], AbstractTransition] = "gaussian"
    path: str | Callable[[int], AbstractSchedule] = "linear"
    resampling: Resampling = field(default_factory=lambda: Resampling(when="never"))
    objective: Mapping[str, Any] | None = field(default_factory=dict)

    def make_objective(self) -> Objective:
        """The row's objective, or an error if there is nothing to learn."""
        if self.objective is None:
            raise ValueError(f"{self.label} learns nothing: run it with evaluate(), do not fit it.")
        return Objective(**self.objective)


_ALWAYS = Resampling("systematic", "always")
_STAR = {"learn": ("forward", "reverse", "path")}
_FORWARD_STAR = {"learn": ("forward", "path")}
_UNIFORM = {"weights": "uniform"}

METHODS: dict[str, Method] = {
    "svi": Method("SVI", "one bound on the final weight, no intermediate densities", path="none"),
    "iwae": Method(
        "IWAE", "log of the mean final weight", path="none", objective={"kind": "bound"}
    ),
    "rws": Method(
        "RWS",
        "forward KL with the final weights",
        path="none",
        objective={"divergence": "forward-kl", "learn": ("forward",)},
    ),
    "avo": Method("AVO", "a reverse KL a level, particles unweighted", objective=_UNIFORM),
    "nvi": Method("NVI", "a reverse KL a level, self-normalised weights"),
    "nvir": Method("NVIR", "NVI with resampling", resampling=_ALWAYS),
    "nvi-star": Method("NVI*", "NVI with a learned path", path="learned", objective=_STAR),
    "nvir-star": Method(
        "NVIR*",
        "NVI with resampling and a learned path",
        path="learned",
        resampling=_ALWAYS,
        objective=_STAR,
    ),
    "svi-flow": Method("SVI-flow", "SVI with planar flows", "flow", "none"),
    "avo-flow": Method("AVO-flow", "AVO with planar flows", "flow", objective=_UNIFORM),
    "nvi-flow": Method("NVI-flow", "NVI with planar flows", "flow"),
    "nvir-flow": Method("NVIR-flow", "NVIR with planar flows", "flow", resampling=_ALWAYS),
    "nvi-star-flow": Method(
        "NVI*-flow", "NVI* with planar flows", "flow", "learned", objective=_FORWARD_STAR
    ),
    "nvir-star-flow": Method(
        "NVIR*-flow", "NVIR* with planar flows", "flow", "learned", _ALWAYS, _FORWARD_STAR
    ),
    "vsmc": Method(
        "VSMC",
        "the SMC estimate of log Z as a bound, through all levels",
        resampling=_ALWAYS,
        objective={"kind": "bound"},
    ),
    "ula-ais": Method(
        "ULA-AIS",
        "annealing by unadjusted Langevin moves with learned step sizes",
        "langevin",
        objective={"learn": ("forward",), **_UNIFORM},
    ),
    "mcd": Method(
        "MCD",
        "ULA-AIS with a learned score in the reverse kernels",
        "langevin-reverse",
        objective=_UNIFORM,
    ),
    "cmcd": Method(
        "CMCD",
        "ULA-AIS with a learned drift that the reverse kernels take the other way",
        "langevin-opposite",
        objective={"learn": ("forward",), **_UNIFORM},
    ),
    "nvir-star-langevin": Method(
        "NVIR*-Langevin",
        "NVIR* with Langevin moves, whose step sizes are learned",
        "langevin",
        "learned",
        _ALWAYS,
        _FORWARD_STAR,
    ),
    "ais": Method(
        "AIS", "annealed importance sampling with random-walk moves", "random-walk", objective=None
    ),
    "smc-random-walk": Method(
        "SMC",
        "an SMC sampler with random-walk moves, resampling when ESS < 50 %",
        "random-walk",
        resampling=Resampling("systematic", 0.5),
        objective=None,
    ),
}
"""The known methods by their ids; a new method is a new row.

Example:
    ```python
    sorted(nvi.METHODS)[:3]
    nvi.METHODS["nvir-star"].about
    ```
"""


def get_method(name: str | Method) -> Method:
    """A method by its id, or the method itself.

    Args:
        name: an id, or a `Method`.

    Example:
        ```python
        nvi.get_method("avo").label
        ```
    """
    if isinstance(name, Method):
        return name
    if not isinstance(name, str) or name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    return METHODS[name]


def _lookup(table: Mapping[str, Any], kind: str, name: Any) -> Any:
    if callable(name):
        return name
    if name not in table:
        raise UnknownNameError(kind, name, table)
    return table[name]


class Built(NamedTuple):
    """A method's sampler with fresh parameters, and the objective that trains it (None if the
    method learns nothing)."""

    sampler: NestedSampler
    objective: Objective | None


def build(key: Key, method: str | Method, *, target: Any, initial: Any, num_levels: int) -> Built:
    """The sampler of a method between an initial density and a target, with K = `num_levels` and
    fresh parameters, and the method's objective.

    Args:
        key: for the first parameters.
        method: a row of `nestedvi methods`, or a `Method`.
        target: γ_K, a density or a function of one particle.
        initial: q_1, a density on vectors that can be sampled.
        num_levels: K.

    Example:
        ```python
        sampler, objective = nvi.build(
            jax.random.key(0),
            "nvir-star",
            target=nvi.targets.ring(),
            initial=nvi.DiagonalNormal(jnp.zeros(2), 5.0),
            num_levels=8,
        )
        ```
    """
    check_key(key)
    row = get_method(method)
    check_num_levels(num_levels)
    base: AbstractSampleable = as_sampleable(initial)
    shape = jax.eval_shape(base.sample, key).shape
    if len(shape) != 1:
        raise ValueError(
            "The methods' kernels move vectors; the initial density draws particles of shape"
            f" {shape}."
        )
    density = as_density(target)
    try:
        jax.eval_shape(lambda k: density.log_gamma(base.sample(k)), key)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The target cannot score what the initial density draws (shape {shape}): {error}"
        ) from error
    make = _lookup(KERNELS, "kernel", row.kernels)
    links = stack(key, lambda k: make(k, shape[0]), num_levels - 1)
    objective = None if row.objective is None else row.make_objective()
    if row.path == "none":
        links = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, Chain(links))
        schedule: AbstractSchedule = LinearSchedule(2)
    else:
        schedule = _lookup(PATHS, "path", row.path)(num_levels)
    path = Annealing(base, density, schedule)
    return Built(NestedSampler(base, path, Stacked(links), row.resampling), objective)
