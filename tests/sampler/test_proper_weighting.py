"""Proper weighting, exhaustively: E[mean_s w_K^s g(z_K^s)] = Z_K E_{π_K}[g] for every indicator g,
to rounding.

Every outcome of every draw is enumerated, so there is no Monte Carlo error: a sampler that is wrong
by any amount fails.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.enumeration import (
    Permutation,
    categorical_moves,
    enumerate_sampler,
    initial_moves,
    move_all,
    resample_all,
    weighted_measure,
)
from tests.helpers.finite import Table, TableChain

pytestmark = pytest.mark.usefixtures("x64")

SCHEMES = sorted(nvi.particles.SCHEMES)
RULES = [("systematic", "never"), *((s, "always") for s in SCHEMES), *((s, 0.8) for s in SCHEMES)]
TOL = 1e-10


def tables(num_levels, num_states, seed=0, scale=1.0):
    """Log tables of γ_1 … γ_K with normalisers far from one."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(
        rng.normal(scale=scale, size=(num_levels, num_states)) + np.arange(num_levels)[:, None]
    )


def kernel_stack(num, num_states, seed):
    rng = np.random.default_rng(seed)
    return nvi.kernels.CategoricalKernel(
        jnp.asarray(rng.normal(size=(num, num_states, num_states)))
    )


def categorical_sampler(resampling, num_states=2, num_levels=3, seed=70):
    """Forward and reverse kernels that have nothing to do with each other or with the densities."""
    transition = nvi.Transition(
        kernel_stack(num_levels - 1, num_states, seed + 1),
        kernel_stack(num_levels - 1, num_states, seed + 2),
    )
    initial = Table(jnp.asarray(np.random.default_rng(seed + 3).normal(size=num_states)))
    path = nvi.paths.StackedDensities(Table(tables(num_levels, num_states, seed, scale=1.5)))
    return nvi.NestedSampler(initial, path, nvi.Stacked(transition), resampling)


def check_rule(sampler, history):
    """Where resampling is adaptive, both of its branches must occur, or the enumeration would show
    nothing about it.
    """
    rules = sampler.resampling if isinstance(sampler.resampling, tuple) else (sampler.resampling,)
    if any(isinstance(rule.when, float) for rule in rules):
        fired = [np.sum(branches.prob * branches.resampled) for branches in history[1:]]
        assert any(0.01 < p < 0.99 for p in fired), fired


def check(sampler, history, gammas=None):
    """Proper weighting after every level, and probabilities that add to one."""
    if gammas is None:
        gammas = np.exp(np.asarray(sampler.path.thetas().log_table))
    check_rule(sampler, history)
    for branches, gamma in zip(history, gammas, strict=True):
        np.testing.assert_allclose(branches.prob.sum(), 1.0, rtol=TOL)
        np.testing.assert_allclose(
            weighted_measure(branches, gamma.shape), gamma, rtol=TOL, atol=TOL
        )


@pytest.mark.parametrize(("scheme", "when"), RULES)
def test_categorical_kernels(scheme, when):
    """Every scheme, never, always and adaptively, with arbitrary forward and reverse kernels."""
    sampler = categorical_sampler(nvi.Resampling(scheme, when))
    history = enumerate_sampler(sampler, 2, initial_moves(2), categorical_moves(2))
    check(sampler, history)


@pytest.mark.parametrize(
    ("scheme", "when"), [("systematic", "always"), ("systematic", 0.8), ("residual", 0.8)]
)
def test_three_states(scheme, when):
    sampler = categorical_sampler(nvi.Resampling(scheme, when), num_states=3)
    history = enumerate_sampler(sampler, 2, initial_moves(3), categorical_moves(3))
    check(sampler, history)


@pytest.mark.parametrize("when", ["always", 0.8])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_three_particles(scheme, when):
    """With S = 3 a scheme can keep, copy and drop at once, and residual resampling has both sure
    and random copies.
    """
    sampler = categorical_sampler(nvi.Resampling(scheme, when), num_levels=2)
    history = enumerate_sampler(sampler, 3, initial_moves(2), categorical_moves(2))
    check(sampler, history)


