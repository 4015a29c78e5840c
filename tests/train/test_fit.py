"""Training a sampler: what it learns, what it records, what it skips, and what it refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nestedvi as nvi
from tests.helpers.small_training import (
    OBJECTIVE,
    RARELY,
    WALLED,
    Kinked,
    arrays,
    assert_same_bits,
    build,
    stacked,
    train,
    walled,
)

pytestmark = pytest.mark.usefixtures("compiled_once")
ORDERS = ("sequential", "two-phase", "level-parallel")


@pytest.mark.parametrize("order", ORDERS)
def test_training_lowers_the_divergence(order):
    """The mean over 100 steps falls by more than five standard errors."""
    result = train(1000, order=order, num_particles=8)
    loss = result.record.level_divergence.sum(axis=1)
    first, last = loss[:100], loss[-100:]
    stderr = np.sqrt(first.var() / 100 + last.var() / 100)
    assert last.mean() < first.mean() - 5 * stderr
    assert result.num_steps == 1000 and not result.skipped.any()
    assert_record(result.record, 1000)


def assert_record(record, num_steps):
    """A row a step, of finite numbers within their bounds; the last level's ESS is the ESS."""
    assert [x.shape for x in record] == [(num_steps,), (num_steps,), (num_steps, 3), (num_steps, 3)]
    assert all(np.isfinite(x).all() for x in record)
    assert (record.ess >= 1 - 1e-5).all() and (record.ess <= 8 + 1e-5).all()
    np.testing.assert_allclose(record.ess, record.level_ess[:, -1], rtol=1e-5)


def test_one_step_is_the_optimiser_applied_to_the_gradient():
    """θ' = θ − lr · ∇, with the gradient of the step's own key."""
    sampler, rate = build(jax.random.key(1)), 0.1
    grads = eqx.filter_jit(nvi.train.orders.gradient)(
        jax.random.fold_in(jax.random.key(0), 1), sampler, OBJECTIVE, 8
    ).grads
    expected = eqx.apply_updates(sampler, jax.tree.map(lambda g: -rate * g, grads))
    result = train(1, optimiser=optax.sgd(rate))
    for got, want in zip(arrays(result.sampler), arrays(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert any(np.abs(g).max() > 0 for g in arrays(grads))


def test_optimisers_may_treat_groups_apart():
    """optax.multi_transform with labels shaped like the parameters: kernels move, the order does
    not.
    """

    def labels(params):
        marks = jax.tree.map(lambda _: "move", params)
        return eqx.tree_at(lambda s: s.path.schedule.logits, marks, "hold")

    start = build(jax.random.key(1))
    optimiser = optax.multi_transform(
        {"move": optax.sgd(0.1, momentum=0.9), "hold": optax.set_to_zero()}, labels
    )
    trained = train(3, optimiser=optimiser).sampler
    np.testing.assert_array_equal(trained.path.schedule.logits, start.path.schedule.logits)
    assert not np.array_equal(
        trained.transitions.transition.forward.shift, start.transitions.transition.forward.shift
    )


@pytest.mark.slow
def test_restarts_are_separate_trainings():
    """Restart i is the training of the i-th sampler with the i-th split key, to rounding."""
    both = train(10, sampler=stacked(2), restarts=2)
    assert both.record.log_Z_hat.shape == (10, 2) and both.record.level_ess.shape == (10, 2, 3)
    assert both.skipped.shape == (2, 3)
    keys = jax.random.split(jax.random.key(0), 2)
    for i in range(2):
        alone = nvi.fit(
            keys[i],
            jax.tree.map(lambda x, i=i: x[i], stacked(2)),
            OBJECTIVE,
            num_steps=10,
            num_particles=8,
            optimiser=optax.adam(1e-2),
        )
        ours = jax.tree.map(lambda x, i=i: x[i], both.sampler)
        for a, b in zip(arrays(ours), arrays(alone.sampler), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(
            both.record.log_Z_hat[:, i], alone.record.log_Z_hat, rtol=1e-3, atol=1e-4
        )


def test_the_callers_sampler_is_left_alone():
    sampler = build(jax.random.key(1))
    before = [x.copy() for x in arrays(sampler)]
    trained = train(5, sampler=sampler).sampler
    assert_same_bits(before, arrays(sampler))
    assert any(not np.array_equal(a, b) for a, b in zip(arrays(trained), before, strict=True))


@pytest.mark.slow
def test_double_precision_stays_double(x64):
    result = train(3, sampler=build(jax.random.key(1)))
    assert {x.dtype for x in arrays(result.sampler)} == {np.dtype("float64")}
    assert {x.dtype for x in result.record} == {np.dtype("float64")}


def test_a_nan_derivative_of_a_finite_density_is_caught():
    result = train(60, sampler=walled(*RARELY, density=Kinked), max_nonfinite=10**6, **WALLED)
    assert np.isfinite(result.record.log_Z_hat).all()
    assert (result.skipped[:2] == 0).all() and 5 < result.skipped[2] < 55
    assert all(np.isfinite(x).all() for x in arrays(result.sampler.transitions))


def test_nothing_to_learn_is_said():
    with pytest.raises(ValueError, match=r"Nothing to learn.*\['path'\]"):
        train(2, sampler=walled(*RARELY), objective=nvi.Objective(learn=("path",)))


@pytest.mark.parametrize("wrong", [{"num_steps": 0}, {"num_particles": 0}, {"num_steps": -3}])
def test_counts_must_be_positive(wrong):
    with pytest.raises(ValueError, match=r"num_.* is 1 or more; got"):
        train(**wrong)


def test_restarts_need_a_stacked_sampler():
    with pytest.raises(ValueError, match=r"restarts = 4 every array .* got \[.*nvi.stack"):
        train(2, restarts=4)


def test_unknown_orders_are_refused():
    with pytest.raises(nvi.errors.UnknownNameError, match="'sequential'"):
        train(2, order="sequentiel")


def box_sampler(key, num_levels):
    box = nvi.Density(lambda z: jnp.where(jnp.all(jnp.abs(z) < 1), 0.0, -jnp.inf))
    return nvi.build(
        key,
        "nvir-star",
        target=box,
        initial=nvi.DiagonalNormal(jnp.zeros(1), 1.0),
        num_levels=num_levels,
    ).sampler


@pytest.mark.slow
def test_a_target_of_bounded_support_trains(key):
    """−inf is legal: with a learned path every step still gives a finite gradient."""
    objective = nvi.get_method("nvir-star").make_objective()
    trained = nvi.fit(key, box_sampler(key, 3), objective, num_steps=30, num_particles=32)
    assert trained.skipped.sum() == 0


@pytest.mark.slow
def test_reverse_kernels_that_leave_the_support_are_warned_of(key):
    """With K = 2 the base has mass everywhere and log Z = log 2 is found; with K = 3 a Gaussian r_2
    reaches out of the box.
    """
    quality = nvi.evaluate(key, box_sampler(key, 2), num_particles=400, num_batches=50)
    assert abs(quality.log_Z - np.log(2.0)) < 4.5 * quality.log_Z_stderr
    with pytest.warns(nvi.NestedviWarning, match="too low"):
        nvi.evaluate(key, box_sampler(key, 3), num_particles=50, num_batches=2)


def test_an_objective_must_be_one(key):
    sampler = nvi.build(
        key,
        "nvi",
        target=nvi.targets.ring(),
        initial=nvi.DiagonalNormal(jnp.zeros(2), 5.0),
        num_levels=2,
    ).sampler
    with pytest.raises(TypeError, match=r"nvi\.Objective"):
        nvi.fit(key, sampler, "nvi", num_steps=1, num_particles=4)
