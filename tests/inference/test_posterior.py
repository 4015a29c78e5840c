"""What a posterior says of its particles: by hand on a few, and against exact quantiles on many."""

import collections
import sys

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import pytest
from scipy import stats

import nestedvi as nvi
from nestedvi.inference.answer import Answer
from nestedvi.inference.posterior import diagnose, make_posterior
from tests.helpers.posteriors import posterior_of, three_particles


@pytest.fixture
def three():
    return three_particles()


def test_an_expectation_and_its_error_against_many_posteriors():
    """A ratio of sums over batches with a weight each: the standard error is the spread over
    repetitions.
    """
    random = np.random.default_rng(3)

    def once():
        log_w = np.repeat(0.3 * random.normal(size=10), 50) + 0.5 * random.normal(size=500)
        # Particles of a batch have something in common, as those with one ancestor do.
        x = np.repeat(random.normal(size=10), 50) + random.normal(size=500)
        answer = Answer(None, jnp.asarray(log_w), 0.0, 0.1, num_batches=10)
        return make_posterior({"x": jnp.asarray(x)}, answer).expectation(
            lambda sites: jnp.stack([sites["x"], sites["x"] ** 2])
        )

    expectations = [once() for _ in range(200)]
    seen = np.std([f.mean for f in expectations], axis=0, ddof=1)
    reported = np.sqrt(np.mean([f.stderr**2 for f in expectations], axis=0))
    # The linearisation is low by about a tenth at ten batches.
    assert np.all(np.abs(reported / seen - 1) < 5 * np.sqrt(1 / 400) + 0.1)
    assert np.all(0.31 < seen[0] < 0.35)


def test_an_expectation_by_hand():
    answer = Answer(None, jnp.log(jnp.array([1.0, 3.0, 2.0, 2.0])), 0.0, 0.1, num_batches=2)
    expectation = make_posterior(jnp.array([0.0, 4.0, 1.0, 3.0]), answer).expectation(lambda z: z)
    # Mean 20/8; w̄ (x − mean) sums to (−2.5 + 4.5)/8 and (−3 + 1)/8 in the two batches.
    np.testing.assert_allclose(expectation, (2.5, np.sqrt(2 * 2 * 0.25**2)), rtol=1e-6)
    both = make_posterior(jnp.array([0.0, 4.0, 1.0, 3.0]), answer).expectation(
        lambda z: {"z": z, "twice": (2 * z, z > 0.5)}
    )
    assert both.mean["twice"][0] == pytest.approx(5.0) and both.mean["twice"][1] == pytest.approx(
        7 / 8
    )
    assert np.isnan(
        make_posterior(jnp.zeros(4), answer._replace(num_batches=1)).expectation(lambda z: z).stderr
    )


def test_particles_are_worth_no_more_than_their_ancestors():
    answer = Answer(None, jnp.zeros(100), 0.0, 0.1, num_batches=4, num_ancestors=30, weighted=False)
    posterior = make_posterior(jnp.zeros((100, 1)), answer)
    assert (
        posterior.ess == 30
        and np.isnan(posterior.khat)
        and "30 independent draws" in posterior.diagnosis[0]
    )
    assert "k̂" not in repr(posterior) and "k̂: none" in str(posterior.summary())
    np.testing.assert_array_equal(posterior.batch, np.repeat(np.arange(4), 25))


def test_families_of_one_draw_make_errors_of_means_where_there_are_many():
    """Forty families in two batches: numbered from zero, whatever their draws were called. Fewer
    than ten a batch: batches.
    """
    z, log_w = jnp.arange(80.0)[:, None], jnp.zeros(80)
    answer = Answer(None, log_w, 0.0, 0.1, num_batches=2, family=1000 - np.repeat(np.arange(40), 2))
    posterior = make_posterior(z, answer)
    np.testing.assert_array_equal(posterior.family, 39 - np.repeat(np.arange(40), 2))
    # Sums of neighbours about the mean 39.5, each particle with weight 1/80.
    sums = (np.arange(80.0) - 39.5).reshape(40, 2).sum(axis=1) / 80
    error = posterior.expectation(lambda one: one[0]).stderr
    np.testing.assert_allclose(error, np.sqrt(40 * np.var(sums, ddof=1)))
    few = make_posterior(z, answer._replace(family=np.repeat(np.arange(19), 5)[:80]))
    np.testing.assert_array_equal(few.family, few.batch)


def test_a_tail_that_cannot_be_fitted_does_not_hide_another(key):
    """Twenty particles have too few large weights for a k̂; their three hundred draws have one."""
    heavy = jnp.log(jnp.asarray(stats.genpareto.rvs(2.0, size=320, random_state=2)))
    posterior = make_posterior(
        jnp.zeros((20, 1)), Answer(None, jax.random.normal(key, (20,)), 0.0, 0.1, drawn_log_w=heavy)
    )
    assert posterior.khat > 0.7 and "dominate" in posterior.diagnosis[0]


def test_rounding_that_hides_the_answer_is_reported():
    diagnosis = make_posterior(jnp.zeros(30), Answer(None, jnp.zeros(30), -2e6, 0.01)).diagnosis
    assert any("single precision rounds it to 0.24" in sentence for sentence in diagnosis)
    assert make_posterior(jnp.zeros(30), Answer(None, jnp.zeros(30), -2e6, 0.3)).diagnosis == ()


