"""What a way of answering must give: weighted particles of a density on vectors and its log Z.

`sample` turns the user's model into such a density and the answer back into the user's sites; the rows of `nestedvi methods` and
every other way of answering stand behind the one signature below. Nothing here runs anything.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Float

from nestedvi._types import Key, LogWeights
from nestedvi.densities.base import AbstractDensity
from nestedvi.methods import Method

__all__ = ["Answer", "AnswerFunction", "PriorDraws"]

# (key, num) -> num draws of the prior, in the coordinates of the density.
PriorDraws = Callable[[Key, int], Float[Array, "particles dim"]]


class Answer(NamedTuple):
    """Weighted particles in the density's coordinates, log Z with its standard error, and what went wrong in whole sentences."""

    z: Float[Array, "particles dim"]
    log_w: LogWeights
    log_Z: float
    log_Z_stderr: float
    diagnosis: tuple[str, ...] = ()
    sampler: Any = None


class AnswerFunction(Protocol):
    """`prior` draws from the model's prior where it has one; a way of answering may start from it or ignore it."""

    def __call__(
        self,
        key: Key,
        density: AbstractDensity,
        dim: int,
        *,
        method: str | Method,
        num_levels: int,
        num_particles: int,
        num_steps: int,
        progress: Any,
        prior: PriorDraws | None = None,
    ) -> Answer: ...
