"""A nested importance sampler as data: an initial proposal, a path, K-1 transitions, and when to
resample before each.

It gives each level to those who run levels, one by one or as stacked arrays for scan and vmap, and
refuses combinations of densities and moves whose weights would not be proper. It refuses to run:
`run` draws from a sampler, `train` has orders of execution of its own.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from nestedvi.densities.base import AbstractSampleable, as_sampleable
from nestedvi.kernels.base import (
    AbstractFlow,
    AbstractTransition,
    Independent,
    Transition,
    check_stacked,
)
from nestedvi.kernels.chain import Chain
from nestedvi.particles.resampling import Resampling
from nestedvi.paths.base import AbstractFixedSupportPath, AbstractPath, at_level
from nestedvi.sampler.level import Level

__all__ = ["NestedSampler", "Shared", "Stacked", "level_arrays", "restart"]


class Stacked(eqx.Module):
    """K-1 transitions of one class, each with parameters of its own, on a leading axis.

    Args:
        transition: K − 1 transitions as `nvi.stack` makes them: every array has a leading axis K −
            1.

    Example:
        ```python
        moves = nvi.stack(jax.random.key(0), lambda key: nvi.PlanarFlow(2, 4, key=key), 7)
        nvi.Stacked(moves)
        ```
    """

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
    """One transition used at every one of `num` levels (amortised over levels).

    Args:
        transition: what happens at every level.
        num: K − 1.

    Example:
        ```python
        nvi.Shared(nvi.RandomWalk(0.5), 7)
        ```
    """

    transition: AbstractTransition
    num: int = eqx.field(static=True)


class NestedSampler(eqx.Module):
    """q_1, γ_1 … γ_K, (q_k, r_{k-1}) for k = 2 … K, and resampling before each move.

    `transitions` is `Stacked`, `Shared`, or a tuple of unequal transitions; `resampling` is one
    rule, or a tuple of K-1.

    Args:
        initial: q_1, a density that can be sampled or a NumPyro distribution.
        path: γ_1 … γ_K.
        transitions: `nvi.Stacked`, `nvi.Shared`, or a tuple of K − 1 unequal transitions.
        resampling: one rule, or a tuple of K − 1; never unless given.

    Example:
        ```python
        initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
        path = nvi.Annealing(initial, nvi.targets.ring(), nvi.LinearSchedule(4))
        move = nvi.RandomWalk(step_size=1.0, steps=5)
        sampler = nvi.NestedSampler(initial, path, nvi.Shared(move, 3), nvi.Resampling(when=0.5))
        sampler.num_levels
        ```
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


def restart(sampler: NestedSampler, i: int) -> NestedSampler:
    """The i-th of samplers that were built and trained side by side (`nvi.stack`,
    `nvi.fit(restarts=…)`).

    Args:
        sampler: with a leading axis of restarts on every array.
        i: which one.

    Example:
        ```python
        def make(key):
            initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
            target = nvi.targets.ring()
            return nvi.build(key, "avo", target=target, initial=initial, num_levels=3).sampler

        several = nvi.stack(jax.random.key(0), make, 4)
        one = nvi.restart(several, 2)
        ```
    """
    return at_level(sampler, i)
