"""What every kernel promises: log q(z' | z) normalises, draws follow it, and gradients arrive by
one way or the other.

Each entry brings the outcomes that its draws can have, as nodes of a quadrature or as an
enumeration, so that one set of tests serves all. Adding a kernel to the table runs them on it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi

CONTEXT = nvi.kernels.Context(
    jnp.array(0.5), lambda z: -0.3 * jnp.sum((z - 1.0) ** 2) + 0.4 * jnp.sin(jnp.sum(z))
)
NUM_DRAWS = 8_000


class Rate(eqx.Module):
    """A network to a Poisson; its rate depends on z and on the level."""

    slope: jax.Array

    def __call__(self, z, context):
        return dist.Poisson(jnp.exp(self.slope * z + context.theta))


class Affine(eqx.Module):
    """A network to a normal."""

    slope: jax.Array
    log_scale: jax.Array

    def __call__(self, z, context):
        return dist.Normal(self.slope * z + context.theta, jnp.exp(self.log_scale))


class MeanOfState(eqx.Module):
    """A normal whose mean is chosen by the discrete part of the same move."""

    means: jax.Array

    def __call__(self, z, context):
        return dist.Normal(self.means[z["a"]] + 0.5 * z["z"], 0.8)


class StateOfMean(eqx.Module):
    """A categorical whose logits depend on the continuous part of the same move."""

    weight: jax.Array

    def __call__(self, z, context):
        return dist.Categorical(logits=self.weight * z["z"])


def residual(dim):
    """A residual kernel away from its identity start: every layer matters, and both precisions get
    the same numbers.
    """
    kernel, draw = (
        nvi.ResidualGaussian(dim, 7, key=jax.random.key(1), scale=0.7),
        np.random.default_rng(4).normal,
    )

    def where(k):
        return (k.hidden_weight, k.hidden_bias, k.out_weight)

    return eqx.tree_at(
        where, kernel, tuple(jnp.asarray(0.4 * draw(size=x.shape)) for x in where(kernel))
    )


def langevin(dim):
    """A Langevin kernel with a drift away from its zero start."""
    network, draw = (
        nvi.kernels.DriftNetwork(dim, 5, key=jax.random.key(1)),
        np.random.default_rng(5).normal,
    )
    leaves, structure = jax.tree.flatten(network)
    network = jax.tree.unflatten(structure, [jnp.asarray(0.4 * draw(size=x.shape)) for x in leaves])
    return nvi.kernels.LangevinKernel(jnp.linspace(0.2, 0.5, dim), network)


def gaussian(score_only=False):
    return nvi.kernels.GaussianKernel(
        jnp.array([0.7]), jnp.array([0.2]), jnp.array([-0.3]), score_only
    )


def categorical():
    return nvi.kernels.CategoricalKernel(
        jnp.array([[0.0, 1.0, -1.0], [0.5, 0.5, 2.0], [-3.0, 0.0, 0.3]])
    )


def state_then_mean():
    means = nvi.DistributionKernel(MeanOfState(jnp.array([-1.0, 0.0, 2.0])), reparameterised=True)
    return nvi.ProductKernel({"a": nvi.kernels.Field("a", categorical()), "z": means})


def mean_then_state():
    """The order z → a is not the alphabet's."""
    affine = nvi.DistributionKernel(Affine(jnp.array(0.7), jnp.array(-0.2)), reparameterised=True)
    states = nvi.DistributionKernel(StateOfMean(jnp.array([0.0, 1.0, -1.0])), reparameterised=False)
    return nvi.ProductKernel({"z": nvi.kernels.Field("z", affine), "a": states})


def mixture():
    return nvi.densities.GaussianMixture([[-1.5], [1.0]], 0.3, weights=[1.0, 3.0])


def line(shape=(), num=801, half_width=12.0):
    nodes = jnp.linspace(-half_width, half_width, num)
    return nodes.reshape((num, *shape)), jnp.full(num, nodes[1] - nodes[0])


def square():
    nodes, cell = line(num=201)
    return jnp.stack(jnp.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2), jnp.full(
        201**2, cell[0] ** 2
    )


def enumerate_states(num=3):
    return jnp.arange(num), jnp.ones(num)


