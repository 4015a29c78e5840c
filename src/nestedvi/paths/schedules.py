"""Annealing schedules β_1 = 0 < … < β_K = 1: linear, given, and learned (monotone by construction).
They refuse to know the densities between which they lead.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import PerLevel
from nestedvi.arguments import check_whole, shown

__all__ = [
    "AbstractSchedule",
    "GivenSchedule",
    "LearnedSchedule",
    "LinearSchedule",
    "check_num_levels",
]


def check_num_levels(num_levels: int) -> None:
    """A nested sampler has an initial density and a target: K ≥ 2."""
    if check_whole("num_levels", num_levels, least=-1) < 2:
        raise ValueError(
            "A path needs at least 2 levels (an initial density and a target); got K ="
            f" {num_levels}."
        )


class AbstractSchedule(eqx.Module):
    """K values from exactly 0 to exactly 1."""

    @property
    @abc.abstractmethod
    def num_levels(self) -> int:
        """K."""

    @abc.abstractmethod
    def betas(self) -> PerLevel:
        """β_1 … β_K."""


class LinearSchedule(AbstractSchedule):
    """β_k = (k − 1)/(K − 1).

    Args:
        num_levels: K.

    Example:
        ```python
        nvi.LinearSchedule(5).betas()
        ```
    """

    num: int = eqx.field(static=True)

    def __init__(self, num_levels: int):
        check_num_levels(num_levels)
        self.num = num_levels

    @property
    def num_levels(self) -> int:
        return self.num

    def betas(self) -> PerLevel:
        return jnp.linspace(0.0, 1.0, self.num)


class GivenSchedule(AbstractSchedule):
    """Values chosen by the user; they must rise strictly from 0 to 1.

    Args:
        values: K numbers that rise strictly from 0 to 1.

    Example:
        ```python
        nvi.GivenSchedule([0.0, 0.01, 0.1, 1.0]).betas()
        ```
    """

    values: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, values: Any):
        try:
            values = tuple(float(b) for b in np.asarray(values).ravel())
        except (TypeError, ValueError):
            raise TypeError(
                f"A schedule is a sequence of numbers from 0 to 1; got {shown(values)}."
            ) from None
        check_num_levels(len(values))
        if values[0] != 0.0 or values[-1] != 1.0:
            raise ValueError(
                f"A schedule must start at 0 and end at 1; got {values[0]} … {values[-1]}. "
                "Put the end points in: they are the initial density and the target."
            )
        falls = [k for k in range(1, len(values)) if not values[k] > values[k - 1]]
        if falls:
            k = falls[0]
            raise ValueError(
                f"A schedule must rise strictly; got β_{k + 1} = {values[k]} after β_{k} ="
                f" {values[k - 1]}. Sort the values and drop repeats."
            )
        self.values = values

    @property
    def num_levels(self) -> int:
        return len(self.values)

    def betas(self) -> PerLevel:
        return jnp.asarray(self.values)


class LearnedSchedule(AbstractSchedule):
    """β_k = Σ_{j<k} softmax(logits)_j: rises strictly from 0 to 1 whatever the logits; starts
    linear (or at `init`).

    Args:
        num_levels: K.
        init: K values to start from; linear unless given.

    Example:
        ```python
        schedule = nvi.LearnedSchedule(4, init=[0.0, 0.1, 0.4, 1.0])
        schedule.betas(), schedule.logits.shape
        ```
    """

    logits: Float[Array, " increments"]

    def __init__(self, num_levels: int, init: Any = None):
        check_num_levels(num_levels)
        start = LinearSchedule(num_levels).betas() if init is None else GivenSchedule(init).betas()
        if start.shape[0] != num_levels:
            raise ValueError(
                f"The initial schedule must have K = {num_levels} values; got {start.shape[0]}."
            )
        increments = jnp.log(jnp.diff(start))
        self.logits = increments - jnp.mean(increments)

    @property
    def num_levels(self) -> int:
        # The last axis: a stack of restarts puts its own axis in front.
        return self.logits.shape[-1] + 1

    def betas(self) -> PerLevel:
        # Rounding must not carry β past 1: the base's exponent 1 − β would turn negative.
        inner = jnp.minimum(jnp.cumsum(jax.nn.softmax(self.logits))[:-1], 1.0)
        ends = jnp.zeros(1, inner.dtype), jnp.ones(1, inner.dtype)
        return jnp.concatenate([ends[0], inner, ends[1]])
