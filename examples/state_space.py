"""A particle filter as a nested importance sampler: log p(x) of a linear-Gaussian model against the
Kalman filter.

python examples/state_space.py --particles 1000
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import nestedvi as nvi

DECAY, STATE_NOISE, NOISE, STEPS = 0.9, 0.5, 0.7, 50


class Model(nvi.AbstractStateSpaceModel):
    """z_1 ~ N(0, 1), z_k ~ N(0.9 z_{k-1}, 0.5²), x_k ~ N(z_k, 0.7²)."""

    def log_initial(self, z):
        return dist.Normal(0.0, 1.0).log_prob(z)

    def log_transition(self, z, z_prev):
        return dist.Normal(DECAY * z_prev, STATE_NOISE).log_prob(z)

    def log_observation(self, x, z):
        return dist.Normal(z, NOISE).log_prob(x)


def guided(z, context):
    """The locally optimal proposal p(z_k | z_{k-1}, x_k); the level's observation is in its
    context.
    """
    x = context.theta.x
    variance = 1 / (1 / STATE_NOISE**2 + 1 / NOISE**2)
    return dist.Normal(variance * (DECAY * z / STATE_NOISE**2 + x / NOISE**2), jnp.sqrt(variance))


def kalman(xs):
    """log p(x_{1:K}), exact."""
    mean, variance, total = 0.0, 1.0, 0.0
    for x in np.asarray(xs):
        spread = variance + NOISE**2
        total += -0.5 * (np.log(2 * np.pi * spread) + (x - mean) ** 2 / spread)
        gain = variance / spread
        mean, variance = mean + gain * (x - mean), (1 - gain) * variance
        mean, variance = DECAY * mean, DECAY**2 * variance + STATE_NOISE**2
    return total


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--particles", type=int, default=1_000)
args = parser.parse_args()

key_data, key_run = jax.random.split(jax.random.key(0))
xs = jax.random.normal(key_data, (STEPS,))
print(f"Kalman              log p(x) = {kalman(xs):.4f}")
proposals = {
    "bootstrap": lambda z, context: dist.Normal(DECAY * z, STATE_NOISE),
    "locally optimal": guided,
}
for name, network in proposals.items():
    step = nvi.Transition(nvi.DistributionKernel(network, reparameterised=True))
    path = nvi.StateSpace(Model(), xs)
    sampler = nvi.NestedSampler(
        dist.Normal(0.0, 1.0), path, nvi.Shared(step, STEPS - 1), nvi.Resampling("systematic", 0.5)
    )
    quality = nvi.evaluate(key_run, sampler, num_particles=args.particles, num_batches=20)
    print(
        f"{name:<18}  log p(x) = {quality.log_Z:.4f} ± {quality.log_Z_stderr:.4f}, ESS"
        f" {quality.ess_percent:.0f} %"
    )
