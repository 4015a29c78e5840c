"""Evaluation over instances: each is its own run, whoever runs beside it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.amortised_program import Program, log_evidence, start

XS = np.array([0.3, -1.2, np.nan, 2.0, 0.0], np.float32)
PARTICLES = 16


def test_every_instance_is_a_run_of_its_own():
    """log Ẑ, ESS and distinct first ancestors are those of `nvi.run` with the instance's key, and a
    NaN stays where it is.
    """
    found = nvi.evaluate_instances(
        jax.random.key(4), start(), XS, num_particles=PARTICLES, at_once=2
    )
    one = jax.jit(lambda key, x: nvi.run(key, start()(x), PARTICLES))
    counts = []
    for i, (key, x) in enumerate(
        zip(jax.random.split(jax.random.key(4), len(XS)), XS, strict=True)
    ):
        alone = one(key, x)
        if np.isnan(x):
            assert np.isnan(found.log_Z_hat[i])
            continue
        np.testing.assert_allclose(found.log_Z_hat[i], alone.log_Z_hat, rtol=1e-5)
        np.testing.assert_allclose(found.ess[i], alone.ess, rtol=1e-4)
        at = np.arange(PARTICLES)
        for parents in np.asarray(alone.ancestors)[::-1]:
            at = parents[at]
        counts.append(len(set(at.tolist())))
        assert found.distinct[i] == counts[-1]
    assert min(counts) < PARTICLES and len(set(counts)) > 1
    assert found.num_particles == PARTICLES


def test_estimates_agree_with_the_evidence():
    """Unbiased for every instance: mean Ẑ/p(x) over repeats is one within four standard errors."""
    xs = np.repeat(np.array([0.3, -1.2], np.float32), 500)
    program = Program(jnp.array(0.4), jnp.array(0.0), jnp.array(-0.2))
    found = nvi.evaluate_instances(jax.random.key(5), program, xs, num_particles=PARTICLES)
    ratio = np.exp(found.log_Z_hat.astype(float) - [log_evidence(float(x)) for x in xs]).reshape(
        2, 500
    )
    error = ratio.std(axis=1, ddof=1) / np.sqrt(500)
    assert (error < 0.1).all()
    np.testing.assert_array_less(np.abs(ratio.mean(axis=1) - 1), 4 * error)


@pytest.mark.parametrize(("num", "particles"), [(0, 4), (2, 0)])
def test_nothing_to_run_is_an_error(num, particles):
    with pytest.raises(ValueError, match=r"(num_particles|instances) is 1 or more; got 0"):
        nvi.evaluate_instances(jax.random.key(0), start(), jnp.zeros(num), num_particles=particles)
