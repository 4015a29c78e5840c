"""What a way of answering must give: weighted particles of a density on vectors and its log Z.

`sample` turns the user's model into such a density and the answer back into the user's sites; the rows of `nestedvi methods` and
every other way of answering stand behind the one type below. Nothing here runs anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from nestedvi._types import Key, LogWeights
from nestedvi.densities.base import AbstractDensity
from nestedvi.methods import Method

__all__ = ["Answer", "AnswerFunction", "Cost", "PriorDraws", "Request"]

# (key, num) -> num draws of the prior, in the coordinates of the density.
PriorDraws = Callable[[Key, int], Float[Array, "particles dim"]]


class Cost(NamedTuple):
    """Gradients of the target for each particle that is returned: to find and learn the sampler, and to run it."""

    learning: float
    sampling: float


class Answer(NamedTuple):
    """Weighted particles in the density's coordinates, log Z with its standard error, and what went wrong in whole sentences.

    `drawn_log_w` are the log weights of first draws of which only some went on: what k̂ should see as well.
    """

    z: Float[Array, "particles dim"]
    log_w: LogWeights
    log_Z: float
    log_Z_stderr: float
    diagnosis: tuple[str, ...] = ()
    sampler: Any = None
    cost: Cost | None = None
    drawn_log_w: LogWeights | None = None


@dataclass(frozen=True)
class Request:
    """What is asked for: particles of a density on vectors of `dim` numbers.

    `num_levels` and `num_steps` are None where the user gave none: each way of answering has numbers of its own. `prior` draws
    from the model's prior where it has one; a way of answering may start from it or ignore it.
    """

    density: AbstractDensity
    dim: int
    num_particles: int = 2000
    method: str | Method = "auto"
    num_levels: int | None = None
    num_steps: int | None = None
    progress: Any = False
    prior: PriorDraws | None = None


AnswerFunction = Callable[[Key, Request], Answer]
