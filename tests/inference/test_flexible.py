"""The thorough way of `auto`, from a rough base: log Z where it is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.inference.answer import Request
from nestedvi.inference.flexible import Start, _disagreement, answer_by_rounds
from nestedvi.inference.quick import QuickBase
from nestedvi.progress import Stages
from tests.helpers.three_modes import LOG_Z, three_modes


@pytest.mark.slow
def test_rounds_from_a_wide_base_find_log_Z():
    target = Pullback(nvi.Density(three_modes), AffineMap(jnp.zeros(2), jnp.ones(2)))
    start = Start(target, nvi.DiagonalNormal(jnp.zeros(2), 8.0), None, QuickBase(None, False, 0, 0))
    request = Request(target.density, 2, num_particles=1000)
    with Stages(False) as stages:
        answer = answer_by_rounds(jax.random.key(0), request, start, stages)
    assert abs(answer.log_Z - LOG_Z) < 5 * answer.log_Z_stderr < 0.1
    assert answer.sampler.num_levels == 25 and "frozen run" in stages.timings


def test_runs_that_disagree_are_named():
    assert _disagreement(1.0, 1.05, 0.001) == ()
    (sentence,) = _disagreement(1.0, 2.0, 0.01)
    assert "differ by 1.00 in log Z" in sentence and np.isfinite(len(sentence))
