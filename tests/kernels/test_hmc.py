"""Hamiltonian moves leave their density alone, whatever the step size, and turn with the
coordinates.
"""

import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.kernels.hmc import draw_noise, hamiltonian_step, noise_on_host

COVARIANCE = np.array([[1.0, 0.8], [0.8, 2.0]])
ROOT = jnp.asarray(np.linalg.cholesky(COVARIANCE), jnp.float32)
INVERSE = jnp.asarray(np.linalg.inv(COVARIANCE), jnp.float32)


def log_gamma(z):
    return -0.5 * z @ INVERSE @ z


def moved(key, log_gamma, z, step_size, root, steps=5, times=3):
    def one(k, x):
        return hamiltonian_step(draw_noise(k, x), x, log_gamma, step_size, root, steps)

    for k in jax.random.split(key, times):
        found = jax.vmap(one)(jax.random.split(k, z.shape[0]), z)
        z = found.z
    return z, found


def test_exact_draws_stay_exact(key):
    """Mean and covariance of 20 000 exact draws after three moves, within five standard errors; a
    bad metric changes nothing.
    """
    num = 20_000
    z = jax.random.normal(key, (num, 2)) @ ROOT.T
    for step_size, root in ((0.4, ROOT), (0.9, jnp.eye(2))):
        after, found = jax.jit(lambda k, s=step_size, r=root: moved(k, log_gamma, z, s, r))(
            jax.random.key(1)
        )
        assert 0.3 < float(found.acceptance.mean()) < 1.0
        assert float(jnp.mean(jnp.any(after != z, axis=1))) > 0.8
        assert np.all(np.abs(after.mean(axis=0)) < 5 * np.sqrt(np.diag(COVARIANCE) / num))
        error = np.sqrt((COVARIANCE**2 + np.outer(np.diag(COVARIANCE), np.diag(COVARIANCE))) / num)
        assert np.all(np.abs(np.cov(after.T) - COVARIANCE) < 5 * error)


def test_a_wrong_acceptance_would_show(key):
    """The same test fails for a density that is not the one moved by: the check above can fail."""
    num = 20_000
    z = jax.random.normal(key, (num, 2)) @ ROOT.T
    after, _ = jax.jit(lambda k: moved(k, lambda z: 1.3 * log_gamma(z), z, 0.4, ROOT))(
        jax.random.key(1)
    )
    error = np.sqrt((COVARIANCE**2 + np.outer(np.diag(COVARIANCE), np.diag(COVARIANCE))) / num)
    assert np.any(np.abs(np.cov(after.T) - COVARIANCE) > 5 * error)


def test_particles_never_leave_the_support(key):
    """A half-line: log γ is −inf to the left of zero, and its gradient NaN; no draw ends there."""

    def half(z):
        return jnp.where(z[0] > 0, -z[0], -jnp.inf) + jnp.where(z[0] > 0, 0.0, jnp.nan) * 0

    z = jax.random.exponential(key, (5000, 1))
    after, _ = jax.jit(lambda k: moved(k, half, z, 0.5, jnp.eye(1)))(jax.random.key(2))
    assert float(after.min()) > 0 and abs(float(after.mean()) - 1) < 5 / np.sqrt(5000)


def test_as_a_transition_it_estimates_a_normaliser(key):
    """Annealing N(0, 4 I) to an unnormalised Gaussian of known volume, within five standard errors
    of independent batches.
    """
    sampler = nvi.NestedSampler(
        nvi.DiagonalNormal(jnp.zeros(2), 2.0),
        nvi.Annealing(nvi.DiagonalNormal(jnp.zeros(2), 2.0), log_gamma, nvi.LinearSchedule(4)),
        nvi.Shared(nvi.Hamiltonian(jnp.asarray(0.5), ROOT, 4), 3),
        nvi.Resampling("systematic", when=0.5),
    )
    runs = jax.jit(jax.vmap(lambda k: nvi.run(k, sampler, 500)))(jax.random.split(key, 20))
    log_Z, stderr = nvi.particles.log_Z_hat_stderr(runs.log_Z_hat)
    assert (
        abs(log_Z - np.log(2 * np.pi * np.sqrt(np.linalg.det(COVARIANCE)))) < 5 * stderr
        and stderr < 0.05
    )


def test_noise_on_the_host_is_of_the_same_distribution():
    """Moments of what both draw, within five standard errors of their difference."""
    num, dim = 40_000, 3
    host = noise_on_host(np.random.default_rng(0), num, dim, np.float32)
    keys = jax.random.split(jax.random.key(0), num)
    here = jax.jit(jax.vmap(lambda k: draw_noise(k, jnp.zeros(dim))))(keys)
    for mine, other in zip(host, here, strict=True):
        mine, other = (np.asarray(x, np.float64).reshape(num, -1) for x in (mine, other))
        for power in (1, 2):
            gap = (mine**power).mean(axis=0) - (other**power).mean(axis=0)
            error = np.sqrt(((mine**power).var(axis=0) + (other**power).var(axis=0)) / num)
            assert np.all(np.abs(gap) < 5 * error + 1e-12)
