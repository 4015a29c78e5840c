"""A nested importance sampler: an initial proposal, a path, K-1 transitions, and when to resample.

`run` is the only loop over levels that draws from a sampler; training has its own schedules of the
same levels. Levels of one kind run in a scan (parameters stacked on a leading axis); unequal levels
are a Python loop around the same function.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int, PyTree

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable, as_sampleable
from nestedvi.errors import DensityError
from nestedvi.kernels.base import (
    AbstractFlow,
    AbstractTransition,
    Independent,
    Transition,
    check_stacked,
)
from nestedvi.kernels.chain import Chain
from nestedvi.kernels.langevin import LangevinTransition
from nestedvi.particles.genealogy import lineage, num_distinct
from nestedvi.particles.resampling import Particles, Resampling, systematic, take
from nestedvi.particles.weights import ess, log_Z_hat, normalise
from nestedvi.paths.annealing import Annealing
from nestedvi.paths.base import (
    AbstractFixedSupportPath,
    AbstractPath,
    at_level,
    needs_table,
)
from nestedvi.sampler.level import Level, Terms, nothing_in, outgoing, terms

__all__ = [
    "LevelInfo",
    "NestedSampler",
    "Run",
    "Shared",
    "Stacked",
    "check_run",
    "level_arrays",
    "level_info",
    "level_noise",
    "prepare",
    "restart",
    "run",
    "scan_levels",
    "support_doubts",
]


class Stacked(eqx.Module):
    """K-1 transitions of one class, each with parameters of its own, on a leading axis."""

    transition: AbstractTransition

    def __check_init__(self):
        check_stacked(
            self.transition,
            "Stacked",
            "For one transition at every level use Shared(transition, num)",
        )

    @property
    def num(self) -> int:
        return jax.tree.leaves(eqx.filter(self.transition, eqx.is_array))[0].shape[0]


class Shared(eqx.Module):
    """One transition used at every one of `num` levels (amortised over levels)."""

    transition: AbstractTransition
    num: int = eqx.field(static=True)


class NestedSampler(eqx.Module):
    """q_1, γ_1 … γ_K, (q_k, r_{k-1}) for k = 2 … K, and resampling before each move.

    `transitions` is `Stacked`, `Shared`, or a tuple of unequal transitions; `resampling` is one
    rule, or a tuple of K-1.
    """

    initial: AbstractSampleable
    path: AbstractPath
    transitions: Stacked | Shared | tuple[AbstractTransition, ...]
    resampling: Resampling | tuple[Resampling, ...]

    def __init__(self, initial: Any, path: AbstractPath, transitions: Any, resampling: Any = None):
        self.initial, self.path = as_sampleable(initial), path
        self.transitions = tuple(transitions) if isinstance(transitions, list) else transitions
        self.resampling = Resampling(when="never") if resampling is None else resampling
        if not isinstance(self.transitions, Stacked | Shared | tuple):
            raise TypeError(
                "Transitions are Stacked(…), Shared(…, num) or a list; got"
                f" {type(self.transitions).__name__}. For K-1 transitions with parameters of their"
                " own use Stacked(nvi.stack(key, make, K - 1))."
            )
        num = len(self.transitions) if isinstance(self.transitions, tuple) else self.transitions.num
        if num != path.num_levels - 1:
            raise ValueError(
                f"A path of K = {path.num_levels} densities needs K-1 = {path.num_levels - 1}"
                f" transitions; got {num}."
            )
        for transition in (
            self.transitions
            if isinstance(self.transitions, tuple)
            else (self.transitions.transition,)
        ):
            _check_proper(path, transition)
        if isinstance(self.resampling, tuple) and len(self.resampling) != num:
            raise ValueError(
                f"Resampling needs one rule, or one for each of {num} moves; got"
                f" {len(self.resampling)}."
            )

    @property
    def num_levels(self) -> int:
        """K."""
        return self.path.num_levels

    @property
    def homogeneous(self) -> bool:
        """Whether all levels after the first are of one kind, so that they can run in a scan or
        side by side.
        """
        parts = (self.transitions, self.path.thetas(), self.resampling)
        return not any(type(part) is tuple for part in (parts[0], parts[2])) and not _is_ragged(
            parts[1]
        )

    def first_level(self) -> Level:
        """Level 1: q_1 proposes, nothing comes in."""
        theta = _theta_at(self.path.thetas(), 0)
        return Level(Transition(Independent(self.initial)), None, theta, Resampling(when="never"))

    def level(self, k: int) -> Level:
        """Level k = 2 … K (a Python integer)."""
        thetas, j = self.path.thetas(), k - 2
        if isinstance(self.transitions, tuple):
            transition = self.transitions[j]
        elif isinstance(self.transitions, Shared):
            transition = self.transitions.transition
        else:
            transition = at_level(self.transitions.transition, j)
        resampling = self.resampling[j] if isinstance(self.resampling, tuple) else self.resampling
        return Level(transition, _theta_at(thetas, j), _theta_at(thetas, j + 1), resampling)


def _check_proper(path: AbstractPath, transition: AbstractTransition) -> None:
    """Refuses the combinations of densities and moves whose weights would be wrong without a sign
    of it.
    """
    while isinstance(transition, Chain):
        transition = transition.links
    if isinstance(path, AbstractFixedSupportPath):
        if (
            isinstance(transition, Transition)
            and transition.reverse is None
            and not transition.forward.extends
        ):
            raise ValueError(
                f"{type(transition.forward).__name__} moves particles on one space, so it needs a"
                " reverse kernel: without one the weights are not proper. Use Transition(forward,"
                " reverse). Only a kernel that keeps all of the particle and adds to it (Append;"
                " `extends`) goes without."
            )
    elif isinstance(transition, AbstractFlow) or (
        isinstance(transition, Transition) and transition.reverse is not None
    ):
        what = "a flow" if isinstance(transition, AbstractFlow) else "a reverse kernel"
        raise ValueError(
            f"The support of {type(path).__name__} grows with k: a particle stands for z_{{1:k}},"
            f" and its past is never proposed again, so {what} would make the weights improper. Use"
            " Transition(forward)."
        )


def _is_ragged(thetas: Any) -> bool:
    """A tuple of densities is one θ a level; any other pytree (named or plain tuples of arrays) is
    stacked.
    """
    return (
        type(thetas) is tuple and len(thetas) > 0 and all(isinstance(t, eqx.Module) for t in thetas)
    )


def _theta_at(thetas: Any, j: int) -> PyTree:
    return thetas[j] if _is_ragged(thetas) else at_level(thetas, j)


def scan_levels(
    sampler: NestedSampler,
    body: Callable[[Any, Level, Any], tuple[Any, Any]],
    carry: Any,
    extras: PyTree,
) -> tuple[Any, Any]:
    """Folds `body(carry, level, extra)` over levels 2 … K; `extras` are as `level_noise` makes
    them.
    """
    num = sampler.num_levels - 1
    if not sampler.homogeneous:
        outs = []
        for j in range(num):
            carry, out = body(carry, sampler.level(j + 2), extras[j])
            outs.append(out)
        return carry, jax.tree.map(lambda *xs: jnp.stack(xs), *outs)
    arrays, rebuild = level_arrays(sampler)

    def step(carry, inputs):
        level, extra = inputs
        return body(carry, rebuild(level), extra)

    return jax.lax.scan(step, carry, (arrays, extras))


def level_arrays(sampler: NestedSampler) -> tuple[PyTree, Callable[[PyTree], Level]]:
    """Levels 2 … K as arrays with a leading axis K-1, and how to make a `Level` of one slice; for
    scan and vmap.
    """
    thetas = sampler.path.thetas()
    prevs, currents = (at_level(thetas, s) for s in (slice(None, -1), slice(1, None)))
    assert not isinstance(sampler.transitions, tuple) and not isinstance(sampler.resampling, tuple)
    transition, resampling = sampler.transitions.transition, sampler.resampling
    per_level = transition if isinstance(sampler.transitions, Stacked) else None
    arrays, static = eqx.partition((per_level, prevs, currents), eqx.is_array)

    def rebuild(slice_: PyTree) -> Level:
        own, theta_prev, theta = eqx.combine(slice_, static)
        return Level(transition if own is None else own, theta_prev, theta, resampling)

    return arrays, rebuild


def level_noise(key: Key, sampler: NestedSampler) -> Any:
    """The randomness of levels 2 … K: what resampling needs and a key for the moves, as arrays with
    a leading axis K-1, or as a list of pairs when levels differ."""
    keys = jax.random.split(key, (2, sampler.num_levels - 1))
    if sampler.homogeneous:
        assert isinstance(sampler.resampling, Resampling)
        return sampler.resampling.noise(keys[0]), keys[1]
    rules = [sampler.level(k).resampling for k in range(2, sampler.num_levels + 1)]
    return [(rule.noise(keys[0, j][None])[0], keys[1, j]) for j, rule in enumerate(rules)]


def prepare(sampler: NestedSampler, particles: Particles) -> tuple[NestedSampler, Particles]:
    """What levels 2 … K run with, after the first level gave `particles`: the same sampler, or one
    whose path knows them.
    """
    unprepared = sampler.path
    if not needs_table(unprepared):
        return sampler, particles
    # The table's rows are functions of θ at fixed particles.
    path, z = unprepared.prepare(stop_gradient(particles.z))
    return eqx.tree_at(lambda s: s.path, sampler, path), Particles(
        z, jax.vmap(path.stats)(z), particles.log_w
    )


def restart(sampler: NestedSampler, i: int) -> NestedSampler:
    """The i-th of samplers that were built and trained side by side (`nvi.stack`,
    `nvi.fit(restarts=…)`).
    """
    return at_level(sampler, i)


class LevelInfo(NamedTuple):
    """What a level reports. Nothing here is needed by the next level."""

    log_Z_hat: Scalar
    ess: Scalar
    kl_reverse: Scalar
    kl_forward: Scalar
    num_nan: Int[Array, ""]
    num_excluded: Int[Array, ""]
    resampled: Bool[Array, ""]


def level_info(
    incoming: Particles, out: Particles, level_terms: Terms, resampled: Any
) -> LevelInfo:
    """Diagnostics of one level: log Ẑ_k, ESS, and with ṽ = v Z_{k-1}/Z_k the two divergences,
    −E_π̂[log ṽ] under the incoming and E_π̌[log ṽ] under the outgoing weights."""
    log_v = level_terms.log_v
    w_in, w_out = normalise(incoming.log_w), normalise(out.log_w)
    log_ratio = log_Z_hat(out.log_w) - log_Z_hat(incoming.log_w)
    mean = jnp.sum(jnp.where(w_in > 0, w_in * jnp.where(w_in > 0, log_v, 0.0), 0.0))
    forward = jnp.sum(jnp.where(w_out > 0, w_out * jnp.where(w_out > 0, log_v, 0.0), 0.0))
    return LevelInfo(
        log_Z_hat=log_Z_hat(out.log_w),
        ess=ess(out.log_w),
        kl_reverse=log_ratio - mean,
        kl_forward=forward - log_ratio,
        num_nan=jnp.sum(jnp.isnan(log_v)),
        num_excluded=jnp.sum(jnp.isneginf(out.log_w)),
        resampled=jnp.asarray(resampled),
    )


class Run(NamedTuple):
    """A run: weighted particles for γ_K, what each level reported (leading axis K), who descends
    from whom, on request the particles of every level before resampling, the log weights of all
    that the first level drew, and which of those draws went on to the second level."""

    particles: Particles
    info: LevelInfo
    ancestors: Int[Array, "moves particles"]
    history: Any
    drawn_log_w: Float[Array, " draws"]
    picks: Int[Array, " particles"]

    @property
    def log_Z_hat(self) -> Float[Array, ""]:
        """log Ẑ of the target."""
        return log_Z_hat(self.particles.log_w)

    @property
    def ess(self) -> Float[Array, ""]:
        """Effective sample size of the final weights."""
        return ess(self.particles.log_w)

    @property
    def num_ancestors(self) -> Int[Array, ""]:
        """How many of the first level's draws the final particles descend from."""
        return num_distinct(self.picks[lineage(self.ancestors)[0]], self.drawn_log_w.shape[0])


