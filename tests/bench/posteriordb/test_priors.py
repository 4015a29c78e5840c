"""Priors by support: normalisers against quadrature, draws in the support, flat ones flat."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import biject_to, constraints
from scipy import integrate

from nestedvi.bench.posteriordb.priors import OrderedNormal, flat


@pytest.mark.parametrize("positive", [False, True])
def test_ordered_normals_integrate_to_one(positive, x64):
    prior = OrderedNormal((0.3, 1.0), (1.0, 0.5), positive=positive)
    grid = np.linspace(0 if positive else -6, 7, 1301)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    density = np.exp(prior.log_prob(jnp.asarray(np.stack([first, second], -1))))
    # Midpoints of the diagonal count half.
    weight = np.where(first < second, 1.0, np.where(first == second, 0.5, 0.0))
    total = integrate.simpson(integrate.simpson(density * weight, x=grid), x=grid)
    assert total == pytest.approx(1, abs=2e-3)


def test_two_equal_normals_are_ordered_half_of_the_time():
    prior = OrderedNormal((0.0, 0.0), 2.0)
    assert prior._log_mass == pytest.approx(np.log(0.5), abs=1e-9)


@pytest.mark.parametrize("positive", [False, True])
def test_draws_are_those_of_the_density(positive, key):
    prior = OrderedNormal((0.0, 3.0), 1.0, positive=positive)
    draws = prior.sample(key, (20_000,))
    assert draws.shape == (20_000, 2)
    assert bool(jnp.all(prior.support(draws)))
    one = jax.vmap(prior.sample)(jax.random.split(key, 5))
    assert one.shape == (5, 2)
    z = biject_to(prior.support).inv(draws)
    assert bool(jnp.all(jnp.isfinite(z)))
    grid = np.linspace(0 if positive else -7, 9, 401)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    density = np.exp(prior.log_prob(jnp.asarray(np.stack([first, second], -1)))) * (first < second)
    for axis, x in enumerate((first, second)):
        mean = (density * x).sum() / density.sum()
        sd = np.sqrt((density * (x - mean) ** 2).sum() / density.sum())
        assert abs(draws[:, axis].mean() - mean) < 4 * sd / np.sqrt(20_000) + 0.02 * (
            grid[1] - grid[0]
        )


def test_a_flat_prior_is_zero_everywhere():
    prior = flat(constraints.positive)
    assert float(prior.log_prob(3.0)) == 0 and prior.event_shape == ()
    assert flat(constraints.real_vector, 4).event_shape == (4,)