def broken(change):
    """Library resampling with its weights then spoilt by `change(old log_w, new log_w,
    resampled)`.
    """

    def resample(branches, rule):
        good = resample_all(branches, rule)
        log_w = np.where(
            good.resampled[:, None], change(good.particles.log_w), good.particles.log_w
        )
        return good._replace(particles=good.particles._replace(log_w=log_w))

    return resample


@pytest.mark.parametrize("when", ["always", 0.8])
def test_the_check_can_fail(when):
    """Weights reset to one after resampling lose the normaliser: the enumeration must see it."""
    sampler = categorical_sampler(nvi.Resampling("systematic", when))
    spoilt = broken(np.zeros_like)
    history = enumerate_sampler(sampler, 2, initial_moves(2), categorical_moves(2), resample=spoilt)
    gap = weighted_measure(history[-1], (2,)) - np.exp(
        np.asarray(sampler.path.thetas().log_table[-1])
    )
    assert np.abs(gap).max() > 0.01


def test_unaveraged_weights_fail():
    """Ancestors that keep their own weight instead of the mean are counted twice."""
    sampler = categorical_sampler(nvi.Resampling("multinomial", 0.8))

    def unaveraged(branches, rule):
        # The stats of this path are z itself, so a copy's old weight can be carried in their place.
        marked = branches._replace(
            particles=branches.particles._replace(stats=branches.particles.log_w)
        )
        good = resample_all(marked, rule)
        p = good.particles
        return good._replace(particles=p._replace(stats=p.z, log_w=p.stats))

    history = enumerate_sampler(
        sampler, 2, initial_moves(2), categorical_moves(2), resample=unaveraged
    )
    gap = weighted_measure(history[-1], (2,)) - np.exp(
        np.asarray(sampler.path.thetas().log_table[-1])
    )
    assert np.abs(gap).max() > 0.01


def test_product_of_plain_means_is_biased_under_adaptive_resampling():
    """The classic bug: log Ẑ from plain means of v_k is wrong where resampling did not fire; the
    library's is right (above).
    """
    sampler = categorical_sampler(nvi.Resampling("systematic", 0.8), num_states=3, num_levels=2)
    first = enumerate_sampler(sampler, 2, initial_moves(3), categorical_moves(3))[0]
    before = resample_all(first, sampler.level(2).resampling)
    unit = before._replace(
        particles=before.particles._replace(log_w=np.zeros_like(before.particles.log_w))
    )
    after = move_all(unit, sampler.level(2), sampler.path, categorical_moves(3))
    repeats = after.prob.size // before.prob.size
    mean_w = np.repeat(np.exp(before.particles.log_w).mean(-1), repeats)
    plain = np.sum(after.prob * mean_w * np.exp(after.particles.log_w).mean(-1))
    assert abs(plain - np.exp(float(jax.nn.logsumexp(sampler.path.thetas().log_table[-1])))) > 0.01


@pytest.mark.parametrize(
    ("scheme", "when"), [("systematic", "never"), ("systematic", "always"), ("stratified", 0.8)]
)
def test_excluded_states(scheme, when):
    """Densities and kernels that are zero somewhere: −inf is legal, and neither bias nor NaN may
    come of it.
    """
    log_tables = (
        tables(3, 3, seed=4).at[0, 0].set(-jnp.inf).at[1, 2].set(-jnp.inf).at[2, 1].set(-jnp.inf)
    )
    forward = kernel_stack(2, 3, 5).logits.at[:, 0, 1].set(-jnp.inf)
    # As for any importance sampler γ̂ must cover γ̌: r never leads back to where γ_{k-1} or q_k is
    # zero.
    reverse = (
        kernel_stack(2, 3, 6)
        .logits.at[0, :, 0]
        .set(-jnp.inf)
        .at[1, :, 2]
        .set(-jnp.inf)
        .at[:, 1, 0]
        .set(-jnp.inf)
    )
    transition = nvi.Transition(
        nvi.kernels.CategoricalKernel(forward), nvi.kernels.CategoricalKernel(reverse)
    )
    path, initial = nvi.paths.StackedDensities(Table(log_tables)), Table(jnp.zeros(3))
    sampler = nvi.NestedSampler(
        initial, path, nvi.Stacked(transition), nvi.Resampling(scheme, when)
    )
    history = enumerate_sampler(sampler, 2, initial_moves(3), categorical_moves(3))
    check(sampler, history)


