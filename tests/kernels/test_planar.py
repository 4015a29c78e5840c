"""Planar flows: the log determinant against the Jacobian, and invertible layers whatever the
parameters.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.properties import HealthCheck, given, hnp, settings, st

CONTEXT = nvi.kernels.Context(None, None)
CHECKED = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize(("dim", "depth"), [(1, 1), (2, 9), (3, 17)])
def test_log_det_is_the_jacobians(dim, depth, key, x64):
    """Depths around and between the multiples that the loop is unrolled by; scores are −log|det J|
    and nothing back.
    """
    flow = nvi.PlanarFlow(dim, depth, key=key, scale=1.0)
    zs = jax.random.normal(jax.random.key(1), (6, dim))

    def both(z):
        new, log_det = flow.forward_and_log_det(z)
        return new, log_det, jax.jacfwd(lambda x: flow.forward_and_log_det(x)[0])(z)

    new, log_det, jacobian = jax.jit(jax.vmap(both))(zs)
    sign, expected = np.linalg.slogdet(np.asarray(jacobian))
    assert (sign > 0).all()
    np.testing.assert_allclose(log_det, expected, rtol=1e-9, atol=1e-9)
    assert np.abs(expected).max() > 1e-2
    moved, aux = flow.move(key, zs[0], CONTEXT)
    scores = flow.score(moved, zs[0], aux, CONTEXT)
    np.testing.assert_allclose(moved, new[0], rtol=1e-12)
    np.testing.assert_allclose(scores.log_q, -expected[0], rtol=1e-9, atol=1e-9)
    assert float(scores.log_r) == float(scores.log_q_score) == 0.0


@pytest.mark.slow
def test_units_change_the_numbers_held_and_not_the_map(key, x64):
    """The same flow whatever its parameters are counted in; each number held moves it `unit` times
    as far.
    """
    z = jnp.array([0.3, -1.2])
    plain, counted = (
        nvi.PlanarFlow(2, 5, key=key, scale=0.7, spread=2.0, unit=unit) for unit in (1.0, 3.0)
    )
    for field in ("u", "w", "b"):
        np.testing.assert_allclose(3.0 * getattr(counted, field), getattr(plain, field), rtol=1e-12)
    np.testing.assert_allclose(counted.inverse(counted.forward_and_log_det(z)[0]), z, rtol=1e-9)

    def value(f):
        return jnp.sum(f.forward_and_log_det(z)[0]) + f.forward_and_log_det(z)[1]

    np.testing.assert_allclose(value(counted), value(plain), rtol=1e-12)
    ones, threes = eqx.filter_grad(value)(plain), eqx.filter_grad(value)(counted)
    np.testing.assert_allclose(threes.w, 3.0 * ones.w, rtol=1e-9)
    with pytest.raises(ValueError, match="must be positive"):
        nvi.PlanarFlow(2, key=key, unit=0.0)


def layer(u, w, b):
    """One layer with the given parameters."""
    flow = nvi.PlanarFlow(2, 1, key=jax.random.key(0))
    return eqx.tree_at(lambda f: (f.u, f.w, f.b), flow, (u[None], w[None], b[None]))


@jax.jit
def one_layer(u, w, b, z):
    """log det and its gradient in the parameters, and the Jacobian, at z."""

    def forward(u, w, b):
        return layer(u, w, b).forward_and_log_det(z)[1]

    log_det, gradient = jax.value_and_grad(forward, argnums=(0, 1, 2))(u, w, b)
    return log_det, gradient, jax.jacfwd(lambda x: layer(u, w, b).forward_and_log_det(x)[0])(z)


vectors = hnp.arrays(
    np.float32,
    2,
    elements=st.one_of(st.just(0.0), st.floats(0.03125, 5.0), st.floats(-5.0, -0.03125)),
)


@CHECKED
@given(u=vectors, w=vectors, z=vectors, bend=st.floats(-3.0, 3.0))
def test_every_layer_is_invertible(u, w, z, bend, x64):
    """det J > 0 for any u, w and b, near the singular limit w·û → −1 (bend 0) too, where float32
    must still give a number.
    """
    u, w, z = (np.asarray(x, np.float64) for x in (u, w, z))
    b = np.asarray(bend - w @ z)
    log_det, _, jacobian = one_layer(*(jnp.asarray(x) for x in (u, w, b, z)))
    assert np.isfinite(log_det)
    determinant = np.linalg.det(np.asarray(jacobian))
    np.testing.assert_allclose(np.exp(log_det), determinant, rtol=1e-6, atol=1e-10)
    with jax.enable_x64(False):
        low, gradient, _ = one_layer(*(jnp.asarray(x, jnp.float32) for x in (u, w, b, z)))
        assert np.isfinite(low)
        assert all(bool(jnp.isfinite(g).all()) for g in gradient)


def test_nearly_singular_layers_keep_their_log_det():
    """On the hyperplane w·z + b = 0 with w·u ≪ 0 the determinant is tiny: float32 must not round it
    to something negative.
    """
    draw = np.random.default_rng(0).uniform
    w, turn = draw(0.5, 2.0, (500, 2)) * draw(-1, 1, (500, 1)), np.array([[0.0, 1.0], [-1.0, 0.0]])
    # w·u from −60 to 0, and any component across.
    u = draw(-60, 0, (500, 1)) * w / np.sum(w**2, axis=1, keepdims=True) + draw(-1, 1, (500, 1)) * (
        w @ turn
    )
    zero = np.zeros((500, 2))
    log_det = jax.vmap(one_layer)(*(jnp.asarray(x, jnp.float32) for x in (u, w, zero[:, 0], zero)))[
        0
    ]
    assert jnp.isfinite(log_det).all()
    # t = 0 there, so that det = 1 + w·û = softplus(w·u + c), an exponential far below zero.
    wu = np.sum(w * u, axis=1)
    np.testing.assert_allclose(log_det[wu < -15], wu[wu < -15] + np.log(np.expm1(1.0)), rtol=1e-3)


def test_a_layer_without_direction_only_shifts():
    """w = 0: z + u tanh(b), no volume change, finite gradients."""
    u, w, b, z = jnp.array([1.0, 2.0]), jnp.zeros(2), jnp.array(0.5), jnp.array([3.0, -1.0])
    new, log_det = layer(u, w, b).forward_and_log_det(z)
    np.testing.assert_allclose(new, z + u * np.tanh(0.5), rtol=1e-6)
    assert float(log_det) == 0.0
    assert all(bool(jnp.isfinite(g).all()) for g in one_layer(u, w, b, z)[1])


@pytest.mark.parametrize("enabled", [False, True])
def test_precision(enabled, key):
    with jax.enable_x64(enabled):
        flow, dtype = nvi.PlanarFlow(2, 3, key=key), jnp.float64 if enabled else jnp.float32
        new, log_det = flow.forward_and_log_det(jnp.ones(2))
        assert new.dtype == log_det.dtype == dtype


def test_the_wrong_dimension_is_refused(key):
    flow = nvi.PlanarFlow(2, 3, key=key)
    for shape in [(), (1,), (3,)]:
        with pytest.raises(ValueError, match=r"shape \(2,\); got shape"):
            flow.move(key, jnp.zeros(shape), CONTEXT)
    with pytest.raises(ValueError, match="dim ≥ 1 and depth ≥ 1"):
        nvi.PlanarFlow(2, 0, key=key)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_the_inverse_undoes_the_flow(key, scale):
    """Also for layers that contract to a thousandth, where the inverse is steep."""
    flow = nvi.PlanarFlow(3, depth=6, key=key, scale=scale)
    z = 2 * jax.random.normal(jax.random.key(1), (50, 3))
    there = jax.vmap(lambda z: flow.forward_and_log_det(z)[0])(z)
    np.testing.assert_allclose(jax.vmap(flow.inverse)(there), z, atol=1e-8)
    back = jax.vmap(flow.inverse)(z)
    np.testing.assert_allclose(
        jax.vmap(lambda z: flow.forward_and_log_det(z)[0])(back), z, atol=1e-8
    )


@pytest.mark.usefixtures("x64")
def test_the_density_of_a_flow_integrates_to_one_and_its_draws_follow_it(key):
    density = nvi.kernels.PlanarDensity(nvi.PlanarFlow(2, depth=8, key=key, scale=1.0))
    grid = jnp.linspace(-14.0, 14.0, 281)
    points = jnp.stack(jnp.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    mass = np.exp(jax.jit(jax.vmap(density.log_gamma))(points)) * float(grid[1] - grid[0]) ** 2
    np.testing.assert_allclose(mass.sum(), 1.0, atol=1e-3)
    assert density.log_Z == 0 and not density.reparameterised
    num = 20_000
    draws = np.asarray(jax.jit(jax.vmap(density.sample))(jax.random.split(key, num)))
    for fn in (lambda z: z, np.tanh, lambda z: z**2):
        expected = (mass[:, None] * fn(np.asarray(points))).sum(axis=0)
        values = fn(draws)
        assert (
            np.abs(values.mean(axis=0) - expected) < 5 * values.std(axis=0) / np.sqrt(num) + 1e-3
        ).all()
