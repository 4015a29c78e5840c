"""The quick way: what it accepts has the right log Z, and what it cannot do it leaves."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.fitting.importance import Trial
from nestedvi.inference.answer import Request
from nestedvi.inference.quick import _Search, answer_by_importance, quick_base
from nestedvi.inference.search import search
from nestedvi.smc.tempering import Plan

PLAN = Plan(ess_share=0.7, moves=3, extra=1, draws=16)


def plain(log_gamma, dim):
    return Pullback(nvi.Density(log_gamma), AffineMap(jnp.zeros(dim), jnp.ones(dim)))


def log_correlated(z):
    """A Gaussian in 20 dimensions: neighbours are correlated; log Z in closed form."""
    return -0.5 * jnp.sum(z**2) - 2.0 * jnp.sum(jnp.diff(z - 1.0) ** 2)


def exact_correlated(dim):
    steps = np.diff(np.eye(dim), axis=0)
    precision = np.eye(dim) + 4 * steps.T @ steps
    # The quadratic form is centred where its gradient vanishes: differences of ones are zero.
    return 0.5 * dim * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]


def test_a_gaussian_without_a_pilot():
    target = plain(log_correlated, 20)
    quick = quick_base(jax.random.key(0), target, 20, None)
    assert quick.accepted and quick.trial.share > 0.6
    answer = answer_by_importance(jax.random.key(1), quick, target, 1000)
    assert abs(answer.log_Z - exact_correlated(20)) < 4 * answer.log_Z_stderr < 0.03
    assert answer.z.shape == (1000, 20) and answer.num_ancestors > 900
    assert answer.cost.learning < 10 and answer.cost.sampling == 0


@pytest.mark.parametrize(("stuck", "accepted"), [(0.0, True), (0.006, True), (0.02, False)])
def test_a_smaller_share_will_do_where_one_step_suits_all(stuck, accepted):
    """A funnel's particles are stuck where a regression's are not, at the same share and k̂."""
    search = SimpleNamespace(
        pilot=SimpleNamespace(stuck=stuck), particles=None, misses_a_mode=lambda trial: False
    )
    trial = Trial(base=None, log_Z_hat=0.0, share=0.07, khat=0.45, short=0.17, draws=1)
    assert _Search.accepts(search, trial) == accepted
    for worse in ({"share": 0.04}, {"khat": 0.61}, {"short": 0.26}):
        assert not _Search.accepts(search, trial._replace(**worse))


@pytest.mark.slow
def test_a_spike_in_a_slab_needs_both_the_modes_and_the_pilot():
    """A spike of a tenth of the slab's width, half of the mass each: the optimisations see the
    spike alone, the pilot the slab.
    """
    dim = 4

    def log_gamma(z):
        spike = -0.5 * jnp.sum(z**2) / 0.01 - dim * jnp.log(0.1)
        return jnp.logaddexp(spike, -0.5 * jnp.sum(z**2)) - 0.5 * dim * np.log(2 * np.pi)

    target = plain(log_gamma, dim)
    pilot = search(jax.random.key(0), Request(target, dim), 500, PLAN)
    quick = quick_base(jax.random.key(1), pilot.target, dim, pilot.run)
    assert quick.accepted
    answer = answer_by_importance(jax.random.key(2), quick, pilot.target, 1000)
    assert abs(answer.log_Z - np.log(2)) < max(4 * answer.log_Z_stderr, 0.02)


@pytest.mark.slow
def test_a_funnel_is_left_to_the_thorough_way():
    funnel = nvi.targets.Funnel()
    pilot = search(jax.random.key(0), Request(funnel, 10), 500, PLAN)
    assert not quick_base(jax.random.key(1), pilot.target, 10, pilot.run).accepted


def test_no_mode_is_not_accepted():
    quick = quick_base(jax.random.key(0), plain(lambda z: jnp.nan * z[0], 2), 2, None)
    assert quick.trial is None and not quick.accepted
