"""`run` with keys: unbiased, the same whichever way levels are stored, open to transformations, and
clear when it fails.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi
from nestedvi.sampler.run import run
from tests.helpers.gaussian_samplers import annealed


def unstacked(sampler):
    """The same sampler with its levels in tuples."""
    levels = [sampler.level(k) for k in range(2, sampler.num_levels + 1)]
    rules = tuple(level.resampling for level in levels)
    return nvi.NestedSampler(
        sampler.initial, sampler.path, tuple(level.transition for level in levels), rules
    )


def assert_unbiased(log_Z_hats, log_Z):
    """Mean of Ẑ/Z within 4.5 of its standard errors of one, and a standard error that means
    something.
    """
    ratio = np.exp(np.asarray(log_Z_hats, dtype=np.float64) - log_Z)
    error = ratio.std(ddof=1) / np.sqrt(ratio.size)
    assert error < 0.1
    assert abs(ratio.mean() - 1) < 4.5 * error


@pytest.mark.parametrize(
    "rule",
    [None, ("systematic", "always"), ("stratified", 0.6), ("multinomial", 0.6), ("residual", 0.6)],
)
def test_log_Z_hat_is_unbiased(rule, key):
    sampler = annealed(resampling=None if rule is None else nvi.Resampling(*rule))
    runs = jax.jit(jax.vmap(lambda k: nvi.run(k, sampler, 8)))(jax.random.split(key, 4000))
    assert_unbiased(runs.log_Z_hat, 1.2)
    if rule and rule[1] == 0.6:
        assert 0.02 < np.mean(runs.info.resampled[:, 1:]) < 0.98, (
            "both branches of the rule must occur"
        )


def test_log_Z_hat_is_unbiased_on_the_ring(key):
    """The paper's target by adaptive SMC with random-walk moves."""
    base = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
    moves = nvi.Shared(nvi.RandomWalk(jnp.asarray(1.5), steps=3), 15)
    path = nvi.Annealing(base, nvi.targets.ring(), nvi.LinearSchedule(16))
    sampler = nvi.NestedSampler(base, path, moves, nvi.Resampling("systematic", 0.5))
    runs = jax.jit(jax.vmap(lambda k: nvi.run(k, sampler, 128)))(jax.random.split(key, 200))
    assert_unbiased(runs.log_Z_hat, np.log(8.0))


