"""NUTS and the bridge on a closed form; what is said of chains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.bench.chains import _rhat, _starts, bridge_log_Z


@pytest.mark.slow
@pytest.mark.parametrize("draws", [1000, 1001])
def test_nuts_and_a_bridge_give_a_closed_form(x64, draws):
    """Three coordinates of logistic densities, scaled: Z = e²."""

    def log_gamma(z):
        return jnp.sum(-z - 2 * jnp.logaddexp(0.0, -z)) + 2.0

    found = bridge_log_Z(0, log_gamma, np.zeros(3), draws)
    assert abs(found["log_Z"] - 2) < 4 * found["stderr"] < 0.1
    assert found["diverging"] == 0 and 0.99 < found["rhat"] < 1.02


def test_rhat_sees_chains_apart():
    rng = np.random.default_rng(0)
    together = rng.normal(size=(8, 500, 1))
    apart = together + np.repeat([[[0.0]], [[2.0]]], 4, axis=0)
    assert _rhat(together).max() < 1.02 < 1.3 < _rhat(apart).max()


def test_chains_start_where_the_density_is(x64):
    """Never where it is NaN, and near a mode that is far from the given start."""

    def log_gamma(z):
        return jnp.where(z[:, 0] > 0, jnp.nan, -50 * jnp.sum((z + 1) ** 2, axis=1))

    starts = _starts(jax.random.key(0), log_gamma, np.array([40.0, 0.0]))
    assert starts.shape == (4, 2) and len(np.unique(starts, axis=0)) == 4
    assert np.abs(starts + 1).max() < 0.5
