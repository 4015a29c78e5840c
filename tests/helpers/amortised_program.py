"""The smallest amortised problem: z ~ N(0, 1), x ~ N(z, 0.5²), and a program that maps x to a
sampler of three levels.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

import nestedvi as nvi

NOISE = 0.5
STEPS = 2


class Program(eqx.Module):
    """Kernels N(0.5 z + slope x + shift, e^{2 log_scale}), from a wide start to p(z, x)."""

    slope: jax.Array
    shift: jax.Array
    log_scale: jax.Array
    resampling: nvi.Resampling = nvi.Resampling("systematic", "always")

    def __call__(self, x):
        target = nvi.Density(lambda z: jnp.sum(_log_normal(z, 0.0, 1.0) + _log_normal(x, z, NOISE)))
        initial = nvi.DiagonalNormal(jnp.zeros(1), 1.5)
        path = nvi.Annealing(initial, target, nvi.LinearSchedule(STEPS + 1))
        forward = nvi.kernels.GaussianKernel(
            jnp.full(1, 0.5), jnp.full(1, self.slope * x + self.shift), jnp.full(1, self.log_scale)
        )
        # Narrower than any of the densities: with a wider one the weights have no variance.
        reverse = nvi.kernels.GaussianKernel(jnp.full(1, 0.5), jnp.zeros(1), jnp.full(1, -0.9))
        return nvi.NestedSampler(
            initial, path, nvi.Shared(nvi.Transition(forward, reverse), STEPS), self.resampling
        )


def _log_normal(x, mean, scale):
    return -0.5 * ((x - mean) / scale) ** 2 - math.log(scale) - 0.5 * math.log(2 * math.pi)


def log_evidence(x):
    """log p(x), exact."""
    return _log_normal(x, 0.0, math.sqrt(1 + NOISE**2))


def start():
    return Program(jnp.array(-0.5), jnp.array(0.3), jnp.array(0.2))
