"""`auto` on targets whose log Z is known."""

import jax
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.three_modes import LOG_Z, MODES, SHARES, three_modes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def posterior():
    return nvi.sample(jax.random.key(1), three_modes, dim=2, num_particles=1000)


def test_auto_finds_log_Z_and_every_mode(posterior):
    assert (
        abs(posterior.log_Z - LOG_Z) < 5 * posterior.log_Z_stderr and posterior.log_Z_stderr < 0.02
    )
    weights = np.exp(posterior.log_weights - jax.nn.logsumexp(posterior.log_weights))
    nearest = np.argmin(
        np.linalg.norm(np.asarray(posterior.samples)[:, None] - np.asarray(MODES), axis=2), axis=1
    )
    shares = np.bincount(nearest, weights, minlength=3)
    assert np.all(np.abs(shares - np.asarray(SHARES)) < 5 * np.sqrt(0.25 / posterior.ess))
    assert posterior.diagnosis == () and posterior.khat < 0.7 and posterior.ess > 800


def test_few_particles_still_leave_some_to_fit():
    """`sample` takes 20 particles: a seventh of them is held out, not all."""
    posterior = nvi.sample(jax.random.key(0), three_modes, dim=2, num_particles=20)
    assert abs(posterior.log_Z - LOG_Z) < 5 * max(posterior.log_Z_stderr, 0.1)
