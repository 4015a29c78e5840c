"""What a path is: the sequence γ_1 … γ_K, one level at a time.

Level k sees the path through three things, all for one particle:

* `thetas()`: what belongs to each level (θ_k: a β, an observation, a density's parameters), stacked
  on a leading axis K;
* `stats(z)`: what the densities need of a particle. It is computed once per particle and travels
  with it, so that the expensive part of γ_{k-1}(z_{k-1}) is not evaluated again at level k;
* `log_gamma`, `log_gamma_prev`: both densities, up to a factor that they share (which cancels in
  the increment v_k).

A path refuses to move particles and to know how many there are.
"""

import abc
from typing import Any, Self, TypeGuard

import equinox as eqx
import jax
from jaxtyping import PyTree

from nestedvi._types import Particle, Scalar

__all__ = [
    "AbstractFixedSupportPath",
    "AbstractPath",
    "AbstractPreparedPath",
    "at_level",
    "needs_table",
    "trainable_fields",
]


class AbstractPath(eqx.Module):
    """A sequence of K unnormalised densities.

    Example:
        ```python
        path = nvi.Annealing(
            nvi.DiagonalNormal(jnp.zeros(2), 3.0), nvi.targets.ring(), nvi.LinearSchedule(4)
        )
        assert isinstance(path, nvi.AbstractPath)
        stats = path.stats(jnp.ones(2))
        [path.log_gamma(theta, stats, None) for theta in path.thetas()]
        ```
    """

    @property
    @abc.abstractmethod
    def num_levels(self) -> int:
        """K."""

    def precomputed(self) -> Self:
        """The same path, its densities with what does not depend on z computed once; see
        `AbstractDensity.precomputed`.
        """
        return self

    @abc.abstractmethod
    def thetas(self) -> Any:
        """θ_1 … θ_K: a pytree with leading axis K, or a tuple of K pytrees when levels differ in
        structure.
        """

    @abc.abstractmethod
    def stats(self, z: Particle) -> PyTree:
        """What the densities need to know of z."""

    @abc.abstractmethod
    def log_gamma(self, theta: PyTree, stats: PyTree, stats_prev: PyTree) -> Scalar:
        """log γ_k at z_k, less the factor that γ_k and γ_{k-1} share; `stats_prev` is None at the
        first level.
        """

    @abc.abstractmethod
    def log_gamma_prev(self, theta_prev: PyTree, stats_prev: PyTree) -> Scalar:
        """log γ_{k-1} at z_{k-1}, less the factor that γ_k and γ_{k-1} share."""

    @abc.abstractmethod
    def trainable(self) -> PyTree:
        """A pytree of booleans shaped like the path: which leaves are parameters θ."""

    @abc.abstractmethod
    def learned(self, theta: PyTree) -> PyTree:
        """A pytree of booleans shaped like one level's θ_k: which of its leaves depend on the
        parameters when they are learned.

        An observation does not, and no derivative is taken with respect to it.
        """


class AbstractFixedSupportPath(AbstractPath):
    """A path whose densities all live on one space and share no factor; γ_k can be evaluated
    anywhere (MCMC needs that).
    """

    @abc.abstractmethod
    def log_density(self, theta: PyTree, stats: PyTree) -> Scalar:
        """log γ_k(z)."""

    def log_gamma(self, theta: PyTree, stats: PyTree, stats_prev: PyTree) -> Scalar:
        return self.log_density(theta, stats)

    def log_gamma_prev(self, theta_prev: PyTree, stats_prev: PyTree) -> Scalar:
        return self.log_density(theta_prev, stats_prev)

    def learned(self, theta: PyTree) -> PyTree:
        return jax.tree.map(eqx.is_inexact_array, theta)


class AbstractPreparedPath(AbstractPath):
    """A path whose later levels use something that is computed once for each particle of the first
    level.

    What was drawn at the first level and never changes (global variables η) need be seen by an
    expensive function once, not at every level: the prepared path holds a table with a row for each
    first-level particle, and particles remember their row. The table is part of `thetas()`, so that
    its gradient is collected over all levels and pulled back once.
    """

    @property
    @abc.abstractmethod
    def needs_table(self) -> bool:
        """Whether this path has such a table at all; without one it is never prepared."""

    @abc.abstractmethod
    def prepare(self, z: PyTree) -> tuple["AbstractPreparedPath", PyTree]:
        """The path with its table for S first-level particles (leading axis S), and those particles
        knowing their rows.
        """


def needs_table(path: AbstractPath) -> TypeGuard[AbstractPreparedPath]:
    """Whether the path must be prepared after the first level."""
    return isinstance(path, AbstractPreparedPath) and path.needs_table


def at_level(tree: PyTree, j: Any) -> PyTree:
    """Entry (or slice) j of the leading axis that all arrays of a stack share; what is no array is
    the same at every level.
    """
    return jax.tree.map(lambda x: x[j] if eqx.is_array(x) else x, tree)


def trainable_fields(path: AbstractPath, *names: str) -> PyTree:
    """A mask that selects the floating-point arrays below the named fields, and nothing else."""
    return jax.tree_util.tree_map_with_path(
        lambda at, x: at[0].name in names and eqx.is_inexact_array(x), path
    )
