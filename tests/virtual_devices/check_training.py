"""Training on one and on several devices, from the same key: restarts, particles, levels,
instances, and what the compiled programs exchange.
"""

import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nestedvi as nvi
from nestedvi.train.fit import Trainer
from tests.helpers import amortised_program
from tests.helpers.gaussian_samplers import gaussian_pair
from tests.helpers.small_training import arrays
from tests.helpers.trained_samplers import state_space_sampler

LEARN = nvi.Objective(learn=("initial", "forward", "reverse", "path"))
MESH = nvi.devices.mesh


@pytest.fixture(autouse=True)
def in_double_precision():
    with jax.enable_x64(True):
        yield


def close(one, two, rtol=1e-9):
    for a, b in zip(arrays(one), arrays(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def build(key, num_levels=4):
    initial = nvi.DiagonalNormal(jnp.zeros(2), 2.0)
    target = nvi.densities.Scaled(nvi.DiagonalNormal(jnp.ones(2), 0.7), 1.2)
    path = nvi.Annealing(initial, target, nvi.LearnedSchedule(num_levels))
    kernels = nvi.stack(key, lambda k: gaussian_pair(k, 2), num_levels - 1)
    return nvi.NestedSampler(
        initial, path, nvi.Stacked(kernels), nvi.Resampling("systematic", "always")
    )


def train(key, sampler, num_steps=4, objective=LEARN, **options):
    options = {"num_particles": 16, "optimiser": optax.adam(1e-2), **options}
    fit = nvi.fit(key, sampler, objective, num_steps=num_steps, **options)
    return fit.sampler, tuple(fit.record), fit.skipped


def test_restarts_and_levels_and_particles(key):
    """All three axes at once; three rows of levels over two devices leave one row to fill up."""
    sampler = nvi.stack(key, build, 2)
    mesh = MESH(restarts=2, levels=2, particles=2)
    options = {"order": "level-parallel", "restarts": 2, "average": 0.9}
    close(train(key, sampler, devices=mesh, **options), train(key, sampler, **options))


COLLECTIVE = re.compile(
    r"= .*? (all-gather|all-reduce|collective-permute|all-to-all|reduce-scatter)(?:-start)?\("
)


def collectives(key, mesh, sampler, objective=LEARN, restarts=None, optimiser=None):
    """What the compiled training steps exchange, outside and inside of their loop."""
    trainer = Trainer(sampler, objective, optimiser, "level-parallel", 16, restarts)
    trainer.use(mesh)
    state, inputs, there = trainer.place(key, trainer.start(key))
    with trainer.on_devices():
        text = trainer.chunk.lower(there, state, inputs, 0, 1).compile().as_text()
    held = jax.tree.leaves(state.params.transitions)[0].addressable_shards[0].data
    return Counter(COLLECTIVE.findall(text)), held.shape


@pytest.mark.parametrize(
    "objective",
    [LEARN, pytest.param(nvi.Objective(), marks=pytest.mark.slow)],
    ids=["all", "kernels"],
)
def test_level_parallel_steps_exchange_once_with_a_neighbour(objective, key):
    """One neighbour exchange and one all-reduce; no parameter is gathered, and each device holds
    its own levels only.
    """
    count, held = collectives(key, MESH(levels=4), build(key, 9), objective)
    assert count == {"collective-permute": 1, "all-reduce": 1}
    assert held[0] == 2


@pytest.mark.slow
def test_restarts_exchange_nothing(key):
    sampler = nvi.stack(key, build, 4)
    count, held = collectives(key, MESH(restarts=2), sampler, restarts=4)
    assert not count
    assert held[0] == 2
    count, _ = collectives(key, MESH(restarts=2, levels=3), sampler, restarts=4)
    assert count == {"collective-permute": 1, "all-reduce": 1}


@pytest.mark.slow
@pytest.mark.parametrize("num", [2, 4, 8])
@pytest.mark.parametrize("axis", ["restarts", "levels", "particles", "two-phase"])
def test_every_axis_on_any_number_of_devices(axis, num, key):
    options = {"order": "level-parallel"} if axis == "levels" else {}
    sampler = build(key, 10)
    if axis == "restarts":
        sampler, options = nvi.stack(key, build, 8), {"restarts": 8}
    if axis == "two-phase":
        options = {"order": "two-phase"}
    close(train(key, sampler, devices=num, **options), train(key, sampler, **options))


@pytest.mark.slow
def test_optimisers_that_look_at_all_parameters(key):
    """A global norm runs over the levels of all devices, and rows that fill up do not count."""
    optimiser = optax.chain(optax.clip_by_global_norm(0.1), optax.lamb(1e-2, weight_decay=0.1))
    options = {"order": "level-parallel", "optimiser": optimiser}
    sampler = build(key, 6)
    close(train(key, sampler, devices=4, **options), train(key, sampler, **options))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sequential", "level-parallel"])
def test_levels_that_share_a_transition(order, key):
    kernels = gaussian_pair(key, 2)
    one = build(key, 6)
    sampler = nvi.NestedSampler(one.initial, one.path, nvi.Shared(kernels, 5), one.resampling)
    close(train(key, sampler, order=order, devices=4), train(key, sampler, order=order))


@pytest.mark.slow
def test_growing_supports_and_discrete_particles(key):
    """A state space with its heuristic, level-parallel over the devices."""
    sampler = state_space_sampler()
    num = sampler.num_levels - 1
    options = {"order": "level-parallel", "num_particles": 8}
    close(train(key, sampler, devices=num, **options), train(key, sampler, **options))


def nan_at_a_level(key):
    """The sixth of seven later levels has NaN for a parameter."""
    sampler = build(key, 8)
    leaves, structure = jax.tree.flatten(sampler.transitions)
    leaves[0] = leaves[0].at[5].set(jnp.nan)
    return nvi.NestedSampler(
        sampler.initial, sampler.path, jax.tree.unflatten(structure, leaves), sampler.resampling
    )


@pytest.mark.slow
def test_a_bad_level_on_one_device_stops_the_update_on_all(key):
    sampler = nan_at_a_level(key)
    learned, _, skipped = train(key, sampler, order="level-parallel", devices=4)
    assert skipped.tolist() == train(key, sampler, order="level-parallel")[2].tolist()
    assert skipped[6] == 4
    np.testing.assert_array_equal(arrays(learned.initial), arrays(sampler.initial))


@pytest.mark.slow
def test_log_Z_hat_of_level_parallel_training_is_unbiased(key):
    """With parameters that change under the particles: the mean of Ẑ/Z over restarts on eight
    devices, at the last of some steps.
    """
    sampler = nvi.stack(key, lambda k: build(k, 4), 400)
    mesh = MESH(restarts=4, levels=2)
    record = train(
        key, sampler, 6, restarts=400, order="level-parallel", devices=mesh, num_particles=64
    )[1]
    ratio = np.exp(record[0][-1] - 1.2)
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / 20 < 0.1


def continued(key, sampler, folder, first, second, **options):
    train(key, sampler, 3, checkpoint=folder, devices=first, **options)
    return train(key, sampler, 6, checkpoint=folder, devices=second, **options)


@pytest.mark.slow
def test_a_checkpoint_of_four_devices_continues_on_one_and_on_eight(key, tmp_path):
    """Nine rows of levels: three devices' worth of filling up on four, seven on eight."""
    sampler, options = build(key, 10), {"order": "level-parallel"}
    never_stopped = train(key, sampler, 6, **options)
    for second in (None, 8):
        close(continued(key, sampler, tmp_path / str(second), 4, second, **options), never_stopped)


@pytest.mark.slow
def test_a_checkpoint_of_one_device_continues_on_another_axis(key, tmp_path):
    sampler, options = nvi.stack(key, build, 4), {"order": "level-parallel", "restarts": 4}
    never_stopped = train(key, sampler, 6, **options)
    mesh = MESH(levels=2, particles=2)
    close(continued(key, sampler, tmp_path, 4, mesh, **options), never_stopped)


def amortised(key, **options):
    data = jnp.linspace(-1.0, 1.0, 12)
    fit = nvi.fit_amortised(
        key,
        amortised_program.start(),
        data,
        nvi.Objective(learn=("forward",)),
        num_steps=3,
        num_particles=8,
        batch_size=8,
        **options,
    )
    return fit.program, tuple(fit.record)


@pytest.mark.slow
def test_instances_are_the_data_axis(key):
    close(amortised(key, devices=8), amortised(key))


@pytest.mark.slow
def test_instances_on_any_number_of_devices(key):
    alone = amortised(key)
    for devices in (2, 4, MESH(instances=2, particles=4)):
        close(amortised(key, devices=devices), alone)


def test_what_cannot_be_shared_is_refused(key):
    sampler = build(key, 4)
    with pytest.raises(ValueError, match=r"num_particles = 10 does not divide by 8"):
        train(key, sampler, num_particles=10, devices=8)
    with pytest.raises(ValueError, match=r"8 devices along 'levels' are more than the K-1 = 3"):
        train(key, sampler, order="level-parallel", devices=8)
    with pytest.raises(ValueError, match=r"restarts = 3 does not divide by 2.*Use 2 or 4"):
        train(key, nvi.stack(key, build, 3), restarts=3, devices=2)
    with pytest.raises(ValueError, match=r"Use order='level-parallel'"):
        train(key, sampler, devices=MESH(levels=2))
    with pytest.raises(ValueError, match=r"restarts was not given"):
        train(key, sampler, devices=MESH(restarts=2))
    with pytest.raises(ValueError, match=r"batch_size = 8 does not divide by 3"):
        amortised(key, devices=3)
