"""What a sampler may be made of: refusals at construction, and stacks of any kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.sampler.run import run
from tests.helpers.finite import TableChain
from tests.helpers.gaussian_samplers import gaussian_pair


def test_wrong_number_of_transitions():
    base = nvi.DiagonalNormal(0.0, 1.0)
    path = nvi.Annealing(base, base, nvi.LinearSchedule(4))
    with pytest.raises(ValueError, match="K-1 = 3 transitions; got 2"):
        nvi.NestedSampler(base, path, nvi.Stacked(nvi.stack(jax.random.key(0), gaussian_pair, 2)))
    pair = gaussian_pair(jax.random.key(0))
    with pytest.raises(ValueError, match="each of 3 moves; got 2"):
        nvi.NestedSampler(base, path, [pair] * 3, (nvi.Resampling(), nvi.Resampling()))
    with pytest.raises(TypeError, match="sampled exactly"):
        nvi.NestedSampler(lambda z: 0.0, path, [pair] * 3)


def test_stacks_must_be_stacked():
    """A matrix of one move taken for a stack of vectors would run, and move all coordinates by one
    number.
    """
    base = nvi.DiagonalNormal(jnp.zeros(2), 1.0)
    with pytest.raises(ValueError, match=r"RandomWalk .* got shapes \(\)\. .*Shared"):
        nvi.Stacked(nvi.RandomWalk(0.3))
    with pytest.raises(ValueError, match=r"shapes \(\), \(2, 2\)"):
        nvi.Stacked(nvi.Hamiltonian(0.3, jnp.eye(2)))
    with pytest.raises(ValueError, match="no arrays"):
        nvi.kernels.Chain(nvi.kernels.Invariant(lambda key, z, log_gamma: z))
    path = nvi.Annealing(base, base, nvi.LinearSchedule(3))
    with pytest.raises(ValueError, match=r"square matrix; got shape \(2,\)"):
        nvi.run(
            jax.random.key(0),
            nvi.NestedSampler(base, path, nvi.Shared(nvi.Hamiltonian(0.3, jnp.ones(2)), 2)),
            4,
        )


def test_moves_that_would_make_weights_improper_are_refused():
    base, kernel = nvi.DiagonalNormal(0.0, 1.0), gaussian_pair(jax.random.key(0)).forward
    with pytest.raises(ValueError, match="needs a reverse kernel"):
        nvi.compose(nvi.propose(base, base), nvi.propose(nvi.Transition(kernel), base))
    with pytest.raises(ValueError, match="needs a reverse kernel"):
        nvi.NestedSampler(
            base,
            nvi.paths.DensitySequence([base, base]),
            [nvi.Transition(nvi.kernels.Independent(base))],
        )
    chain = nvi.kernels.Chain(
        nvi.stack(jax.random.key(1), lambda key: nvi.Transition(gaussian_pair(key).forward), 2)
    )
    with pytest.raises(ValueError, match="needs a reverse kernel"):
        nvi.NestedSampler(base, nvi.Annealing(base, base, nvi.LinearSchedule(2)), [chain])
    path = nvi.StateSpace(
        TableChain(jnp.zeros(2), jnp.zeros((2, 2)), jnp.zeros((2, 2))), jnp.zeros(3, int)
    )
    for move, named in (
        (nvi.Transition(kernel, kernel), "a reverse kernel"),
        (nvi.PlanarFlow(1, key=jax.random.key(0)), "a flow"),
    ):
        with pytest.raises(ValueError, match=f"StateSpace grows.*{named}"):
            nvi.NestedSampler(base, path, nvi.Shared(move, 2))


class Net(nvi.AbstractDensity):
    """A density with a leaf that is not an array."""

    weight: jax.Array
    activation: object

    def log_gamma(self, z):
        return jnp.sum(self.activation(self.weight * z)) - 0.5 * jnp.sum(z**2)


def test_stacked_densities_may_hold_functions(key):
    """Networks carry their activation as a leaf; only arrays have a level axis."""

    def make(k):
        return Net(jax.random.normal(k, (1,)), jnp.tanh)

    path = nvi.paths.StackedDensities(nvi.stack(key, make, 3))
    kernels = nvi.Stacked(nvi.stack(jax.random.key(3), gaussian_pair, 2))
    sampler = nvi.NestedSampler(nvi.DiagonalNormal(0.0, 1.0), path, kernels)
    assert np.isfinite(run(key, sampler, 4).log_Z_hat)


def test_a_missing_reverse_kernel_is_refused(key):
    """On one space a forward kernel alone gives improper weights."""
    base = nvi.DiagonalNormal(jnp.zeros(1), 1.0)
    path = nvi.Annealing(base, base, nvi.LinearSchedule(2))
    with pytest.raises(ValueError, match="needs a reverse kernel"):
        nvi.NestedSampler(base, path, [nvi.Transition(nvi.ResidualGaussian(1, key=key))])
    with pytest.raises(TypeError, match="pair"):
        nvi.propose((nvi.ResidualGaussian(1, key=key),), base)
    with pytest.raises(TypeError, match="Stacked"):
        nvi.NestedSampler(base, path, nvi.RandomWalk(jnp.ones(1)))
    with pytest.raises(ValueError, match="num_particles is 1 or more; got 0"):
        nvi.run(key, nvi.NestedSampler(base, path, [nvi.RandomWalk(jnp.ones(1))]), 0)
