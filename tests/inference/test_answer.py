"""What is asked of a way of answering, and what an answer says of how it came about."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.inference.answer import (
    Answer,
    Request,
    Trace,
    first_order,
    missed_modes,
    trace_tempering,
    weight_curve,
)
from nestedvi.particles.weights import ess
from nestedvi.smc.population import HamiltonianMove
from nestedvi.smc.tempering import Plan, tempering


def test_an_option_without_effect_is_refused_only_if_it_was_given():
    density = nvi.Density(lambda z: -jnp.sum(z**2))
    Request(density, 2, method="smc").refuse("num_steps", "it learns nothing.")
    given = Request(density, 2, method="smc", num_steps=4)
    with pytest.raises(ValueError, match=r"'smc' takes no num_steps: it learns nothing\. Leave it"):
        given.refuse("num_steps", "it learns nothing.")


def test_an_answer_is_one_batch_of_weighted_particles_unless_it_says_otherwise():
    answer = Answer(jnp.zeros((3, 2)), jnp.zeros(3), 1.0, 0.1)
    assert (answer.num_batches, answer.weighted, answer.diagnosis) == (1, True, ())
    assert answer.num_ancestors is None and answer.cost is None


def test_weights_by_share_of_draws():
    """Half of the draws have all the weight; the curve is straight up to there, then flat."""
    curve = weight_curve(np.log(np.r_[np.ones(50), np.full(50, 1e-300)]))
    np.testing.assert_allclose(curve, np.minimum(np.linspace(0, 2, 101), 1.0), atol=1e-12)
    np.testing.assert_allclose(weight_curve(np.zeros(7)), np.linspace(0, 1, 101), atol=1e-12)


def test_importance_sampling_has_no_levels():
    content = Trace(np.array([1.0]), np.array([5]), (), np.linspace(0, 1, 101)).to_dict()
    assert content["levels"] == [] and len(content["weight_share"]) == 101


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


@pytest.mark.parametrize(("share", "warned"), [(0.5, True), (0.9, False)])
def test_particles_that_account_for_less_than_the_modes(share, warned):
    answer = Answer(np.zeros((10, 2)), np.zeros(10), float(np.log(share)), 0.01)
    assert bool(missed_modes(0.0, answer)) == warned


def test_a_transition_is_a_sentence():
    """With temperature, share and gap of the two groups; none where there is one group."""
    base, target = nvi.DiagonalNormal(jnp.zeros(1), 2.0), nvi.Density(lambda z: -0.5 * z[0] ** 2)
    plan, move = Plan(0.01, 1), HamiltonianMove(1)
    run = tempering(jax.random.key(0), base, target, plan, num_particles=100, move=move)
    assert first_order(run) == ()
    two = np.where(np.arange(100) < 30, 12.0, 0.0) + np.random.default_rng(0).normal(size=100)
    (sentence,) = first_order(run._replace(log_ratios=np.stack([two, two])))
    assert "first-order transition: at β = 1 " in sentence and " of 30 % of" in sentence
    assert sentence.endswith(".")