def run(
    key: Key,
    sampler: NestedSampler,
    num_particles: int,
    *,
    history: bool = False,
    draws: int = 1,
) -> Run:
    """Draws `num_particles` weighted particles for the target; the same key gives the same result.
    Compiled at the first call.

    **Arguments:**

    - `history`: keeps the particles of every level (as a stack, or as a tuple when levels differ in
      shape).
    - `draws`: how many particles the first level draws for each that goes on to the second. Where
      the moves are dear and q_1 is cheap, many draws from it make the first level's weights matter
      less. Those that go on are chosen systematically by weight, and log Ẑ is that of all.
    """
    num_particles, draws = operator.index(num_particles), operator.index(draws)
    if num_particles < 1 or draws < 1:
        raise ValueError(
            f"A run needs at least one particle and one draw for each; got {num_particles} and"
            f" {draws}."
        )
    return _run(key, sampler, num_particles, bool(history), draws)


@eqx.filter_jit
def _run(key: Key, sampler: NestedSampler, num_particles: int, history: bool, draws: int) -> Run:
    key_first, key_rest = jax.random.split(key)
    start = nothing_in(draws * num_particles)
    first = terms(key_first, start, sampler.first_level(), sampler.path)
    particles = outgoing(start, first)
    info, drawn, picks = (
        level_info(start, particles, first, draws > 1),
        particles.log_w,
        jnp.arange(num_particles),
    )
    if draws > 1:
        picks = systematic(
            jax.random.uniform(jax.random.fold_in(key_first, 1)),
            normalise(particles.log_w),
            num_particles,
        )
        particles = take(
            particles, picks, jnp.broadcast_to(log_Z_hat(particles.log_w), (num_particles,))
        )

    def body(particles: Particles, level: Level, extra: tuple[Any, Key]):
        noise, key_move = extra
        incoming, ancestors, resampled = level.resampling(noise, particles)
        level_terms = terms(key_move, incoming, level, sampler.path)
        out = outgoing(incoming, level_terms)
        kept = out if history else None
        return out, (level_info(incoming, out, level_terms, resampled), ancestors, kept)

    extras = level_noise(key_rest, sampler)
    sampler, particles = prepare(sampler, particles)
    if history and not sampler.homogeneous:
        return _run_ragged(body, sampler, particles, info, extras, (drawn, picks))
    last, (infos, ancestors, kept) = scan_levels(sampler, body, particles, extras)

    def prepend(one, many):
        return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), one, many)

    return Run(
        last,
        prepend(info, infos),
        ancestors,
        prepend(particles, kept) if history else None,
        drawn,
        picks,
    )


