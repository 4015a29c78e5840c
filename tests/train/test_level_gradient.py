"""A level's gradient: local to its level, from its own divergence, and never a silent zero."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.train import orders
from tests.helpers.trained_samplers import (
    BASE,
    TARGET,
    annealing,
    assert_trees,
    discrete_sampler,
    gaussian_pair,
    gradient,
    initial,
    nvi_sampler,
    stacked,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


def perturbed(sampler, level):
    """The sampler with the reverse kernel of one level (2 … K) changed."""

    def move(x):
        return x.at[level - 2].add(0.3)

    return eqx.tree_at(lambda s: s.transitions.transition.reverse.shift, sampler, replace_fn=move)


def test_gradients_are_local(key, x64):
    """Changing r at level 4 changes no gradient at levels 2 and 3: nothing flows back. A bound's
    gradient does change there.
    """
    sampler = nvi_sampler()
    changed = perturbed(sampler, 4)
    for objective, local in ((nvi.Objective(), True), (nvi.Objective(kind="bound"), False)):
        one, two = (
            gradient(key, s, objective, 8).grads.transitions.transition.forward.shift
            for s in (sampler, changed)
        )
        assert bool(jnp.allclose(one[:2], two[:2], rtol=1e-12, atol=0)) == local
        assert not np.allclose(one[2], two[2])


def test_a_level_learns_from_its_own_divergence_only(key, x64):
    """φ̂ and φ̌ of level 3 from the particles that entered it, by the formula written out (reverse
    KL, log q held).
    """
    sampler = nvi_sampler()
    got = gradient(key, sampler, nvi.Objective(), 8).grads.transitions.transition
    history = nvi.run(key, sampler, 8, history=True).history
    level, prev, w_bar = sampler.level(3), history.z[1, :, 0], jax.nn.softmax(history.log_w[1])
    fixed = level.transition.forward

    def log_q(z, k):
        return jax.scipy.stats.norm.logpdf(
            z, k.slope[0] * prev + k.shift[0], jnp.exp(k.log_scale[0])
        )

    eps = (history.z[2, :, 0] - fixed.slope[0] * prev - fixed.shift[0]) / jnp.exp(
        fixed.log_scale[0]
    )

    def divergence(kernels):
        q, r = kernels.forward, kernels.reverse
        z = q.slope[0] * prev + q.shift[0] + jnp.exp(q.log_scale[0]) * eps
        log_base, log_target = (jax.scipy.stats.norm.logpdf(z, *at) for at in (BASE, TARGET))
        log_gamma = (1 - level.theta) * log_base + level.theta * log_target
        log_r = jax.scipy.stats.norm.logpdf(
            prev, r.slope[0] * z + r.shift[0], jnp.exp(r.log_scale[0])
        )
        return -jnp.sum(w_bar * (log_gamma + log_r - log_q(z, fixed)))

    expected = jax.grad(divergence)(level.transition)
    assert_trees(jax.tree.map(lambda x: x[1], got), expected)


def test_first_level_is_a_mean_not_a_sum(key):
    """The scale of q_1's gradient must not grow with the number of particles; the exact one is
    known for two Gaussians.
    """
    sampler = nvi.NestedSampler(initial(), annealing(2), stacked(gaussian_pair, 1))
    objective = nvi.Objective(learn=("initial",))
    keys = jax.random.split(key, 400)
    # KL(N(0, 1.7²) ‖ N(0.3, 1.5²)): derivatives in the mean and in the log scale.
    exact = np.array([-BASE[0] / BASE[1] ** 2, (1.7 / BASE[1]) ** 2 - 1])
    for num in (5, 80):
        grads = jax.jit(
            jax.vmap(lambda k, n=num: orders.gradient(k, sampler, objective, n).grads.initial)
        )(keys)
        got = np.stack([np.asarray(grads.loc[:, 0]), np.asarray(grads.log_scale[:, 0])], axis=1)
        error = got.std(axis=0, ddof=1) / np.sqrt(len(keys))
        np.testing.assert_array_less(np.abs(got.mean(axis=0) - exact), 5 * error)
        assert (error < 0.3).all()


@pytest.mark.slow
def test_discrete_kernels_learn(key):
    """Never a silent zero: a score term under "auto" and "score", an error under "pathwise"."""
    sampler = discrete_sampler()
    for estimator in ("auto", "score"):
        grads = gradient(key, sampler, nvi.Objective(estimator=estimator), 16).grads
        assert np.abs(grads.transitions.transition.forward.logits).max(axis=(1, 2)).min() > 1e-3
    with pytest.raises(nvi.errors.MissingScoreError):
        gradient(key, sampler, nvi.Objective(estimator="pathwise"), 16)
