"""The guarded update: averages, skipped gradients, and one compilation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from nestedvi.train.fit import Trainer
from tests.helpers.small_training import (
    OBJECTIVE,
    RARELY,
    WALLED,
    arrays,
    assert_same_bits,
    build,
    train,
    walled,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.mark.slow
def test_the_average_is_that_of_the_parameters_after_each_step():
    """Σ d^(n−i) p_i / Σ d^(n−i) over the n steps; the start has no weight in it."""
    decay, key = 0.8, jax.random.key(0)
    trainer = Trainer(
        build(jax.random.key(1)), OBJECTIVE, optax.adam(1e-1), "sequential", 8, None, decay
    )
    state, visited = trainer.start(key), []
    for step in range(5):
        state, _ = trainer.chunk(key, state, trainer.inputs, step, 1)
        visited.append(arrays(state.params))
    weights = decay ** np.arange(4, -1, -1.0)
    for got, *history in zip(arrays(trainer.learned(state)), *visited, strict=True):
        np.testing.assert_allclose(
            got, np.average(history, axis=0, weights=weights), rtol=1e-5, atol=1e-6
        )
    with pytest.raises(ValueError, match="between 0 and 1"):
        train(2, average=1.0)


@pytest.mark.parametrize("order", ["sequential", "level-parallel"])
def test_a_step_is_compiled_once(order):
    """Weakly typed parameters (`jnp.full(1, 0.7)`) must not turn into other types after the first
    update.
    """
    sampler = eqx.tree_at(
        lambda s: s.transitions.transition.forward.slope,
        build(jax.random.key(1)),
        jnp.full((2, 1), 0.7),
    )
    assert sampler.transitions.transition.forward.slope.weak_type
    trainer = Trainer(sampler, OBJECTIVE, optax.adam(1e-2), order, 8, None)
    key = jax.random.key(0)
    state = trainer.start(key)

    def types(tree):
        return [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(tree)]

    after, _ = jax.eval_shape(trainer.chunk, key, state, trainer.inputs, 0, 1)
    assert types(after) == types(state)


def test_a_spoilt_gradient_touches_neither_parameters_nor_optimiser():
    trainer = Trainer(
        walled(*RARELY), WALLED["objective"], optax.adam(1e-2), "sequential", 16, None
    )
    key = jax.random.key(0)
    state, seen = trainer.start(key), set()
    for step in range(30):
        new, info = trainer.chunk(key, state, trainer.inputs, step, 1)
        spoilt = bool(np.isnan(info.log_Z_hat[0]))
        seen.add(spoilt)
        if spoilt:
            assert_same_bits((new.params, new.opt_state), (state.params, state.opt_state))
        else:
            assert all(
                not np.array_equal(a, b)
                for a, b in zip(arrays(new.params), arrays(state.params), strict=True)
            )
            assert int(new.opt_state[0].count) == int(state.opt_state[0].count) + 1
        state = new
    assert seen == {True, False}
