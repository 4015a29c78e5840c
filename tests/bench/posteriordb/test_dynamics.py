"""Solvers beside SciPy's, and what the equations conserve."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from nestedvi.bench.posteriordb.dynamics import michaelis_menten, predator_and_prey


def test_populations_keep_their_invariant(x64):
    """δ x − γ log x + β y − α log y is constant along every solution."""
    a, b, c, d = theta = np.array([0.55, 0.028, 0.8, 0.024])
    start = np.array([34.0, 6.0])
    logs = np.asarray(predator_and_prey(jnp.asarray(theta), jnp.asarray(start), np.arange(1, 21)))
    assert logs.shape == (20, 2)

    def invariant(log_x, log_y):
        return d * np.exp(log_x) - c * log_x + b * np.exp(log_y) - a * log_y

    np.testing.assert_allclose(invariant(*logs.T), invariant(*np.log(start)), rtol=1e-5)


@pytest.mark.parametrize("half", [0.02, 1.0, 50.0])
def test_the_concentration_is_scipys(half, x64):
    """From nearly constant elimination to a linear one."""
    absorb, fastest, dose, times = 0.76, 0.45, 15.0, np.array([0.5, 1.0, 4.0, 10.0])

    def speed(t, c):
        return dose * absorb * np.exp(-absorb * t) - fastest * c / (half + c)

    exact = solve_ivp(speed, (0, 10), [0.0], "LSODA", t_eval=times, rtol=1e-10, atol=1e-12).y[0]
    arguments = (jnp.asarray(absorb), jnp.asarray(half), jnp.asarray(fastest))
    np.testing.assert_allclose(michaelis_menten(*arguments, dose, times), exact, rtol=1e-4)


def test_a_drug_that_is_all_eliminated_stays_positive(x64):
    arguments = (jnp.asarray(5.0), jnp.asarray(0.5), jnp.asarray(30.0))
    found = michaelis_menten(*arguments, 1.0, np.array([0.5, 5.0]))
    assert bool(jnp.all(jnp.isfinite(found))) and found[1] < 1e-6