@pytest.mark.slow
@pytest.mark.parametrize("rule", [("systematic", 0.6), ("multinomial", "always")])
def test_stacked_and_unequal_levels_agree(rule, key, x64):
    """A scan over stacked levels and a loop over a tuple are the same sampler."""
    stacked = annealed(num_levels=3, resampling=nvi.Resampling(*rule))
    loose = unstacked(stacked)
    assert stacked.homogeneous and not loose.homogeneous
    one, other = (run(key, s, 16, history=True) for s in (stacked, loose))
    np.testing.assert_array_equal(one.ancestors, other.ancestors)
    for a, b in zip(jax.tree.leaves(one.info), jax.tree.leaves(other.info), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    for k, kept in enumerate(other.history):
        np.testing.assert_allclose(one.history.z[k], kept.z, rtol=1e-12)
    plain = run(key, loose, 16)
    np.testing.assert_allclose(plain.particles.log_w, one.particles.log_w, rtol=1e-12)
    assert plain.history is None


def test_history_and_ancestors(key):
    """Shapes, and trajectories whose increments multiply to the final weights when nothing is
    resampled away.
    """
    sampler = annealed(num_levels=5, resampling=nvi.Resampling("systematic", "always"), dim=2)
    result = run(key, sampler, 10, history=True)
    assert result.history.z.shape == (5, 10, 2) and result.ancestors.shape == (4, 10)
    assert (
        result.info.ess.shape == (5,)
        and not bool(result.info.resampled[0])
        and bool(result.info.resampled[1:].all())
    )
    np.testing.assert_array_equal(result.history.z[-1], result.particles.z)
    paths = nvi.particles.trajectories(result.history.z, result.ancestors)
    np.testing.assert_array_equal(paths[-1], result.particles.z)
    # Walking back one particle at a time must give the same path.
    index = 7
    for k in range(4, -1, -1):
        np.testing.assert_array_equal(paths[k, 7], result.history.z[k, index])
        index = int(result.ancestors[k - 1, index]) if k else index


def test_weights_follow_the_recorded_path(key, x64):
    """w_K of each particle, recomputed from its whole trajectory by the formula γ_K Π r / (q_1 Π
    q).
    """
    sampler = annealed(num_levels=4)
    result = run(key, sampler, 6, history=True)
    z = result.history.z
    log_w = jax.vmap(sampler.path.target.log_gamma)(z[-1]) - jax.vmap(sampler.initial.log_gamma)(
        z[0]
    )
    # γ_1 cancels with nothing: the annealing path starts at the base, which here is q_1.
    for k in range(2, 5):
        kernels = sampler.level(k).transition
        score = jax.vmap(
            lambda new, old, t=kernels: (
                t.reverse.log_prob(old, new, None) - t.forward.log_prob(new, old, None)
            )
        )
        log_w = log_w + score(z[k - 1], z[k - 2])
    np.testing.assert_allclose(result.particles.log_w, log_w, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("double", [False, True])
def test_precision_is_kept(double, key):
    with jax.enable_x64(double):
        result = run(key, annealed(resampling=nvi.Resampling(when=0.5)), 8, history=True)
        dtypes = {x.dtype for x in jax.tree.leaves(result) if jnp.issubdtype(x.dtype, jnp.floating)}
        assert dtypes == {jnp.dtype(jnp.float64 if double else jnp.float32)}


def test_single_precision_parts_run_under_double(key):
    """A float32 sampler stays usable when the process has switched to float64."""
    sampler = annealed(resampling=nvi.Resampling(when=0.5))
    with jax.enable_x64(True):
        assert np.isfinite(run(key, sampler, 8).log_Z_hat)


def test_same_key_same_result_and_new_key_new_result(key):
    sampler = annealed()
    a, b = run(key, sampler, 8), run(key, sampler, 8)
    np.testing.assert_array_equal(a.particles.z, b.particles.z)
    assert not np.array_equal(a.particles.z, run(jax.random.key(1), sampler, 8).particles.z)


def test_jit_vmap_and_grad(key, x64):
    """A run is a pure function; its derivative is that of the same draws (finite differences with
    the same key).
    """
    sampler = annealed()
    diff, fixed = eqx.partition(sampler, eqx.is_inexact_array)
    value = jax.jit(lambda d, k: nvi.run(k, eqx.combine(d, fixed), 8).log_Z_hat)
    grads = jax.jit(jax.grad(value))(diff, key)
    direction = jax.tree.map(
        lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), diff
    )

    def step(h):
        return jax.tree.map(lambda x, d: x + h * d, diff, direction)

    numeric = (value(step(1e-5), key) - value(step(-1e-5), key)) / 2e-5
    exact = sum(
        jnp.vdot(g, d)
        for g, d in zip(jax.tree.leaves(grads), jax.tree.leaves(direction), strict=True)
    )
    np.testing.assert_allclose(exact, numeric, rtol=1e-6)
    keys = jax.random.split(key, 3)
    many = jax.jit(jax.vmap(lambda k: value(diff, k)))(keys)
    np.testing.assert_allclose(many, [value(diff, k) for k in keys], rtol=1e-10)


def drawn_often(num_levels=3):
    """A first density that is not q_1, so that the first weights differ, and arbitrary kernels
    after it.
    """
    sampler = annealed(num_levels, resampling=nvi.Resampling("systematic", 0.6))
    return eqx.tree_at(lambda s: s.initial, sampler, nvi.DiagonalNormal(jnp.full(1, 0.5), 3.0))


def test_many_first_draws_leave_log_Z_hat_unbiased(key):
    """Of five draws for each particle one goes on; E[Ẑ] = Z, with less spread than one draw each
    leaves.
    """
    sampler = drawn_often()
    one, five = (
        jax.jit(jax.vmap(lambda k, d=draws: nvi.run(k, sampler, 4, draws=d)))(
            jax.random.split(key, 4000)
        )
        for draws in (1, 5)
    )
    assert_unbiased(five.log_Z_hat, 1.2)
    assert np.std(np.exp(five.log_Z_hat)) < 0.95 * np.std(np.exp(one.log_Z_hat))
    assert five.drawn_log_w.shape == (4000, 20) and one.drawn_log_w.shape == (4000, 4)
    assert np.all(five.info.resampled[:, 0]) and not np.any(one.info.resampled[:, 0])


def mixture():
    return nvi.densities.GaussianMixture(jnp.array([[-1.0], [2.0]]), 1.5, [0.3, 0.7])


FIRST_DENSITIES = {
    "normal": lambda: nvi.DiagonalNormal(jnp.zeros(1), 2.0),
    "mixture": mixture,
    "unlike mixture": lambda: nvi.densities.Mixture(
        (mixture(), nvi.DiagonalNormal(jnp.zeros(1), 2.0)), jnp.zeros(2)
    ),
    "correlated": lambda: nvi.densities.CorrelatedMixture(
        jnp.array([[-1.0], [2.0]]), jnp.array([[[1.5]], [[1.2]]]), jnp.zeros(2)
    ),
    "affine": lambda: nvi.densities.Affine(mixture(), jnp.ones(1), jnp.full((1, 1), 1.2)),
    "student": lambda: nvi.densities.StudentMixture(
        jnp.array([[0.0], [1.0]]), jnp.array([[[1.5]], [[1.2]]]), jnp.zeros(2)
    ),
    "student products": lambda: nvi.densities.StudentProducts(
        jnp.array([[0.0], [1.0]]), jnp.array([[1.5], [1.2]]), jnp.zeros(2), freedom=5
    ),
    "scales": lambda: nvi.densities.ScaleMixture(1, (0.7, 2.0)),
    "numpyro": lambda: nvi.densities.Numpyro(dist.Laplace(jnp.zeros(1), 1.5)),
}


@pytest.mark.parametrize(
    ("name", "draws", "num"),
    [("mixture", 2, 1), ("mixture", 16, 4), ("student", 2, 1)]
    + [
        pytest.param(name, draws, num, marks=pytest.mark.slow)
        for name in FIRST_DENSITIES
        for draws, num in ((2, 1), (4, 1), (2, 4), (16, 4))
    ],
)
def test_no_key_serves_two_purposes(name, draws, num):
    """E[Ẑ] = 1 for a normalised target, whatever q_1 does with its keys: were one of them the
    thinning's too, draws and choice would depend on each other.
    """
    target = nvi.DiagonalNormal(jnp.full(1, 0.3), 1.2)
    initial = FIRST_DENSITIES[name]()
    path = nvi.Annealing(initial, target, nvi.LinearSchedule(3))
    moves = nvi.Shared(nvi.RandomWalk(jnp.ones(1)), 2)
    sampler = nvi.NestedSampler(initial, path, moves)
    keys = jax.random.split(jax.random.key(5), 4000)
    runs = jax.jit(jax.vmap(lambda k: nvi.run(k, sampler, num, draws=draws).log_Z_hat))(keys)
    Z_hat = np.exp(np.asarray(runs, np.float64))
    assert abs(Z_hat.mean() - 1) < 5 * Z_hat.std() / 4000**0.5


def test_after_the_draws_every_particle_has_their_mean_weight(key, x64):
    """The first level's log Ẑ is that of all draws, and those that go on are among them."""
    result = run(key, drawn_often(), 6, draws=3, history=True)
    np.testing.assert_allclose(
        result.history.log_w[0], nvi.log_Z_hat(result.drawn_log_w), rtol=1e-12
    )
    np.testing.assert_allclose(
        result.info.log_Z_hat[0], nvi.log_Z_hat(result.drawn_log_w), rtol=1e-12
    )
    with pytest.raises(ValueError, match="draws is 1 or more"):
        nvi.run(key, drawn_often(), 6, draws=0)
