"""Samplers of every kind that training distinguishes, and their compiled gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.train import orders
from tests.helpers.finite import Table

ALL = ("initial", "forward", "reverse", "path")
BASE, TARGET = (0.3, 1.5), (1.0, 0.8)

gradient = eqx.filter_jit(orders.gradient)


def gaussian(key, dim=1):
    slope, shift, scale = 0.3 * jax.random.normal(key, (3, dim))
    return nvi.kernels.GaussianKernel(0.8 + slope, shift, scale)


def gaussian_pair(key, dim=1):
    a, b = jax.random.split(key)
    return nvi.Transition(gaussian(a, dim), gaussian(b, dim))


def annealing(num_levels, dim=1):
    base, target = (
        nvi.DiagonalNormal(jnp.full(dim, BASE[0]), BASE[1]),
        nvi.DiagonalNormal(jnp.full(dim, TARGET[0]), TARGET[1]),
    )
    return nvi.Annealing(base, nvi.densities.Scaled(target, 0.7), nvi.LearnedSchedule(num_levels))


def initial(dim=1):
    return nvi.DiagonalNormal(jnp.zeros(dim), 1.7)


def stacked(make, num):
    return nvi.Stacked(nvi.stack(jax.random.key(3), make, num))


class HMM(nvi.AbstractStateSpaceModel):
    """z_k ~ N(0.8 z_{k-1}, 1), x_k ~ N(z_k, 0.5²), up to constants."""

    def log_initial(self, z):
        return -0.5 * z[0] ** 2

    def log_transition(self, z, z_prev):
        return -0.5 * (z[0] - 0.8 * z_prev[0]) ** 2

    def log_observation(self, x, z):
        return -2.0 * (x - z[0]) ** 2


class Psi(nvi.paths.AbstractHeuristic):
    """A heuristic that all levels share."""

    gain: jax.Array
    centre: jax.Array

    def messages(self, eta, observations):
        return nvi.paths.Messages(jnp.arange(1, len(observations) + 1))

    def log_psi(self, message, z):
        return -0.5 * jnp.exp(self.gain) * (z[0] - self.centre * message) ** 2


def heuristic():
    return Psi(jnp.asarray(-0.5), jnp.asarray(0.3))


def nvi_sampler():
    return nvi.NestedSampler(initial(), annealing(4), stacked(gaussian_pair, 3))


def nvir_star():
    return nvi.NestedSampler(
        initial(), annealing(4), stacked(gaussian_pair, 3), nvi.Resampling("stratified", "always")
    )


def flow_sampler():
    flows = stacked(lambda k: nvi.PlanarFlow(2, 2, key=k, scale=0.3), 3)
    return nvi.NestedSampler(initial(2), annealing(4, 2), flows, nvi.Resampling("systematic", 0.6))


def shared_sampler():
    return nvi.NestedSampler(
        initial(), annealing(4), nvi.Shared(gaussian_pair(jax.random.key(3)), 3), nvi.Resampling()
    )


def densities_sampler():
    def make(k):
        return nvi.DiagonalNormal(0.3 * jax.random.normal(k, (1,)), 1.2)

    return nvi.NestedSampler(
        initial(),
        nvi.paths.StackedDensities(nvi.stack(jax.random.key(4), make, 4)),
        stacked(gaussian_pair, 3),
    )


def state_space_sampler():
    path = nvi.StateSpace(HMM(), jnp.array([0.5, 1.0, 0.2, -0.4]), heuristic())
    return nvi.NestedSampler(
        initial(), path, stacked(lambda k: nvi.Transition(gaussian(k)), 3), nvi.Resampling()
    )


def discrete_sampler():
    tables = 0.7 * jax.random.normal(jax.random.key(5), (3, 3))

    def logits(k):
        return nvi.kernels.CategoricalKernel(jax.random.normal(k, (3, 3)))

    def pair(k):
        return nvi.Transition(logits(k), logits(jax.random.fold_in(k, 1)))

    return nvi.NestedSampler(
        Table(jnp.zeros(3)), nvi.paths.StackedDensities(Table(tables)), stacked(pair, 2)
    )


SAMPLERS = {
    "NVI": nvi_sampler,
    "NVIR*": nvir_star,
    "flows": flow_sampler,
    "shared": shared_sampler,
    "densities": densities_sampler,
    "state space": state_space_sampler,
    "discrete": discrete_sampler,
}


def untied(sampler):
    """The same sampler with its transitions in a tuple, which runs as a loop."""
    return nvi.NestedSampler(
        sampler.initial,
        sampler.path,
        tuple(sampler.level(k).transition for k in range(2, sampler.num_levels + 1)),
        sampler.resampling,
    )


def assert_trees(got, expected, tol=1e-10):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for (at, a), b in zip(
        jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol, err_msg=jax.tree_util.keystr(at))
