"""The table of targets: each log Z against quadrature, each name reachable."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi


def log_integral_2d(log_gamma, half_width, num=1001):
    """log ∫ γ over a square by the trapezoid rule (the integrand vanishes at the border)."""
    axis = jnp.linspace(-half_width, half_width, num)
    rows = jax.jit(jax.vmap(lambda x: jax.nn.logsumexp(jax.vmap(lambda y: log_gamma(jnp.stack([x, y])))(axis))))(axis)
    return float(jax.nn.logsumexp(rows) + 2 * math.log(float(axis[1] - axis[0])))


def log_Z_many_well(log_gamma):
    """The sixteen pairs are independent: Z is the sixteenth power of one pair's integral, others held at zero."""
    z = jnp.asarray(np.random.default_rng(2).normal(size=32))
    alone = jax.vmap(lambda j: log_gamma(jnp.where(jnp.arange(32) // 2 == j, z, 0.0)))(jnp.arange(16))
    np.testing.assert_allclose(log_gamma(z), jnp.sum(alone), rtol=1e-12)
    return 16 * log_integral_2d(lambda pair: log_gamma(jnp.zeros(32).at[:2].set(pair)), half_width=10.0)


def log_Z_funnel(log_gamma):
    """Given the neck x_0, log γ is −λ|x|²/2 + c in the rest: nine Gaussian integrals in closed form, then one by quadrature."""
    neck = jnp.linspace(-40.0, 40.0, 1001)
    at = lambda x, rest: log_gamma(jnp.concatenate([x[None], rest]))  # noqa: E731
    rest = jnp.asarray(np.random.default_rng(3).normal(size=9))
    top = jax.vmap(lambda x: at(x, jnp.zeros(9)))(neck)
    precision = jax.jit(jax.vmap(lambda x: -jnp.diag(jax.hessian(at, argnums=1)(x, rest))))(neck)
    middle = (neck > -5) & (neck < 5)
    quadratic = top - 0.5 * precision @ rest**2
    np.testing.assert_allclose(jax.vmap(lambda x: at(x, rest))(neck)[middle], quadratic[middle], rtol=1e-10)
    log_inner = top + jnp.sum(0.5 * jnp.log(2 * jnp.pi / precision), axis=1)
    return float(jax.nn.logsumexp(log_inner) + math.log(float(neck[1] - neck[0])))


LOG_Z = {
    "ring": lambda log_gamma: log_integral_2d(log_gamma, 18.0),
    "two-moons": lambda log_gamma: log_integral_2d(log_gamma, 5.0),
    "rings": lambda log_gamma: log_integral_2d(log_gamma, 9.0),
    "many-well": log_Z_many_well,
    "funnel": log_Z_funnel,
}


@pytest.mark.parametrize("name", nvi.TARGETS)
def test_log_Z_of_every_target(name, x64):
    """The table prints six decimals; an entry without a quadrature here fails."""
    target = nvi.get_target(name)
    assert abs(LOG_Z[name](target.build().log_gamma) - target.log_Z) < 1e-6


@pytest.mark.parametrize("name", nvi.TARGETS)
def test_entries_agree_with_their_density(name, key):
    target = nvi.get_target(name)
    density = target.build()
    assert density.log_gamma(jnp.ones(target.dim)).shape == ()
    if isinstance(density, nvi.AbstractSampleable):
        assert abs(float(density.log_Z) - target.log_Z) < 1e-6
        assert density.sample(key).shape == (target.dim,)


def test_ring_is_the_papers(x64):
    """μ_m = 10 (sin 2πm/8, cos 2πm/8) with variance 0.5: at a mode the other seven are 7.6 away and invisible."""
    modes = nvi.ring_modes()
    expected = [[10 * math.sin(2 * math.pi * m / 8), 10 * math.cos(2 * math.pi * m / 8)] for m in range(1, 9)]
    np.testing.assert_allclose(modes, expected, atol=1e-12)
    log_gamma = jax.vmap(nvi.ring().log_gamma)
    np.testing.assert_allclose(log_gamma(modes), -math.log(math.pi), rtol=1e-9)
    aside = modes + jnp.array([0.5, 0.0])
    np.testing.assert_allclose(log_gamma(aside), -math.log(math.pi) - 0.25, rtol=1e-9)


@pytest.mark.parametrize("name", ["rings", "two-moons"])
def test_radial_targets_are_smooth_at_the_origin(name):
    """The radius has no derivative at zero; the density must still have a finite one."""
    gradient = jax.grad(nvi.get_target(name).build().log_gamma)(jnp.zeros(2))
    assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize(("name", "nearest"), [("rign", "ring"), ("many_well", "many-well"), ("twomoons", "two-moons")])
def test_unknown_names_suggest_the_nearest(name, nearest):
    with pytest.raises(nvi.UnknownNameError, match=f"target '{name}'.*Did you mean '{nearest}'.*Known: .*funnel"):
        nvi.get_target(name)


def test_names_like_nothing_get_the_list_only():
    with pytest.raises(nvi.UnknownNameError) as error:
        nvi.get_target("xyzzy")
    assert "Did you mean" not in str(error.value)
