"""Every outcome of a nested sampler on a finite space, with its probability.

Nothing is drawn: moves are enumerated with the probabilities of their kernels, resampling by
integrating its uniforms over the regions on which the ancestors are constant. Everything else is
the library's own code.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.sampler.level import nothing_in, outgoing, weigh

_CHUNK = 512


class Permutation(nvi.AbstractTransition):
    """A deterministic flow on a finite space: z ↦ image[z], |det J| = 1."""

    image: jax.Array

    def move(self, key, z_prev, context):
        return self.image[z_prev], None

    def score(self, z, z_prev, aux, context):
        zero = jnp.zeros(())
        return nvi.kernels.Scores(zero, zero, zero)

    def reverse_move(self, key, z, context):
        return jnp.argsort(self.image)[z], None

    def groups(self):
        return jax.tree.map(lambda _: "fixed", self)

    @property
    def reparameterised(self):
        return True

    @property
    def holdable(self):
        return False


class Branches(NamedTuple):
    """Outcomes so far: their probabilities (axis B), their particles (axes B, S), and whether the
    last resampling fired.
    """

    prob: np.ndarray
    particles: Any
    resampled: np.ndarray


def _in_chunks(fn: Callable, *trees: Any) -> Any:
    """`fn` on chunks of one fixed size, so that it is compiled once however many branches there
    are.
    """
    num = jax.tree.leaves(trees)[0].shape[0]
    outs = []
    for start in range(0, num, _CHUNK):
        index = np.minimum(np.arange(start, start + _CHUNK), num - 1)
        out = fn(*jax.tree.map(lambda x, i=index: jnp.asarray(x[i]), trees))
        outs.append(jax.tree.map(np.asarray, out))
    return jax.tree.map(lambda *xs: np.concatenate(xs)[:num], *outs)


def _combinations(num_options: int, num_particles: int) -> np.ndarray:
    return np.array(list(itertools.product(range(num_options), repeat=num_particles)))


@eqx.filter_jit
def _expand(incoming, level, path, moves):
    """All joint moves of S particles from each branch: probabilities and outgoing particles, axes
    (B, n^S).
    """
    num_particles = incoming.log_w.shape[-1]
    slots = jnp.arange(num_particles)

    def branch(incoming):
        z, aux, prob = jax.vmap(lambda z_prev: moves(level, path, z_prev), axis_size=num_particles)(
            incoming.z
        )

        def outcome(pick):
            def chosen(x):
                return x[slots, pick]

            terms = weigh(jax.tree.map(chosen, z), jax.tree.map(chosen, aux), incoming, level, path)
            return jnp.prod(chosen(prob)), outgoing(incoming, terms)

        return jax.vmap(outcome)(jnp.asarray(_combinations(prob.shape[1], num_particles)))

    return jax.vmap(branch)(incoming)


def _flatten(prob: np.ndarray, particles: Any, resampled: np.ndarray) -> Branches:
    """Outcomes in one axis, impossible ones dropped."""
    keep = prob.ravel() > 0
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[keep], particles)
    return Branches(prob.ravel()[keep], flat, resampled.ravel()[keep])


def move_all(branches: Branches, level, path, moves) -> Branches:
    """Every joint move of every branch."""
    # The rule plays no part in a move; without it, samplers that differ only there share one
    # compilation.
    level = level._replace(resampling=None)
    prob, particles = _in_chunks(
        lambda incoming: _expand(incoming, level, path, moves), branches.particles
    )
    resampled = np.broadcast_to(branches.resampled[:, None], prob.shape)
    return _flatten(branches.prob[:, None] * prob, particles, resampled)


def _breakpoints(scheme: str, w_bar: np.ndarray) -> np.ndarray:
    """Where each slot's ancestor can change as its uniform grows: axes (B, S, number of points)."""
    num = w_bar.shape[-1]
    cdf = np.cumsum(w_bar, axis=-1)[:, None, :-1]
    slots = np.arange(num)
    if scheme == "multinomial":
        return np.broadcast_to(cdf, (*w_bar.shape, num - 1))
    if scheme == "stratified":
        return num * cdf - slots[:, None]
    if scheme == "systematic":
        comb = (num * cdf - slots[:, None]).reshape(-1, 1, num * (num - 1))
        return np.broadcast_to(comb, (w_bar.shape[0], 1, num * (num - 1)))
    left = num * w_bar - np.floor(num * w_bar + 1e-12)
    left = np.where(left.sum(-1, keepdims=True) > 1e-9, left, w_bar)
    ends = np.cumsum(left / left.sum(-1, keepdims=True), axis=-1)[:, None, :-1]
    return np.broadcast_to(ends, (*w_bar.shape, num - 1))


