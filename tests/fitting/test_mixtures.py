"""Mixtures from particles: separate modes, and weights of given densities."""

import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.fitting.mixtures import fit_mixture, stack_mixture


def test_a_mixture_finds_separate_modes(key):
    modes = nvi.targets.ring()
    z = jax.vmap(modes.sample)(jax.random.split(key, 4000))
    fitted = fit_mixture(jax.random.key(1), z, 16)
    share = np.zeros(8)
    distance = np.linalg.norm(
        np.asarray(nvi.targets.ring_modes())[:, None] - np.asarray(fitted.means), axis=2
    )
    np.add.at(share, distance.argmin(axis=0), np.exp(fitted.log_weights))
    # Every mode has its share, and the whole fits as well as the truth does: KL within its own
    # error.
    np.testing.assert_allclose(share, 1 / 8, atol=0.03)
    fresh = jax.vmap(modes.sample)(jax.random.split(jax.random.key(2), 4000))
    log_ratio = jax.vmap(modes.log_gamma)(fresh) - modes.log_Z - jax.vmap(fitted.log_gamma)(fresh)
    assert -0.02 < float(log_ratio.mean()) < 0.1


def test_stacking_prefers_what_explains_held_out_data():
    log_parts = jnp.stack([jnp.zeros(100), jnp.full(100, -3.0)], axis=1)
    weights = np.exp(stack_mixture(log_parts))
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
    assert weights[0] > 0.99
