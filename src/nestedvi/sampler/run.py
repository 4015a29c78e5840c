"""Drawing from a nested sampler: the one loop over levels without gradients.

Levels of one kind run in a scan (parameters stacked on a leading axis); unequal levels are a Python
loop around the same function. It refuses to judge what a run is worth: that is `checks`'.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int, PyTree

from nestedvi._types import Key, Scalar
from nestedvi.arguments import check_key, check_kind, check_whole
from nestedvi.devices import Devices, as_mesh, check_divides, everywhere, put, under
from nestedvi.particles.genealogy import lineage, num_distinct
from nestedvi.particles.resampling import Particles, Resampling, take
from nestedvi.particles.weights import ess, log_Z_hat, normalise, systematic
from nestedvi.paths.base import needs_table
from nestedvi.precision import in_full_precision
from nestedvi.sampler.level import Level, Terms, nothing_in, outgoing, terms
from nestedvi.sampler.nested import NestedSampler, level_arrays

__all__ = ["LevelInfo", "Run", "level_info", "level_noise", "prepare", "run", "scan_levels"]


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
    that the first level drew, and which of those draws went on to the second level.

    Example:
        ```python
        initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
        path = nvi.Annealing(initial, nvi.targets.ring(), nvi.LinearSchedule(3))
        moves = nvi.Shared(nvi.RandomWalk(1.0), 2)
        sampler = nvi.NestedSampler(initial, path, moves, nvi.Resampling())
        result = nvi.run(jax.random.key(0), sampler, 100)
        result.log_Z_hat, result.ess, result.num_ancestors, result.info.kl_reverse
        ```
    """

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


@in_full_precision
def run(
    key: Key,
    sampler: NestedSampler,
    num_particles: int,
    *,
    history: bool = False,
    draws: int = 1,
    devices: Devices = None,
) -> Run:
    """Draws `num_particles` weighted particles for the target; the same key gives the same result.
    Compiled at the first call.

    Args:
        key: randomness of the run.
        sampler: with its parameters as they are.
        num_particles: S, at every level.
        history: keeps the particles of every level (as a stack, or as a tuple when levels differ in
            shape).
        draws: how many particles the first level draws for each that goes on to the second. Where
            the moves are dear and q_1 is cheap, many draws from it make the first level's weights
            matter less. Those that go on are chosen systematically by weight, and log Ẑ is that of
            all.
        devices: a number, a list or a mesh along `particles` over which the one population is laid
            out. Its arrays stay there; `nvi.devices.gather` brings them to one device.

    Example:
        ```python
        initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
        path = nvi.Annealing(initial, nvi.targets.ring(), nvi.LinearSchedule(3))
        moves = nvi.Shared(nvi.RandomWalk(1.0), 2)
        sampler = nvi.NestedSampler(initial, path, moves, nvi.Resampling())
        result = nvi.run(jax.random.key(0), sampler, 100)
        print(result.log_Z_hat, result.ess)
        ```
    """
    check_key(key)
    check_kind("sampler", sampler, NestedSampler, "an nvi.NestedSampler, from nvi.build say")
    num_particles, draws = check_whole("num_particles", num_particles), check_whole("draws", draws)
    mesh = as_mesh(devices, "particles")
    if mesh is None:
        return _run(key, sampler, num_particles, bool(history), draws)
    check_divides(num_particles, "num_particles", mesh, "particles")
    with under(mesh):
        return _run(put(key, mesh), put(sampler, mesh), num_particles, bool(history), draws)


class _FirstLevel(NamedTuple):
    """Particles that go on to the second level, the diagnostics and log weights of all draws, and
    which draws went on.
    """

    particles: Particles
    info: LevelInfo
    drawn_log_w: Float[Array, " draws"]
    picks: Int[Array, " particles"]


def _first_level(
    key: Key, key_thin: Key, sampler: NestedSampler, num_particles: int, draws: int
) -> _FirstLevel:
    # Two keys: particles use every key that can be made from the first one.
    start = nothing_in(draws * num_particles)
    level_terms = terms(key, start, sampler.first_level(), sampler.path)
    drawn = outgoing(start, level_terms)
    info = level_info(start, drawn, level_terms, draws > 1)
    if draws == 1:
        return _FirstLevel(drawn, info, drawn.log_w, jnp.arange(num_particles))
    drawn = drawn._replace(log_w=everywhere(drawn.log_w))
    picks = systematic(jax.random.uniform(key_thin), normalise(drawn.log_w), num_particles)
    log_w = jnp.broadcast_to(log_Z_hat(drawn.log_w), (num_particles,))
    return _FirstLevel(take(drawn, picks, log_w), info, drawn.log_w, picks)


class _Record(NamedTuple):
    """What a run keeps of levels 2 … K; `particles` are None unless the history is asked for."""

    info: LevelInfo
    ancestors: Int[Array, "*moves particles"]
    particles: Any


@eqx.filter_jit
def _run(key: Key, sampler: NestedSampler, num_particles: int, history: bool, draws: int) -> Run:
    key_first, key_rest, key_thin = jax.random.split(key, 3)
    sampler = eqx.tree_at(lambda s: s.path, sampler, sampler.path.precomputed())
    first = _first_level(key_first, key_thin, sampler, num_particles, draws)
    noise = level_noise(key_rest, sampler)
    prepared, start = prepare(sampler, first.particles)

    def advance(particles: Particles, level: Level, noise: tuple[Any, Key]):
        resample_noise, key_move = noise
        incoming, ancestors, resampled = level.resampling(resample_noise, particles)
        level_terms = terms(key_move, incoming, level, prepared.path)
        out = outgoing(incoming, level_terms)
        info = level_info(incoming, out, level_terms, resampled)
        return out, _Record(info, ancestors, out if history else None)

    last, later = scan_levels(prepared, advance, start, noise)
    if prepared.homogeneous:
        kept = _prepend(start, later.particles) if history else None
    else:
        kept = (start, *(record.particles for record in later)) if history else None
        later = jax.tree.map(
            lambda *xs: jnp.stack(xs), *(record._replace(particles=None) for record in later)
        )
    info = _prepend(first.info, later.info)
    return Run(last, info, later.ancestors, kept, first.drawn_log_w, first.picks)


def _prepend(one: PyTree, many: PyTree) -> PyTree:
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), one, many)


def scan_levels(
    sampler: NestedSampler,
    body: Callable[[Any, Level, Any], tuple[Any, Any]],
    carry: Any,
    noise: Any,
) -> tuple[Any, Any]:
    """Folds `body(carry, level, noise)` over levels 2 … K, with `noise` as `level_noise` makes it.
    The outputs are stacked on a leading axis K-1, or a list when levels differ.
    """
    if not sampler.homogeneous:
        outputs = []
        for j in range(sampler.num_levels - 1):
            carry, output = body(carry, sampler.level(j + 2), noise[j])
            outputs.append(output)
        return carry, outputs
    arrays, rebuild = level_arrays(sampler)

    def step(carry, inputs):
        slice_, noise_here = inputs
        return body(carry, rebuild(slice_), noise_here)

    return jax.lax.scan(step, carry, (arrays, noise))


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
