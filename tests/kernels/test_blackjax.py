"""BlackJAX algorithms as moves: the same steps that BlackJAX takes by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi

blackjax = pytest.importorskip("blackjax")


def log_gamma(z):
    return -0.5 * jnp.sum((z - 1.0) ** 2)


CONTEXT = nvi.kernels.Context(None, log_gamma)
Z = jnp.array([0.3, -0.4])


def test_steps_are_blackjaxs_own(key):
    """Three iterations of its Metropolis algorithm, one by one with the same keys."""

    def proposal(key, z):
        return z + 0.8 * jax.random.normal(key, z.shape)

    move = nvi.kernels.blackjax_move(blackjax.rmh, steps=3, proposal_generator=proposal)
    z, _ = move.move(key, Z, CONTEXT)
    sampler = blackjax.rmh(log_gamma, proposal_generator=proposal)
    state, positions = sampler.init(Z), []
    for key_step in jax.random.split(jax.random.split(key)[1], 3):
        state, _ = sampler.step(key_step, state)
        positions.append(state.position)
    assert any((p != Z).any() for p in positions)
    np.testing.assert_allclose(z, state.position, rtol=1e-6)


def test_algorithms_that_draw_part_of_their_state(key):
    """Generalised HMC needs a key to start."""
    move = nvi.kernels.blackjax_move(
        blackjax.ghmc, step_size=0.5, momentum_inverse_scale=jnp.ones(2), alpha=0.9, delta=0.1
    )
    z, _ = move.move(key, Z, CONTEXT)
    assert z.shape == (2,) and jnp.isfinite(z).all() and (z != Z).any()
