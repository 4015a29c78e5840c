"""The Gaussian HMM: everything against sums over all M^K sequences of states, where the clusters
integrate in closed form.
"""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.special import logsumexp

import nestedvi as nvi
from nestedvi.paper.hmm.baum_welch import ExpectationMaximisation
from nestedvi.paper.hmm.heuristics import BackwardRecursion, MixtureHeuristic
from nestedvi.paper.hmm.model import Clusters, GaussianHMM
from nestedvi.paper.hmm.program import HMMProgram
from nestedvi.paper.hmm.proposals import ClusterKernel, NeuralStatistics, NormalGammas
from nestedvi.paper.hmm.reference import LogPrecision, by_mean
from tests.helpers.small_hmm import (
    MODEL,
    M,
    assert_mean_is_one,
    log_chain,
    log_emissions,
    log_evidence,
    log_prior,
    silenced,
)

K = 5
XS = np.array([0.3, 1.9, 1.2, -1.0, -0.4])
MU, TAU = np.array([-0.7, 1.1]), np.array([0.8, 2.5])
SEQUENCES = list(itertools.product(range(M), repeat=K))


def eta():
    return Clusters(jnp.asarray(MU), jnp.asarray(TAU))


def latent(state, row=0):
    return nvi.paths.Latent(eta(), jnp.asarray(state), jnp.asarray(row))


def exact_recursion():
    heuristic = silenced(BackwardRecursion(M, key=jax.random.key(0), width=4))
    return eqx.tree_at(lambda h: h.log_T, heuristic, MODEL.log_transitions)


USED = [None, (True, False), (False, True)]


@pytest.mark.parametrize("used", USED)
def test_likelihood_and_smoothing_are_sums_over_state_sequences(used, x64):
    """log p(x | η) and p(z_k | x, η); with `used` over the sequences that visit those clusters
    alone.
    """
    flags = True if used is None else jnp.asarray(used)
    allowed = [zs for zs in SEQUENCES if used is None or all(used[z] for z in zs)]
    log_p = np.array([log_chain(zs) + log_emissions(zs, XS, MU, TAU) for zs in allowed])
    found = jax.jit(
        lambda eta, xs: (MODEL.log_likelihood(eta, xs, flags), MODEL.smooth(eta, xs, flags))
    )
    likelihood, smooth = found(eta(), jnp.asarray(XS))
    np.testing.assert_allclose(likelihood, logsumexp(log_p), rtol=1e-12)
    weights = np.exp(log_p - logsumexp(log_p))
    expected = sum(w * np.eye(M)[list(zs)] for w, zs in zip(weights, allowed, strict=True))
    np.testing.assert_allclose(smooth, expected, rtol=1e-10, atol=1e-12)


def test_densities_of_the_model_are_those_of_its_parts(x64):
    """log p(η) by scipy, a uniform start, and a chain whose rows add up to one."""
    np.testing.assert_allclose(MODEL.log_prior(eta()), log_prior(MU, TAU), rtol=1e-12)
    np.testing.assert_allclose(MODEL.log_initial(latent(0)), -math.log(M), rtol=1e-12)
    np.testing.assert_allclose(
        GaussianHMM().log_transition(latent(2), latent(1)),
        math.log(1 / 30),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        jnp.exp(GaussianHMM().log_transitions).sum(axis=1), np.ones(4), rtol=1e-6
    )
    found = MODEL.log_observation(jnp.asarray(0.2), latent(1))
    np.testing.assert_allclose(found, log_emissions([1], [0.2], MU, TAU), rtol=1e-12)


def test_recursion_with_the_chain_itself_is_exact(x64):
    """With T = A and c = 0 messages are p(x_{k+1:K} | z_k, η) for every k and state, and the first
    one is p(x | η).
    """
    found = exact_recursion().messages(eta(), jnp.asarray(XS))
    for k, z in itertools.product(range(1, K + 1), range(M)):
        futures = itertools.product(range(M), repeat=K - k)
        expected = logsumexp(
            [log_chain(zs, z) + log_emissions(zs, XS[k:], MU, TAU) for zs in futures]
        )
        np.testing.assert_allclose(
            exact_recursion().log_psi(found.later[k - 1], latent(z)),
            expected,
            rtol=1e-10,
            atol=1e-12,
        )
    expected = logsumexp([log_chain(zs) + log_emissions(zs, XS, MU, TAU) for zs in SEQUENCES])
    np.testing.assert_allclose(found.first, expected, rtol=1e-10)


