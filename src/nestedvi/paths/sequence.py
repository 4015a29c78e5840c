"""Arbitrary sequences of densities, each with parameters of its own; supports may differ from level
to level.

The last density is the target. It is not learned unless that is asked for by name: training would
move what is to be found.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi._types import Particle, Scalar
from nestedvi.densities.base import AbstractDensity, as_density
from nestedvi.paths.base import AbstractFixedSupportPath, at_level
from nestedvi.paths.schedules import check_num_levels

__all__ = ["DensitySequence", "StackedDensities"]


class DensitySequence(AbstractFixedSupportPath):
    """γ_1 … γ_K as a tuple; θ_k is the k-th density itself. `learn` is whether γ_1 … γ_{K-1} have
    parameters to learn, or one flag for each of the K densities (the target's is for models that
    are themselves learned).

    The densities may live on different spaces (γ_k on z_{1:k}, say): then levels run one by one,
    not in a scan.
    """

    densities: tuple[AbstractDensity, ...]
    learn: tuple[bool, ...] = eqx.field(static=True)

    def __init__(self, densities: Sequence[Any], learn: bool | Sequence[bool] = True):
        self.densities = tuple(as_density(d) for d in densities)
        check_num_levels(len(self.densities))
        self.learn = (
            (*(learn,) * (len(self.densities) - 1), False)
            if isinstance(learn, bool)
            else tuple(learn)
        )
        if len(self.learn) != len(self.densities):
            raise ValueError(
                f"`learn` needs one flag a density: {len(self.densities)} expected, got"
                f" {len(self.learn)}."
            )

    @property
    def num_levels(self) -> int:
        return len(self.densities)

    def thetas(self) -> tuple[AbstractDensity, ...]:
        return self.densities

    def stats(self, z: Particle) -> Particle:
        return z

    def log_density(self, theta: AbstractDensity, stats: Particle) -> Scalar:
        return theta.log_gamma(stats)

    def trainable(self) -> PyTree:
        mask = jax.tree.map(lambda _: False, self)
        learned = tuple(
            jax.tree.map(eqx.is_inexact_array, d) if on else jax.tree.map(lambda _: False, d)
            for d, on in zip(self.densities, self.learn, strict=True)
        )
        return eqx.tree_at(lambda p: p.densities, mask, learned)


class StackedDensities(AbstractFixedSupportPath):
    """K densities of one class with their parameters stacked on a leading axis; runs in a scan.
    `learn` is about the first K − 1.

    ```python
    make = eqx.filter_vmap(lambda scale: nvi.DiagonalNormal(jnp.zeros(2), scale))
    path = nvi.paths.StackedDensities(make(jnp.linspace(5.0, 1.0, 8)))
    ```
    """

    inner: AbstractDensity
    target: AbstractDensity
    learn: bool = eqx.field(static=True)

    def __init__(self, stacked: AbstractDensity, learn: bool = True):
        sizes = {jnp.shape(x)[:1] for x in jax.tree.leaves(eqx.filter(stacked, eqx.is_array))}
        if len(sizes) != 1 or () in sizes:
            got = (
                ", ".join(str(size[0]) if size else "none" for size in sorted(sizes)) or "no arrays"
            )
            raise ValueError(
                f"Stacked densities must share one leading axis of size K; got sizes {got}."
            )
        check_num_levels(sizes.pop()[0])
        self.inner, self.target, self.learn = (
            at_level(stacked, slice(None, -1)),
            at_level(stacked, -1),
            learn,
        )

    @property
    def num_levels(self) -> int:
        return 1 + jax.tree.leaves(eqx.filter(self.inner, eqx.is_array))[0].shape[0]

    def thetas(self) -> AbstractDensity:
        def join(rows, last):
            return jnp.concatenate([rows, last[None]]) if eqx.is_array(rows) else rows

        return jax.tree.map(join, self.inner, self.target)

    def stats(self, z: Particle) -> Particle:
        return z

    def log_density(self, theta: AbstractDensity, stats: Particle) -> Scalar:
        return theta.log_gamma(stats)

    def trainable(self) -> PyTree:
        mask = jax.tree.map(lambda _: False, self)
        return eqx.tree_at(
            lambda p: p.inner,
            mask,
            jax.tree.map(lambda x: self.learn and eqx.is_inexact_array(x), self.inner),
        )
