"""The table of targets: each log Z against quadrature, each name reachable."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.targets.catalogue import MEASURED


def log_integral_2d(log_gamma, half_width, num=1001):
    """log ∫ γ over a square by the trapezoid rule (the integrand vanishes at the border)."""
    axis = jnp.linspace(-half_width, half_width, num)
    rows = jax.jit(
        jax.vmap(lambda x: jax.nn.logsumexp(jax.vmap(lambda y: log_gamma(jnp.stack([x, y])))(axis)))
    )(axis)
    return float(jax.nn.logsumexp(rows) + 2 * math.log(float(axis[1] - axis[0])))


def log_Z_many_well(log_gamma):
    """The sixteen pairs are independent: Z is the sixteenth power of one pair's integral, others
    held at zero.
    """
    z = jnp.asarray(np.random.default_rng(2).normal(size=32))
    alone = jax.vmap(lambda j: log_gamma(jnp.where(jnp.arange(32) // 2 == j, z, 0.0)))(
        jnp.arange(16)
    )
    np.testing.assert_allclose(log_gamma(z), jnp.sum(alone), rtol=1e-12)
    return 16 * log_integral_2d(
        lambda pair: log_gamma(jnp.zeros(32).at[:2].set(pair)), half_width=10.0
    )


def log_Z_funnel(log_gamma):
    """Given the neck x_0, log γ is −λ|x|²/2 + c in the rest: nine Gaussian integrals in closed
    form, then one by quadrature.
    """
    neck = jnp.linspace(-40.0, 40.0, 1001)

    def at(x, rest):
        return log_gamma(jnp.concatenate([x[None], rest]))

    rest = jnp.asarray(np.random.default_rng(3).normal(size=9))
    top = jax.vmap(lambda x: at(x, jnp.zeros(9)))(neck)
    precision = jax.jit(jax.vmap(lambda x: -jnp.diag(jax.hessian(at, argnums=1)(x, rest))))(neck)
    middle = (neck > -5) & (neck < 5)
    quadratic = top - 0.5 * precision @ rest**2
    np.testing.assert_allclose(
        jax.vmap(lambda x: at(x, rest))(neck)[middle], quadratic[middle], rtol=1e-10
    )
    log_inner = top + jnp.sum(0.5 * jnp.log(2 * jnp.pi / precision), axis=1)
    return float(jax.nn.logsumexp(log_inner) + math.log(float(neck[1] - neck[0])))


def log_Z_brownian(log_gamma):
    """Given the two scales log γ is quadratic in the thirty places: a Gaussian integral in closed
    form, then a square of scales.

    The exponent is c + b·x − x·P x/2, read off derivatives at zero, so the inner integral is c +
    b·P⁻¹b/2 + log det(2πP⁻¹)/2.
    """

    def at(x, scales):
        return log_gamma(jnp.concatenate([scales, x]))

    axis = np.arange(-11.0, 4.0, 0.2)
    scales = jnp.asarray(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    parts = jax.jit(
        jax.vmap(
            lambda s: (
                at(jnp.zeros(30), s),
                jax.grad(at)(jnp.zeros(30), s),
                -jax.hessian(at)(jnp.zeros(30), s),
            )
        )
    )
    top, slope, precision = map(np.asarray, parts(scales))
    solved = np.linalg.solve(precision, slope[..., None])[..., 0]
    inner = (
        top
        + 0.5 * np.sum(slope * solved, axis=1)
        - 0.5 * np.linalg.slogdet(precision / (2 * np.pi))[1]
    )
    return float(jax.nn.logsumexp(inner) + 2 * math.log(0.2))


LOG_Z = {
    "ring": lambda log_gamma: log_integral_2d(log_gamma, 18.0),
    "two-moons": lambda log_gamma: log_integral_2d(log_gamma, 5.0),
    "rings": lambda log_gamma: log_integral_2d(log_gamma, 9.0),
    "many-well": log_Z_many_well,
    "funnel": log_Z_funnel,
    "gmm40": lambda log_gamma: log_integral_2d(log_gamma, 50.0),
    "brownian": log_Z_brownian,
}
# Sampled, or by a quadrature that takes minutes: see test_bayesian, test_evidences.
SAMPLED = {"breast-cancer", "seeds", *MEASURED}


@pytest.mark.parametrize("name", [name for name in nvi.targets.TARGETS if name not in SAMPLED])
def test_log_Z_of_every_target(name, x64):
    """The table prints six decimals; an entry without a quadrature here fails."""
    target = nvi.targets.get_target(name)
    assert abs(LOG_Z[name](target.build().log_gamma) - target.log_Z) < 1e-6


def test_ring_is_the_papers(x64):
    """μ_m = 10 (sin 2πm/8, cos 2πm/8) with variance 0.5: at a mode the other seven are 7.6 away and
    invisible.
    """
    modes = nvi.targets.ring_modes()
    expected = [
        [10 * math.sin(2 * math.pi * m / 8), 10 * math.cos(2 * math.pi * m / 8)]
        for m in range(1, 9)
    ]
    np.testing.assert_allclose(modes, expected, atol=1e-12)
    log_gamma = jax.vmap(nvi.targets.ring().log_gamma)
    np.testing.assert_allclose(log_gamma(modes), -math.log(math.pi), rtol=1e-9)
    aside = modes + jnp.array([0.5, 0.0])
    np.testing.assert_allclose(log_gamma(aside), -math.log(math.pi) - 0.25, rtol=1e-9)


@pytest.mark.parametrize("name", ["rings", "two-moons"])
def test_radial_targets_are_smooth_at_the_origin(name):
    """The radius has no derivative at zero; the density must still have a finite one."""
    gradient = jax.grad(nvi.targets.get_target(name).build().log_gamma)(jnp.zeros(2))
    assert jnp.isfinite(gradient).all()
