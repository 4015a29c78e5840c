"""What is asked of a way of answering."""

import jax.numpy as jnp
import pytest

import nestedvi as nvi
from nestedvi.inference.answer import Answer, Request


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
