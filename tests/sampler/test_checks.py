"""Errors that name the level, and the warning about supports."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.sampler.checks import check_run, support_warnings
from nestedvi.sampler.run import run
from tests.helpers.gaussian_samplers import annealed, gaussian_pair


class Spoilt(nvi.AbstractDensity):
    """A normal that returns `value` for large z at one level."""

    at: jax.Array
    value: float = eqx.field(static=True)

    def log_gamma(self, z):
        return jnp.where(z[0] > self.at, self.value, -0.5 * z[0] ** 2)


def spoilt_sampler(value, at):
    path = nvi.paths.StackedDensities(Spoilt(jnp.asarray(at, jnp.result_type(float)), value))
    kernels = nvi.Stacked(nvi.stack(jax.random.key(3), gaussian_pair, len(at) - 1))
    return nvi.NestedSampler(nvi.DiagonalNormal(0.0, 1.0), path, kernels)


def test_nan_is_reported_with_its_level(key):
    result = run(key, spoilt_sampler(jnp.nan, [99.0, 99.0, 0.0, 99.0]), 20, history=True)
    count = int(np.isnan(result.history.log_w[2]).sum())
    assert 0 < count < 20
    with pytest.raises(nvi.errors.DensityError, match=f"Level 3: .*NaN for {count} of 20"):
        check_run(result.info, 20)


def test_vanished_weights_are_reported_with_their_level(key):
    result = run(key, spoilt_sampler(-jnp.inf, [99.0, -99.0, 99.0]), 20)
    with pytest.raises(nvi.errors.DensityError, match="Level 2: all 20 weights are zero"):
        check_run(result.info, 20)


def test_a_sound_run_passes_alone_and_in_a_batch(key):
    sampler = spoilt_sampler(-jnp.inf, [99.0, 1.5, 99.0])
    check_run(run(key, sampler, 20).info, 20)
    batch = jax.vmap(lambda k: run(k, sampler, 20))(jax.random.split(key, 3))
    check_run(batch.info, 20)
    spoilt = batch.info._replace(num_nan=batch.info.num_nan.at[1, 2].set(4))
    with pytest.raises(nvi.errors.DensityError, match=r"Level 3: .* 4 of 20"):
        check_run(spoilt, 20)


def test_an_infinite_density_is_named(key):
    """+inf is a mistake, not mass."""
    spike = nvi.Density(lambda z: jnp.where(z[0] > 0, jnp.inf, 0.0))
    base = nvi.DiagonalNormal(jnp.zeros(1), 1.0)
    kernel = nvi.ResidualGaussian(1, key=key)
    sampler = nvi.NestedSampler(
        base, nvi.paths.DensitySequence([base, spike]), [nvi.Transition(kernel, kernel)]
    )
    with pytest.raises(nvi.errors.DensityError, match="Level 2: a weight is infinite"):
        check_run(nvi.run(key, sampler, 20).info, 20)


def test_a_density_with_bounded_support_is_warned_about(key):
    """A Gaussian reverse kernel reaches outside the support of γ_2; an MCMC move does not."""
    base = nvi.DiagonalNormal(jnp.zeros(1), 1.0)
    bounded = nvi.Density(lambda z: jnp.where(jnp.abs(z[0]) < 0.5, 0.0, -jnp.inf))
    path = nvi.Annealing(base, bounded, nvi.LinearSchedule(3))
    learned = nvi.NestedSampler(base, path, nvi.Shared(gaussian_pair(key), 2))
    mcmc = nvi.NestedSampler(base, path, nvi.Shared(nvi.RandomWalk(jnp.ones(1)), 2))
    one, other = (run(key, sampler, 50).info for sampler in (learned, mcmc))
    (warning,) = support_warnings(learned, one)
    assert warning.startswith("The density of level 2 is zero for some particles.")
    assert support_warnings(mcmc, other) == ()
    assert support_warnings(annealed(), run(key, annealed(), 50).info) == ()