@functools.cache
def metropolis_moves(num_states):
    """A Metropolis step with a uniform proposal, as a matrix that is made from γ_k here and not by
    the library.
    """

    def moves(level, path, z_prev):
        log_gamma = level.theta.log_table
        accept = jnp.where(
            jnp.isneginf(log_gamma), 0.0, jnp.minimum(1.0, jnp.exp(log_gamma - log_gamma[z_prev]))
        )
        away = jnp.where(jnp.arange(num_states) == z_prev, 0.0, accept / num_states)
        return jnp.arange(num_states), None, away.at[z_prev].set(1 - jnp.sum(away))

    return moves


def never_called(key, z, log_gamma):
    raise AssertionError("The enumeration replaces the draw.")


@pytest.mark.parametrize("excluded", [False, True])
@pytest.mark.parametrize(
    ("scheme", "when"), [("systematic", "never"), ("systematic", "always"), ("multinomial", 0.8)]
)
def test_mcmc_moves(scheme, when, excluded):
    """AIS and SMC samplers: γ_k-invariant moves, scored by their time reversal."""
    log_tables = tables(3, 3, seed=7, scale=2.0)
    if excluded:
        log_tables = log_tables.at[1, 0].set(-jnp.inf).at[2, 0].set(-jnp.inf)
    path, shared = (
        nvi.paths.StackedDensities(Table(log_tables)),
        nvi.Shared(nvi.kernels.Invariant(never_called), 2),
    )
    sampler = nvi.NestedSampler(Table(jnp.zeros(3)), path, shared, nvi.Resampling(scheme, when))
    history = enumerate_sampler(sampler, 2, initial_moves(3), metropolis_moves(3))
    check(sampler, history)


def deterministic_moves(level, path, z_prev):
    """The one outcome of a deterministic move."""
    z, aux = level.transition.move(jax.random.key(0), z_prev, None)
    return jax.tree.map(lambda x: x[None], z), jax.tree.map(lambda x: x[None], aux), jnp.ones(1)


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize(
    ("scheme", "when"), [("systematic", "never"), ("residual", "always"), ("systematic", 0.8)]
)
def test_deterministic_flows(scheme, when, chained):
    """A flow only moves mass: v = γ_k(f(z)) / γ_{k-1}(z); a chain of two is one level with nothing
    in between.
    """
    image = jnp.asarray([[1, 2, 0], [2, 1, 0]])
    flows = Permutation(image)
    if chained:
        flows = nvi.kernels.Chain(Permutation(jnp.stack([image, image[::-1]])))
    path = nvi.paths.StackedDensities(Table(tables(3, 3, seed=8)))
    sampler = nvi.NestedSampler(
        Table(jnp.zeros(3)), path, nvi.Stacked(flows), nvi.Resampling(scheme, when)
    )
    history = enumerate_sampler(sampler, 2, initial_moves(3), deterministic_moves)
    check(sampler, history)


@functools.cache
def chain_moves(num_states):
    """Both steps of a chain of two categorical transitions, with the visited states a chain
    scores.
    """

    def moves(level, path, z_prev):
        via, end = jnp.meshgrid(jnp.arange(num_states), jnp.arange(num_states), indexing="ij")
        via, end = via.ravel(), end.ravel()
        first, second = (jax.nn.softmax(level.transition.links.forward.logits[i]) for i in (0, 1))
        start = jnp.broadcast_to(z_prev, via.shape)
        aux = (jnp.stack([start, via], axis=1), jnp.stack([via, end], axis=1), None)
        return end, aux, first[z_prev, via] * second[via, end]

    return moves


