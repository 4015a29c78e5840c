"""Geometric annealing: its ends to the last bit, its derivative in β, and particles of no mass."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.small_paths import annealing, log_normal, quartic, theta


@pytest.mark.parametrize(
    "schedule", [lambda: nvi.LinearSchedule(4), lambda: nvi.LearnedSchedule(4)]
)
def test_annealing_ends_are_exact(schedule):
    """β = 0 and β = 1 give the base and the target to the last bit, in float32."""
    path = annealing(schedule())
    zs = jnp.asarray(np.random.default_rng(0).normal(size=(20, 2)) * 3)
    ends = jax.vmap(
        lambda z: jnp.stack([path.log_density(theta(path, k), path.stats(z)) for k in (0, 3)])
    )(zs)
    assert jnp.array_equal(ends[:, 0], jax.vmap(path.base.log_gamma)(zs))
    assert jnp.array_equal(ends[:, 1], jax.vmap(path.target.log_gamma)(zs))


def boxed():
    """A target on the unit square: −inf outside, with a finite derivative everywhere."""
    return nvi.Annealing(
        nvi.DiagonalNormal(jnp.zeros(2), 1.0),
        lambda z: jnp.where(jnp.max(jnp.abs(z)) < 1, jnp.sum(z), -jnp.inf),
        nvi.LearnedSchedule(3),
    )


def test_excluded_particles_do_not_spoil_the_first_density():
    """0 · (−inf) = 0: γ_1 is the base even where the target has no mass, and its gradient in z is
    the base's.
    """
    path, outside = boxed(), jnp.array([2.0, 0.3])
    value, gradient = jax.value_and_grad(
        lambda z: path.log_density(path.thetas()[0], path.stats(z))
    )(outside)
    np.testing.assert_allclose(value, log_normal(outside, 0.0, 1.0), rtol=1e-6)
    np.testing.assert_allclose(gradient, -outside, rtol=1e-6)


def test_the_target_may_sit_where_the_base_has_no_mass():
    path = nvi.Annealing(
        lambda z: jnp.where(z > 0, -z, -jnp.inf), lambda z: -0.5 * z**2, nvi.LinearSchedule(3)
    )
    last = path.log_density(path.thetas()[-1], path.stats(jnp.array(-1.0)))
    assert float(last) == -0.5
    assert float(path.log_density(path.thetas()[1], path.stats(jnp.array(-1.0)))) == -math.inf


@pytest.mark.parametrize("k", [0, 1, 2])
def test_excluded_particles_have_no_gradient(k):
    """A particle of weight zero multiplies its gradient by zero: that gradient must be finite, in β
    and in z.
    """
    path, outside = boxed(), jnp.array([2.0, 0.3])

    def silenced(schedule, z):
        moved = eqx.tree_at(lambda p: p.schedule, path, schedule)
        return 0.0 * jnp.maximum(moved.log_density(moved.thetas()[k], moved.stats(z)), -1e3)

    by_schedule, by_z = jax.grad(silenced, argnums=(0, 1))(path.schedule, outside)
    assert jnp.isfinite(by_schedule.logits).all() and jnp.isfinite(by_z).all()
    inside = jax.grad(lambda b: path.log_density(b, path.stats(outside)))(path.thetas()[k])
    assert jnp.isfinite(inside)


def test_derivative_in_beta(x64):
    """∂log γ_k/∂β = log target − log base, the statistic that learns a schedule."""
    path, z = annealing(nvi.LinearSchedule(4)), jnp.array([0.4, -1.3])
    slope = jax.grad(path.log_density)(jnp.array(0.3), path.stats(z))
    np.testing.assert_allclose(slope, float(quartic(z)) - log_normal(z, 0.0, 3.0), rtol=1e-12)