def test_khat_sees_the_draws_that_did_not_go_on(key):
    """Equal weights at the end say nothing of the weights by which they were chosen."""
    heavy = jnp.asarray(stats.genpareto.rvs(1.2, size=2000, random_state=1))
    answer = Answer(None, jnp.zeros(100), 0.0, 0.01, drawn_log_w=jnp.log(heavy))
    posterior = make_posterior(jnp.zeros((100, 1)), answer)
    assert (
        posterior.khat == nvi.khat(np.asarray(answer.drawn_log_w)) > 0.7
        and "dominate" in posterior.diagnosis[0]
    )
    assert make_posterior(jnp.zeros((100, 1)), answer._replace(drawn_log_w=None)).diagnosis == ()


def test_equal_weights_are_systematic(three):
    """Weights ½, ¼, ¼ and eight draws: four, two and two of each, whatever the key; the order is
    random.
    """
    seen = set()
    for seed in range(5):
        draws = np.asarray(three.resample(jax.random.key(seed), 8)["a"])
        assert collections.Counter(draws.tolist()) == {1.0: 4, 2.0: 2, 4.0: 2}
        seen.add(tuple(draws))
    assert len(seen) > 1
    assert three.resample(jax.random.key(0), 5)["b"].shape == (5, 2, 1)
    with pytest.raises(ValueError, match="At least one draw; got num = 0"):
        three.resample(jax.random.key(0), 0)


def test_its_words(three):
    assert repr(three) == "Posterior(log Z = 1.5000 ± 0.0100, ESS 3 of 3, sites: a, b[2, 1])"
    assert "1 in diagnosis" in repr(posterior_of(jnp.zeros(30), remarks=("It is odd.",)))


def test_diagnosis_is_empty_or_says_what_is_wrong():
    assert diagnose(2000, 0.02, 900.0, 0.3) == ()
    assert diagnose(40, 0.02, 30.0, float("nan")) == ()
    (tail,) = diagnose(2000, 0.02, 900.0, 0.8)
    assert "k̂ = 0.80 > 0.7" in tail
    (few,) = diagnose(2000, 0.02, 12.0, 0.3)
    assert "2000 particles are worth 12" in few
    for stderr in (0.9, float("nan"), float("inf")):
        (batches,) = diagnose(2000, stderr, 900.0, 0.3)
        assert "batches disagree on log Z" in batches


def test_arviz_without_arguments(three):
    pytest.importorskip("arviz")
    posterior = posterior_of(
        {"theta": jnp.arange(40.0).reshape(20, 2)}, jnp.where(jnp.arange(20) < 10, 0.0, -jnp.inf)
    )
    data = posterior.to_arviz()
    assert data.posterior["theta"].shape == (1, 10, 2), "as many draws as the effective sample size"
    assert sorted(data.posterior["theta"].values[0, :, 0]) == list(range(0, 20, 2))
    assert data.posterior.attrs["log_Z"] == 1.5
    np.testing.assert_array_equal(data.posterior["theta"], posterior.to_arviz().posterior["theta"])
    assert three.to_arviz(jax.random.key(1), 50).posterior["b"].shape == (1, 50, 2, 1)
    assert posterior_of(jnp.zeros((30, 2))).to_arviz().posterior["z"].shape == (1, 30, 2)


def test_arviz_that_is_not_there_is_named(three, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'nestedvi\[arviz\]'"):
        three.to_arviz()


@pytest.mark.parametrize(("dim", "panels"), [(1, 1), (3, 6), (7, 7), (40, 16)])
def test_plots_show_every_element_they_can(dim, panels):
    """Few elements with their pairs, more as marginals, and never more than sixteen."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(200, dim)), jnp.float32)
    figure = posterior_of({"theta": x}).plot()
    assert isinstance(figure, matplotlib.figure.Figure)
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(shown) == panels
    titles = {axes.get_title() for axes in shown} - {""}
    assert titles == {f"theta[{i}]" for i in range(min(dim, 16))}
    assert ("first 16 of 40" in figure.get_suptitle()) == (
        dim == 40
    ) and "log Z = 1.500" in figure.get_suptitle()
    marginal = next(axes for axes in shown if axes.get_title() == "theta[0]")
    mass = sum(bar.get_height() * bar.get_width() for bar in marginal.patches)
    assert mass == pytest.approx(1.0)


def test_plots_follow_the_weights():
    """Only the particles at 3 have weight: the histogram is there and nowhere else."""
    x = jnp.concatenate([jnp.zeros(50), 3 + 0.01 * jnp.arange(50)])
    figure = posterior_of(x, jnp.where(x > 1, 0.0, -jnp.inf)).plot()
    (axes,) = figure.axes
    assert axes.get_xlim()[0] > 2.5
    assert isinstance(posterior_of(jnp.ones((50, 2))).plot(), matplotlib.figure.Figure), (
        "constants have no width, and a figure"
    )


def test_a_posterior_is_immutable(three):
    with pytest.raises(AttributeError):
        three.log_Z = 0.0
    assert nvi.Posterior is type(three)