@pytest.mark.parametrize(
    ("scheme", "when"), [("systematic", "never"), ("systematic", "always"), ("multinomial", 0.8)]
)
def test_chain_of_stochastic_moves(scheme, when):
    """Auxiliary states inside a level (as in SVI with several kernels) are weighted by the reverse
    chain.
    """
    rng = np.random.default_rng(9)

    def logits():
        return nvi.kernels.CategoricalKernel(jnp.asarray(rng.normal(size=(2, 2, 2, 2))))

    chain = nvi.kernels.Chain(nvi.Transition(logits(), logits()))
    path = nvi.paths.StackedDensities(Table(tables(3, 2, seed=9)))
    sampler = nvi.NestedSampler(
        Table(jnp.zeros(2)), path, nvi.Stacked(chain), nvi.Resampling(scheme, when)
    )
    history = enumerate_sampler(sampler, 2, initial_moves(2), chain_moves(2))
    check(sampler, history)


@functools.cache
def append_moves(num_states):
    """All continuations of a growing particle."""

    def moves(level, path, z_prev):
        last = jnp.arange(num_states)
        z = jnp.concatenate(
            [jnp.broadcast_to(z_prev, (num_states, *z_prev.shape)), last[:, None]], axis=1
        )
        prob = jax.vmap(lambda new: jnp.exp(level.transition.forward.log_prob(new, z_prev, None)))(
            z
        )
        return z, None, prob

    return moves


def growing_tables(seed=11, num=3):
    rng = np.random.default_rng(seed)
    return [Table(jnp.asarray(rng.normal(size=(2,) * k) + k)) for k in range(1, num + 1)]


def squeezed(branches):
    """Particles of shape (1,) as scalars."""
    return branches._replace(particles=branches.particles._replace(z=branches.particles.z[..., 0]))


class FirstTable(nvi.AbstractSampleable):
    """A table on particles of shape (1,), where a growing particle starts."""

    log_table: jax.Array

    def log_gamma(self, z):
        return self.log_table[z[0]]

    @property
    def log_Z(self):
        return jax.nn.logsumexp(self.log_table)

    @property
    def reparameterised(self):
        return False

    def sample(self, key):
        return jax.random.categorical(key, self.log_table)[None]


def growing_sampler(rules):
    """γ_k on z_{1:k}, extended by kernels without reverse."""
    densities = growing_tables()
    rng = np.random.default_rng(12)
    kernels = [
        nvi.kernels.CategoricalKernel(jnp.asarray(rng.normal(size=(2, 2)))) for _ in range(2)
    ]
    targets = [FirstTable(densities[0].log_table), *densities[1:]]
    stages = [nvi.propose(FirstTable(jnp.asarray([0.3, -0.2])), targets[0])]
    for rule, kernel, target in zip(rules, kernels, targets[1:], strict=True):
        stages += [nvi.resample(*rule)] if rule else []
        stages.append(nvi.extend(kernel, target))
    return nvi.compose(*stages), [np.exp(np.asarray(d.log_table)) for d in densities]


@pytest.mark.parametrize(
    "rules", [(None, None), (("systematic",), ("multinomial", 0.8)), (None, ("stratified",))]
)
def test_growing_support(rules):
    """Whole trajectories are properly weighted, with rules that differ from level to level."""
    sampler, gammas = growing_sampler(rules)
    first = initial_moves(2, vector=True)
    history = enumerate_sampler(sampler, 2, first, append_moves(2))
    check(sampler, [squeezed(history[0]), *history[1:]], gammas)


@pytest.mark.parametrize("rule", [("systematic", "always"), ("residual", 0.8)])
def test_mixed_program(rule):
    """propose, resample, propose (kernels), propose (MCMC), extend: any composition is properly
    weighted.
    """
    rng = np.random.default_rng(13)

    def kernel():
        return nvi.kernels.CategoricalKernel(jnp.asarray(rng.normal(size=(2, 2))))

    start, second, third = (FirstTable(jnp.asarray(rng.normal(size=2))) for _ in range(3))
    final = Table(jnp.asarray(rng.normal(size=(2, 2))))
    sampler = nvi.compose(
        nvi.propose(FirstTable(jnp.zeros(2)), start),
        nvi.resample(*rule),
        nvi.propose((OnFirst(kernel()), OnFirst(kernel())), second),
        nvi.propose(nvi.kernels.Invariant(never_called), third),
        nvi.resample("stratified", 0.9),
        nvi.extend(kernel(), final),
    )
    kinds = (lifted(categorical_moves(2)), lifted(metropolis_moves(2)), append_moves(2))
    history = enumerate_sampler(sampler, 2, initial_moves(2, vector=True), kinds)
    gammas = [np.exp(np.asarray(density.log_table)) for density in (start, second, third, final)]
    check(sampler, [*map(squeezed, history[:3]), history[3]], gammas)


