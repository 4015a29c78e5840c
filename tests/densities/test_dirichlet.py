"""The symmetric Dirichlet: density against quadrature, draws against its moments, whichever way
they are made.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nestedvi as nvi
from nestedvi.densities.dirichlet import dirichlet_log_prob


@pytest.mark.usefixtures("x64")
def test_density_is_scipys():
    lam, concentration = np.array([0.1, 0.25, 0.65]), np.array([0.5, 2.0, 7.5])
    np.testing.assert_allclose(
        dirichlet_log_prob(jnp.asarray(lam), jnp.asarray(concentration)),
        stats.dirichlet.logpdf(lam, concentration),
    )
    density = nvi.densities.SymmetricDirichlet(0.7, 3)
    np.testing.assert_allclose(
        density.log_gamma(jnp.asarray(lam)), stats.dirichlet.logpdf(lam, np.full(3, 0.7))
    )
    assert density.log_Z == 0


@pytest.mark.parametrize("alpha", [0.5, 1.5, 0.3])
def test_draws_have_the_dirichlets_moments(key, alpha):
    """A multiple of one half is drawn from squared normals, anything else by rejection."""
    num, dim = 20_000, 4
    draws = np.asarray(
        jax.jit(jax.vmap(nvi.densities.SymmetricDirichlet(alpha, dim).sample))(
            jax.random.split(key, num)
        )
    )
    np.testing.assert_allclose(draws.sum(axis=1), 1.0, atol=1e-5)
    exact = stats.dirichlet(np.full(dim, alpha))
    for values, expected in ((draws, exact.mean()), (draws**2, exact.var() + exact.mean() ** 2)):
        assert (
            np.abs(values.mean(axis=0) - expected) < 5 * values.std(axis=0) / np.sqrt(num)
        ).all()


def test_a_proportion_of_nothing_stays_finite():
    assert np.isfinite(nvi.densities.SymmetricDirichlet(0.5, 2).log_gamma(jnp.array([0.0, 1.0])))


@pytest.mark.parametrize(("alpha", "dim"), [(0.0, 3), (0.5, 1)])
def test_impossible_parameters(alpha, dim):
    with pytest.raises(ValueError, match="α > 0"):
        nvi.densities.SymmetricDirichlet(alpha, dim)


def test_particles_of_another_shape():
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        nvi.densities.SymmetricDirichlet(0.5, 3).log_gamma(jnp.ones(4) / 4)
