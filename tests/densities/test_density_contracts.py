"""What every density promises: a scalar, finite, differentiable log γ for one particle, in either
precision, under jit and vmap.

Those that can be sampled promise more: exp(log γ − log Z) integrates to one, wherever an optimiser
takes their parameters, and draws follow it.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import Affine
from nestedvi.densities.autoregressive import AutoregressiveMixture
from nestedvi.densities.given import NormalGiven
from nestedvi.densities.low_rank import LowRankNormal, LowRankRoot
from nestedvi.densities.mixtures import CorrelatedMixture, Mixture, ScaleMixture
from nestedvi.targets.bayesian import Brownian, LogisticRegression


def mixture():
    return nvi.densities.GaussianMixture(
        [[-2.0, 0.5], [1.0, -1.0], [2.0, 2.0]], 0.4, weights=[1.0, 2.0, 5.0]
    )


def correlated():
    roots = jnp.array([[[1.0, 0.0], [-0.5, 0.8]], [[0.7, 0.0], [0.3, 1.5]]])
    return CorrelatedMixture(jnp.array([[0.0, 1.0], [-1.0, -2.0]]), roots, jnp.array([0.3, -0.2]))


def logistic():
    random = np.random.default_rng(1)
    return LogisticRegression(random.normal(size=(20, 3)), random.integers(0, 2, size=20))


def planar():
    return waved(nvi.kernels.PlanarDensity(nvi.PlanarFlow(2, 3, key=jax.random.key(3))))


def student():
    roots = jnp.array([[[0.9, 0.0], [0.3, 0.7]], [[1.1, 0.0], [-0.4, 0.8]]])
    return nvi.densities.StudentMixture(
        jnp.array([[0.5, -1.0], [-0.6, 0.4]]), roots, jnp.array([0.3, -0.2]), freedom=12
    )


def student_products():
    means, scales = jnp.array([[0.5, -1.0], [-0.6, 0.4]]), jnp.array([[0.9, 0.7], [1.1, 0.8]])
    return nvi.densities.StudentProducts(means, scales, jnp.array([0.3, -0.2]), freedom=12)


def low_rank():
    root = LowRankRoot(jnp.array([0.7, 1.3]), jnp.array([[0.6], [0.8]]), jnp.array([2.0]))
    return LowRankNormal(jnp.array([0.5, -1.0]), root)


def given():
    root = LowRankRoot(jnp.array([0.7]), jnp.array([[1.0]]), jnp.array([2.0]))
    part = nvi.DiagonalNormal([0.5], [1.5])
    return NormalGiven(part, [1], LowRankNormal(jnp.array([-0.3]), root), jnp.array([[0.8]]))


def autoregressive():
    start = AutoregressiveMixture(jnp.zeros((4, 2)), key=jax.random.key(2), components=3, hidden=4)
    return waved(start)


def waved(density):
    """The same numbers in either precision, where random ones would differ."""
    return jax.tree.map(
        lambda x: 0.5 * jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), density
    )


def rotated_ring():
    return nvi.densities.Pullback(
        nvi.targets.ring(),
        nvi.densities.AffineMap(jnp.zeros(2), jnp.array([[0.6, 0.8], [-0.8, 0.6]])),
    )


# name: (constructor, dimension)
DENSITIES = {
    "function": (lambda: nvi.Density(lambda z: -jnp.sum(jnp.cosh(z))), 3),
    "diagonal-normal": (lambda: nvi.DiagonalNormal([0.5, -1.0], [0.7, 2.0]), 2),
    "diagonal-normal-1d": (lambda: nvi.DiagonalNormal(0.3, 1.5), 1),
    "mixture": (mixture, 2),
    "scaled": (lambda: nvi.densities.Scaled(mixture(), -1.7), 2),
    "numpyro-event": (
        lambda: nvi.densities.Numpyro(
            dist.MultivariateNormal(jnp.ones(2), jnp.array([[1.0, 0.6], [0.6, 2.0]]))
        ),
        2,
    ),
    "numpyro-batch": (
        lambda: nvi.densities.Numpyro(dist.Logistic(jnp.array([0.3, -0.4]), jnp.array([0.5, 0.6]))),
        2,
    ),
    "ring": (nvi.targets.ring, 2),
    "funnel": (nvi.targets.Funnel, 10),
    "many-well": (nvi.targets.ManyWell, 32),
    "two-moons": (nvi.targets.TwoMoons, 2),
    "rings": (nvi.targets.Rings, 2),
    "correlated-mixture": (correlated, 2),
    "affine": (
        lambda: Affine(mixture(), jnp.array([0.5, -1.0]), jnp.array([[0.7, 0.4], [-0.5, 1.1]])),
        2,
    ),
    "unlike-mixture": (lambda: Mixture((mixture(), correlated()), jnp.array([0.2, 0.9])), 2),
    "student": (student, 2),
    "student-products": (student_products, 2),
    "low-rank": (low_rank, 2),
    "normal-given": (given, 2),
    "scale-mixture": (lambda: ScaleMixture(2, (0.7, 2.0)), 2),
    "autoregressive": (autoregressive, 2),
    "planar": (planar, 2),
    "brownian": (Brownian, 32),
    "logistic-regression": (logistic, 3),
    "rotated": (rotated_ring, 2),
}
# Densities that have no place above, and why: their particles are no vectors of ℝⁿ, they are zero
# in places, or the classes are made from a user's.
ELSEWHERE = {"SymmetricDirichlet", "Empirical", "NumpyroModel", "Folded"}
PLANAR = ["diagonal-normal", "mixture", "scaled", "numpyro-event", "numpyro-batch", "ring"]
COMPOUND = ["correlated-mixture", "affine", "unlike-mixture", "scale-mixture", "planar"]
NUM_DRAWS = 20_000


def points(dim, num=16):
    return jnp.asarray(np.random.default_rng(5).normal(size=(num, dim)))


def both(density, z):
    """log γ and its gradient for a batch, in one program."""
    return jax.jit(jax.vmap(jax.value_and_grad(density.log_gamma)))(z)


@pytest.mark.parametrize("name", DENSITIES)
def test_scalar_finite_and_in_the_precision_of_its_input(name):
    build, dim = DENSITIES[name]
    values = {}
    for enabled, dtype in ((False, jnp.float32), (True, jnp.float64)):
        with jax.enable_x64(enabled):
            density, z = build(), points(dim)
            one = eqx.filter_jit(density.log_gamma)(z[0])
            log_gamma, gradient = both(density, z)
            assert one.shape == () and log_gamma.shape == (16,) and gradient.shape == z.shape
            assert one.dtype == log_gamma.dtype == gradient.dtype == dtype
            assert jnp.isfinite(log_gamma).all() and jnp.isfinite(gradient).all()
            np.testing.assert_allclose(log_gamma[0], one, rtol=1e-4)
            values[dtype] = np.asarray(log_gamma)
    np.testing.assert_allclose(values[jnp.float32], values[jnp.float64], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DENSITIES)
def test_gradient_against_finite_differences(name, x64):
    build, dim = DENSITIES[name]
    density, z, h = build(), points(dim), 1e-5
    direction = jnp.asarray(np.random.default_rng(6).normal(size=dim))
    log_gamma = jax.jit(jax.vmap(density.log_gamma))
    slope = (log_gamma(z + h * direction) - log_gamma(z - h * direction)) / (2 * h)
    np.testing.assert_allclose(both(density, z)[1] @ direction, slope, rtol=1e-5, atol=1e-6)


def grid(half_width=16.0, num=501):
    """A square grid and the area of its cells; the trapezoid rule is exact to rounding for
    densities this smooth.
    """
    axis = jnp.linspace(-half_width, half_width, num)
    return jnp.stack(jnp.meshgrid(axis, axis), axis=-1).reshape(-1, 2), float(
        axis[1] - axis[0]
    ) ** 2


def features(z):
    return jnp.concatenate([z, z**2, jnp.cos(z), jnp.tanh(4 * z[:1]), z[:1] * z[1:]])


@pytest.mark.parametrize("name", [*PLANAR, *COMPOUND])
def test_normalised_and_sampled_faithfully(name, key, x64):
    """∫ exp(log γ − log Z) = 1, and moments of draws agree with quadrature within five standard
    errors.
    """
    density = DENSITIES[name][0]()
    nodes, area = grid()
    p = area * jnp.exp(jax.jit(jax.vmap(density.log_gamma))(nodes) - density.log_Z)
    np.testing.assert_allclose(jnp.sum(p), 1.0, atol=1e-9)
    expected = p @ jax.vmap(features)(nodes)
    draws = jax.vmap(features)(jax.jit(jax.vmap(density.sample))(jax.random.split(key, NUM_DRAWS)))
    stderr = jnp.std(draws, axis=0) / math.sqrt(NUM_DRAWS)
    assert (jnp.abs(jnp.mean(draws, axis=0) - expected) < 5 * stderr).all()


@pytest.mark.parametrize("name", [*PLANAR, *COMPOUND])
def test_still_normalised_after_training(name, x64):
    """Every number that an optimiser may move is moved: a base that is learned must not change log
    Z.
    """
    arrays, static = eqx.partition(DENSITIES[name][0](), eqx.is_inexact_array)
    moved = jax.tree.map(
        lambda x: x + 0.15 * jnp.cos(1 + jnp.arange(x.size)).reshape(x.shape), arrays
    )
    density = eqx.combine(moved, static)
    nodes, area = grid()
    mass = area * jnp.sum(jnp.exp(jax.jit(jax.vmap(density.log_gamma))(nodes) - density.log_Z))
    np.testing.assert_allclose(mass, 1.0, atol=1e-9)


@pytest.mark.parametrize("name", [*DENSITIES])
def test_densities_of_many_particles_are_those_of_each(name, x64):
    """On the host or compiled, also where the particles do not fill a piece."""
    build, dim = DENSITIES[name]
    density = build()
    if isinstance(density, nvi.AbstractSampleable):
        z = np.asarray(points(dim, 3))
        expected = jax.vmap(density.log_gamma)(z) - density.log_Z
        np.testing.assert_allclose(density.log_prob_many(z), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "name",
    ["scale-mixture", "unlike-mixture", "student", "affine", "correlated-mixture", "low-rank"],
)
def test_many_draws_at_once_are_of_the_density(name, key, x64):
    """Those that are drawn on the host: bounded moments by quadrature, within five standard
    errors.
    """
    density, (nodes, area) = DENSITIES[name][0](), grid()
    p = area * jnp.exp(jax.jit(jax.vmap(density.log_gamma))(nodes) - density.log_Z)

    def bounded(z):
        return jnp.concatenate([jnp.cos(z), jnp.tanh(z), jnp.sin(z[:1] * z[1:])])

    draws = jax.vmap(bounded)(density.sample_many(key, NUM_DRAWS))
    stderr = jnp.std(draws, axis=0) / math.sqrt(NUM_DRAWS)
    expected = p @ jax.vmap(bounded)(nodes) / jnp.sum(p)
    assert draws.shape[0] == NUM_DRAWS and jnp.sum(p) > 0.999
    assert (jnp.abs(jnp.mean(draws, axis=0) - expected) < 5 * stderr).all()


@pytest.mark.parametrize("name", [*DENSITIES])
def test_precomputing_changes_nothing(name, key, x64):
    build, dim = DENSITIES[name]
    density = build()
    quick, z = density.precomputed(), points(dim)
    np.testing.assert_allclose(
        jax.vmap(quick.log_gamma)(z), jax.vmap(density.log_gamma)(z), rtol=1e-12
    )
    if isinstance(density, nvi.AbstractSampleable):
        np.testing.assert_array_equal(quick.sample(key), density.sample(key))
        assert quick.log_Z == density.log_Z


def test_every_density_is_here():
    def concrete(kind):
        for sub in kind.__subclasses__():
            if sub.__module__.startswith("nestedvi.densities") and not sub.__name__.startswith(
                "Abstract"
            ):
                yield sub.__name__
            yield from concrete(sub)

    seen = {type(build()).__name__ for build, _ in DENSITIES.values()}
    assert set(concrete(nvi.AbstractDensity)) - seen == ELSEWHERE


def test_funnel_draws(key, x64):
    """x_0 is N(0, 9); scaled by exp(−x_0/2) the others are standard normal whatever x_0."""
    z = jax.jit(jax.vmap(nvi.targets.Funnel().sample))(jax.random.split(key, NUM_DRAWS))
    noise = jnp.concatenate([z[:, :1] / 3, z[:, 1:] * jnp.exp(-z[:, :1] / 2)], axis=1)
    tolerance = 5 / math.sqrt(NUM_DRAWS)
    covariance = noise.T @ noise / NUM_DRAWS
    assert (jnp.abs(jnp.mean(noise, axis=0)) < tolerance).all()
    assert (
        jnp.abs(covariance - jnp.eye(10)) < tolerance * (1 + (math.sqrt(2) - 1) * jnp.eye(10))
    ).all()


@pytest.mark.parametrize("name", [*PLANAR, "diagonal-normal-1d", "funnel"])
@pytest.mark.parametrize("enabled", [False, True])
def test_draws_keep_the_precision(name, enabled, key):
    with jax.enable_x64(enabled):
        density = DENSITIES[name][0]()
        z = density.sample(key)
        assert z.shape == (DENSITIES[name][1],)
        assert z.dtype == density.log_Z.dtype == (jnp.float64 if enabled else jnp.float32)


@pytest.mark.parametrize("name", ["diagonal-normal", "mixture", "scaled", *COMPOUND])
def test_parameters_of_a_density_are_differentiable(name, x64):
    """θ and the first term of the objective learn through log γ: against a finite difference along
    all parameters at once.
    """
    arrays, static = eqx.partition(DENSITIES[name][0](), eqx.is_inexact_array)
    z = jnp.array([0.3, -0.2])

    def value(t):
        moved = jax.tree.map(lambda x: x + t * jnp.cos(jnp.arange(x.size)).reshape(x.shape), arrays)
        return eqx.combine(moved, static).log_gamma(z)

    np.testing.assert_allclose(jax.grad(value)(0.0), (value(1e-5) - value(-1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize(
    ("density", "expected"),
    [
        (lambda: mixture(), False),
        (lambda: nvi.densities.Scaled(mixture(), 1.0), False),
        (lambda: nvi.densities.Scaled(nvi.DiagonalNormal(0.0, 1.0), 1.0), True),
        (lambda: nvi.densities.Numpyro(dist.Poisson(2.0)), False),
        (lambda: nvi.densities.Numpyro(dist.Normal(0.0, 1.0)), True),
    ],
)
def test_what_is_said_about_draws(density, expected):
    assert density().reparameterised is expected