def _regions(scheme: str, log_w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Midpoints and volumes of the boxes of uniforms on which ancestors are constant: (B, boxes, S)
    and (B, boxes).
    """
    w = np.exp(log_w - log_w.max(-1, keepdims=True))
    points = np.sort(np.clip(_breakpoints(scheme, w / w.sum(-1, keepdims=True)), 0.0, 1.0), axis=-1)
    edges = np.concatenate(
        [np.zeros_like(points[..., :1]), points, np.ones_like(points[..., :1])], axis=-1
    )
    length, middle = np.diff(edges), (edges[..., 1:] + edges[..., :-1]) / 2
    num_slots, num_cells = length.shape[1:]
    picks = _combinations(num_cells, num_slots)
    slots = np.arange(num_slots)
    volume = np.prod(length[:, slots, picks], axis=-1)
    u = middle[:, slots, picks]
    # A systematic comb is moved by its first uniform alone.
    return np.broadcast_to(u, (*u.shape[:2], log_w.shape[-1])), volume


@eqx.filter_jit
def _apply(rule, u, particles):
    return jax.vmap(rule.apply)(u, particles)


def resample_all(branches: Branches, rule: nvi.Resampling) -> Branches:
    """Every choice of ancestors of every branch."""
    if rule.when == "never":
        return branches
    # When every weight is zero the choice of ancestors does not matter; one region then stands for
    # all.
    log_w = np.where(
        np.isneginf(branches.particles.log_w).all(-1, keepdims=True), 0.0, branches.particles.log_w
    )
    scheme = {cls: name for name, cls in nvi.particles.SCHEMES.items()}[type(rule.scheme)]
    u, volume = _regions(scheme, log_w)
    boxes = volume.shape[1]
    index = np.repeat(np.arange(len(branches.prob)), boxes)
    prob = (branches.prob[:, None] * volume).ravel()
    keep = prob > 0
    index, prob, u = index[keep], prob[keep], u.reshape(-1, u.shape[-1])[keep]
    chosen = jax.tree.map(lambda x: x[index], branches.particles)
    particles, _, fired = _in_chunks(lambda u, p: _apply(rule, u, p), u, chosen)
    return Branches(prob, particles, fired)


@functools.cache
def categorical_moves(num_states: int) -> Callable:
    """All targets of a kernel on {0 … n-1}, with the probabilities of the forward kernel."""

    def moves(level, path, z_prev):
        z = jnp.arange(num_states)
        return (
            z,
            None,
            jax.vmap(lambda new: jnp.exp(level.transition.forward.log_prob(new, z_prev, None)))(z),
        )

    return moves


@functools.cache
def initial_moves(num_states: int, vector: bool = False) -> Callable:
    """All first draws with the initial density's own probabilities; `vector` for particles of shape
    (1,).
    """

    def moves(level, path, z_prev):
        z = jnp.arange(num_states)[:, None] if vector else jnp.arange(num_states)
        return (
            z,
            None,
            jax.vmap(lambda new: jnp.exp(level.transition.forward.log_prob(new, None, None)))(z),
        )

    return moves


def enumerate_sampler(
    sampler: nvi.NestedSampler, num_particles: int, first, moves, resample=resample_all
) -> list[Branches]:
    """The outcomes after every level; `moves` is one enumeration for all levels, or one for
    each.
    """
    each = moves if isinstance(moves, tuple) else (moves,) * (sampler.num_levels - 1)
    start = jax.tree.map(lambda x: np.asarray(x)[None], nothing_in(num_particles))
    branches = Branches(np.ones(1), start, np.zeros(1, bool))
    history = [move_all(branches, sampler.first_level(), sampler.path, first)]
    for k in range(2, sampler.num_levels + 1):
        level = sampler.level(k)
        before = resample(history[-1], level.resampling)
        history.append(move_all(before, level, sampler.path, each[k - 2]))
    return history


def weighted_measure(branches: Branches, shape: tuple[int, ...]) -> np.ndarray:
    """E[mean_s w^s 1{z^s = j}] for every point j of the space: the measure that must equal γ_K."""
    z, log_w = branches.particles.z, branches.particles.log_w
    assert not np.isnan(log_w).any()
    index = z if len(shape) == 1 else np.ravel_multi_index(tuple(np.moveaxis(z, -1, 0)), shape)
    mass = branches.prob[:, None] * np.exp(log_w) / log_w.shape[-1]
    return np.bincount(index.ravel(), mass.ravel(), minlength=int(np.prod(shape))).reshape(shape)
