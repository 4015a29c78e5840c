"""What networks see of an observation, and how their last layer starts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nestedvi.paper.hmm.networks import SCALE, features, near_zero


def test_features_by_hand(x64):
    mu, tau = np.array([-3.0, 5.0]), np.array([4.0, 0.25])
    residual = np.array([2 * (2.0 + 3.0), 0.5 * (2.0 - 5.0)])
    expected = [
        np.full(2, 2.0 / SCALE),
        mu / SCALE,
        np.log(tau),
        np.tanh(residual / 3),
        np.log(1 + residual**2) / 5,
    ]
    np.testing.assert_allclose(features(2.0, jnp.asarray(mu), jnp.asarray(tau)), expected)


def test_a_small_layer_is_a_hundredth_of_what_it_was(key):
    layer, z = eqx.nn.Linear(3, 2, key=key), jax.random.normal(key, (3,))
    np.testing.assert_allclose(near_zero(layer)(z), 0.01 * layer(z), rtol=1e-5)
