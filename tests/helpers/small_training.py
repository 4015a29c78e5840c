"""The smallest training with every part in it: three levels in one dimension, resampling, a learned
order.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

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
