"""What is asked of a way of answering, and what an answer says of how it came about; answers made
right in double precision.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.base import Density
from nestedvi.inference.answer import (
    Answer,
    Request,
    RoundingError,
    Trace,
    check_rounding,
    exactly,
    first_order,
    make_exact,
    missed_modes,
    weight_curve,
)
from nestedvi.inference.problem import in_double
from nestedvi.precision import double_precision
from nestedvi.smc.population import HamiltonianMove
from nestedvi.smc.tempering import Plan, tempering


def test_an_option_without_effect_is_refused_only_if_it_was_given():
    density = nvi.Density(lambda z: -jnp.sum(z**2))
    Request(density, 2, method="smc").refuse("num_steps", "it learns nothing.")
    given = Request(density, 2, method="smc", num_steps=4)
    with pytest.raises(ValueError, match=r"'smc' takes no num_steps: it learns nothing\. Leave it"):
        given.refuse("num_steps", "it learns nothing.")


def test_an_answer_is_one_batch_of_weighted_particles_unless_it_says_otherwise():
    answer = Answer(jnp.zeros((3, 2)), jnp.zeros(3), 1.0, 0.1)
    assert (answer.num_batches, answer.weighted, answer.diagnosis) == (1, True, ())
    assert answer.num_ancestors is None and answer.cost is None


def test_weights_by_share_of_draws():
    """Half of the draws have all the weight; the curve is straight up to there, then flat."""
    curve = weight_curve(np.log(np.r_[np.ones(50), np.full(50, 1e-300)]))
    np.testing.assert_allclose(curve, np.minimum(np.linspace(0, 2, 101), 1.0), atol=1e-12)
    np.testing.assert_allclose(weight_curve(np.zeros(7)), np.linspace(0, 1, 101), atol=1e-12)


def test_importance_sampling_has_no_levels():
    content = Trace(np.array([1.0]), np.array([5]), (), np.linspace(0, 1, 101)).to_dict()
    assert content["levels"] == [] and len(content["weight_share"]) == 101


def test_the_exact_target_has_the_coordinates_of_the_target():
    """And double precision for as long as it is used."""
    rough = Density(lambda z: jnp.sum(-0.5 * z**2) + 1e9 + 10.0)
    target = Pullback(rough, AffineMap(jnp.ones(2), jnp.full(2, 2.0)))
    request = Request(rough, 2, exact=in_double(rough, jnp.zeros(2)))
    with exactly(request, target) as exact:
        value = float(exact.log_gamma(jnp.ones(2)))
    assert value == pytest.approx(1e9 + 10.0 - 9.0 + 2 * np.log(2), abs=1e-6)
    assert jnp.result_type(float) == jnp.float32
    with exactly(Request(rough, 2), target) as same:
        assert same is target and jnp.result_type(float) == jnp.float32


def test_weights_become_those_of_the_exact_density():
    """Equal weights for a density with noise ε(z): after it log w is −ε and Ẑ the mean of e^−ε."""
    noise = lambda z: 0.05 * jnp.sin(40 * z[0])  # noqa: E731
    z = np.random.default_rng(0).normal(size=(40, 1)).astype(np.float32)
    with double_precision():
        exact = Density(lambda z: -0.5 * z[0] ** 2)
    rough = Density(lambda z: -0.5 * z[0] ** 2 + noise(z))
    answer = Answer(z, np.full(40, 2.0), 2.0, 0.0001, num_batches=4)
    request = Request(rough, 1, exact=exact)
    after = make_exact(answer, request)
    off = -np.asarray(jax.vmap(noise)(z), np.float64)
    np.testing.assert_allclose(after.log_w, 2 + off, atol=1e-5)
    assert after.log_Z == pytest.approx(2 + np.log(np.exp(off).mean()), abs=1e-5)
    Z_hat = np.exp(off).reshape(4, 10).mean(axis=1)
    stderr = Z_hat.std(ddof=1) / 2 / Z_hat.mean()
    assert after.log_Z_stderr == pytest.approx(max(stderr, 0.0001), rel=1e-3) and after.exact


@pytest.mark.parametrize(("scale", "coarse"), [(1e-9, True), (1e-3, False)])
def test_coordinates_that_are_too_coarse_for_a_narrow_density(scale, coarse):
    """Numbers of single precision around one are 6e-8 or more apart: for a Gaussian of scale 1e-9
    that is 60 standard deviations or more, although log γ of the particles is right.
    """
    density = Density(lambda z: -0.5 * ((z[0] - 1) / scale) ** 2)
    request = Request(density, 1, exact=in_double(density, jnp.zeros(1)))
    z = np.ones((20, 1), np.float32)
    if not coarse:
        check_rounding(request, z)
        return
    with pytest.raises(RoundingError):
        check_rounding(request, z)


@pytest.mark.parametrize(("share", "warned"), [(0.5, True), (0.9, False)])
def test_particles_that_account_for_less_than_the_modes(share, warned):
    answer = Answer(np.zeros((10, 2)), np.zeros(10), float(np.log(share)), 0.01)
    assert bool(missed_modes(0.0, answer)) == warned


def test_a_transition_is_a_sentence():
    """With temperature, share and gap of the two groups; none where there is one group."""
    base, target = nvi.DiagonalNormal(jnp.zeros(1), 2.0), nvi.Density(lambda z: -0.5 * z[0] ** 2)
    plan, move = Plan(0.01, 1), HamiltonianMove(1)
    run = tempering(jax.random.key(0), base, target, plan, num_particles=100, move=move)
    assert first_order(run) == ()
    two = np.where(np.arange(100) < 30, 12.0, 0.0) + np.random.default_rng(0).normal(size=100)
    (sentence,) = first_order(run._replace(log_ratios=np.stack([two, two])))
    assert "first-order transition: at β = 1 " in sentence and " of 30 % of" in sentence
    assert sentence.endswith(".")