def _run_ragged(body, sampler, particles, info, extras, first) -> Run:
    infos, ancestors, kept = [info], [], [particles]
    for k, extra in zip(range(2, sampler.num_levels + 1), extras, strict=True):
        particles, (info, parents, out) = body(particles, sampler.level(k), extra)
        infos.append(info)
        ancestors.append(parents)
        kept.append(out)

    def stacked(*xs):
        return jnp.stack(xs)

    return Run(particles, jax.tree.map(stacked, *infos), jnp.stack(ancestors), tuple(kept), *first)


def support_doubts(sampler: NestedSampler, info: LevelInfo) -> tuple[str, ...]:
    """A sentence when an intermediate density excludes particles that a reverse kernel may well
    propose to come from.

    Proper weighting needs r_{k-1}(· | z_k) to stay where γ_{k-1} has mass; a Gaussian does not, and
    log Ẑ is then too low.
    """
    if not isinstance(sampler.path, Annealing) or not isinstance(
        sampler.level(2).transition, Transition | LangevinTransition
    ):
        return ()
    excluded = (
        np.asarray(info.num_excluded).reshape(-1, np.shape(info.num_excluded)[-1]).max(axis=0)[:-1]
    )
    if not excluded.any():
        return ()
    return (
        (
            f"The density of level {int(np.argmax(excluded > 0)) + 1} is zero for some particles."
            " Reverse kernels that reach outside its support make log Ẑ too low. Use unbounded"
            " coordinates, MCMC moves, or K = 2."
        ),
    )


