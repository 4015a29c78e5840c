"""One level: particles with keys of their own, and the first level as importance sampling."""

import jax
import numpy as np

import nestedvi as nvi
from nestedvi.sampler.level import nothing_in, outgoing, particle_keys, terms
from tests.helpers.gaussian_samplers import gaussian_pair


def test_particles_have_keys_of_their_own(key):
    """Draws of neighbouring particles are uncorrelated, and no two particles of any level draw the
    same bits.
    """
    levels = jax.random.split(key, 4000)
    noise = jax.vmap(lambda k: jax.vmap(jax.random.normal)(particle_keys(k, 4)))(levels)
    correlation = np.corrcoef(np.asarray(noise, dtype=np.float64).T)
    assert np.abs(correlation - np.eye(4)).max() < 4.5 / np.sqrt(4000)
    bits = jax.vmap(lambda k: jax.vmap(jax.random.bits)(particle_keys(k, 4)))(levels)
    assert len(np.unique(np.asarray(bits))) == bits.size
    old_style = jax.random.PRNGKey(0)
    assert len(particle_keys(old_style, 3)) == 3


def test_first_level_is_importance_sampling(key):
    """Nothing comes in; w_1 = γ_1 / q_1."""
    base, q = nvi.DiagonalNormal(0.0, 1.0), nvi.DiagonalNormal(0.5, 2.0)
    path = nvi.Annealing(base, base, nvi.LinearSchedule(2))
    sampler = nvi.NestedSampler(q, path, (gaussian_pair(key),))
    start = nothing_in(5)
    out = outgoing(start, terms(key, start, sampler.first_level(), path))
    expected = jax.vmap(base.log_gamma)(out.z) - jax.vmap(q.log_gamma)(out.z)
    np.testing.assert_allclose(out.log_w, expected, rtol=1e-5)
