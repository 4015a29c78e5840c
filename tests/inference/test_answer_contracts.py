"""What every way of answering promises: weighted particles in the coordinates of the request, and a
log Z with an honest standard error.

Whatever stands in `ANSWERS` is checked.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.inference.answer import Request
from nestedvi.inference.sample import ANSWERS
from tests.helpers.three_modes import LOG_Z, MODES, SHARES, three_modes

NUM = 1000


def check_answer(answer):
    """Shapes, log Z, weights that agree with it, and the shares of three modes."""
    assert answer.z.shape == (NUM, 2) and answer.log_w.shape == (NUM,)
    assert bool(jnp.all(jnp.isfinite(answer.z))) and not bool(jnp.any(jnp.isnan(answer.log_w)))
    assert 0 < answer.log_Z_stderr < 0.5
    assert abs(answer.log_Z - LOG_Z) < 5 * answer.log_Z_stderr
    # Weights are those of log Z, so that what a user computes from them is on the same scale.
    np.testing.assert_allclose(nvi.log_Z_hat(answer.log_w), answer.log_Z, atol=1e-3)
    assert answer.num_batches > 1 and answer.num_batches <= NUM
    assert all(sentence.endswith(".") for sentence in answer.diagnosis)
    weights = np.asarray(nvi.particles.normalise(answer.log_w))
    nearest = np.argmin(np.linalg.norm(np.asarray(answer.z)[:, None] - MODES, axis=2), axis=1)
    shares = np.bincount(nearest, weights, minlength=3)
    worth = min(float(nvi.ess(answer.log_w)), answer.num_ancestors or NUM)
    assert np.all(np.abs(shares - np.asarray(SHARES)) < 5 * np.sqrt(0.25 / worth))


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_log_Z_and_every_mode(name):
    check_answer(ANSWERS[name](jax.random.key(1), Request(Density(three_modes), 2, NUM)))


@pytest.mark.parametrize("name", ANSWERS)
def test_options_without_effect_are_refused(name):
    """None of them trains for a number of steps."""
    with pytest.raises(ValueError, match=r"takes no num_steps.*Leave it out"):
        ANSWERS[name](jax.random.key(1), Request(Density(three_modes), 2, NUM, name, num_steps=5))
