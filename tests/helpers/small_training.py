"""The smallest training with every part in it: three levels in one dimension, resampling, a learned
order.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

import nestedvi as nvi

LOG_Z = 1.3
OBJECTIVE = nvi.Objective(learn=("forward", "reverse", "path"))


def transition(key):
    forward, reverse = jax.random.uniform(key, (2, 1), minval=0.5, maxval=0.9)
    return nvi.Transition(kernel(forward), kernel(reverse))


def kernel(slope):
    return nvi.kernels.GaussianKernel(slope, jnp.zeros(1), jnp.zeros(1))


def build(key, path=None):
    initial = nvi.DiagonalNormal(jnp.zeros(1), 2.0)
    target = nvi.densities.Scaled(nvi.DiagonalNormal(jnp.ones(1), 0.5), LOG_Z)
    path = nvi.Annealing(initial, target, nvi.LearnedSchedule(3)) if path is None else path
    return nvi.NestedSampler(
        initial,
        path,
        nvi.Stacked(nvi.stack(key, transition, 2)),
        nvi.Resampling("systematic", "always"),
    )


def train(
    num_steps=24, *, key=0, sampler=None, objective=OBJECTIVE, num_particles=8, rate=1e-2, **options
):
    """`nvi.fit` of that problem; every argument can be changed."""
    sampler = build(jax.random.key(1)) if sampler is None else sampler
    options = {"optimiser": optax.adam(rate), **options}
    return nvi.fit(
        jax.random.key(key),
        sampler,
        objective,
        num_steps=num_steps,
        num_particles=num_particles,
        **options,
    )


def stacked(restarts):
    return nvi.stack(jax.random.key(2), build, restarts)


def arrays(tree):
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def assert_same_bits(one, two):
    """Equal to the last bit, NaN included."""
    ones, twos = arrays(one), arrays(two)
    assert len(ones) == len(twos)
    for a, b in zip(ones, twos, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


class Walled(nvi.AbstractDensity):
    """N(loc, 1) that breaks its promise: NaN beyond a limit."""

    loc: Array
    limit: Array

    def log_gamma(self, z):
        return jnp.where(z[0] > self.limit, jnp.nan, -0.5 * (z[0] - self.loc) ** 2)


class Kinked(nvi.AbstractDensity):
    """N(loc, 1) with the right value everywhere and a NaN derivative beyond a limit."""

    loc: Array
    limit: Array

    def log_gamma(self, z):
        return -0.5 * (z[0] - self.loc) ** 2 + 0.0 * jnp.sqrt(
            jnp.maximum(jnp.minimum(self.limit, 1e6) - z[0], 0.0)
        )


def walled(*limits, density=Walled):
    path = nvi.paths.StackedDensities(
        density(jnp.array([0.0, 0.5, 1.0]), jnp.array(limits)), learn=False
    )
    return build(jax.random.key(1), path)


# One particle in a few dozen passes this wall, so that about every other step of 16 particles is
# spoilt.
RARELY = (jnp.inf, jnp.inf, 2.0)
WALLED = {"objective": nvi.Objective(), "num_particles": 16}
