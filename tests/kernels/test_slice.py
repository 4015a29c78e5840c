"""Slice steps along lines: what they leave invariant, how wide a bracket may be, and when they stay
where they are.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.kernels.slice import slice_noise_on_host, slice_steps

NUM, STEPS = 20_000, 4
ROOT = jnp.array([[1.0, 0.0], [0.4, 0.8]])


def move(log_gamma, z, width, seed=0, steps=STEPS, root=ROOT):
    noise = slice_noise_on_host(np.random.default_rng(seed), len(z), steps, z.shape[1], z.dtype)
    step = jax.jit(jax.vmap(lambda e, z: slice_steps(e, z, log_gamma, width, root)))
    return step(noise, jnp.asarray(z))


def half_gaussian(z):
    """A standard Gaussian where the first coordinate is positive; NaN elsewhere is no mass."""
    return jnp.where(z[0] > 0, -0.5 * jnp.sum(z**2), jnp.nan)


def half_gaussian_draws(seed):
    z = np.random.default_rng(seed).normal(size=(NUM, 2))
    return np.where([True, False], np.abs(z), z).astype(np.float32)


@pytest.mark.parametrize("width", [0.5, 4.0, 400.0])
def test_exact_draws_of_a_cut_off_density_stay_exact_draws(width):
    """Brackets that are short, of the density's width, and a hundred times as long. Moments within
    five standard errors.
    """
    z, tries = move(half_gaussian, half_gaussian_draws(1), width)
    z = np.asarray(z, np.float64)
    assert np.all(z[:, 0] > 0) and np.all(np.asarray(tries) >= STEPS)
    expected = [np.sqrt(2 / np.pi), 0.0, 1.0, 1.0, 0.0]
    seen = np.stack([*z.T, *(z**2).T, (z[:, 0] - expected[0]) * z[:, 1]])
    error = seen.std(axis=1) / np.sqrt(NUM)
    assert np.all(np.abs(seen.mean(axis=1) - expected) < 5 * error)


def test_particles_forget_where_they_began():
    """From one point, thirty steps in two dimensions: the same moments."""
    z = np.full((4000, 2), 0.01, np.float32)
    for seed in range(3):
        z, _ = move(half_gaussian, np.asarray(z), 4.0, seed, steps=10)
    z = np.asarray(z, np.float64)
    assert abs(z[:, 0].mean() - np.sqrt(2 / np.pi)) < 5 * z[:, 0].std() / np.sqrt(4000)
    assert abs((z[:, 1] ** 2).mean() - 1) < 5 * np.sqrt(2 / 4000)


def test_wide_brackets_cost_a_logarithm():
    z = half_gaussian_draws(2)[:2000]
    tries = [float(np.mean(move(half_gaussian, z, width)[1])) / STEPS for width in (4.0, 4000.0)]
    assert tries[0] < 3 and 5 < tries[1] < 25


def test_a_particle_that_finds_nothing_stays():
    """Mass at one point alone, which no try hits again."""
    z = np.zeros((5, 2), np.float32)
    moved = move(lambda z: jnp.where(jnp.all(z == 0), 0.0, -jnp.inf), z, 1.0, steps=2)
    # The last brackets are so short that sums are rounded to where the particle is.
    np.testing.assert_allclose(moved.z, z, atol=1e-6)
    assert np.all(np.asarray(moved.tries) <= 2 * 40)


def test_a_particle_outside_of_the_support_comes_back_if_it_can():
    z = np.array([[-0.01, 0.0]], np.float32)
    moved = move(half_gaussian, z, 4.0, seed=3, steps=8)
    assert float(moved.z[0, 0]) > 0
