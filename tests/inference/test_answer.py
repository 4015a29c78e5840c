"""What is asked of a way of answering, and what an answer says of how it came about."""

import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.inference.answer import Answer, Request, Trace, weight_curve


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
