"""A row's program: from one series to its nested sampler. It joins the proposals and heuristics of
this folder to the library's `StateSpace` path, and refuses to train or run the sampler.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.kernels.base import Transition
from nestedvi.kernels.product import NextState
from nestedvi.paper.hmm.baum_welch import ExpectationMaximisation
from nestedvi.paper.hmm.config import Row
from nestedvi.paper.hmm.heuristics import BackwardRecursion, MixtureHeuristic
from nestedvi.paper.hmm.model import GaussianHMM
from nestedvi.paper.hmm.proposals import ClusterKernel, NeuralStatistics
from nestedvi.particles.resampling import Resampling
from nestedvi.paths.heuristics import AbstractHeuristic, NoHeuristic
from nestedvi.paths.state_space import StateSpace, WithoutState
from nestedvi.sampler.nested import NestedSampler, Shared

__all__ = ["HMMProgram", "Instance", "build_program"]


class Instance(NamedTuple):
    """An instance: x_{1:K}, and the encoder's Baum-Welch fits of it (None: they are computed when
    needed).
    """

    xs: Float[Array, " steps"]
    fits: Any = None


class HMMProgram(eqx.Module):
    """From one series to its sampler: q(η | x), then one state a level, resampled before every
    move.
    """

    encoder: NeuralStatistics | ExpectationMaximisation
    kernel: ClusterKernel
    heuristic: AbstractHeuristic
    model: GaussianHMM = GaussianHMM()
    resampling: Resampling = Resampling("systematic", "always")

    def precompute(self, xs: Float[Array, "instances steps"]) -> Instance:
        """Instances with everything computed that does not change in training."""
        if not isinstance(self.encoder, ExpectationMaximisation):
            return Instance(xs)
        encoder = self.encoder
        one = jax.jit(lambda x: encoder.fit(self.model, x))
        return Instance(xs, jax.lax.map(one, xs, batch_size=min(500, xs.shape[0])))

    def __call__(self, series: Instance | Float[Array, " steps"]) -> NestedSampler:
        xs, fits = series if isinstance(series, Instance) else (series, None)
        path = StateSpace(self.model, xs, self.heuristic, prior=self.model.log_prior)
        initial = WithoutState(self.encoder(self.model, xs, fits), jnp.zeros((), jnp.int32))
        transition = Transition(NextState(self.kernel))
        return NestedSampler(initial, path, Shared(transition, path.num_steps), self.resampling)


def build_program(key: Key, row: Row, *, width: int, em_steps: int) -> HMMProgram:
    """The networks of a row, untrained."""
    model = GaussianHMM()
    key_heuristic, key_encoder, key_kernel = jax.random.split(key, 3)
    heuristics: dict[str, Callable[[], AbstractHeuristic]] = {
        "none": NoHeuristic,
        "gmm": MixtureHeuristic,
        "neural": lambda: MixtureHeuristic.neural(key=key_heuristic, width=width),
        "recursion": lambda: BackwardRecursion(model.num_clusters, key=key_heuristic, width=width),
    }
    network = {"key": key_encoder, "width": width, "symmetric": row.symmetric}
    encoders: dict[str, Callable[[], NeuralStatistics | ExpectationMaximisation]] = {
        "statistics": lambda: NeuralStatistics(model, **network),
        "em": lambda: ExpectationMaximisation(model, **network, num_steps=em_steps),
    }
    kernel = ClusterKernel(key=key_kernel, width=width, guided=row.guided)
    return HMMProgram(encoders[row.encoder](), kernel, heuristics[row.heuristic](), model)
