"""The linear-Gaussian model: its evidence is a normal density, and particle filters estimate it
without bias.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

import nestedvi as nvi
from nestedvi.paper.hmm.linear_gaussian import GaussianHeuristic, LinearGaussian, particle_filter

K = 5
MODEL = LinearGaussian(decay=0.8, step=0.6, noise=0.4, spread=1.3)
XS = np.array([0.7, 1.4, -0.2, -1.1, 0.3])


def log_evidence():
    """log N(x; 0, C) with Cov(x_i, x_j) = decay^{|i-j|} Var z_{min(i, j)} + noise² [i = j]."""
    variance = [MODEL.spread**2]
    for _ in range(K - 1):
        variance.append(MODEL.decay**2 * variance[-1] + MODEL.step**2)
    covariance = np.diag(np.full(K, MODEL.noise**2))
    for i, j in itertools.product(range(K), repeat=2):
        covariance[i, j] += MODEL.decay ** abs(i - j) * variance[min(i, j)]
    return scipy.stats.multivariate_normal(np.zeros(K), covariance).logpdf(XS)


def log_estimates(sampler, num_particles, num_runs):
    """log Ẑ of independent runs."""
    run = jax.jit(jax.vmap(lambda key: nvi.run(key, sampler, num_particles).log_Z_hat))
    return np.asarray(run(jax.random.split(jax.random.key(6), num_runs)), float)


def test_evidence_is_the_normal_density_of_the_series(x64):
    """The Kalman filter's log p(x_{1:K}) is scipy's, with the covariance built by hand."""
    np.testing.assert_allclose(MODEL.log_evidence(jnp.asarray(XS)), log_evidence(), rtol=1e-12)


def test_simulated_series_have_the_models_covariance():
    """Var x_k = Var z_k + noise² and Cov(x_k, x_{k+1}) = decay · Var z_k, with Var z_k from the
    spread and the steps since.
    """
    draw = jax.jit(jax.vmap(lambda key: MODEL.simulate(key, K)))
    xs = np.asarray(draw(jax.random.split(jax.random.key(5), 4000)), float)
    variance = MODEL.spread**2 * MODEL.decay ** (2 * np.arange(K)) + MODEL.step**2 * np.cumsum(
        np.append(0, MODEL.decay ** (2 * np.arange(K - 1)))
    )
    found, expected = (xs**2).mean(axis=0), variance + MODEL.noise**2
    np.testing.assert_array_less(np.abs(found - expected), 4 * expected * np.sqrt(2 / len(xs)))
    products = xs[:, 1:] * xs[:, :-1]
    error = products.std(axis=0, ddof=1) / np.sqrt(len(xs))
    np.testing.assert_array_less(
        np.abs(products.mean(axis=0) - MODEL.decay * variance[:-1]), 4 * error
    )


@pytest.mark.parametrize("heuristic", [False, True])
def test_filters_estimate_the_evidence_without_bias(heuristic):
    """E[Ẑ] = p(x) for the bootstrap filter, and with a heuristic that has learned nothing yet."""
    sampler = particle_filter(MODEL, jnp.asarray(XS, jnp.float32), heuristic=heuristic)
    ratio = np.exp(log_estimates(sampler, 50, 1000) - log_evidence())
    error = ratio.std(ddof=1) / np.sqrt(ratio.size)
    assert error < 0.03
    assert abs(ratio.mean() - 1) < 4 * error


def test_exact_messages_and_proposals_have_no_variance(x64):
    """With ψ_k(z) ∝ p(x_{k+1:K} | z), a `GaussianHeuristic`, and q_k ∝ p(z_k | z_{k-1}) p(x_k |
    z_k) ψ_k, log Ẑ is log p(x).
    """
    precision, centre = np.zeros(K), np.zeros(K)
    # Backwards: x_{k+1} and ψ_{k+1} together say that z_{k+1} is near `m` with precision `p`; z_k
    # is one step away from that.
    for k in range(K - 2, -1, -1):
        p = MODEL.noise**-2 + precision[k + 1]
        m = (MODEL.noise**-2 * XS[k + 1] + precision[k + 1] * centre[k + 1]) / p
        precision[k], centre[k] = MODEL.decay**2 / (1 / p + MODEL.step**2), m / MODEL.decay
    ahead, pull = MODEL.noise**-2 + precision, MODEL.noise**-2 * XS + precision * centre
    total = ahead + np.append(MODEL.spread**-2, np.full(K - 1, MODEL.step**-2))

    def column(x):
        return jnp.asarray(x)[:, None]

    sampler = particle_filter(MODEL, jnp.asarray(XS), heuristic=True)
    with np.errstate(divide="ignore"):
        psi = GaussianHeuristic(column(centre), jnp.asarray(np.log(precision)))
    kernel = sampler.transitions.transition.forward
    exact = MODEL.decay * MODEL.step**-2 / total[1:], (pull / total)[1:], -0.5 * np.log(total[1:])
    sampler = eqx.tree_at(
        lambda s: (s.path.heuristic, s.initial, s.transitions.transition.forward),
        sampler,
        (
            psi,
            nvi.DiagonalNormal(pull[:1] / total[:1], total[:1] ** -0.5),
            eqx.tree_at(
                lambda q: (q.slope, q.shift, q.log_scale), kernel, tuple(map(column, exact))
            ),
        ),
    )
    np.testing.assert_allclose(log_estimates(sampler, 3, 10), log_evidence(), rtol=1e-10)


@pytest.mark.slow
def test_training_cuts_the_variance():
    """A few hundred steps of the learned filter with a heuristic: log Ẑ varies five times less than
    the bootstrap filter's.
    """
    xs = jnp.asarray(XS, jnp.float32)
    trained = nvi.fit(
        jax.random.key(1),
        particle_filter(MODEL, xs, learned=True, heuristic=True),
        nvi.Objective("forward-kl", learn=("initial", "forward", "path"), optimise="partial"),
        num_steps=400,
        num_particles=50,
        optimiser=optax.adam(optax.cosine_decay_schedule(5e-2, 400)),
    )
    before, after = (
        log_estimates(s, 20, 400).var(ddof=1) for s in (particle_filter(MODEL, xs), trained.sampler)
    )
    assert after < before / 5
