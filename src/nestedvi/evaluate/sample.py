"""From a log density to weighted particles and its normaliser in one call."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Key
from nestedvi.densities.base import Density, as_density
from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.errors import DensityError, NestedviWarning
from nestedvi.evaluate.pilot import pilot
from nestedvi.methods import Method, build, get_method
from nestedvi.particles.weights import ess, khat, log_Z_hat_stderr
from nestedvi.sampler.nested import NestedSampler, check_run, run, warn_support
from nestedvi.train.fit import fit

__all__ = ["Posterior", "sample"]

# Training happens in coordinates where the pilot's spread is this: the kernels' unit noise is a fifth of it, as in the paper.
_SPREAD = 5.0
_BATCHES = 10


class Posterior(NamedTuple):
    """Weighted particles for the density, and what is known of its normaliser.

    `log_Z_stderr` comes from independent batches; `khat` above 0.7 means that the weights' tail is too heavy to trust either.
    """

    samples: PyTree
    log_weights: Float[Array, " particles"]
    log_Z: float
    log_Z_stderr: float
    ess: float
    khat: float
    sampler: NestedSampler

    def resample(self, key: Key, num: int) -> PyTree:
        """`num` draws with equal weights."""
        index = jax.random.categorical(key, self.log_weights, shape=(num,))
        return jax.tree.map(lambda x: x[index], self.samples)

    def to_arviz(self, key: Key, num: int = 1000) -> Any:
        """`num` equally weighted draws as ArviZ inference data (needs the extra `nestedvi[arviz]`)."""
        import arviz

        draws = self.resample(key, num)
        named = draws if isinstance(draws, dict) else {"z": draws}
        return arviz.from_dict(posterior={name: np.asarray(x)[None] for name, x in named.items()})


def sample(
    log_density: Any,
    key: Key,
    *,
    dim: int | None = None,
    example: PyTree = None,
    method: str | Method = "nvir-star",
    num_levels: int = 8,
    num_particles: int = 2000,
    num_steps: int = 3000,
    progress: Any = False,
) -> Posterior:
    """Weighted particles, log Z and its standard error for an unnormalised log density.

    **Arguments:**

    - `log_density`: a function of one particle, a density, or a NumPyro distribution.
    - `dim` or `example`: the size of a vector particle, or any pytree shaped like a particle.
    - `method`: a row of `nestedvi methods`; it is trained for `num_steps` steps unless it learns nothing.
    - `num_particles`: how many particles to return, from ten independent batches.

    ```python
    posterior = nvi.sample(lambda z: -0.5 * jnp.sum(z**2), jax.random.key(0), dim=2)
    posterior.log_Z, posterior.log_Z_stderr, posterior.ess
    ```
    """
    density, unravel, dim = _on_vectors(log_density, dim, example)
    key_pilot, key_build, key_fit, key_run = jax.random.split(key, 4)
    place = pilot(key_pilot, density.log_gamma, dim)
    if not bool(place.found & jnp.all(jnp.isfinite(place.mean)) & jnp.all(place.spread > 0)):
        raise DensityError(
            "The log density is NaN or −inf wherever the search looked (centred Gaussians of scale 0.3 to 30). "
            "Shift or rescale it so that some of its mass is there."
        )
    if float(place.beta) < 1:
        warnings.warn(
            f"The search for the target's place stopped at β = {float(place.beta):.3f} of 1: the base may be far from its mass.",
            NestedviWarning,
            stacklevel=2,
        )
    scale = place.spread / _SPREAD
    target = Density(lambda u: density.log_gamma(place.mean + scale * u) + jnp.sum(jnp.log(scale)))
    row = get_method(method)
    initial = DiagonalNormal(jnp.zeros(dim), _SPREAD)
    sampler = build(row, key_build, target=target, initial=initial, num_levels=num_levels)
    if row.objective is not None:
        training = {"num_steps": num_steps, "num_particles": max(16, 512 // num_levels), "progress": progress}
        sampler = fit(key_fit, sampler, row.make_objective(), **training).sampler
    return _posterior(key_run, sampler, num_particles, lambda u: unravel(place.mean + scale * u))


def _on_vectors(log_density, dim, example):
    density = as_density(log_density)
    if (dim is None) == (example is None):
        raise ValueError("Say what one particle looks like: dim=<size of a vector>, or example=<a pytree>, and only one of them.")
    if dim is not None and dim < 1:
        raise ValueError(f"A particle has at least one coordinate; got dim = {dim}.")
    if example is None:
        return density, lambda z: z, int(dim)
    flat, unravel = ravel_pytree(jax.tree.map(lambda x: jnp.asarray(x, dtype=jnp.result_type(float)), example))
    return Density(lambda z: density.log_gamma(unravel(z))), unravel, flat.shape[0]


def _posterior(key, sampler, num_particles, finish) -> Posterior:
    per_batch = -(-num_particles // _BATCHES)
    runs = jax.jit(jax.vmap(lambda k: run(k, sampler, per_batch)))(jax.random.split(key, _BATCHES))
    check_run(runs.info, per_batch)
    warn_support(sampler, runs.info)
    log_Z, stderr = log_Z_hat_stderr(runs.log_Z_hat)
    log_w = runs.particles.log_w.reshape(-1)[:num_particles]
    samples = jax.vmap(finish)(runs.particles.z.reshape(-1, runs.particles.z.shape[-1])[:num_particles])
    tail = khat(np.asarray(log_w))
    if tail > 0.7:
        warnings.warn(
            f"The largest weights dominate (k̂ = {tail:.2f} > 0.7): log Z and expectations may be far off, however small the "
            "standard error. Use more levels, more steps or another method.",
            NestedviWarning,
            stacklevel=3,
        )
    return Posterior(samples, log_w, float(log_Z), float(stderr), float(ess(log_w)), tail, sampler)
