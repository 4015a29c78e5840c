"""Paths on one space: γ_k through `stats` is γ_k evaluated directly, θ has a leading axis K, masks
select just the parameters.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi

BETAS = [0.0, 0.2, 0.7, 1.0]


def log_normal(z, loc, scale):
    """log N(z; loc, scale² I) by hand."""
    z = np.asarray(z, dtype=float)
    return float(
        np.sum(-0.5 * ((z - loc) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi))
    )


def quartic(z):
    return -0.1 * jnp.sum(z**4)


def annealing(schedule):
    return nvi.Annealing(nvi.DiagonalNormal(jnp.zeros(2), 3.0), quartic, schedule)


def annealed(k, z):
    return (1 - BETAS[k]) * log_normal(z, 0.0, 3.0) - BETAS[k] * 0.1 * float(
        np.sum(np.asarray(z) ** 4)
    )


def normals():
    return [nvi.DiagonalNormal(jnp.full(2, float(k)), 1.0 + k) for k in range(4)]


def stacked(**options):
    make = eqx.filter_vmap(lambda k: nvi.DiagonalNormal(jnp.full(2, k), 1.0 + k))
    return nvi.paths.StackedDensities(make(jnp.arange(4.0)), **options)


# name: (constructor, log γ_k by hand with k counted from 0, names of the leaves that are
# parameters)
PATHS = {
    "annealing-given": (lambda: annealing(nvi.GivenSchedule(BETAS)), annealed, set()),
    "annealing-learned": (
        lambda: annealing(nvi.LearnedSchedule(4, init=BETAS)),
        annealed,
        {".schedule.logits"},
    ),
    "sequential": (
        lambda: nvi.paths.DensitySequence(normals(), learn=[False, True, True, False]),
        lambda k, z: log_normal(z, k, 1.0 + k),
        {f".densities[{k}].{name}" for k in (1, 2) for name in ("loc", "log_scale")},
    ),
    "stacked": (
        stacked,
        lambda k, z: log_normal(z, k, 1.0 + k),
        {".inner.loc", ".inner.log_scale"},
    ),
    "stacked-fixed": (lambda: stacked(learn=False), lambda k, z: log_normal(z, k, 1.0 + k), set()),
}


def theta(path, k):
    thetas = path.thetas()
    return thetas[k] if type(thetas) is tuple else jax.tree.map(lambda x: x[k], thetas)


@pytest.mark.parametrize("name", PATHS)
def test_log_gamma_against_direct_evaluation(name, x64):
    """Both roles of γ_k, target of level k and previous density of level k+1, give the density
    written down by hand.
    """
    build, by_hand, _ = PATHS[name]
    path = build()
    z, z_prev = jnp.array([0.4, -1.3]), jnp.array([2.0, 0.1])
    stats, stats_prev = path.stats(z), path.stats(z_prev)
    assert path.num_levels == 4
    for k in range(4):
        np.testing.assert_allclose(
            path.log_gamma(theta(path, k), stats, stats_prev), by_hand(k, z), rtol=1e-12
        )
        np.testing.assert_allclose(
            path.log_gamma_prev(theta(path, k), stats_prev), by_hand(k, z_prev), rtol=1e-12
        )
        np.testing.assert_allclose(
            path.log_density(theta(path, k), stats), by_hand(k, z), rtol=1e-12
        )


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("enabled", [False, True])
def test_jit_vmap_and_precision(name, enabled):
    with jax.enable_x64(enabled):
        build, by_hand, _ = PATHS[name]
        path = build()
        zs = jnp.asarray(np.random.default_rng(1).normal(size=(5, 2)))
        log_gamma = jax.jit(jax.vmap(lambda z: path.log_density(theta(path, 1), path.stats(z))))(zs)
        assert log_gamma.shape == (5,) and log_gamma.dtype == zs.dtype == (
            jnp.float64 if enabled else jnp.float32
        )
        np.testing.assert_allclose(
            log_gamma, [by_hand(1, z) for z in zs], rtol=1e-12 if enabled else 1e-4
        )


@pytest.mark.parametrize("name", PATHS)
def test_thetas_have_one_entry_a_level(name):
    path = PATHS[name][0]()
    thetas = path.thetas()
    sizes = (
        {len(thetas)} if type(thetas) is tuple else {x.shape[0] for x in jax.tree.leaves(thetas)}
    )
    assert sizes == {4}


@pytest.mark.parametrize("name", PATHS)
def test_trainable_selects_the_parameters_and_nothing_else(name):
    build, _, expected = PATHS[name]
    path = build()
    mask = path.trainable()
    assert jax.tree.structure(mask) == jax.tree.structure(path)
    chosen = {
        jax.tree_util.keystr(at) for at, on in jax.tree_util.tree_leaves_with_path(mask) if on
    }
    assert chosen == expected
    # The mask must serve to partition, which is what training does with it.
    assert len(jax.tree.leaves(eqx.filter(path, mask))) == len(expected)


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


def test_sequential_levels_may_live_on_different_spaces(x64):
    path = nvi.paths.DensitySequence([lambda z: -jnp.sum(z), lambda z: -2 * jnp.sum(z)])
    assert float(path.log_gamma(theta(path, 0), path.stats(jnp.ones(2)), None)) == -2.0
    assert (
        float(path.log_gamma(theta(path, 1), path.stats(jnp.ones(3)), path.stats(jnp.ones(2))))
        == -6.0
    )


def test_sequential_checks_its_arguments():
    with pytest.raises(ValueError, match="2 expected, got 3"):
        nvi.paths.DensitySequence(normals()[:2], learn=[True, True, False])
    with pytest.raises(ValueError, match="at least 2 levels"):
        nvi.paths.DensitySequence(normals()[:1])
    with pytest.raises(TypeError, match="got str"):
        nvi.paths.DensitySequence(["ring", "ring"])


def test_stacked_densities_must_agree_on_K():
    """Means of three levels with scales of two are a mistake in stacking."""
    broken = eqx.tree_at(
        lambda d: d.log_scale, nvi.DiagonalNormal(jnp.zeros(2), 1.0), jnp.zeros((3, 2))
    )
    with pytest.raises(ValueError, match=r"sizes 2, 3"):
        nvi.paths.StackedDensities(broken)
    with pytest.raises(ValueError, match="no arrays"):
        nvi.paths.StackedDensities(nvi.Density(lambda z: -jnp.sum(z)))
    with pytest.raises(ValueError, match="sizes none"):
        nvi.paths.StackedDensities(nvi.densities.Scaled(nvi.densities.Numpyro(dist.Normal()), 1.0))


@pytest.mark.parametrize(
    "path", [lambda: nvi.paths.DensitySequence(normals()), stacked], ids=["sequential", "stacked"]
)
def test_the_target_is_not_learned_unless_it_is_asked_for(path):
    """Three of four densities have parameters by default: the last one is what is to be found."""
    path = path()
    learned = eqx.filter(path, path.trainable())
    means = [leaf for leaf in jax.tree.leaves(learned) if leaf is not None]
    assert sum(leaf.size for leaf in means) == 3 * 4
    thetas = eqx.combine(jax.tree.map(lambda x: x + 1, learned), path)
    assert float(
        thetas.log_gamma(theta(thetas, 3), thetas.stats(jnp.ones(2)), None)
    ) == pytest.approx(float(path.log_gamma(theta(path, 3), path.stats(jnp.ones(2)), None)))


def test_a_sequence_learns_its_target_when_told_to():
    assert all(
        jax.tree.leaves(
            nvi.paths.DensitySequence(normals(), learn=[True] * 4).trainable().densities
        )
    )
