"""Small annealed samplers with Gaussian kernels."""

import jax
import jax.numpy as jnp

import nestedvi as nvi


def gaussian_pair(key, dim=1):
    a, b = jax.random.split(key)

    def scale(k):
        return 0.1 * jax.random.normal(k, (dim,))

    def kernel(k):
        return nvi.kernels.GaussianKernel(0.8 + scale(k), scale(k), scale(k))

    return nvi.Transition(kernel(a), kernel(b))


def annealed(num_levels=4, resampling=None, log_Z=1.2, dim=1):
    """From N(0, 2²) to e^log_Z N(1, 0.7²) with arbitrary Gaussian kernels."""
    base = nvi.DiagonalNormal(jnp.zeros(dim), 2.0)
    target = nvi.densities.Scaled(nvi.DiagonalNormal(jnp.ones(dim), 0.7), log_Z)
    path = nvi.Annealing(base, target, nvi.LinearSchedule(num_levels))
    kernels = nvi.stack(jax.random.key(3), lambda k: gaussian_pair(k, dim), num_levels - 1)
    return nvi.NestedSampler(base, path, nvi.Stacked(kernels), resampling)