@pytest.mark.parametrize("kind", ["hand-coded", "silent network", "uniform recursion"])
def test_mixtures_ignore_the_chain(kind, x64):
    """ψ_k = Π_{l>k} Σ_m N(x_l; η_m)/M, hand-coded, from a network that says nothing, or from a
    recursion with T uniform.
    """
    heuristic = {
        "hand-coded": lambda: MixtureHeuristic(),
        "silent network": lambda: silenced(MixtureHeuristic.neural(key=jax.random.key(0), width=4)),
        "uniform recursion": lambda: silenced(BackwardRecursion(M, key=jax.random.key(0), width=4)),
    }[kind]()
    found = heuristic.messages(eta(), jnp.asarray(XS))
    points = np.log(scipy.stats.norm.pdf(XS[:, None], MU, TAU**-0.5).mean(axis=1))
    np.testing.assert_allclose(found.first, points.sum(), rtol=1e-10)
    for k, z in itertools.product(range(1, K + 1), range(M)):
        log_psi = heuristic.log_psi(found.later[k - 1], latent(z))
        np.testing.assert_allclose(log_psi, points[k:].sum(), rtol=1e-10, atol=1e-12)


def test_a_network_gives_the_mixture_its_weights(x64):
    """ψ(x_l) = Σ_m N(x_l; η_m) ψ(m | η, x_l) with weights that add up to one: between the smallest
    and the largest component.
    """
    heuristic = MixtureHeuristic.neural(key=jax.random.key(5), width=4)
    heuristic = eqx.tree_at(lambda h: h.out.weight, heuristic, 300 * heuristic.out.weight)
    found = heuristic.messages(eta(), jnp.asarray(XS))
    points = -np.diff(np.concatenate([[found.first], found.later]))
    parts = scipy.stats.norm.logpdf(XS[:, None], MU, TAU**-0.5)
    assert (points > parts.min(axis=1)).all() and (points < parts.max(axis=1)).all()
    assert np.abs(points - np.log(np.exp(parts).mean(axis=1))).max() > 0.01


@pytest.mark.parametrize("guided", [False, True])
def test_cluster_kernel_starts_from_the_observation(guided, x64):
    """With a silent network q(z_k) ∝ N(x_k; η) and, guided, times ψ_k of its own row; a network
    sees z_{k-1}, not at k = 1.
    """
    kernel = ClusterKernel(key=jax.random.key(2), width=4, guided=guided)
    message = np.array([[5.0, -5.0], [0.3, 1.4]])

    def log_probs(kernel, k, state):
        theta = nvi.paths.Step(jnp.asarray(k), jnp.asarray(0.4), jnp.asarray(message))
        return np.asarray(kernel.log_probs(latent(state, row=1), nvi.kernels.Context(theta, None)))

    logits = scipy.stats.norm.logpdf(0.4, MU, TAU**-0.5) + (message[1] if guided else 0.0)
    np.testing.assert_allclose(
        log_probs(silenced(kernel), 2, 0), logits - logsumexp(logits), rtol=1e-10
    )
    np.testing.assert_array_equal(log_probs(kernel, 1, 0), log_probs(kernel, 1, 1))
    assert np.abs(log_probs(kernel, 2, 0) - log_probs(kernel, 2, 1)).max() > 1e-5


def program(heuristic, when="always", encoder=None, guided=False):
    encoder = (
        ExpectationMaximisation(MODEL, key=jax.random.key(1), width=4, num_steps=3)
        if encoder is None
        else encoder
    )
    kernel = ClusterKernel(key=jax.random.key(2), width=4, guided=guided)
    return HMMProgram(encoder, kernel, heuristic, MODEL, nvi.Resampling("systematic", when))


HEURISTICS = {
    "none": lambda: nvi.paths.NoHeuristic(),
    "mixture": lambda: MixtureHeuristic(),
    "recursion": lambda: BackwardRecursion(M, key=jax.random.key(3), width=4),
}
CASES = [("none", "always"), ("mixture", 0.5), ("recursion", 0.5)]


