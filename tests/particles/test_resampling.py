"""Resampling schemes: valid ancestors, bounds on copies, exact unbiasedness, the adaptive rule, and
what is gathered.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.particles.resampling import take
from tests.helpers.properties import HealthCheck, given, settings, st

CHECKED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NAMES = sorted(nvi.particles.SCHEMES)
MAX_SIZE = 12


@st.composite
def weights(draw, max_size=MAX_SIZE):
    """Normalised weights of 1 to 12 particles, many of them zero, some equal."""
    one = st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-3, 1.0))
    raw = draw(st.lists(one, min_size=1, max_size=max_size).filter(any))
    return np.asarray(raw) / np.sum(raw)


@st.composite
def weights_and_uniforms(draw):
    w_bar = draw(weights())
    edge = st.one_of(
        st.just(0.0), st.just(1 - 2.0**-24), st.floats(0.0, 1.0, exclude_max=True, width=32)
    )
    return w_bar, np.asarray(draw(st.lists(edge, min_size=len(w_bar), max_size=len(w_bar))))


@functools.cache
def ancestors(name):
    """Ancestors for a batch of uniforms; jit is shared by all examples of one size."""
    return jax.jit(jax.vmap(nvi.particles.SCHEMES[name]().ancestors, in_axes=(0, None)))


def copies(name, u, w_bar):
    picks = np.asarray(ancestors(name)(jnp.asarray(u)[None], jnp.asarray(w_bar)))[0]
    return np.bincount(picks, minlength=len(w_bar))


@pytest.mark.parametrize("name", NAMES)
@CHECKED
@given(case=weights_and_uniforms())
def test_ancestors_are_valid_and_alive(name, case):
    """In float32, at the edges of [0, 1) too: an index in range, never of a particle whose weight
    is zero.
    """
    w_bar, u = case
    picks = np.asarray(ancestors(name)(jnp.asarray(u)[None], jnp.asarray(w_bar)))[0]
    assert picks.shape == w_bar.shape
    assert ((picks >= 0) & (picks < len(w_bar))).all()
    assert (w_bar[picks] > 0).all()


@CHECKED
@given(case=weights_and_uniforms())
def test_systematic_copies_are_rounded_shares(case):
    w_bar, u = case
    u = np.clip(u, 2e-4, 1 - 2e-4)  # at the very edge of a tooth float32 decides
    count, share = copies("systematic", u, w_bar), len(w_bar) * w_bar
    assert (count >= np.floor(share - 1e-4)).all()
    assert (count <= np.ceil(share + 1e-4)).all()


@CHECKED
@given(case=weights_and_uniforms())
def test_stratified_copies_count_the_strata_that_are_touched(case):
    """A particle owns an interval of the cumulative weights: every stratum inside it is sure, one
    that overlaps is possible.
    """
    w_bar, u = case
    u = np.clip(u, 2e-4, 1 - 2e-4)
    ends = len(w_bar) * np.cumsum(w_bar)
    starts = ends - len(w_bar) * w_bar
    count = copies("stratified", u, w_bar)
    sure = np.maximum(np.floor(ends + 1e-4) - np.ceil(starts - 1e-4), 0)
    assert (count >= sure).all()
    assert (count <= np.ceil(ends - 1e-4) - np.floor(starts + 1e-4)).all()


@CHECKED
@given(case=weights_and_uniforms())
def test_residual_copies_keep_the_whole_part(case):
    w_bar, u = case
    assert (copies("residual", u, w_bar) >= np.floor(len(w_bar) * w_bar - 1e-9)).all()


def test_residual_counts_whole_shares_despite_rounding():
    """S w̄ = 1 for each of 41 particles is 0.99999994 in float32: each must be kept exactly
    once.
    """
    w_bar = jnp.full(41, 1 / 41)
    picks = nvi.particles.Residual().ancestors(jnp.full(41, 0.5), w_bar)
    assert np.array_equal(np.sort(picks), np.arange(41))


def test_multinomial_slots_follow_their_own_uniform():
    picks = nvi.particles.Multinomial().ancestors(
        jnp.array([0.9, 0.05, 0.45]), jnp.array([0.2, 0.3, 0.5])
    )
    assert picks.tolist() == [2, 0, 1]


def breakpoints(w_bar):
    """Where any slot of any scheme may change its mind: every scheme is piecewise constant in u
    between these.
    """
    num = len(w_bar)
    cdf = np.cumsum(w_bar)
    rest = num * w_bar - np.floor(num * w_bar + 1e-12)
    rest_cdf = np.cumsum(rest) / max(rest.sum(), 1e-300)
    return np.sort(np.clip(np.concatenate([[0.0], (num * cdf) % 1.0, cdf, rest_cdf, [1.0]]), 0, 1))


@pytest.mark.parametrize("name", NAMES)
@CHECKED
@given(w_bar=weights())
def test_expected_copies_are_exact(name, w_bar, x64):
    """E[N_s] = S w̄_s, integrated exactly. Each slot depends on one uniform, so all may share it
    for the marginals.
    """
    edges = breakpoints(w_bar)
    length, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    u = jnp.broadcast_to(jnp.asarray(middle)[:, None], (len(middle), len(w_bar)))
    picks = np.asarray(ancestors(name)(u, jnp.asarray(w_bar)))
    expected = np.zeros(len(w_bar))
    np.add.at(expected, picks, np.broadcast_to(length[:, None], picks.shape))
    np.testing.assert_allclose(expected, len(w_bar) * w_bar, atol=1e-9)


@pytest.mark.parametrize("name", ["multinomial", "stratified", "residual"])
def test_a_slot_depends_on_its_own_uniform_only(name, x64):
    """What the exact expectation above relies on; systematic uses the first uniform alone."""
    w_bar, u = jnp.array([0.1, 0.35, 0.05, 0.5]), jnp.array([0.3, 0.6, 0.2, 0.8])
    base = ancestors(name)(u[None], w_bar)[0]
    moved = ancestors(name)(u[None] + 0.15 * (1 - jnp.eye(4)), w_bar)
    assert jnp.array_equal(jnp.diag(moved), base)
    shifted = ancestors("systematic")(jnp.stack([u, u.at[1:].set(0.0)]), w_bar)
    assert jnp.array_equal(shifted[0], shifted[1])


@pytest.mark.parametrize("name", NAMES)
def test_large_populations_use_the_same_rule(name, key):
    """Above 512 particles another search runs; with weights proportional to the index the shares
    are known.
    """
    num = 600
    w_bar = jnp.arange(num) / jnp.sum(jnp.arange(num))
    picks = nvi.particles.SCHEMES[name]().ancestors(jax.random.uniform(key, (num,)), w_bar)
    assert int(picks.min()) > 0
    # E[index] = Σ s² / Σ s; multinomial draws have the largest variance.
    index = np.arange(num)
    mean = np.sum(index**2) / np.sum(index)
    spread = math.sqrt((np.sum(index**3) / np.sum(index) - mean**2) / num)
    assert abs(float(picks.mean()) - mean) < 5 * spread


@functools.cache
def resample_always(name):
    return jax.jit(nvi.Resampling(name).apply)


def cloud(num, log_w):
    return nvi.particles.Particles(
        {"z": jnp.arange(num * 2.0).reshape(num, 2)}, jnp.arange(num), jnp.asarray(log_w)
    )


@pytest.mark.parametrize("name", NAMES)
@CHECKED
@given(raw=st.lists(st.floats(-30.0, 30.0), min_size=5, max_size=5), u=st.floats(0.0, 0.99))
def test_resampling_preserves_log_Z_hat(name, raw, u, x64):
    """Every weight becomes the mean of the old ones, whatever the ancestors."""
    particles = cloud(5, raw)
    out, picks, resampled = resample_always(name)(jnp.full(5, u), particles)
    mean = math.log(math.fsum(math.exp(x) for x in raw) / 5)
    np.testing.assert_allclose(out.log_w, mean, rtol=1e-12, atol=1e-12)
    assert bool(resampled)
    np.testing.assert_array_equal(out.stats, picks)
    np.testing.assert_array_equal(out.z["z"], particles.z["z"][picks])


@pytest.mark.parametrize(
    ("when", "expected"), [("always", True), ("never", False), (0.4, False), (0.6, True)]
)
def test_rule_for_when(when, expected):
    """Weights (1, 1, 0, 0) have ESS 2 of 4: a threshold of 0.4 leaves them alone, 0.6 resamples
    them.
    """
    particles = cloud(4, [0.0, 0.0, -jnp.inf, -jnp.inf])
    out, picks, resampled = nvi.Resampling("systematic", when=when).apply(
        jnp.full(4, 0.5), particles
    )
    assert bool(resampled) is expected
    assert picks.tolist() == ([0, 0, 1, 1] if expected else [0, 1, 2, 3])
    expected_log_w = np.full(4, np.log(0.5)) if expected else np.asarray(particles.log_w)
    np.testing.assert_allclose(out.log_w, expected_log_w, rtol=1e-6)
    np.testing.assert_array_equal(out.z["z"], particles.z["z"][picks])


def test_the_threshold_is_strict():
    """ESS exactly at the threshold does not resample."""
    _, _, resampled = nvi.Resampling(when=0.5).apply(
        jnp.full(4, 0.5), cloud(4, [0.0, 0.0, -jnp.inf, -jnp.inf])
    )
    assert not bool(resampled)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("when", ["always", 0.5])
def test_all_weights_zero_stays_zero(name, when):
    """Nothing to resample from: ancestors stay in range and the weights stay zero, without NaN."""
    out, picks, _ = nvi.Resampling(name, when=when).apply(
        jnp.full(3, 0.5), cloud(3, jnp.full(3, -jnp.inf))
    )
    assert ((picks >= 0) & (picks < 3)).all()
    assert jnp.isneginf(out.log_w).all()


def test_call_draws_its_own_uniforms(key):
    rule, particles = nvi.Resampling("multinomial"), cloud(6, jnp.zeros(6))
    first, second = rule(key, particles)[1], rule(jax.random.fold_in(key, 1), particles)[1]
    assert jnp.array_equal(first, rule(key, particles)[1])
    assert not jnp.array_equal(first, second)


def test_take_gathers_the_particle_axis_only():
    """Leaves whose other axes have size S too, and stacks with S entries, are gathered along the
    particle axis alone.
    """
    square, row = jnp.arange(9.0).reshape(3, 3), jnp.arange(9.0).reshape(3, 1, 3)
    particles = nvi.particles.Particles(
        {"square": square, "row": row}, (jnp.arange(3), square.T), jnp.zeros(3)
    )
    picks, log_w = jnp.array([2, 2, 0]), jnp.array([5.0, 6.0, 7.0])
    out = take(particles, picks, log_w)
    np.testing.assert_array_equal(out.z["square"], [[6, 7, 8], [6, 7, 8], [0, 1, 2]])
    np.testing.assert_array_equal(out.z["row"], [[[6, 7, 8]], [[6, 7, 8]], [[0, 1, 2]]])
    np.testing.assert_array_equal(out.stats[0], [2, 2, 0])
    np.testing.assert_array_equal(out.stats[1], [[2, 5, 8], [2, 5, 8], [0, 3, 6]])
    np.testing.assert_array_equal(out.log_w, log_w)


@pytest.mark.parametrize("when", [0.0, 1.5, -0.1])
def test_a_threshold_out_of_range_is_refused(when):
    with pytest.raises(ValueError, match=r"\(0, 1\]"):
        nvi.Resampling(when=when)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(nvi.errors.UnknownNameError, match="'systematic'"):
        nvi.Resampling("systmatic")
    with pytest.raises(nvi.errors.UnknownNameError, match="'always'"):
        nvi.Resampling(when="allways")


def test_residual_is_unbiased_with_many_particles():
    """Rounding allowances must not grow with S: 100 000 particles in float32 whose S w̄ lies just
    under whole numbers.
    """
    num = 100_000
    copies = np.full(num, 0.97)
    copies[:1000] = 3.97
    w_bar = jnp.asarray(copies / copies.sum(), jnp.float32)
    u = jax.random.uniform(jax.random.key(4), (num,))
    ancestors = np.asarray(jax.jit(nvi.particles.Residual().ancestors)(u, w_bar))
    counts = np.bincount(ancestors, minlength=num)
    expected = num * copies / copies.sum()
    # What is left over is drawn independently: each count varies like a Poisson number of mean
    # 0.97.
    for group in (slice(0, 1000), slice(num - 1000, num)):
        assert abs(counts[group].mean() - expected[group].mean()) < 4.5 * np.sqrt(1 / 1000)
