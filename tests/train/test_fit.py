"""The training loop: what it learns, what it records, what it skips, and what it refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

import nestedvi as nvi
import nestedvi.train.loop as loop_module
from nestedvi.train.fit import Trainer
from tests.helpers.small_training import OBJECTIVE, arrays, assert_same_bits, build, stacked, train

pytestmark = pytest.mark.usefixtures("compiled_once")

ORDERS = ("sequential", "two-phase", "level-parallel")


class Walled(nvi.AbstractDensity):
    """N(loc, 1) that breaks its promise: NaN beyond a limit."""

    loc: Array
    limit: Array

    def log_gamma(self, z):
        return jnp.where(z[0] > self.limit, jnp.nan, -0.5 * (z[0] - self.loc) ** 2)


class Kinked(nvi.AbstractDensity):
    """N(loc, 1) with the right value everywhere and a NaN derivative beyond a limit."""

    loc: Array
    limit: Array

    def log_gamma(self, z):
        return -0.5 * (z[0] - self.loc) ** 2 + 0.0 * jnp.sqrt(
            jnp.maximum(jnp.minimum(self.limit, 1e6) - z[0], 0.0)
        )


def walled(*limits, density=Walled):
    path = nvi.paths.StackedDensities(
        density(jnp.array([0.0, 0.5, 1.0]), jnp.array(limits)), learn=False
    )
    return build(jax.random.key(1), path)


# One particle in a few dozen passes this wall, so that about every other step of 16 particles is
# spoilt.
RARELY = (jnp.inf, jnp.inf, 2.0)
WALLED = {"objective": nvi.Objective(), "num_particles": 16}


class Log:
    """A reporter that keeps what it was told."""

    def __init__(self):
        self.calls = []

    def start(self, total, done):
        self.calls.append(("start", total, done))

    def update(self, done, **values):
        self.calls.append(("update", done, values))

    def stop(self):
        self.calls.append(("stop",))


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


def test_double_precision_stays_double(x64):
    result = train(3, sampler=build(jax.random.key(1)))
    assert {x.dtype for x in arrays(result.sampler)} == {np.dtype("float64")}
    assert {x.dtype for x in result.record} == {np.dtype("float64")}


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


def test_progress_is_told_in_order():
    log = Log()
    train(40, progress=log)
    kinds = [call[0] for call in log.calls]
    assert kinds[0] == "start" and kinds[-1] == "stop" and set(kinds[1:-1]) == {"update"}
    assert log.calls[0] == ("start", 40, 0)
    done = [call[1] for call in log.calls[1:-1]]
    assert done == sorted(set(done)) and done[-1] == 40
    values = log.calls[-2][2]
    assert values.keys() == {"log_Z_hat", "ess_percent", "steps_per_second"}
    assert 0 < values["ess_percent"] <= 100 and values["steps_per_second"] > 0


def test_progress_ends_even_when_training_fails():
    log = Log()
    with pytest.raises(nvi.errors.NonFiniteGradientError):
        train(40, sampler=walled(*(-jnp.inf,) * 3), max_nonfinite=2, progress=log, **WALLED)
    assert [call[0] for call in log.calls] == ["start", "stop"]


def test_a_short_training_reports_its_end():
    log = Log()
    train(3, progress=log)
    assert [call[:2] for call in log.calls] == [("start", 3), ("update", 3), ("stop",)]


@pytest.fixture(scope="module")
def spoilt_training(compiled_once):
    """A training at a wall that tolerates everything, and which of its steps were spoilt."""
    result = train(200, sampler=walled(*RARELY), max_nonfinite=10**6, **WALLED)
    return result, np.isnan(result.record.level_divergence[:, 2])


def test_spoilt_gradients_are_skipped_and_counted_where_they_occur(spoilt_training):
    result, spoilt = spoilt_training
    assert 20 < spoilt.sum() < 180
    np.testing.assert_array_equal(result.skipped, [0, 0, spoilt.sum()])
    assert all(np.isfinite(x).all() for x in arrays(result.sampler.transitions))


def test_a_nan_derivative_of_a_finite_density_is_caught():
    result = train(60, sampler=walled(*RARELY, density=Kinked), max_nonfinite=10**6, **WALLED)
    assert np.isfinite(result.record.log_Z_hat).all()
    assert (result.skipped[:2] == 0).all() and 5 < result.skipped[2] < 55
    assert all(np.isfinite(x).all() for x in arrays(result.sampler.transitions))


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


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["short chunks", "long chunks"])
def test_a_streak_counts_wherever_chunks_begin_and_end(monkeypatch, spoilt_training, seconds):
    """The longest streak is tolerated by a limit above it and refused by a limit equal to it,
    however steps are cut up.
    """
    monkeypatch.setattr(loop_module, "_SECONDS_PER_CHUNK", seconds)
    _, spoilt = spoilt_training
    longest = max(len(run) for run in "".join("x" if s else " " for s in spoilt).split())
    assert longest >= 2 and not spoilt[-longest:].all()
    options = {"sampler": walled(*RARELY), **WALLED}
    train(200, max_nonfinite=longest + 1, **options)
    with pytest.raises(
        nvi.errors.NonFiniteGradientError, match=f"level 3 was not finite {longest} times in a row"
    ):
        train(200, max_nonfinite=longest, **options)


def test_the_first_level_that_fails_is_named():
    """Everything after a NaN is NaN; the message names where it began."""
    with pytest.raises(nvi.errors.NonFiniteGradientError, match="level 2 was"):
        train(20, sampler=walled(jnp.inf, -jnp.inf, jnp.inf), max_nonfinite=5, **WALLED)


def test_nothing_to_learn_is_said():
    with pytest.raises(ValueError, match=r"Nothing to learn.*\['path'\]"):
        train(2, sampler=walled(*RARELY), objective=nvi.Objective(learn=("path",)))


@pytest.mark.parametrize("wrong", [{"num_steps": 0}, {"num_particles": 0}, {"num_steps": -3}])
def test_counts_must_be_positive(wrong):
    with pytest.raises(ValueError, match="num_steps ≥ 1 and num_particles ≥ 1"):
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


def test_a_target_of_bounded_support_trains(key):
    """−inf is legal: with a learned path every step still gives a finite gradient."""
    objective = nvi.get_method("nvir-star").make_objective()
    trained = nvi.fit(key, box_sampler(key, 3), objective, num_steps=30, num_particles=32)
    assert trained.skipped.sum() == 0


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