def ratios(program, num_particles, num_runs, seed=7):
    """Ẑ/Z of independent runs, and how many of their levels resampled."""

    def one(key):
        done = nvi.run(key, program(jnp.asarray(XS, jnp.float32)), num_particles)
        return done.log_Z_hat, done.info.resampled

    log_Z, resampled = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), num_runs))
    return np.exp(np.asarray(log_Z, float) - log_evidence(XS)), np.asarray(resampled)


@pytest.mark.parametrize(("name", "when"), CASES)
def test_evidence_is_estimated_without_bias(name, when):
    """E[Ẑ] = p(x) for each heuristic, resampling always or when weights have become uneven."""
    ratio, resampled = ratios(
        program(HEURISTICS[name](), when, guided=name == "recursion"), 20, 1000
    )
    if when != "always":
        assert 0.01 < resampled[:, 1:].mean() < 0.99
    assert_mean_is_one(ratio)


def test_evidence_without_bias_from_a_network_that_names_clusters_in_one_way():
    """The paper's encoder is far from the posterior, but its weights are proper all the same."""
    encoder = NeuralStatistics(MODEL, key=jax.random.key(4), width=4)
    ratio, _ = ratios(program(HEURISTICS["mixture"](), encoder=encoder), 20, 1000)
    assert_mean_is_one(ratio)


def test_exact_messages_and_modes_give_the_evidence_at_once():
    """With the exact recursion and q(η) around the modes, log Ẑ of 2000 particles is within 0.05 of
    log p(x) (or four errors).
    """
    ratio, _ = ratios(program(exact_recursion(), guided=True), 2000, 6)
    assert np.std(np.log(ratio), ddof=1) < 0.1
    assert abs(np.log(ratio).mean()) < max(0.05, 4 * np.std(np.log(ratio), ddof=1) / math.sqrt(6))


def test_simulated_series_follow_the_chain():
    """Means of x given (z, η) are η's, neighbours agree with probability `stay`, and states are
    uniform.
    """
    draw = jax.jit(jax.vmap(lambda key: MODEL.simulate(key, 20)))
    clusters, zs, xs = (
        jax.tree.map(np.asarray, x) for x in draw(jax.random.split(jax.random.key(8), 400))
    )
    same = zs[:, 1:] == zs[:, :-1]
    assert abs(same.mean() - 0.7) < 4 * math.sqrt(0.7 * 0.3 / same.size)
    assert abs(zs[:, 0].mean() - 0.5) < 4 * 0.5 / math.sqrt(len(zs))
    residual = (xs - np.take_along_axis(clusters.mu, zs, 1)) * np.sqrt(
        np.take_along_axis(clusters.tau, zs, 1)
    )
    assert abs(residual.mean()) < 4 / math.sqrt(residual.size)
    assert abs((residual**2).mean() - 1) < 4 * math.sqrt(2 / residual.size)


def test_prior_in_unbounded_coordinates_integrates_to_one(x64):
    """∫ p(μ, log τ) = 1 on a grid: the Jacobian of τ = e^{log τ} is there."""
    prior = LogPrecision(
        NormalGammas.prior(GaussianHMM(num_clusters=1, alpha=3.0, beta=2.0, mu=0.4, nu=0.5))
    )
    mu, log_tau = np.linspace(-60, 60, 2401), np.linspace(-7, 4, 221)
    grid = jnp.stack([x.ravel() for x in jnp.meshgrid(mu, log_tau)], axis=-1)
    mass = (
        jnp.exp(jax.vmap(prior.log_gamma)(grid)).sum() * (mu[1] - mu[0]) * (log_tau[1] - log_tau[0])
    )
    np.testing.assert_allclose(mass, 1.0, atol=1e-4)


