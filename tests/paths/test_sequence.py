"""Sequences of densities: what may differ from level to level, and what is learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import nestedvi as nvi
from tests.helpers.small_paths import normals, stacked, theta


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
