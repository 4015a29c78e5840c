"""One level: keys of particles, the first level, weights of excluded particles, held parameters."""

import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.particles.resampling import Particles
from nestedvi.sampler.level import Terms, nothing_in, outgoing, particle_keys, terms
from tests.helpers.moves import gaussian_pair


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


def terms_of(log_gamma_prev, log_gamma):
    """Terms of two particles; nothing but the densities matters."""
    zero = jnp.zeros(2)
    return Terms(
        z=zero,
        stats=zero,
        log_gamma_prev=jnp.asarray(log_gamma_prev),
        log_gamma=jnp.asarray(log_gamma),
        log_gamma_at=zero,
        log_q=jnp.array([0.5, 0.25]),
        log_r=jnp.array([1.0, -1.0]),
        log_q_score=zero,
        log_v_pathwise=None,
    )


def test_the_increment_by_hand():
    """log v = log γ_k + log r − log γ_{k-1} − log q."""
    np.testing.assert_allclose(terms_of([0.2, 0.1], [3.0, 4.0]).log_v, [3.3, 2.65], rtol=1e-6)


def test_an_excluded_particle_stays_excluded():
    """γ_{k-1} = 0 gives −inf, never NaN, whatever γ_k is; so does a weight of zero."""
    excluded = terms_of([-jnp.inf, 0.0], [-jnp.inf, 0.0])
    np.testing.assert_array_equal(jnp.isneginf(excluded.log_v), [True, False])
    dead = Particles(jnp.zeros(2), jnp.zeros(2), jnp.array([-jnp.inf, 0.0]))
    log_w = outgoing(dead, terms_of([0.0, 0.0], [jnp.inf, 1.0])).log_w
    assert jnp.isneginf(log_w[0])
    np.testing.assert_allclose(log_w[1], 1.0 - 1.0 - 0.25, rtol=1e-6)


def test_what_is_held_gets_no_gradient():
    """The value stays; a leaf that is no array passes through."""

    def value(loc):
        held = nvi.hold((nvi.DiagonalNormal(loc, 1.0), "name"))
        assert held[1] == "name"
        return held[0].log_gamma(jnp.ones(1)) + loc

    slope = jax.grad(value)(0.3)
    assert float(slope) == 1.0