def check_run(info: LevelInfo, num_particles: int) -> None:
    """Raises on the host if a density or kernel returned NaN, or if all weights vanished; names the
    level.
    """
    num_nan = np.asarray(info.num_nan).reshape(-1, np.shape(info.num_nan)[-1]).max(axis=0)
    if num_nan.any():
        k = int(np.argmax(num_nan > 0))
        raise DensityError(
            f"Level {k + 1}: the log increment is NaN for {int(num_nan[k])} of {num_particles}"
            " particles. A log density may return −inf where it has no mass, but never NaN; check"
            " γ_k, q_k and r_{k-1} there."
        )
    infinite = (
        np.isposinf(np.asarray(info.log_Z_hat))
        .reshape(-1, np.shape(info.log_Z_hat)[-1])
        .any(axis=0)
    )
    if infinite.any():
        raise DensityError(
            f"Level {int(np.argmax(infinite)) + 1}: a weight is infinite. A log density returned"
            " +inf, or a proposal −inf where it drew."
        )
    dead = (
        np.isneginf(np.asarray(info.log_Z_hat))
        .reshape(-1, np.shape(info.log_Z_hat)[-1])
        .any(axis=0)
    )
    if dead.any():
        k = int(np.argmax(dead))
        raise DensityError(
            f"Level {k + 1}: all {num_particles} weights are zero (every particle has log density"
            " −inf there). Widen the initial density, use more levels, or more particles."
        )
