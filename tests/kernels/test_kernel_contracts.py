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
from tests.helpers.moves import concrete_parts, residual

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


def test_every_kernel_is_here():
    """NextState alone has its tests elsewhere: its particles come from a state-space path."""
    seen = {type(case.kernel()).__name__ for case in KERNELS.values()}
    assert concrete_parts(nvi.AbstractKernel) - seen == {"NextState"}
