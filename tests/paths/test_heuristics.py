"""Heuristic factors of state-space paths: their gradients against enumerated divergences, and that
backward messages make a step cost O(S K).
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.paper.hmm.heuristics import MixtureHeuristic
from nestedvi.paper.hmm.model import GaussianHMM
from nestedvi.paper.hmm.proposals import ClusterKernel, NormalGammas
from tests.helpers.finite_global import Untabled, divergences, log_psi, log_targets, make_world

K = 3
PARTICLES, REPEATS = 20_000, 16


def objective(optimise):
    return nvi.Objective("forward-kl", learn=("initial", "forward", "path"), optimise=optimise)


def flat(grads):
    """T, u, the kernel's logits and q(η)'s, in one vector."""
    heuristic, kernel = grads.path.heuristic, grads.transitions.transition.forward.kernel
    return np.concatenate(
        [
            np.ravel(x)
            for x in (heuristic.T, heuristic.u, kernel.logits, grads.initial.eta.log_table)
        ]
    )


def exact_gradient(world, optimise):
    arrays, rest = eqx.partition(
        (world.heuristic, world.kernel, world.log_q_eta), eqx.is_inexact_array
    )

    def total(arrays):
        heuristic, kernel, log_q_eta = eqx.combine(arrays, rest)
        live = world._replace(heuristic=heuristic, kernel=kernel, log_q_eta=log_q_eta)
        return jnp.sum(divergences(live, K, partial=optimise == "partial"))

    heuristic, kernel, log_q_eta = jax.jit(jax.grad(total))(arrays)
    return np.concatenate(
        [np.ravel(x) for x in (heuristic.T, heuristic.u, kernel.logits, log_q_eta)]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("optimise", "guided"), [("partial", True), ("full", True)])
def test_gradients_converge_to_those_of_the_enumerated_divergences(optimise, guided, x64):
    """Σ_k KL(π_k ‖ π_{k-1} q_k) over all points of the space, differentiated: all parameters,
    though levels share them.

    Each level's reported divergence is its term of that sum. Self-normalised estimates are biased
    by O(1/S): 4/S is allowed beside four standard errors.
    """
    world = make_world(4, guided)
    sampler = world.sampler(K, 0.9)
    one = jax.jit(
        lambda key: nvi.train.orders.gradient(key, sampler, objective(optimise), PARTICLES)
    )
    runs = [one(key) for key in jax.random.split(jax.random.key(11), REPEATS)]
    found, exact = np.stack([flat(run.grads) for run in runs]), exact_gradient(world, optimise)
    error = 4 * found.std(axis=0, ddof=1) / math.sqrt(REPEATS) + 4 / PARTICLES
    # What the heuristic's parameters do must be visible at all.
    assert np.linalg.norm(exact[:16]) > 5 * np.linalg.norm(error[:16])
    np.testing.assert_array_less(np.abs(found.mean(axis=0) - exact), error)
    found = np.stack([run.info.level_divergence for run in runs])
    error = 4 * found.std(axis=0, ddof=1) / math.sqrt(REPEATS) + 4 / PARTICLES
    np.testing.assert_array_less(
        np.abs(found.mean(axis=0) - jax.jit(lambda: divergences(world, K))()), error
    )


def test_partial_gradients_are_differences_of_expectations(x64):
    """The enumerated partial gradient is Σ_k E_{π_{k-1}}[∇log ψ_{k-1}] − E_{π_k}[∇log ψ_{k-1}], as
    written in the paper.
    """
    world = make_world(4)
    tables = jax.jit(
        lambda: [
            jnp.exp(jax.nn.log_softmax(t, axis=None))
            for t in log_targets(world.model, world.heuristic, K)
        ]
    )()
    total = np.zeros(16)
    for k in range(1, K + 1):
        slopes = jax.jit(jax.jacobian(lambda h, k=k: log_psi(h, k - 1, K)))(world.heuristic)
        here, ahead = tables[k - 1], tables[k].sum(axis=-1)
        keep = (0,) if k == 1 else (0, k - 1)
        difference = (here - ahead).sum(axis=tuple(i for i in range(k) if i not in keep))
        total += np.concatenate(
            [np.ravel(jnp.tensordot(difference, s, difference.ndim)) for s in (slopes.T, slopes.u)]
        )
    np.testing.assert_allclose(exact_gradient(world, "partial")[:16], total, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_schedules_and_direct_evaluation_agree(x64):
    """Sequential and two-phase gradients through the table are those of evaluating ψ anew from η at
    every level.
    """
    world = make_world(5)
    what = nvi.Objective("reverse-kl", learn=("initial", "forward", "path"))

    def every(key):
        table, direct = world.sampler(K, 0.9), world.sampler(K, 0.9, path=Untabled)
        found = [
            nvi.train.orders.gradient(key, table, what, 7, order=order)
            for order in ("sequential", "two-phase")
        ]
        return [*found, nvi.train.orders.gradient(key, direct, what, 7)]

    sequential, two_phase, direct = jax.jit(every)(jax.random.key(3))
    assert np.linalg.norm(flat(sequential.grads)[:16]) > 0.01
    np.testing.assert_allclose(
        flat(two_phase.grads), flat(sequential.grads), rtol=1e-10, atol=1e-13
    )
    np.testing.assert_allclose(flat(direct.grads), flat(sequential.grads), rtol=1e-10, atol=1e-13)
    for other in (two_phase, direct):
        np.testing.assert_allclose(
            other.info.level_divergence, sequential.info.level_divergence, rtol=1e-10, atol=1e-13
        )
        np.testing.assert_allclose(other.info.log_Z_hat, sequential.info.log_Z_hat, rtol=1e-12)


def operations(jaxpr):
    """Arithmetic of a traced function: numbers that come out of each step, times the length of the
    loops around it.
    """
    total = 0
    for eqn in jaxpr.eqns:
        inner = [
            x.jaxpr if hasattr(x, "jaxpr") else x
            for x in jax.tree.leaves(tuple(eqn.params.values()), is_leaf=_is_jaxpr)
        ]
        bodies = [x for x in inner if hasattr(x, "eqns")]
        if bodies:
            total += eqn.params.get("length", 1) * sum(operations(body) for body in bodies)
            continue
        cost = sum(math.prod(v.aval.shape) for v in eqn.outvars)
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            cost *= math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
        total += cost
    return total


def _is_jaxpr(x):
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")


def cost(num_steps, path, order):
    """Operations of one gradient of an HMM's sampler with a neural heuristic."""
    model, xs = GaussianHMM(num_clusters=2), jnp.zeros(num_steps)
    parts = [jnp.ones((1, 2))] * 4
    initial = nvi.paths.WithoutState(NormalGammas(jnp.zeros(1), *parts), jnp.zeros((), jnp.int32))
    kernel = ClusterKernel(key=jax.random.key(0), width=4)
    heuristic = MixtureHeuristic.neural(key=jax.random.key(1), width=4)
    if path is Untabled:
        kernel = _OnlyFirst(kernel)
    transitions = nvi.Shared(nvi.Transition(nvi.kernels.NextState(kernel)), num_steps)
    sampler = nvi.NestedSampler(
        initial,
        path(model, xs, heuristic, prior=model.log_prior),
        transitions,
        nvi.Resampling("systematic", "always"),
    )

    def step(key):
        return nvi.train.orders.gradient(key, sampler, objective("partial"), 8, order=order).grads

    return operations(jax.make_jaxpr(step)(jax.random.key(2)).jaxpr)


class _OnlyFirst(nvi.AbstractKernel):
    """Hands a θ with k and x alone on to a kernel that expects messages beside them."""

    kernel: ClusterKernel

    @property
    def reparameterised(self):
        return False

    def _context(self, context):
        return nvi.kernels.Context((*context.theta, None, None), None)

    def sample(self, key, z, context):
        return self.kernel.sample(key, z, self._context(context))

    def log_prob(self, z_new, z, context):
        return self.kernel.log_prob(z_new, z, self._context(context))

    def log_prob_score(self, z_new, z, context):
        return self.kernel.log_prob(z_new, z, self._context(context))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sequential", "two-phase"])
def test_a_gradient_costs_time_linear_in_the_number_of_steps(order):
    """Twice the observations, about twice the work; where ψ is evaluated anew at every level it is
    nearly four times.
    """
    linear = cost(80, nvi.StateSpace, order) / cost(40, nvi.StateSpace, order)
    quadratic = cost(80, Untabled, order) / cost(40, Untabled, order)
    assert 1.7 < linear < 2.3
    assert quadratic > 3.3
