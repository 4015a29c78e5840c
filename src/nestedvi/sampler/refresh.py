"""Refreshing global variables: between levels an MCMC move of η that leaves γ_k(η, z_{1:k})
invariant, and so the weights alone.

Resampling lets few of the first level's η survive a long series; moves make new ones. A move needs
p(x_{1:k}, z_{1:k} | η) as a function of η, which a memory of sufficient statistics gives. After a
move the heuristic computes the messages of the new η, as after the first level: a run with R
refreshes costs about R + 1 times the heuristic. It is for evaluation; training keeps η as drawn.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from nestedvi._types import Key, Scalar
from nestedvi.particles.genealogy import lineage
from nestedvi.particles.resampling import Particles, Resampling
from nestedvi.particles.weights import ess, log_Z_hat
from nestedvi.paths.state_space import Latent, StateSpace
from nestedvi.sampler.level import nothing_in, outgoing, terms
from nestedvi.sampler.nested import NestedSampler, level_arrays
from nestedvi.sampler.run import level_noise, prepare

__all__ = ["AbstractRefresh", "RefreshedRun", "run_refreshed"]


class AbstractRefresh(eqx.Module):
    """A γ_k-invariant move of η, for one particle."""

    @abc.abstractmethod
    def start(self, z: Latent) -> PyTree:
        """The memory before any observation."""

    @abc.abstractmethod
    def remember(self, memory: PyTree, states: PyTree, xs: PyTree) -> PyTree:
        """The memory after some more states and their observations (leading axis steps)."""

    @abc.abstractmethod
    def move(
        self, key: Key, z: Latent, memory: PyTree, k: Int[Array, ""], path: StateSpace
    ) -> tuple[PyTree, Scalar]:
        """A new η, from a move that leaves γ_k(· , z_{1:k}) invariant, and its rate of
        acceptance.
        """


class RefreshedRun(NamedTuple):
    """Weighted particles for γ_K, their ESS and log Ẑ, and the rate of acceptance at each
    refresh.
    """

    particles: Particles
    acceptance: Float[Array, " refreshes"]

    @property
    def log_Z_hat(self) -> Scalar:
        """log Ẑ of the target."""
        return log_Z_hat(self.particles.log_w)

    @property
    def ess(self) -> Scalar:
        """Effective sample size of the final weights."""
        return ess(self.particles.log_w)


def run_refreshed(
    key: Key, sampler: NestedSampler, num_particles: int, refresh: AbstractRefresh, *, every: int
) -> RefreshedRun:
    """Runs a sampler of a `StateSpace` path with global variables; η is refreshed before the first
    state and then after every `every` states.
    """
    path = _refreshable(sampler, every)
    key_first, key_rest, key_refresh = jax.random.split(key, 3)
    start = nothing_in(num_particles)
    particles = outgoing(start, terms(key_first, start, sampler.first_level(), path))
    segments = path.num_steps // every

    def fold(tree):
        return jax.tree.map(lambda x: x.reshape(segments, every, *x.shape[1:]), tree)

    def segment(carry, inputs):
        (particles, memory), (i, noise, xs) = carry, inputs
        key_segment, done = jax.random.fold_in(key_refresh, i), i * every
        particles, memory, accepted = _moved(key_segment, particles, memory, refresh, done, path)
        prepared, particles = prepare(sampler, particles)
        particles, states, ancestors = _levels(particles, prepared, noise, done, every)
        return (particles, _remembered(memory, states, ancestors, xs, refresh)), accepted

    memory = jax.vmap(refresh.start)(particles.z)
    noise, observations = fold(level_noise(key_rest, sampler)), fold(path.observations)
    inputs = (jnp.arange(segments), noise, observations)
    (particles, _), acceptance = jax.lax.scan(segment, (particles, memory), inputs)
    return RefreshedRun(particles, acceptance)


def _refreshable(sampler: NestedSampler, every: int) -> StateSpace:
    """The sampler's path, where its global variables can be refreshed that often."""
    path = sampler.path
    if not isinstance(path, StateSpace) or path.prior is None:
        raise TypeError(
            "Only the global variables of a StateSpace path with a prior can be refreshed; this"
            f" path is a {type(path).__name__} without."
        )
    if every < 1 or path.num_steps % every:
        raise ValueError(f"`every` must divide the number of steps, {path.num_steps}; got {every}.")
    return path


def _moved(
    key: Key,
    particles: Particles,
    memory: PyTree,
    refresh: AbstractRefresh,
    k: Int[Array, ""],
    path: StateSpace,
) -> tuple[Particles, PyTree, Scalar]:
    """Particles after k states with a new η, their memory, and the mean rate of acceptance."""
    key_resample, key_move = jax.random.split(key)
    # Moves are for copies to become different: resample before them, not after.
    always = Resampling("systematic", "always")
    particles, picks, _ = always(always.noise(key_resample[None])[0], particles)
    memory = jax.tree.map(lambda m: m[picks], memory)
    keys = jax.random.split(key_move, particles.log_w.shape[0])
    eta, accepted = jax.vmap(lambda key, z, m: refresh.move(key, z, m, k, path))(
        keys, particles.z, memory
    )
    return particles._replace(z=particles.z._replace(eta=eta)), memory, jnp.mean(accepted)


def _levels(
    particles: Particles, sampler: NestedSampler, noise: PyTree, k: Int[Array, ""], num: int
) -> tuple[Particles, PyTree, Int[Array, "num particles"]]:
    """Runs the `num` levels after k states: the particles, the states of each level and the
    ancestors there.
    """
    arrays, rebuild = level_arrays(sampler)
    arrays = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, k, num), arrays)

    def body(particles, inputs):
        slice_, (resample_noise, key_level) = inputs
        level = rebuild(slice_)
        incoming, ancestors, _ = level.resampling(resample_noise, particles)
        out = outgoing(incoming, terms(key_level, incoming, level, sampler.path))
        return out, (out.z.state, ancestors)

    particles, (states, ancestors) = jax.lax.scan(body, particles, (arrays, noise))
    return particles, states, ancestors


def _remembered(
    memory: PyTree,
    states: PyTree,
    ancestors: Int[Array, "num particles"],
    xs: PyTree,
    refresh: AbstractRefresh,
) -> PyTree:
    """The memory of every surviving trajectory, with the states that it went through."""
    index = lineage(ancestors)
    trajectory = jax.tree.map(
        lambda s: jax.vmap(lambda row, pick: row[pick], out_axes=1)(s, index[1:]), states
    )
    memory = jax.tree.map(lambda m: m[index[0]], memory)
    return jax.vmap(lambda m, s: refresh.remember(m, s, xs))(memory, trajectory)
