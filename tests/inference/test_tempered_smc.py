"""`method="smc"`: log Z where it is known, and what it says when it should not be trusted."""

import jax
import jax.numpy as jnp
import pytest

from nestedvi.densities.base import Density
from nestedvi.inference.answer import Request
from nestedvi.inference.tempered_smc import answer_smc
from nestedvi.targets import get_target
from tests.helpers.three_modes import LOG_Z, three_modes

pytestmark = pytest.mark.slow


def test_smc_finds_log_Z_without_learning():
    answer = answer_smc(jax.random.key(1), Request(Density(three_modes), 2))
    assert abs(answer.log_Z - LOG_Z) < 5 * answer.log_Z_stderr
    assert answer.cost.learning == 0 and answer.cost.sampling > 0 and answer.diagnosis == ()


def test_smc_says_when_batches_are_too_small_to_be_tuned_from():
    answer = answer_smc(
        jax.random.key(1),
        Request(Density(lambda z: -0.5 * jnp.sum((z - 1) ** 2)), 30, num_particles=40),
    )
    assert any("too few for 30 dimensions" in sentence for sentence in answer.diagnosis)


def test_smc_says_when_it_may_have_missed_a_funnels_neck():
    """All batches miss some of it and agree: their standard error does not see that, particles that
    hardly move do.
    """
    funnel = get_target("funnel")
    answer = answer_smc(jax.random.key(3), Request(funnel.build(), funnel.dim))
    assert any("hardly move" in sentence for sentence in answer.diagnosis)
    assert -0.4 < answer.log_Z - funnel.log_Z < 0.1
