"""Posteriors made of given particles, and a model whose answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from nestedvi.inference.answer import Answer
from nestedvi.inference.posterior import make_posterior

FLIPS = np.array([1, 0, 1, 1, 0, 1, 1, 1, 1, 0])


def posterior_of(samples, log_w=None, remarks=()):
    num = len(jax.tree.leaves(samples)[0])
    return make_posterior(
        samples, Answer(None, jnp.zeros(num) if log_w is None else log_w, 1.5, 0.01), remarks
    )


def three_particles():
    """Three particles of weights ½, ¼, ¼."""
    samples = {
        "a": jnp.array([1.0, 2.0, 4.0]),
        "b": jnp.array([[[0.0], [1.0]], [[0.0], [5.0]], [[2.0], [1.0]]]),
    }
    return posterior_of(samples, jnp.log(jnp.array([0.5, 0.25, 0.25])))


def coin(flips, a=2.0):
    p = numpyro.sample("p", dist.Beta(a, 1.5))
    numpyro.deterministic("odds", p / (1 - p))
    with numpyro.plate("flips", len(flips)):
        numpyro.sample("x", dist.Bernoulli(p), obs=flips)
