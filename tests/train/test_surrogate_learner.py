"""A learner for any surrogate: it goes downhill, tells what is not finite, and averages and
restarts like every other.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nestedvi as nvi
from nestedvi.train.loop import LoopOptions, train
from nestedvi.train.surrogate_learner import SurrogateLearner


class Place(eqx.Module):
    """A point and a number, and something that is not learned."""

    x: jax.Array
    y: jax.Array
    steps: int = eqx.field(static=True, default=3)


class Report(NamedTuple):
    loss: jax.Array
    nothing: jax.Array


def loss(key, place, goal):
    value = jnp.sum((place.x - goal) ** 2) + place.y**2 + 0.0 * jax.random.normal(key)
    return value, Report(value, jnp.full((), jnp.nan))


def learner(surrogate=loss, **options):
    places = eqx.filter_vmap(lambda x: Place(x, x[0]))(jnp.array([[1.0, -2.0], [0.0, 5.0]]))
    return SurrogateLearner(
        places,
        surrogate,
        optimiser=optax.sgd(0.1),
        name="test",
        shared=jnp.array([3.0, 4.0]),
        restarts=2,
        **options,
    )


def test_it_goes_downhill_side_by_side(key):
    made = learner()
    done = train(key, made, LoopOptions(60))
    found = made.model(done.params)
    np.testing.assert_allclose(found.x, [[3.0, 4.0]] * 2, atol=1e-4)
    assert (
        found.steps == 3 and done.record.loss.shape == (60, 2) and done.record.loss[-1].max() < 1e-6
    )
    assert set(made.measures(done.record)) == {"loss"}, "what is NaN throughout is not shown"


def test_the_part_that_is_not_finite_is_named(key):
    """√y has an infinite slope at zero: the second part is skipped and counted, and in the end
    stops the training.
    """

    def broken(key, place, goal):
        return (
            jnp.sum(place.x) + jnp.sqrt(0.0 * place.y),
            Report(place.y, place.y),
        )

    done = train(key, learner(broken), LoopOptions(5))
    np.testing.assert_array_equal(done.skipped, [[0, 5], [0, 5]])
    with pytest.raises(nvi.errors.NonFiniteGradientError, match="part 2"):
        train(key, learner(broken), LoopOptions(50, max_nonfinite=10))


def test_a_checkpoint_of_another_surrogate_is_refused(key, tmp_path):
    train(key, learner(), LoopOptions(5, checkpoint=tmp_path))
    other = learner()
    other.name = "another"
    with pytest.raises(nvi.errors.CheckpointError):
        train(key, other, LoopOptions(5, checkpoint=tmp_path))
