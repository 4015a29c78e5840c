"""Levels with exact samples: unbiased gradients for both sides, whichever is drawn from.

Expected gradients come from sums and quadrature; estimates are averages over keys, and must lie
within five standard errors.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi
from tests.helpers.closed_forms import (
    CASES,
    NAMES,
    divergences,
    jacobians,
    log_normalise,
    with_value,
)
from tests.helpers.finite import Table

pytestmark = pytest.mark.usefixtures("x64")

N = 3
KEYS = 4000


def estimates(build, p, baseline, num_samples=3):
    """The gradient (row per divergence) and the reported divergence for many keys."""

    def one(key):
        def fn(p):
            pairs = [
                build(p).surrogate(key, CASES[n][0](), num_samples, baseline=baseline)
                for n in NAMES
            ]
            return tuple(jnp.stack(x) for x in zip(*pairs, strict=True))

        return jax.jacrev(fn, has_aux=True)(p)

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(5), KEYS))


def assert_unbiased(samples, expected):
    for got, want in zip(jax.tree.leaves(samples), jax.tree.leaves(expected), strict=True):
        error = np.std(got, axis=0, ddof=1) / np.sqrt(KEYS)
        np.testing.assert_array_less(np.abs(np.mean(got, axis=0) - want), 5 * error + 1e-9)
        # An estimate so noisy that it could be anything would prove nothing.
        assert np.median(error) < 0.2 * np.abs(want).max()


@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize("side", ["proposal", "target"])
def test_discrete(side, baseline):
    """Both sides' parameters and the divergence itself, for every f."""
    rng = np.random.default_rng(0)
    p = {
        "target": jnp.asarray(0.6 * rng.normal(size=N) + 1),
        "proposal": jnp.asarray(0.6 * rng.normal(size=N) - 2),
    }
    exact = with_value(
        lambda p: divergences(NAMES, log_normalise(p["target"]), log_normalise(p["proposal"]))
    )
    expected = jacobians(exact, p)

    def build(p):
        return nvi.divergences.ExactLevel(
            Table(p["target"]), Table(p["proposal"]), sample_from=side
        )

    assert_unbiased(estimates(build, p, baseline), expected)


class Located(eqx.Module):
    """b | a ~ N(loc[a], scale)."""

    loc: jax.Array
    log_scale: jax.Array

    def __call__(self, a, context):
        return dist.Normal(self.loc[a], jnp.exp(self.log_scale))


class Classify(eqx.Module):
    """a | b ~ softmax(bias + gain b)."""

    bias: jax.Array
    gain: jax.Array

    def __call__(self, b, context):
        return dist.Categorical(logits=self.bias + self.gain * b[0])


class Lift(nvi.AbstractKernel):
    """Draws of shape (1,) for a scalar kernel, to match the Gaussian's particles."""

    kernel: nvi.DistributionKernel

    @property
    def reparameterised(self):
        return self.kernel.reparameterised

    def sample(self, key, z, context):
        return self.kernel.sample(key, z, context)[None]

    def log_prob(self, z_new, z, context):
        return self.kernel.log_prob(z_new[0], z, context)


def mixed_level(p, side):
    """p(a) p(b | a) against q(b) q(a | b): discrete and continuous parts on both sides, in both
    orders.
    """
    left = nvi.kernels.Joint(
        Table(p["a"]), Lift(nvi.DistributionKernel(p["b|a"], reparameterised=True))
    )
    gaussian = eqx.tree_at(lambda d: (d.loc, d.log_scale), nvi.DiagonalNormal(0.0, 1.0), p["b"])
    right = nvi.kernels.Joint(
        gaussian, nvi.DistributionKernel(p["a|b"], reparameterised=False), flipped=True
    )
    assert not left.reparameterised and not right.reparameterised
    return nvi.divergences.ExactLevel(left, right, sample_from=side)


@pytest.mark.parametrize("side", ["proposal", "target"])
def test_mixed_joints(side):
    """Pathwise for the continuous part, score function for the discrete one, in whichever order
    they are drawn.
    """
    grid = np.linspace(-9.0, 9.0, 121)
    cell = np.log(grid[1] - grid[0])
    p = {
        "a": jnp.array([0.4, -0.3]),
        "b|a": Located(jnp.array([-0.6, 0.7]), jnp.asarray(-0.1)),
        "b": (jnp.array([0.2]), jnp.array([0.15])),
        "a|b": Classify(jnp.array([0.3, -0.2]), jnp.array([-0.5, 0.4])),
    }

    def exact(p):
        def normal(loc, log_scale):
            return jax.scipy.stats.norm.logpdf(grid, loc, jnp.exp(log_scale))

        left = jnp.stack(
            [
                log_normalise(p["a"])[i] + normal(p["b|a"].loc[i], p["b|a"].log_scale)
                for i in range(2)
            ]
        )
        right = normal(p["b"][0][0], p["b"][1][0]) + jax.nn.log_softmax(
            p["a|b"].bias[:, None] + p["a|b"].gain[:, None] * grid, axis=0
        )
        return divergences(NAMES, left, right, cell)

    assert_unbiased(
        estimates(lambda p: mixed_level(p, side), p, True), jacobians(with_value(exact), p)
    )


def test_a_level_is_a_pytree_of_arrays(key):
    """`flipped` is structure, not data: a plain jit takes a level, and every leaf is an array."""
    kernel = nvi.kernels.GaussianKernel(jnp.ones(1), jnp.zeros(1), jnp.zeros(1))
    level = nvi.divergences.ExactLevel(
        nvi.kernels.Joint(nvi.DiagonalNormal(0.0, 1.0), kernel),
        nvi.kernels.Joint(nvi.DiagonalNormal(0.0, 1.0), kernel, flipped=True),
    )
    assert all(eqx.is_array(x) for x in jax.tree.leaves(level))
    assert np.isfinite(jax.jit(lambda level: level.surrogate(key, "reverse-kl", 4)[1])(level))


def test_unknown_side():
    with pytest.raises(nvi.errors.UnknownNameError, match="proposal"):
        nvi.divergences.ExactLevel(Table(jnp.zeros(2)), Table(jnp.zeros(2)), sample_from="propsal")


@pytest.mark.parametrize("side", ["proposal", "target"])
def test_samples_that_are_there_already(key, side):
    """Drawing and scoring apart give what they give together."""
    p = [jnp.array([0.4, -0.3]), jnp.array([0.1, 0.2])]

    def both(p, fn):
        return fn(nvi.divergences.ExactLevel(Table(p[0]), Table(p[1]), sample_from=side))

    together = jax.grad(lambda p: both(p, lambda level: level.surrogate(key, "forward-kl", 5))[0])(
        p
    )
    apart = jax.grad(
        lambda p: both(p, lambda level: level.surrogate_at(level.draw(key, 5), "forward-kl"))[0]
    )(p)
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_held_gets_no_gradient(key):
    """Held target, free proposal: only the second learns, whichever side is drawn from."""
    for side in ("proposal", "target"):

        def build(p, side=side):
            return nvi.divergences.ExactLevel(nvi.hold(Table(p[0])), Table(p[1]), sample_from=side)

        gradient = jax.grad(lambda p, build=build: build(p).surrogate(key, "reverse-kl", 8)[0])(
            [jnp.array([0.4, -0.3]), jnp.zeros(2)]
        )
        assert not gradient[0].any() and gradient[1].any()
