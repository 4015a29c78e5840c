"""The rows of `nestedvi methods` as answers: find the target, build the row's sampler there, train it, run it in batches."""

import jax
import jax.numpy as jnp

from nestedvi._types import Key
from nestedvi.densities.base import Density
from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.evaluate.answer import Answer, Request
from nestedvi.evaluate.locate import locate
from nestedvi.methods import build, get_method
from nestedvi.particles.weights import log_Z_hat_stderr
from nestedvi.sampler.nested import check_run, run, warn_support
from nestedvi.train.fit import fit

__all__ = ["answer_by_method"]

# Training happens in coordinates where the pilot's spread is this: the kernels' unit noise is a fifth of it, as in the paper.
_SPREAD = 5.0
_BATCHES = 10
_LEVELS, _STEPS = 8, 3000


def answer_by_method(key: Key, request: Request) -> Answer:
    """`num_particles` weighted particles from ten independent batches of the trained sampler."""
    density, dim, num_particles = request.density, request.dim, request.num_particles
    num_levels, num_steps = request.num_levels or _LEVELS, request.num_steps or _STEPS
    key_pilot, key_build, key_fit, key_run = jax.random.split(key, 4)
    row = get_method(request.method)
    place, doubts = locate(key_pilot, density, dim, request.prior)
    scale = place.spread / _SPREAD
    target = Density(lambda u: density.log_gamma(place.mean + scale * u) + jnp.sum(jnp.log(scale)))
    sampler = build(row, key_build, target=target, initial=DiagonalNormal(jnp.zeros(dim), _SPREAD), num_levels=num_levels)
    if row.objective is not None:
        training = {"num_steps": num_steps, "num_particles": max(16, 512 // num_levels), "progress": request.progress}
        sampler = fit(key_fit, sampler, row.make_objective(), **training).sampler
    per_batch = -(-num_particles // _BATCHES)
    runs = jax.jit(jax.vmap(lambda k: run(k, sampler, per_batch)))(jax.random.split(key_run, _BATCHES))
    check_run(runs.info, per_batch)
    warn_support(sampler, runs.info)
    log_Z, stderr = log_Z_hat_stderr(runs.log_Z_hat)
    z = place.mean + scale * runs.particles.z.reshape(-1, dim)[:num_particles]
    return Answer(z, runs.particles.log_w.reshape(-1)[:num_particles], float(log_Z), float(stderr), doubts, sampler)
