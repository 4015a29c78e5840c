"""log ∫ q(z) L(z) dz for a prior q that can be sampled and a likelihood L: tempering with random
walks, for reference values in a few dimensions.
"""

from collections.abc import Callable

from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.smc.moves import RandomWalkMove
from nestedvi.smc.tempering import Plan, Tempering, tempering

__all__ = ["tempered_smc"]

Vector = Float[Array, " dim"]


class _Posterior(AbstractDensity):
    """q(z) L(z)."""

    prior: AbstractSampleable
    log_likelihood: Callable[[Vector], Scalar]

    def log_gamma(self, z: Vector) -> Scalar:
        return self.prior.log_gamma(z) - self.prior.log_Z + self.log_likelihood(z)


def tempered_smc(
    key: Key,
    prior: AbstractSampleable,
    log_likelihood: Callable[[Vector], Scalar],
    *,
    num_particles: int = 1000,
    num_moves: int = 10,
    ess_share: float = 0.5,
) -> Tempering:
    """Adaptive tempered SMC from the prior with `num_moves` random-walk steps at each temperature.
    A likelihood that is an `eqx.Module` with its data as arrays is compiled once for all data of a
    shape.

    Where prior and likelihood are symmetric under a change of labels, give a prior that is folded
    onto one ordering of the labels (zero elsewhere): proposals that leave it are refused, and the
    particles' covariance is that of one copy of the posterior.
    """
    move = RandomWalkMove(steps=5)
    plan = Plan(ess_share, moves=-(-num_moves // move.steps))
    target = _Posterior(prior, log_likelihood)
    return tempering(key, prior, target, plan, num_particles=num_particles, move=move)
