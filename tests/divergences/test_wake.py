"""Reweighted wake-sleep on a model small enough to sum: its gradients tend to those of log Z and of
the forward KL.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.divergences.wake import wake

pytestmark = pytest.mark.usefixtures("x64")

STATES = np.arange(3)
P, Q = np.array([0.3, -1.0, 0.5]), np.array([0.1, 0.4, -0.6])


def log_q(q):
    return jax.nn.log_softmax(q)


def test_every_state_once_gives_the_exact_gradients():
    """With q uniform and each state drawn once, self-normalised weights are the posterior."""
    gradient = jax.grad(lambda p, q: wake(p[STATES], log_q(q)[STATES])[0], argnums=(0, 1))(
        jnp.asarray(P), jnp.zeros(3)
    )
    posterior = jax.nn.softmax(P)
    np.testing.assert_allclose(gradient[0], -posterior, rtol=1e-12)
    np.testing.assert_allclose(gradient[1], 1 / 3 - posterior, rtol=1e-12)


def test_against_a_hand_computation():
    states = np.array([0, 2, 2, 1])

    def surrogate(p, q):
        return wake(p[states], log_q(q)[states])

    (by_p, by_q), value = jax.grad(surrogate, argnums=(0, 1), has_aux=True)(
        jnp.asarray(P), jnp.asarray(Q)
    )
    q = np.exp(Q) / np.exp(Q).sum()
    w = np.exp(P[states]) / q[states]
    np.testing.assert_allclose(value, np.log(w.mean()), rtol=1e-12)
    w_bar = w / w.sum()
    onehot = np.eye(3)[states]
    np.testing.assert_allclose(by_p, -(w_bar @ onehot), rtol=1e-12)
    np.testing.assert_allclose(by_q, -(w_bar @ (onehot - q)), rtol=1e-12)
