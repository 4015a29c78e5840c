"""`method="smc"`: log Z where it is known, and what it says when it should not be trusted."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.base import Density
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.fitting.modes import find_modes
from nestedvi.inference import search, tempered_smc
from nestedvi.inference.answer import Request
from nestedvi.inference.tempered_smc import (
    _base_has_the_tails,
    _steepness,
    _tail_index,
    answer_smc,
    trace_tempering,
)
from nestedvi.particles.weights import ess
from nestedvi.smc.tempering import Plan, tempering
from nestedvi.targets import get_target
from tests.helpers.spike import spike_in_slab
from tests.helpers.three_modes import LOG_Z, three_modes


@pytest.mark.slow
def test_smc_finds_log_Z_without_learning():
    answer = answer_smc(jax.random.key(1), Request(Density(three_modes), 2))
    assert abs(answer.log_Z - LOG_Z) < 5 * answer.log_Z_stderr
    assert answer.cost.learning == 0 and answer.cost.sampling > 0 and answer.diagnosis == ()


@pytest.mark.slow
def test_smc_says_when_batches_are_too_small_to_be_tuned_from():
    answer = answer_smc(
        jax.random.key(1),
        Request(Density(lambda z: -0.5 * jnp.sum((z - 1) ** 2)), 30, num_particles=40),
    )
    assert any("too few for 30 dimensions" in sentence for sentence in answer.diagnosis)


@pytest.mark.slow
def test_smc_says_when_it_may_have_missed_a_funnels_neck():
    """All batches miss some of it and agree: their standard error does not see that, particles that
    hardly move do.
    """
    funnel = get_target("funnel")
    answer = answer_smc(jax.random.key(3), Request(funnel.build(), funnel.dim))
    assert any("hardly move" in sentence for sentence in answer.diagnosis)
    assert -0.4 < answer.log_Z - funnel.log_Z < 0.1


@pytest.mark.slow
def test_smc_finds_a_narrow_mode_far_away():
    """Half of the mass is 36 of its own widths away: tempering alone passes it by."""
    dim = 5

    def log_gamma(z):
        narrow = -0.5 * jnp.sum((z - 8.0) ** 2) * 4 + dim * np.log(2.0)
        return jnp.logaddexp(-0.5 * jnp.sum(z**2), narrow) - 0.5 * dim * np.log(2 * np.pi)

    answer = answer_smc(jax.random.key(0), Request(Density(log_gamma), dim))
    assert abs(answer.log_Z - np.log(2.0)) < 4 * answer.log_Z_stderr < 0.04
    assert answer.diagnosis == ()


@pytest.mark.slow
def test_smc_looks_beyond_a_transition(monkeypatch):
    """Half of the mass in a spike that climbs are kept from: temperatures show a transition, and
    nested sampling and climbs from its particles find the spike.
    """
    missed = partial(find_modes, starts=np.zeros((1, 8)))
    monkeypatch.setattr(
        tempered_smc, "search_modes", lambda rng, target, dim, particles: missed(target)
    )
    monkeypatch.setattr(search, "past_transition", lambda key, base, target, run, **_: run)
    answer = answer_smc(jax.random.key(0), Request(spike_in_slab(8, sd=0.2, place=0.5), 8))
    assert "modes beyond" in answer.timings
    assert abs(answer.log_Z) < 4 * answer.log_Z_stderr < 0.05 and answer.diagnosis == ()


def test_slopes_of_a_gaussian_are_as_steep_as_a_gaussians():
    slope = np.random.default_rng(0).normal(size=(20_000, 10))
    np.testing.assert_allclose(_steepness(slope), [1.0, 1.0], atol=0.06)
    # In a funnel slopes go with the exponential of a Gaussian.
    scale = np.exp(np.random.default_rng(1).normal(size=(20_000, 1)))
    steep, flat = _steepness(scale * slope)
    assert steep > 3.5 and flat > 2.5


def test_a_base_of_heavier_tails_reaches_far_out():
    """Particles of t distributions beside a base with heavier, the same and lighter tails."""
    z = np.random.default_rng(0).standard_t(3, size=(2000, 10))

    def log_t(freedom):
        return stats.t(freedom).logpdf(z).sum(axis=1)

    assert _base_has_the_tails(z, log_t(3) - log_t(1))
    assert not _base_has_the_tails(z, log_t(3) - log_t(3))
    assert not _base_has_the_tails(z, log_t(3) - log_t(30))


def test_the_tail_index_is_that_of_the_distribution():
    rng = np.random.default_rng(0)
    assert abs(_tail_index(rng.standard_t(2, size=(20_000, 10))) - 0.5) < 0.1
    assert _tail_index(rng.normal(size=(2000, 10))) < 0.05


def test_adaptive_runs(key):
    """Each temperature but the last keeps the share that its plan asks for."""
    target = Density(lambda z: -0.5 * jnp.sum((z - 3.0) ** 2) / 0.01)
    plan = Plan(ess_share=0.6, moves=1)
    run = tempering(key, ScaleMixture(1), target, plan, num_particles=100)
    trace = trace_tempering(run)
    (level,) = trace.levels
    assert len(level.beta) == run.num_levels > 2 and level.beta[-1] == 1.0
    np.testing.assert_allclose(level.ess_share[:-1], 0.6, atol=0.02)
    last = (run.betas[-1] - run.betas[-2]) * run.log_ratios[-2]
    assert level.ess_share[-1] == pytest.approx(float(ess(last)) / 100)
    content = trace.to_dict()
    assert content["batches"] == {"log_Z": [run.log_Z_hat], "num_ancestors": [int(run.origins[0])]}
    assert len(content["weight_share"]) == 101
    assert len(content["levels"][0]["beta"]) == run.num_levels


@pytest.mark.parametrize(
    ("stuck", "steep", "warns"),
    [
        (0.016, 3.6, True),
        (0.014, 3.6, False),
        (0.016, 3.4, False),
        (0.006, 4.6, True),  # steeper, where few particles got
        (0.004, 4.6, False),
    ],
)
def test_the_steeper_the_fewer_particles_have_to_be_stuck(monkeypatch, stuck, steep, warns):
    monkeypatch.setattr(tempered_smc, "_steepness", lambda slope: (steep, 1.0))
    z = np.random.default_rng(0).normal(size=(2000, 2))
    run = SimpleNamespace(z=z, root=np.eye(2), stuck=stuck, base_share=0.0)
    target = Pullback(Density(lambda z: -0.5 * z @ z), AffineMap(jnp.zeros(2), jnp.ones(2)))
    said = tempered_smc._uneven(Request(target.density, 2), target, run)
    assert len(said) == warns and all("funnel" in sentence for sentence in said)
