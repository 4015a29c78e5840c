"""Runs and evaluations on one, two, four and eight devices, from the same key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.smc.tempering import Plan, follow, tempering
from tests.helpers.gaussian_samplers import annealed
from tests.helpers.three_modes import three_modes

LOG_Z = 1.2


@pytest.fixture(autouse=True)
def in_double_precision():
    with jax.enable_x64(True):
        yield


def close(one, two, rtol=1e-12):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("scheme", "numbers"),
    [
        ("systematic", (8,)),
        pytest.param("systematic", (2, 4), marks=pytest.mark.slow),
        pytest.param("multinomial", (8,), marks=pytest.mark.slow),
        pytest.param("residual", (8,), marks=pytest.mark.slow),
    ],
)
def test_a_population_is_the_same_on_any_number_of_devices(scheme, numbers, key):
    sampler = annealed(4, nvi.Resampling(scheme, "always"), dim=2)
    alone = nvi.run(key, sampler, 64, history=True)
    for num in numbers:
        run = nvi.run(key, sampler, 64, history=True, devices=num)
        assert len(run.particles.z.sharding.device_set) == num
        assert run.particles.z.addressable_shards[0].data.shape == (64 // num, 2)
        np.testing.assert_array_equal(run.ancestors, alone.ancestors)
        close(run, alone)


@pytest.mark.slow
def test_a_threshold_and_many_first_draws(key):
    """Resampling that depends on all weights, and the first level's thinning."""
    sampler = annealed(4, nvi.Resampling("systematic", 0.5), dim=2)
    alone = nvi.run(key, sampler, 32, draws=4)
    run = nvi.run(key, sampler, 32, draws=4, devices=8)
    np.testing.assert_array_equal(run.picks, alone.picks)
    close(run, alone)


def test_particles_are_never_dropped(key):
    with pytest.raises(ValueError, match=r"num_particles = 30 does not divide by 8.*Use 24 or 32"):
        nvi.run(key, annealed(), 30, devices=8)


@pytest.mark.slow
def test_z_hat_is_unbiased_over_devices(key):
    """The mean of Ẑ/Z over batches, each laid out over four devices, two batches at a time."""
    sampler = annealed(3, nvi.Resampling("systematic", "always"))
    mesh = nvi.devices.mesh(batches=2, particles=4)
    result = nvi.evaluate(key, sampler, num_particles=8, num_batches=2000, devices=mesh)
    assert abs(result.log_Z - LOG_Z) < 4 * result.log_Z_stderr < 0.1


@pytest.mark.slow
def test_evaluations_agree(key):
    """Also for a number of batches that does not divide, and with a population laid out."""
    sampler = annealed(4, nvi.Resampling("systematic", "always"))
    alone = nvi.evaluate(key, sampler, num_particles=16, num_batches=10)
    assert alone.upper_bound is not None
    for devices in (2, 4, 8, nvi.devices.mesh(batches=2, particles=4)):
        close(nvi.evaluate(key, sampler, num_particles=16, num_batches=10, devices=devices), alone)


@pytest.mark.slow
def test_batches_go_to_devices(key):
    """Ten batches over eight devices: six are filled up, and dropped."""
    sampler = annealed(4, nvi.Resampling("systematic", "always"))
    options = {"num_particles": 16, "num_batches": 10, "bounds": False}
    close(nvi.evaluate(key, sampler, devices=8, **options), nvi.evaluate(key, sampler, **options))


@pytest.mark.slow
def test_instances_agree(key):
    def program(shift):
        sampler = annealed(3, nvi.Resampling("systematic", "always"))
        initial = nvi.DiagonalNormal(shift[None], 2.0)
        return nvi.NestedSampler(initial, sampler.path, sampler.transitions, sampler.resampling)

    data = jnp.linspace(-1.0, 1.0, 11)
    alone = nvi.evaluate_instances(key, program, data, num_particles=8)
    close(nvi.evaluate_instances(key, program, data, num_particles=8, devices=4), alone)


@pytest.mark.slow
def test_chosen_devices_are_used(key):
    """A list, of which the first holds what comes back."""
    chosen = jax.devices()[5:7]
    run = nvi.run(key, annealed(), 8, devices=chosen)
    assert run.particles.z.sharding.device_set == set(chosen)
    assert nvi.devices.gather(run).particles.z.devices() == {chosen[0]}


@pytest.mark.slow
def test_rejection_samplers_draw_the_same_numbers(key):
    """Gamma and beta draws loop until they accept; inside `shard_map` and over laid-out particles
    they give the same numbers as alone.
    """

    def draw(keys, shared):
        return jax.vmap(lambda k: jax.random.gamma(k, shared) + jax.random.beta(k, shared, 2.0))(
            keys
        )

    keys, concentration = jax.random.split(key, 16), jnp.array([0.3, 1.0, 4.0])
    alone = draw(keys, concentration)
    mesh = nvi.devices.mesh(batches=8)
    close(nvi.devices.spread(draw, mesh, "batches", keys, concentration), alone)
    mesh = nvi.devices.mesh(particles=8)
    with nvi.devices.on(mesh):
        program = jax.jit(lambda k: draw(nvi.devices.over_particles(k), concentration))
        close(program(nvi.devices.put(keys, mesh)), alone)


@pytest.mark.slow
@pytest.mark.parametrize("num", [2, 8])
def test_tempered_runs_share_their_moves(num, key):
    """An adaptive run and fresh particles that follow it: pieces that do not divide, too."""
    base = nvi.DiagonalNormal(jnp.zeros(2), 4.0)

    def runs(mesh):
        plan, options = Plan(0.5, 2), {"piece": 100, "mesh": mesh}
        found = tempering(key, base, Density(three_modes), plan, num_particles=250, **options)
        options |= {"num_particles": 260, "batches": 10}
        return found, follow(key, base, Density(three_modes), found.tuned, **options)

    close(runs(nvi.devices.mesh(batches=num)), runs(None), rtol=1e-6)
