"""Schedules rise from exactly 0 to exactly 1, and say what is wrong with one that does not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.properties import HealthCheck, given, hnp, settings, st

CHECKED = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SCHEDULES = {
    "linear": lambda: nvi.LinearSchedule(5),
    "given": lambda: nvi.GivenSchedule([0.0, 0.01, 0.1, 0.5, 1.0]),
    "learned": lambda: nvi.LearnedSchedule(5),
    "learned-init": lambda: nvi.LearnedSchedule(5, init=[0.0, 0.01, 0.1, 0.5, 1.0]),
}


@jax.jit
def betas_of(logits):
    """β and the gradient of Σ cos(k) β_k in the logits."""

    def total(logits):
        schedule = eqx.tree_at(lambda s: s.logits, nvi.LearnedSchedule(logits.shape[0] + 1), logits)
        betas = schedule.betas()
        return jnp.sum(jnp.cos(jnp.arange(betas.shape[0])) * betas), betas

    (_, betas), gradient = jax.value_and_grad(total, has_aux=True)(logits)
    return betas, gradient


def logits(bound):
    return hnp.arrays(np.float32, 7, elements=st.floats(-bound, bound, width=32))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("enabled", [False, True])
def test_every_schedule_rises_from_0_to_1(name, enabled):
    with jax.enable_x64(enabled):
        schedule = SCHEDULES[name]()
        betas = schedule.betas()
        assert schedule.num_levels == 5 and betas.shape == (5,)
        assert betas.dtype == (jnp.float64 if enabled else jnp.float32)
        assert float(betas[0]) == 0.0 and float(betas[-1]) == 1.0
        assert (jnp.diff(betas) > 0).all()


@CHECKED
@given(logits=logits(5.0))
def test_learned_schedules_rise_strictly(logits):
    betas, gradient = betas_of(jnp.asarray(logits))
    assert float(betas[0]) == 0.0 and float(betas[-1]) == 1.0
    assert (jnp.diff(betas) > 0).all()
    assert jnp.isfinite(gradient).all()


@CHECKED
@given(logits=logits(1e4))
def test_extreme_logits_stay_in_range(logits):
    """Where increments vanish by rounding, β may stand still, but it never falls, passes 1, or
    loses its gradient to NaN.
    """
    betas, gradient = betas_of(jnp.asarray(logits))
    assert (jnp.diff(betas) >= 0).all()
    assert float(betas.max()) == 1.0
    assert jnp.isfinite(gradient).all()


def test_rounding_never_carries_beta_past_one(key):
    """Many long schedules at once in float32: a sum of softmax entries often rounds to more than
    1.
    """
    many = (3 * jax.random.normal(key, (5000, 63))).at[:, -1].set(-40.0)
    assert float(jax.vmap(lambda row: betas_of(row)[0])(many).max()) == 1.0


def test_learned_betas_are_the_softmax_sums(x64):
    """β_k = Σ_{j<k} softmax(logits)_j, by plain arithmetic."""
    raw = np.array([0.3, -1.2, 2.0])
    share = np.exp(raw) / np.exp(raw).sum()
    betas, _ = betas_of(jnp.asarray(raw))
    np.testing.assert_allclose(betas, [0, share[0], share[0] + share[1], 1], rtol=1e-12, atol=1e-15)


@CHECKED
@given(share=hnp.arrays(np.float64, 6, elements=st.floats(1e-3, 1.0)))
def test_init_round_trip(share, x64):
    """A learned schedule starts exactly where it is told to."""
    start = np.concatenate([[0.0], np.cumsum(share)[:-1] / share.sum(), [1.0]])
    np.testing.assert_allclose(nvi.LearnedSchedule(7, init=start).betas(), start, rtol=1e-9)


def test_learned_starts_linear(x64):
    np.testing.assert_allclose(nvi.LearnedSchedule(9).betas(), np.arange(9) / 8, rtol=1e-12)


def test_two_levels_have_nothing_to_learn():
    schedule = nvi.LearnedSchedule(2)
    assert schedule.betas().tolist() == [0.0, 1.0]
    assert eqx.filter_grad(lambda s: jnp.sum(s.betas()))(schedule).logits.tolist() == [0.0]


def test_restarts_stack_in_front():
    """A stack of restarts puts its axis in front of the increments; K does not change."""
    stacked = jax.tree.map(lambda x: jnp.stack([x] * 3), nvi.LearnedSchedule(5))
    assert stacked.num_levels == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0, 0.6, 0.4, 1.0], r"rise strictly; got β_3 = 0.4 after β_2 = 0.6"),
        ([0.0, 0.5, 0.5, 1.0], "rise strictly"),
        ([0.0, float("nan"), 1.0], "rise strictly"),
        ([0.1, 0.5, 1.0], "start at 0 and end at 1; got 0.1"),
        ([0.0, 0.5, 0.9], "start at 0 and end at 1"),
        ([0.0], "at least 2 levels"),
        ([], "at least 2 levels"),
    ],
)
def test_given_schedules_are_checked(values, message):
    with pytest.raises(ValueError, match=message):
        nvi.GivenSchedule(values)


@pytest.mark.parametrize("make", [nvi.LinearSchedule, nvi.LearnedSchedule])
def test_one_level_is_no_path(make):
    with pytest.raises(ValueError, match=r"at least 2 levels.*K = 1"):
        make(1)


def test_an_init_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="K = 4 values; got 3"):
        nvi.LearnedSchedule(4, init=[0.0, 0.5, 1.0])
