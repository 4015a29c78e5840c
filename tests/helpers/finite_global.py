"""A finite world with global variables: η ∈ {0, 1, 2}, states in {0, 1}, everything a table, and
its targets by enumeration.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.paths.base import trainable_fields
from tests.helpers.finite import Table

ETAS, STATES, SYMBOLS = 3, 2, 2
XS = np.array([1, 0, 1])


class FiniteGlobal(nvi.AbstractStateSpaceModel):
    """Tables of log p(η), log p(z_1 | η), log p(z_k | z_{k-1}, η) and log p(x_k | z_k, η)."""

    log_eta: jax.Array
    log_start: jax.Array
    log_step: jax.Array
    log_emit: jax.Array

    def log_prior(self, eta):
        return self.log_eta[eta]

    def log_initial(self, z):
        return self.log_start[z.eta, z.state]

    def log_transition(self, z, z_prev):
        return self.log_step[z.eta, z_prev.state, z.state]

    def log_observation(self, x, z):
        return self.log_emit[z.eta, z.state, x]


class Recursion(nvi.paths.AbstractHeuristic):
    """ψ_k(z, η) = Σ_m exp(T[z, m] + u[η, m, x_{k+1}]) ψ_{k+1}(m, η): all levels share its
    parameters, and it is no density.

    What it says of ψ_K is nonsense on purpose: the path must not read it.
    """

    T: jax.Array
    u: jax.Array

    def messages(self, eta, observations):
        log_e = self.u[eta][:, observations].T
        later = [jnp.zeros_like(log_e[0])]
        for here in log_e[:0:-1]:
            later.insert(0, jax.nn.logsumexp(self.T + here + later[0], axis=1))
        first = jax.nn.logsumexp(log_e[0] + later[0])
        return nvi.paths.Messages(
            jnp.stack([*later[:-1], later[-1] + 7.0 + self.u[eta, 0, 0]]), first
        )

    def log_psi(self, message, z):
        return message[z.state]


class TableStep(nvi.AbstractKernel):
    """q(z_k | x_k, z_{k-1}, η) as a table of logits; `guided` adds log ψ_k(z_k, η)."""

    logits: jax.Array
    guided: bool = eqx.field(static=True, default=False)

    @property
    def reparameterised(self):
        return False

    def log_probs(self, z, context):
        row = jnp.where(context.theta.k == 1, STATES, z.state)
        logits = self.logits[z.eta, row, context.theta.x]
        return jax.nn.log_softmax(
            logits + context.theta.message[z.origin] if self.guided else logits
        )

    def sample(self, key, z, context):
        return jax.random.categorical(key, self.log_probs(z, context)).astype(z.state.dtype)

    def log_prob(self, z_new, z, context):
        return self.log_probs(z, context)[z_new]

    def log_prob_score(self, z_new, z, context):
        return self.log_prob(z_new, z, context)


class _Step(NamedTuple):
    k: jax.Array
    x: jax.Array


class Untabled(nvi.AbstractPath):
    """The same densities without a table: every level looks at η and all of x again, which costs
    O(K²).
    """

    model: nvi.AbstractStateSpaceModel
    observations: jax.Array
    heuristic: nvi.paths.AbstractHeuristic
    prior: Callable

    @property
    def num_levels(self):
        return self.observations.shape[0] + 1

    def thetas(self):
        return _Step(
            jnp.arange(self.num_levels), jnp.concatenate([self.observations[:1], self.observations])
        )

    def stats(self, z):
        return z

    def log_psi(self, k, z):
        messages = self.heuristic.messages(z.eta, self.observations)
        later = self.heuristic.log_psi(jax.tree.map(lambda m: m[k - 1], messages.later), z)
        return jnp.where(k == 0, messages.first, jnp.where(k == self.num_levels - 1, 0.0, later))

    def log_gamma(self, theta, z, z_prev):
        if z_prev is None:
            return self.prior(z.eta) + self.log_psi(0, z)
        begin, go_on = (
            self.model.log_initial(z),
            self.model.log_transition(z, z_prev),
        )
        log_state = jnp.where(theta.k == 1, begin, go_on)
        return log_state + self.model.log_observation(theta.x, z) + self.log_psi(theta.k, z)

    def log_gamma_prev(self, theta_prev, z_prev):
        return self.log_psi(theta_prev.k, z_prev)

    def trainable(self):
        return trainable_fields(self, "heuristic")

    def learned(self, theta):
        return jax.tree.map(lambda _: False, theta)


class World(NamedTuple):
    """Everything of one finite problem."""

    model: FiniteGlobal
    heuristic: Recursion
    log_q_eta: jax.Array
    kernel: TableStep

    def sampler(self, num_steps, when="always", scheme="systematic", path=nvi.StateSpace):
        path = path(
            self.model,
            jnp.asarray(XS[:num_steps]),
            self.heuristic,
            prior=self.model.log_prior,
        )
        initial = nvi.paths.WithoutState(Table(self.log_q_eta), jnp.zeros((), jnp.int32))
        transitions = nvi.Shared(nvi.Transition(nvi.kernels.NextState(self.kernel)), num_steps)
        return nvi.NestedSampler(initial, path, transitions, nvi.Resampling(scheme, when))


def path_of(world, heuristic=None):
    """The world's path for all of XS."""
    heuristic = world.heuristic if heuristic is None else heuristic
    return nvi.StateSpace(world.model, jnp.asarray(XS), heuristic, prior=world.model.log_prior)