def states_and_line():
    nodes, cell = line()
    return {"a": jnp.repeat(jnp.arange(3), nodes.shape[0]), "z": jnp.tile(nodes, 3)}, jnp.tile(
        cell, 3
    )


def appended():
    nodes, cell = line((1, 1))
    return jnp.concatenate(
        [jnp.broadcast_to(history(), (nodes.shape[0], 2, 1)), nodes], axis=1
    ), cell


def history():
    return jnp.array([[5.0], [0.4]])


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel, where it starts, every outcome with its measure, and which way its gradient
    goes.
    """

    kernel: Callable
    start: Callable
    outcomes: Callable
    way: str  # "path", "score" or "mixed"


def one():
    return jnp.array([0.4])


def scalar():
    return jnp.array(0.4)


def pair():
    return {"a": jnp.array(1), "z": jnp.array(0.4)}


vector_line = functools.partial(line, (1,))

KERNELS = {
    "residual-gaussian": Case(lambda: residual(2), lambda: jnp.array([0.4, -0.9]), square, "path"),
    "langevin": Case(lambda: nvi.kernels.LangevinKernel(0.3), one, vector_line, "path"),
    "langevin-drift": Case(lambda: langevin(2), lambda: jnp.array([0.4, -0.9]), square, "path"),
    "gaussian": Case(gaussian, one, vector_line, "path"),
    "gaussian-score": Case(lambda: gaussian(True), one, vector_line, "score"),
    "categorical": Case(categorical, lambda: jnp.array(1), enumerate_states, "score"),
    "poisson": Case(
        lambda: nvi.DistributionKernel(Rate(jnp.array(0.6)), reparameterised=False),
        scalar,
        functools.partial(enumerate_states, 60),
        "score",
    ),
    "normal": Case(
        lambda: nvi.DistributionKernel(
            Affine(jnp.array(0.6), jnp.array(-0.2)), reparameterised=True
        ),
        scalar,
        line,
        "path",
    ),
    "normal-score": Case(
        lambda: nvi.DistributionKernel(
            Affine(jnp.array(0.6), jnp.array(-0.2)), reparameterised=False
        ),
        scalar,
        line,
        "score",
    ),
    "product-state-mean": Case(state_then_mean, pair, states_and_line, "mixed"),
    "product-mean-state": Case(mean_then_state, pair, states_and_line, "mixed"),
    "field": Case(
        lambda: nvi.kernels.Field("z", gaussian()),
        lambda: {"z": jnp.array([0.4])},
        vector_line,
        "path",
    ),
    "append": Case(lambda: nvi.kernels.Append(gaussian()), history, appended, "path"),
    "append-score": Case(lambda: nvi.kernels.Append(gaussian(True)), history, appended, "score"),
    "independent": Case(
        lambda: nvi.kernels.Independent(nvi.DiagonalNormal(0.3, 1.2)), one, vector_line, "path"
    ),
    "independent-scaled": Case(
        lambda: nvi.kernels.Independent(nvi.densities.Scaled(nvi.DiagonalNormal(0.3, 1.2), 2.5)),
        one,
        vector_line,
        "path",
    ),
    "independent-mixture": Case(
        lambda: nvi.kernels.Independent(mixture()), one, vector_line, "score"
    ),
}


def features(z):
    """Moments that tell distributions apart: of every entry, and of products between entries."""
    x = jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(z)])
    return jnp.concatenate([x, x**2, jnp.sin(x), x * jnp.roll(x, 1)])


def floats(z):
    return [leaf for leaf in jax.tree.leaves(z) if jnp.issubdtype(leaf.dtype, jnp.floating)]


@dataclasses.dataclass(frozen=True)
class Facts:
    """All outcomes with their measure and scores, and draws with theirs."""

    outcomes: Any
    measure: jax.Array
    log_q: jax.Array
    log_score: jax.Array
    drawn: Any
    log_q_drawn: jax.Array


@functools.cache
def facts(name, enabled):
    """What the tests below look at, from one compiled program a kernel and precision."""
    with jax.enable_x64(enabled):
        case = KERNELS[name]
        kernel, start = case.kernel(), case.start()
        outcomes, measure = case.outcomes()
        log_q = jax.vmap(lambda z: kernel.log_prob(z, start, CONTEXT))
        log_score = jax.vmap(lambda z: kernel.log_prob_score(z, start, CONTEXT))

        @jax.jit
        def everything(keys):
            drawn = jax.vmap(lambda k: kernel.sample(k, start, CONTEXT))(keys)
            return log_q(outcomes), log_score(outcomes), drawn, log_q(drawn)

        return Facts(
            outcomes, measure, *everything(jax.random.split(jax.random.key(20211), NUM_DRAWS))
        )


@pytest.mark.parametrize("name", KERNELS)
def test_normalised_and_sampled_faithfully(name, x64):
    """Σ q(z' | z) = 1 over all outcomes, and moments of draws agree with it within five standard
    errors.
    """
    known = facts(name, True)
    q = known.measure * jnp.exp(known.log_q)
    np.testing.assert_allclose(jnp.sum(q), 1.0, atol=1e-9)
    found = jax.vmap(features)(known.drawn)
    stderr = jnp.std(found, axis=0) / math.sqrt(NUM_DRAWS)
    gap = jnp.abs(jnp.mean(found, axis=0) - q @ jax.vmap(features)(known.outcomes))
    assert (gap < 5 * stderr + 1e-9).all()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("enabled", [False, True])
def test_shapes_and_precision(name, enabled):
    """A draw is shaped like an outcome, and draws and scores have the working precision, under jit
    and vmap.
    """
    known, dtype = facts(name, enabled), jnp.float64 if enabled else jnp.float32
    for drawn, outcome in zip(
        jax.tree.leaves(known.drawn), jax.tree.leaves(known.outcomes), strict=True
    ):
        assert drawn.shape == (NUM_DRAWS, *outcome.shape[1:])
    assert all(leaf.dtype == dtype for leaf in floats(known.drawn))
    assert known.log_q.shape == known.log_score.shape == known.measure.shape
    assert known.log_q.dtype == known.log_score.dtype == known.log_q_drawn.dtype == dtype


@pytest.mark.parametrize("name", KERNELS)
def test_float32_scores_are_those_of_float64(name):
    low, high = facts(name, False).log_q, facts(name, True).log_q
    np.testing.assert_allclose(low, high, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", KERNELS)
def test_score_term(name, x64):
    """log q̃ is nothing for what is reparameterised and log q for what is not; a mixture of both is
    neither.
    """
    case, known = KERNELS[name], facts(name, True)
    assert case.kernel().reparameterised is (case.way == "path")
    if case.way == "path":
        assert not known.log_score.any()
    elif case.way == "score":
        assert jnp.array_equal(known.log_score, known.log_q)
    else:
        assert known.log_score.any() and not jnp.allclose(known.log_score, known.log_q)


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_in_the_parameters(name, key, x64):
    """Through log q: the finite difference. Through a draw: that too if it is reparameterised,
    exactly zero if it is not.
    """
    case = KERNELS[name]
    arrays, static = eqx.partition(case.kernel(), eqx.is_inexact_array)
    start, outcomes = case.start(), case.outcomes()[0]
    outcome = jax.tree.map(lambda x: x[x.shape[0] // 2 + 1], outcomes)

    def values(t):
        moved = jax.tree.map(
            lambda x: x + t * jnp.cos(1.0 + jnp.arange(x.size)).reshape(x.shape), arrays
        )
        kernel = eqx.combine(moved, static)
        drawn = jnp.concatenate(
            [jnp.ravel(x) for x in floats(kernel.sample(key, start, CONTEXT))] or [jnp.zeros(1)]
        )
        return jnp.stack([kernel.log_prob(outcome, start, CONTEXT), jnp.sum(jnp.sin(drawn))])

    above, below = jax.jit(jax.vmap(values))(jnp.array([1e-5, -1e-5]))
    difference, slope = (above - below) / 2e-5, jax.jit(jax.jacrev(values))(0.0)
    np.testing.assert_allclose(slope[0], difference[0], rtol=1e-5, atol=1e-7)
    if case.way == "score":
        assert float(slope[1]) == 0.0
    elif case.way == "path":  # in a mixture each part goes its own way: see test_product.py
        assert abs(float(difference[1])) > 1e-3
        np.testing.assert_allclose(slope[1], difference[1], rtol=1e-5)


def test_a_kernel_without_a_score_term_is_refused(key):
    """Neither a pathwise gradient nor a score term would be a silent zero gradient."""

    class Silent(nvi.AbstractKernel):
        @property
        def reparameterised(self):
            return False

        def sample(self, key, z, context):
            return jax.lax.stop_gradient(z)

        def log_prob(self, z_new, z, context):
            return jnp.zeros(())

    with pytest.raises(
        nvi.errors.MissingScoreError, match=r"Silent is not reparameterised.*log_prob_score"
    ):
        nvi.Transition(Silent()).score(jnp.zeros(1), jnp.zeros(1), None, CONTEXT)


def test_a_distribution_declared_reparameterised_must_be(key):
    kernel = nvi.DistributionKernel(Rate(jnp.array(0.6)), reparameterised=True)
    with pytest.raises(
        ValueError, match=r"Poisson has no pathwise gradient.*reparameterised=False"
    ):
        kernel.sample(key, jnp.array(0.4), CONTEXT)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
@pytest.mark.parametrize(
    "make",
    [
        lambda: residual(2),
        lambda: nvi.kernels.GaussianKernel(jnp.ones(2), jnp.zeros(2), jnp.zeros(2)),
    ],
)
def test_particles_of_the_wrong_shape_are_refused(make, shape, key):
    """Broadcasting must not hide that a kernel was built for another dimension."""
    with pytest.raises(ValueError, match=r"shape \(2,\); got shape"):
        make().sample(key, jnp.zeros(shape), CONTEXT)
    with pytest.raises(ValueError, match=r"shape \(2,\); got shape"):
        make().log_prob(jnp.zeros(2), jnp.zeros(shape), CONTEXT)


@pytest.mark.parametrize(("dim", "hidden"), [(0, 5), (2, 0)])
def test_a_residual_kernel_needs_a_size(dim, hidden, key):
    with pytest.raises(ValueError, match="dim ≥ 1 and hidden ≥ 1"):
        nvi.ResidualGaussian(dim, hidden, key=key)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_a_residual_kernel_starts_as_the_identity_plus_noise(scale, key, x64):
    z = jnp.array([3.0, -2.0])
    loc, found = nvi.ResidualGaussian(2, key=key, scale=scale).params(z)
    np.testing.assert_allclose(loc, z)
    np.testing.assert_allclose(found, scale, rtol=1e-6)


def test_the_residual_network_by_hand(x64):
    """μ = z + W_μ h + b_μ, σ = softplus(W_σ h + b_σ), h = relu(W_h z + b_h), with plain loops."""
    kernel, z = residual(2), np.array([0.4, -0.9])
    w, b, v, c = (
        np.asarray(x)
        for x in (kernel.hidden_weight, kernel.hidden_bias, kernel.out_weight, kernel.out_bias)
    )
    h = [max(0.0, sum(z[i] * w[i, j] for i in range(2)) + b[j]) for j in range(7)]
    out = [sum(h[j] * v[j, m] for j in range(7)) + c[m] for m in range(4)]
    loc, scale = kernel.params(jnp.asarray(z))
    np.testing.assert_allclose(loc, [z[0] + out[0], z[1] + out[1]], rtol=1e-12)
    np.testing.assert_allclose(
        scale, [math.log1p(math.exp(out[2])), math.log1p(math.exp(out[3]))], rtol=1e-12
    )


def test_stack_makes_modules_of_their_own(key):
    stacked = nvi.stack(key, lambda k: nvi.ResidualGaussian(2, 3, key=k), 4)
    assert stacked.hidden_weight.shape == (4, 2, 3)
    assert len({row.tobytes() for row in np.asarray(stacked.hidden_weight)}) == 4


@pytest.mark.parametrize("dim, hidden", [(1, 5), (2, 50), (3, 7)])
def test_hidden_units_of_a_residual_gaussian_look_everywhere(dim, hidden, key):
    """Frames of orthogonal unit vectors and their opposites: over whole frames the directions' mean
    is zero and their second moment that of the sphere."""
    weight = np.asarray(nvi.ResidualGaussian(dim, hidden, key=key).hidden_weight)
    assert weight.shape == (dim, hidden)
    np.testing.assert_allclose(np.linalg.norm(weight, axis=0), 3**-0.5, rtol=1e-5)
    whole = weight[:, : hidden - hidden % (2 * dim)] * 3**0.5
    np.testing.assert_allclose(whole.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(whole @ whole.T / whole.shape[1], np.eye(dim) / dim, atol=1e-5)
