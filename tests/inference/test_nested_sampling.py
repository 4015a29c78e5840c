"""`method="nested-sampling"`: log Z where a narrow part is hidden, and what its answer says of
itself.
"""

import jax
import numpy as np
import pytest

from nestedvi.densities.affine import Pullback, diagonal_map
from nestedvi.densities.base import Density
from nestedvi.inference.answer import Request
from nestedvi.inference.nested_sampling import _answer, _unfinished, answer_nested
from nestedvi.smc.nested_sampling import MAX_THRESHOLDS, NestedRun, Thresholds
from tests.helpers.spike import spike_in_slab, well_in_slab


def made_up(num_levels=2):
    """Two batches of three particles in one dimension."""
    tuned = Thresholds(np.arange(num_levels), 1, np.ones(num_levels), [np.eye(1)] * num_levels)
    return NestedRun(
        z=np.arange(6.0)[:, None],
        log_ratio=np.zeros(6),
        log_Z_hats=np.log([1.0, 3.0]),
        log_Z_variance=0.01,
        tuned=tuned,
        shares=np.full((num_levels, 2), 0.5),
        drawn_log_w=np.zeros(100),
        origin=np.array([0, 1, 2, 5, 6, 6]),
        left=1e-7,
        values=10.0,
    )


def test_an_answer_is_the_batches_in_the_users_coordinates():
    target = Pullback(
        Density(lambda z: -(z[0] ** 2)), diagonal_map(np.full(1, 10.0), np.full(1, 2))
    )
    answer = _answer(made_up(), target, 5)
    np.testing.assert_allclose(answer.z[:, 0], 10 + 2 * np.arange(5.0))
    np.testing.assert_allclose(answer.log_w, np.log([1, 1, 1, 3, 3]))
    assert answer.log_Z == pytest.approx(np.log(2.0))
    # The batches' own: a standard deviation of √2 over √2, in units of their mean.
    assert answer.log_Z_stderr == pytest.approx(0.5)
    assert (answer.num_batches, answer.num_ancestors, answer.weighted) == (2, 5, False)
    assert [level.beta for level in answer.trace.levels] == [None, None]
    np.testing.assert_array_equal(answer.trace.levels[0].ess_share, [0.5, 0.5])


def test_batches_that_agree_by_chance_are_not_believed():
    target = Pullback(Density(lambda z: -(z[0] ** 2)), diagonal_map(np.zeros(1), np.ones(1)))
    same = made_up()._replace(log_Z_hats=np.zeros(2))
    assert _answer(same, target, 6).log_Z_stderr == pytest.approx(0.1)


def test_a_run_that_did_not_end_is_said():
    assert _unfinished(made_up()) == ()
    (sentence,) = _unfinished(made_up(MAX_THRESHOLDS))
    assert sentence.startswith(f"Nested sampling stopped after {MAX_THRESHOLDS} thresholds")


@pytest.mark.slow
def test_a_spike_inside_of_a_slab():
    answer = answer_nested(jax.random.key(0), Request(spike_in_slab(6, sd=0.1, place=0.5), 6))
    assert abs(answer.log_Z) < 4 * answer.log_Z_stderr < 0.05 and answer.diagnosis == ()
    inside = np.mean(np.linalg.norm(np.asarray(answer.z) - 0.5, axis=1) < 0.6)
    assert abs(inside - 0.5) < 0.05
    assert answer.cost.learning == 0 and answer.cost.values > 64


@pytest.mark.slow
def test_a_well_that_no_climb_leads_to():
    """Neither climbs nor moves along gradients find it; its mass is that of the slab."""
    target, radius = well_in_slab(4, place=0.5, volume=1e-3)
    answer = answer_nested(jax.random.key(0), Request(target, 4))
    assert abs(answer.log_Z - np.log(2)) < 4 * answer.log_Z_stderr < 0.5
    inside = np.mean(np.linalg.norm(np.asarray(answer.z) - 0.5, axis=1) < radius)
    assert 0.3 < inside < 0.7