def make_world(seed=0, guided=False):
    rng = np.random.default_rng(seed)

    def table(*shape):
        return jnp.asarray(rng.normal(size=shape))

    shapes = (ETAS,), (ETAS, STATES), (ETAS, STATES, STATES), (ETAS, STATES, SYMBOLS)
    model = FiniteGlobal(*(jax.nn.log_softmax(table(*shape)) for shape in shapes))
    heuristic = Recursion(table(STATES, STATES), table(ETAS, STATES, SYMBOLS))
    return World(
        model, heuristic, table(ETAS), TableStep(table(ETAS, STATES + 1, SYMBOLS, STATES), guided)
    )


def log_psi(heuristic, k, num_steps):
    """log ψ_k as a table over (η, z_k), or over η for k = 0: a sum over all sequences of future
    states, one by one.
    """
    if k == num_steps:
        return jnp.zeros((ETAS, STATES))
    terms = []
    for future in itertools.product(range(STATES), repeat=num_steps - k):
        seen = sum(heuristic.u[:, m, XS[k + i]] for i, m in enumerate(future))
        steps = sum(heuristic.T[a, b] for a, b in itertools.pairwise(future))
        terms.append(seen + steps if k == 0 else seen[:, None] + steps + heuristic.T[:, future[0]])
    return jax.nn.logsumexp(jnp.stack(terms), axis=0)


def log_joint(model, k):
    """log p(η, x_{1:k}, z_{1:k}) as a table with axes η, z_1 … z_k."""
    rows = []
    for zs in itertools.product(range(STATES), repeat=k):
        row = model.log_eta
        for i, z in enumerate(zs):
            row = (
                row
                + (model.log_start[:, z] if i == 0 else model.log_step[:, zs[i - 1], z])
                + model.log_emit[:, z, XS[i]]
            )
        rows.append(row)
    return jnp.stack(rows, axis=-1).reshape((ETAS,) + (STATES,) * k)


def log_targets(model, heuristic, num_steps):
    """log γ_0 … log γ_K as tables."""
    out = [model.log_eta + log_psi(heuristic, 0, num_steps)]
    for k in range(1, num_steps + 1):
        psi = log_psi(heuristic, k, num_steps)
        out.append(log_joint(model, k) + psi.reshape((ETAS,) + (1,) * (k - 1) + (STATES,)))
    return out


def log_proposal(kernel, heuristic, k, num_steps):
    """log q_k(z_k | x_k, z_{k-1}, η) as a table that fits log γ_k."""
    logits = kernel.logits[:, STATES, XS[0]] if k == 1 else kernel.logits[:, :STATES, XS[k - 1]]
    if kernel.guided:
        last = 7.0 + heuristic.u[:, 0, 0]
        message = (
            log_psi(heuristic, k, num_steps)
            if k < num_steps
            else jnp.broadcast_to(last[:, None], (ETAS, STATES))
        )
        logits = logits + (message if k == 1 else message[:, None])
    log_q = jax.nn.log_softmax(logits)
    return log_q if k == 1 else log_q.reshape((ETAS,) + (1,) * (k - 2) + (STATES, STATES))


def divergences(world, num_steps, partial=False):
    """KL(π_0 ‖ q(η)) and KL(π_k ‖ π_{k-1} q_k); with `partial` everything but the right-hand sides
    is held.
    """
    hold = jax.lax.stop_gradient if partial else lambda x: x
    model, heuristic = world.model, world.heuristic
    log_pi = [t - jax.nn.logsumexp(t) for t in log_targets(model, heuristic, num_steps)]
    out = []
    for k, table in enumerate(log_pi):
        left = hold(table)
        if k == 0:
            right = jax.nn.log_softmax(world.log_q_eta)
        else:
            right = log_pi[k - 1][..., None] + log_proposal(
                world.kernel, jax.tree.map(hold, heuristic), k, num_steps
            )
        out.append(jnp.sum(jnp.exp(left) * (left - right)))
    return jnp.stack(out)