class OnFirst(nvi.AbstractKernel):
    """A categorical kernel for particles of shape (1,)."""

    kernel: nvi.kernels.CategoricalKernel

    @property
    def reparameterised(self):
        return False

    def sample(self, key, z, context):
        return self.kernel.sample(key, z[0], context)[None]

    def log_prob(self, z_new, z, context):
        return self.kernel.log_prob(jnp.ravel(z_new)[0], z[0], context)

    def log_prob_score(self, z_new, z, context):
        return self.log_prob(z_new, z, context)


@functools.cache
def lifted(moves):
    """Enumeration of a scalar move for particles of shape (1,)."""

    def on_vectors(level, path, z_prev):
        if isinstance(level.transition, nvi.Transition):
            z, aux, prob = moves(level, path, z_prev)
        else:
            z, aux, prob = moves(level, path, z_prev[0])
        return z[:, None], aux, prob

    return on_vectors


class TableHeuristic(nvi.paths.AbstractHeuristic):
    """log ψ_k(z) from a table."""

    values: jax.Array

    def messages(self, eta, observations):
        return nvi.paths.Messages(self.values)

    def log_psi(self, message, z):
        return message[z]


def forward_algorithm(model, observations, psi):
    """Σ over z_{1:k-1} of p(x_{1:k}, z_{1:k}) ψ_k(z_k), over trajectories that no earlier ψ
    forbids; ψ_K is one.
    """
    start, step, emit = (
        np.exp(np.asarray(x)) for x in (model.log_start, model.log_step, model.log_emit)
    )
    alpha, targets = start * emit[:, observations[0]], []
    for k in range(len(observations)):
        if k:
            alpha = ((alpha * (psi[k - 1] > 0)) @ step) * emit[:, observations[k]]
        targets.append(alpha * (psi[k] if k + 1 < len(observations) else 1.0))
    return targets


@pytest.mark.parametrize("heuristic", ["none", "arbitrary", "excluding"])
@pytest.mark.parametrize(
    ("scheme", "when"), [("systematic", "never"), ("systematic", "always"), ("multinomial", 0.8)]
)
def test_state_space(scheme, when, heuristic):
    """E[Ẑ] = p(x_{1:K}) whatever the heuristic, as long as it forbids no state; before the end
    p(x_{1:k}, z_k) ψ_k(z_k).
    """
    rng = np.random.default_rng(14)

    def log(*shape):
        return jax.nn.log_softmax(jnp.asarray(rng.normal(size=shape)), axis=-1)

    model, observations = TableChain(log(2), log(2, 2), log(2, 3)), np.array([0, 2, 1])
    values = jnp.asarray(rng.normal(scale=2.0, size=(3, 2)))
    psi = {
        "none": jnp.zeros((3, 2)),
        "arbitrary": values,
        "excluding": values.at[0, 1].set(-jnp.inf),
    }[heuristic]
    path = nvi.StateSpace(
        model,
        jnp.asarray(observations),
        nvi.paths.NoHeuristic() if heuristic == "none" else TableHeuristic(psi),
    )
    transition = nvi.Transition(kernel_stack(2, 2, 15))
    sampler = nvi.NestedSampler(
        Table(jnp.asarray([0.2, -0.4])), path, nvi.Stacked(transition), nvi.Resampling(scheme, when)
    )
    history = enumerate_sampler(sampler, 2, initial_moves(2), categorical_moves(2))
    check(sampler, history, forward_algorithm(model, observations, np.exp(np.asarray(psi))))
