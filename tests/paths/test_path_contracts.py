"""Paths on one space: γ_k through `stats` is γ_k evaluated directly, θ has a leading axis K, masks
select just the parameters.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.small_paths import annealing, log_normal, normals, stacked, theta

BETAS = [0.0, 0.2, 0.7, 1.0]


def annealed(k, z):
    return (1 - BETAS[k]) * log_normal(z, 0.0, 3.0) - BETAS[k] * 0.1 * float(
        np.sum(np.asarray(z) ** 4)
    )


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