def test_prior_coordinates_carry_the_jacobian_of_every_cluster(x64):
    """log p(μ, log τ) = log p(μ, τ) + log |det ∂η/∂(μ, log τ)|, and naming clusters by their means
    changes neither.
    """
    prior = LogPrecision(NormalGammas.prior(MODEL))
    z = jnp.concatenate([jnp.asarray(MU[::-1]), jnp.log(jnp.asarray(TAU[::-1]))])
    jacobian = jax.jacobian(lambda z: jnp.concatenate(prior.clusters(z)))(z)
    expected = (
        MODEL.log_prior(Clusters(jnp.asarray(MU[::-1]), jnp.asarray(TAU[::-1])))
        + jnp.linalg.slogdet(jacobian)[1]
    )
    np.testing.assert_allclose(prior.log_gamma(z), expected, rtol=1e-12)
    ordered = by_mean(z)
    np.testing.assert_allclose(ordered, np.concatenate([MU, np.log(TAU)]), rtol=1e-12)
    np.testing.assert_allclose(prior.log_gamma(ordered), expected, rtol=1e-12)


PARTS = {
    "alpha": np.array([[6.0, 9.0, 7.0], [5.0, 8.0, 12.0]]),
    "beta": np.array([[3.0, 2.0, 5.0], [4.0, 6.0, 3.0]]),
    "mu": np.array([[-2.0, 0.0, 3.0], [-1.0, 1.0, 2.0]]),
    "nu": np.array([[2.0, 4.0, 1.0], [3.0, 2.0, 5.0]]),
}
SHARE = np.array([0.3, 0.7])


def normal_gammas(symmetric):
    return NormalGammas(
        jnp.log(jnp.asarray(SHARE)) + 1.5,
        **{k: jnp.asarray(v) for k, v in PARTS.items()},
        symmetric=symmetric,
    )


def log_plain(mu, tau):
    """log Σ_r w_r Π_m NormalGamma by scipy."""
    a, b, m, n = PARTS.values()
    log_p = scipy.stats.gamma.logpdf(tau, a, scale=1 / b) + scipy.stats.norm.logpdf(
        mu, m, (n * tau) ** -0.5
    )
    return logsumexp(np.log(SHARE) + log_p.sum(axis=1))


def test_normal_gammas_have_their_closed_form(x64):
    """The plain density is the mixture; the symmetric one is its mean over all names, whatever the
    names of the point.
    """
    mu, tau = np.array([0.5, -1.5, 2.2]), np.array([1.3, 2.0, 0.7])
    np.testing.assert_allclose(
        normal_gammas(False).log_gamma(Clusters(mu, tau)), log_plain(mu, tau), rtol=1e-12
    )
    orders = [list(order) for order in itertools.permutations(range(3))]
    mean = logsumexp([log_plain(mu[o], tau[o]) for o in orders]) - math.log(6)
    for order in orders:
        found = normal_gammas(True).log_gamma(Clusters(mu[order], tau[order]))
        np.testing.assert_allclose(found, mean, rtol=1e-12)
    assert abs(log_plain(mu, tau) - mean) > 0.1


@pytest.mark.parametrize("symmetric", [False, True])
def test_normal_gamma_draws_have_their_moments_and_density(symmetric, x64):
    """E τ = α/β, E τ² = α(α+1)/β², E μ = μ and Var μ = β/(ν(α-1)) around it; symmetric draws have
    their mean over clusters.

    And E_p[p_1/p] = 1 for the first part p_1, which p covers: what is sampled is what is scored,
    and it is normalised.
    """
    density = normal_gammas(symmetric)
    part = NormalGammas(jnp.zeros(1), **{k: jnp.asarray(v[:1]) for k, v in PARTS.items()})

    def one(key):
        z = density.sample(key)
        return z, jnp.exp(part.log_gamma(z) - density.log_gamma(z))

    z, ratio = jax.tree.map(
        np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(9), 20_000))
    )
    a, b, m, n = PARTS.values()
    expected = [SHARE @ x for x in (a / b, a * (a + 1) / b**2, m, m**2 + b / (n * (a - 1)))]
    for found, wanted in zip((z.tau, z.tau**2, z.mu, z.mu**2), expected, strict=True):
        wanted = np.full(3, wanted.mean()) if symmetric else wanted
        error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
        np.testing.assert_array_less(np.abs(found.mean(axis=0) - wanted), 4.5 * error)
    assert abs(ratio.mean() - 1) < 4 * ratio.std(ddof=1) / math.sqrt(ratio.size)
