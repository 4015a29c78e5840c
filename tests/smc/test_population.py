"""Populations of independent batches: reweighted, resampled, moved in pieces; and the moves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities import LowRankRoot
from nestedvi.densities.base import Density
from nestedvi.fitting.importance import NO_MASS, draw_weighted
from nestedvi.smc.moves import RandomWalkMove, SliceMove
from nestedvi.smc.nested_sampling import log_above
from nestedvi.smc.population import HamiltonianMove, Population
from nestedvi.smc.tempering import log_tempered

KEY = jax.random.key(3)
BASE = nvi.DiagonalNormal(jnp.zeros(2), 2.0)


def population(piece=25, mesh=None, num=60):
    target = Density(lambda z: -0.5 * jnp.sum((z - 1) ** 2))
    now = Population(BASE, target, RandomWalkMove(2), piece, log_tempered, mesh)
    now.draw(KEY, num, 3, 1)
    return now


def test_log_ratios_are_of_the_normalised_base():
    now = population()
    expected = [-0.5 * np.sum((z - 1) ** 2) - BASE.log_gamma(jnp.asarray(z)) for z in now.z]
    np.testing.assert_allclose(now.log_ratio, np.array(expected), rtol=1e-4, atol=1e-4)


def test_resampling_keeps_the_estimate_of_every_batch_and_its_particles():
    now = population()
    now.reweight(1.0)
    before, z = now.log_w.copy(), now.z.reshape(3, 20, 2)
    now.resample(np.random.default_rng(0), 20, 2.0)
    means = np.log(np.exp(before).mean(axis=1))
    np.testing.assert_allclose(now.log_w, np.broadcast_to(means[:, None], (3, 20)))
    for batch, drawn in zip(now.z.reshape(3, 20, 2), z, strict=True):
        assert {tuple(row) for row in batch} <= {tuple(row) for row in drawn}
    np.testing.assert_array_equal(now.z, z.reshape(-1, 2)[now.origin])


def test_a_batch_with_enough_effective_particles_is_left_alone():
    now = population()
    z = now.z
    now.resample(np.random.default_rng(0), 20, 0.5)
    np.testing.assert_array_equal(now.z, z)
    assert now.variance == 0


def test_clones_do_not_leave_the_bulk_in_a_metric_of_themselves():
    """A standard normal of 400 dimensions, 30 draws of it ten times each: each draw is far out
    along the one direction that points to it, and a metric that knew those would throw it further
    out or in. Energies of a standard normal have a standard deviation of (400 / 2)^½.
    """
    base = nvi.DiagonalNormal(jnp.zeros(400), 1.0)
    now = Population(base, base, HamiltonianMove(), 300, log_tempered)
    now.draw(KEY, 300, 1, 1)
    now.z = now.z[np.arange(300) // 10]
    rng, size = np.random.default_rng(0), 0.2
    for _ in range(3):
        root = now.move.root(now.z.astype(np.float64))
        size = now.step(rng, 1.0, 2, size, root, 1.0)
        energies = 0.5 * np.sum(now.z.astype(np.float64) ** 2, axis=1)
        assert np.abs(energies - 200).max() < 5 * 200**0.5


def test_a_metric_that_is_known_is_used():
    move = HamiltonianMove(known=LowRankRoot(np.ones(2), np.eye(2)[:, :1], np.full(1, 3.0)))
    assert move.root(np.zeros((5, 2))) is move.known


def test_the_devices_of_a_mesh_move_particles_as_one_device_does():
    """Sixty particles are two pieces and a half. A mesh of one device here; of eight among the
    checks of virtual devices.
    """
    mesh = nvi.devices.mesh(batches=1)
    alone, together = population(), population(mesh=mesh)
    for now in (alone, together):
        now.step(np.random.default_rng(3), 0.5, 2, 0.4, np.eye(2), 1.0)
    np.testing.assert_allclose(together.z, alone.z, rtol=1e-6)
    np.testing.assert_allclose(together.log_ratio, alone.log_ratio, rtol=1e-5)
    assert alone.counted == together.counted == 2


@pytest.mark.parametrize("count", [1, 4, 6])
def test_many_moves_in_one_call_are_as_many_calls(monkeypatch, count):
    """As on an accelerator, where all particles move at once: with the same noise they end at the
    same places, and the size is tuned after every move.
    """
    one_by_one, together = population(piece=60), population(piece=60)
    sizes = [one_by_one.step(np.random.default_rng(3), 0.5, count, 0.4, np.eye(2), 1.0)]
    monkeypatch.setattr("nestedvi.smc.population.is_on_host", lambda: False)
    sizes.append(together.step(np.random.default_rng(3), 0.5, count, 0.4, np.eye(2), 1.0))
    np.testing.assert_allclose(sizes[1], sizes[0], rtol=1e-5)
    assert abs(sizes[0] / 0.4 - 1) > 0.01
    np.testing.assert_allclose(together.z, one_by_one.z, rtol=1e-4, atol=1e-5)
    assert together.stuck == one_by_one.stuck and together.counted == count
    # In the precision of the program, where the host has another.
    np.testing.assert_allclose(together.log_ratio, one_by_one.log_ratio, rtol=1e-4, atol=1e-4)
    assert together.log_ratio.dtype == np.float64


def test_a_ratio_that_is_no_number_is_no_mass_in_one_call_too(monkeypatch):
    """Particles where the target is NaN stay there, refused, and weigh nothing."""
    target = Density(lambda z: jnp.where(z[0] > 0, jnp.nan, -0.5 * jnp.sum(z**2)))
    now = Population(BASE, target, RandomWalkMove(2), 60, log_tempered)
    now.draw(KEY, 60, 1, 1)
    now.z = np.full((60, 2), -1.0, now.z.dtype)
    now.z[0] = 1e3
    monkeypatch.setattr("nestedvi.smc.population.is_on_host", lambda: False)
    now.step(np.random.default_rng(3), 0.5, 1, 1e-3, np.eye(2), 1.0)
    assert now.log_ratio[0] == NO_MASS and now.log_ratio[1] > -100


@pytest.mark.parametrize(("draws", "in_one_call"), [(1, False), (16, True)])
def test_many_draws_are_weighted_in_one_call(monkeypatch, draws, in_one_call):
    """As on an accelerator: they come to the host for the sampler's own arithmetic."""
    asked = []

    def draw(*given):
        asked.append(given)
        z, log_ratio = draw_weighted(*given)
        return jnp.asarray(z), log_ratio

    monkeypatch.setattr("nestedvi.smc.population.draw_many_weighted", draw)
    now = Population(BASE, BASE, RandomWalkMove(2), 60, log_tempered)
    now.draw(KEY, 60, 1, draws)
    assert len(asked) == in_one_call and isinstance(now.z, np.ndarray)
    assert now.z.shape == (60 * draws, 2) and now.log_w.shape == (1, 60 * draws)


def test_a_batch_without_mass_stays_without():
    """It is neither an error nor an estimate that is no number, and no other batch sees it."""
    now = population()
    now.log_w[1] = -np.inf
    now.resample(np.random.default_rng(0), 10, 2.0)
    assert now.z.shape == (30, 2) and now.log_w.shape == (3, 10)
    np.testing.assert_array_equal(now.log_w[1], -np.inf)
    np.testing.assert_array_equal(now.log_w[[0, 2]], 0.0)


def test_densities_on_the_way_are_an_argument():
    """Slice moves along the base, kept where the first coordinate of the target's ratio is high."""
    target = Density(lambda z: BASE.log_gamma(z) + z[0])
    now = Population(BASE, target, SliceMove(3), 30, log_above)
    now.draw(KEY, 60, 1, 1)
    now.z = np.abs(now.z) + 1
    now.step(np.random.default_rng(3), 0.5, 3, 4.0, np.eye(2), 1.0)
    assert np.all(now.z[:, 0] > 0.5) and now.z[:, 1].min() < 0
