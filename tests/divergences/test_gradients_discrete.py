"""Every row of the gradient table on finite spaces, to rounding.

The surrogate is linear in sums over weighted particles. Given every pair (z_{k-1}, z_k) as one
particle whose incoming weight is π̂_k of that pair, those sums are the exact expectations, and its
gradient must be the exact divergence's own.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.divergences.surrogate import surrogate
from nestedvi.kernels.mcmc import invariant_scores
from nestedvi.particles.resampling import Particles
from nestedvi.paths.base import at_level
from nestedvi.sampler.level import GradientRule, Level, weigh
from tests.helpers.closed_forms import (
    CASES,
    NAMES,
    VARYING,
    assert_same,
    divergences,
    jacobians,
    log_normalise,
    surrogates,
    with_value,
)
from tests.helpers.finite import Table, TableChain

pytestmark = pytest.mark.usefixtures("x64")

N = 3
TOL = 1e-10
GROUPS = ("theta_prev", "theta", "forward", "reverse")


PATH = nvi.paths.DensitySequence([Table(jnp.zeros(N)), Table(jnp.zeros(N))])
PREV, NEW = (np.array(x) for x in zip(*itertools.product(range(N), range(N)), strict=True))


def parameters(seed=0):
    """Unnormalised tables: normalisers far from one, so that a missing Z shows."""
    rng = np.random.default_rng(seed)
    shapes = {"theta_prev": (N,), "theta": (N,), "forward": (N, N), "reverse": (N, N)}
    return {
        name: jnp.asarray(rng.normal(size=shape) + i)
        for i, (name, shape) in enumerate(shapes.items())
    }


def log_hat(p):
    """log π̂[z_{k-1}, z_k]."""
    return log_normalise(p["theta_prev"])[:, None] + jax.nn.log_softmax(p["forward"])


def log_check(p):
    """log π̌[z_{k-1}, z_k]."""
    return log_normalise(p["theta"])[None, :] + jax.nn.log_softmax(p["reverse"]).T


def exact(names):
    return with_value(lambda p: divergences(names, log_check(p), log_hat(p)))


def level_of(p):
    transition = nvi.Transition(
        nvi.kernels.CategoricalKernel(p["forward"]), nvi.kernels.CategoricalKernel(p["reverse"])
    )
    return Level(transition, Table(p["theta_prev"]), Table(p["theta"]), None)


def all_pairs(p):
    """Every pair as a particle; weights are only known up to a constant, as in a sampler."""
    return Particles(
        jnp.asarray(PREV), jnp.asarray(PREV), jax.lax.stop_gradient(log_hat(p)[PREV, NEW]) + 3.7
    )


def estimated(names, flow):
    def fn(p):
        terms = weigh(jnp.asarray(NEW), None, all_pairs(p), level_of(p), PATH, flow)
        return surrogates(names, terms, all_pairs(p).log_w, flow.hold_q)

    return fn


# Log q may only be held where g is constant; see the test that it is wrong elsewhere.
@pytest.mark.parametrize(
    ("flow", "names"),
    [
        (GradientRule(), NAMES),
        (GradientRule(score_only=True), NAMES),
        (GradientRule(hold_q=True), ("reverse-kl",)),
    ],
    ids=str,
)
def test_every_parameter(flow, names):
    """φ̂ (score), φ̌, θ_{k-1} and θ_k at once, and the reported divergence is the divergence."""
    p = parameters()
    expected, value = jacobians(exact(names), p)
    got, reported = jacobians(estimated(names, flow), p)
    assert_same(got, expected, TOL)
    np.testing.assert_allclose(reported, value, rtol=TOL)


def test_holding_q_alone_is_wrong_where_g_varies():
    """E[g ∂log q] is zero only for constant g: the objective must not hold log q elsewhere, and
    this check can fail.
    """
    p, names = parameters(), VARYING
    wrong = (
        jacobians(estimated(names, GradientRule(hold_q=True)), p)[0]["forward"]
        - jacobians(exact(names), p)[0]["forward"]
    )
    assert (np.abs(wrong).max(axis=(1, 2)) > 1e-2).all()
    for name in names:
        assert not nvi.Objective(CASES[name][0]()).gradient_rule(level_of(p).transition).hold_q


def test_partial_optimisation():
    """Only the right-hand side π̂ learns: φ̂ and θ_{k-1}; γ_k is a constant target."""
    p = parameters(1)
    expected, got = (
        jacobians(exact(NAMES), p)[0],
        jacobians(estimated(NAMES, GradientRule(hold_theta=True, score_only=True)), p)[0],
    )
    right = ("theta_prev", "forward")
    assert_same({n: got[n] for n in right}, {n: expected[n] for n in right}, TOL)
    np.testing.assert_array_equal(got["theta"], np.zeros((len(NAMES), N)))


def test_first_term():
    """D_f(π_1 ‖ q_1): nothing comes in, q_1 is normalised by its own log Z."""
    p = {"initial": parameters(2)["theta_prev"], "theta": parameters(2)["theta"]}

    def loss(p):
        path = nvi.paths.DensitySequence([Table(p["theta"]), Table(jnp.zeros(N))])
        sampler = nvi.NestedSampler(Table(p["initial"]), path, (level_of(parameters()).transition,))
        log_w = jax.lax.stop_gradient(log_normalise(p["initial"]))
        terms = weigh(
            jnp.arange(N),
            None,
            Particles(None, None, log_w),
            sampler.first_level(),
            path,
            GradientRule(),
        )
        return surrogates(NAMES, terms, log_w)

    first = with_value(
        lambda p: divergences(NAMES, log_normalise(p["theta"]), log_normalise(p["initial"]))
    )
    assert_same(jacobians(loss, p)[0], jacobians(first, p)[0], TOL)


def test_excluded_states_leave_finite_exact_gradients():
    """Forward KL where π̌ is zero on part of the space: those pairs have no say, and no NaN."""
    p = parameters(3)
    p["theta"] = p["theta"].at[1].set(-jnp.inf)
    _, f = CASES["forward-kl"]

    def masked(p):
        log_c, log_h = log_check(p), log_hat(p)
        ratio = jnp.exp(jnp.where(jnp.isneginf(log_c), 0.0, log_c - log_h))
        return jnp.sum(jnp.where(jnp.isneginf(log_c), 0.0, jnp.exp(log_h) * f(ratio)))

    expected = jax.jit(jax.grad(masked))(p)
    got, _ = jacobians(estimated(("forward-kl",), GradientRule()), p)
    for name in GROUPS:
        assert np.isfinite(got[name]).all(), name
        np.testing.assert_allclose(got[name][0], expected[name], rtol=TOL, atol=TOL, err_msg=name)


def test_dead_incoming_particles_are_silent():
    """A particle of weight zero may have any increment, NaN included, and changes nothing."""
    p = parameters(4)

    def loss(p, dead):
        pairs = all_pairs(p)
        log_w = jnp.concatenate([pairs.log_w, jnp.full(dead, -jnp.inf)])
        prev = jnp.concatenate([pairs.z, jnp.zeros(dead, int)])
        level = level_of(p)
        z = jnp.concatenate([jnp.asarray(NEW), jnp.ones(dead, int)])
        terms = weigh(z, None, Particles(prev, prev, log_w), level, PATH, GradientRule())
        spoil = jnp.where(jnp.isneginf(log_w), jnp.nan, 0.0)
        return surrogate(
            nvi.ReverseKL(),
            terms._replace(log_gamma=terms.log_gamma + spoil),
            log_w,
            baseline=False,
        )[0]

    slopes = jax.jit(jax.grad(loss), static_argnums=1)
    clean, spoilt = slopes(p, 0), slopes(p, 2)
    for name in GROUPS:
        np.testing.assert_allclose(spoilt[name], clean[name], rtol=1e-12, err_msg=name)


def metropolis(log_gamma):
    """A Metropolis matrix with a uniform proposal."""
    accept = jnp.minimum(1.0, jnp.exp(log_gamma[None, :] - log_gamma[:, None])) / N
    away = accept * (1 - jnp.eye(N))
    return away + jnp.diag(1 - away.sum(1))


def test_mcmc_level():
    """A γ_k-invariant move: D = D_f(π_k ‖ π_{k-1}) at z_{k-1}; θ_k enters through v_k, never
    through the draw.
    """
    p = {n: parameters(5)[n] for n in ("theta_prev", "theta")}

    def loss(p):
        matrix = metropolis(jax.lax.stop_gradient(p["theta"]))
        log_w = jax.lax.stop_gradient(
            log_normalise(p["theta_prev"])[PREV] + jnp.log(matrix[PREV, NEW])
        )
        level = Level(
            nvi.kernels.Invariant(lambda key, z, g: z),
            Table(p["theta_prev"]),
            Table(p["theta"]),
            None,
        )
        incoming = Particles(jnp.asarray(PREV), jnp.asarray(PREV), log_w)
        return surrogates(
            NAMES, weigh(jnp.asarray(NEW), None, incoming, level, PATH, GradientRule()), log_w
        )

    marginal = with_value(
        lambda p: divergences(NAMES, log_normalise(p["theta"]), log_normalise(p["theta_prev"]))
    )
    assert_same(jacobians(loss, p)[0], jacobians(marginal, p)[0], TOL)


def test_invariant_scores_are_the_time_reversal():
    """log r − log q of a reversible matrix, from the matrix itself."""
    log_gamma = parameters(6)["theta"]
    matrix = metropolis(log_gamma)
    context = nvi.kernels.Context(None, lambda z: log_gamma[z])
    # A reversible matrix is its own time reversal: r(i | j) = P[j, i].
    scores = jax.jit(jax.vmap(lambda z, z_prev: invariant_scores(z, z_prev, context)))(
        jnp.asarray(NEW), jnp.asarray(PREV)
    )
    reversal = jnp.log(matrix[NEW, PREV]) - jnp.log(matrix[PREV, NEW])
    np.testing.assert_allclose(scores.log_r - scores.log_q, reversal, atol=1e-12)


class Psi(nvi.paths.AbstractHeuristic):
    """A heuristic with a parameter that all levels share and one for each level."""

    shared: jax.Array
    own: jax.Array

    def messages(self, eta, observations):
        steps = jnp.arange(1, len(observations) + 1)
        # Nothing is asked of the last one.
        return nvi.paths.Messages((steps, jnp.pad(self.own, ((0, 1), (0, 0)))))

    def log_psi(self, message, z):
        k, own = message
        return self.shared[z] * k + own[z]


@pytest.mark.parametrize("optimise", ["full", "partial"])
def test_state_space_heuristic(optimise):
    """θ of ψ_{k-1} and ψ_k through one shared path, at a level whose densities share the factor
    p(x_1, z_1).
    """
    rng = np.random.default_rng(7)

    def log(*shape):
        return jax.nn.log_softmax(jnp.asarray(rng.normal(size=shape)), axis=-1)

    model, x = TableChain(log(N), log(N, N), log(N, 2)), jnp.array([1, 0, 1])
    p = {
        "psi": Psi(jnp.asarray(rng.normal(size=N)), jnp.asarray(rng.normal(size=(2, N)))),
        "forward": log(N, N) * 2.0,
    }
    log_first = model.log_start + model.log_emit[:, 1]
    states = jnp.arange(N)

    def log_psi(psi, k):
        return jax.vmap(lambda z: psi.shared[z] * k + psi.own[k - 1, z])(states)

    def log_hat(p):
        return log_normalise(log_first + log_psi(p["psi"], 1))[:, None] + jax.nn.log_softmax(
            p["forward"]
        )

    def exact(p):
        last = jax.lax.stop_gradient(p["psi"]) if optimise == "partial" else p["psi"]
        log_c = (
            log_first[:, None] + model.log_step + (model.log_emit[:, 0] + log_psi(last, 2))[None, :]
        )
        return divergences(NAMES, log_normalise(log_c), log_hat(p))

    def loss(p):
        path = nvi.StateSpace(model, x, p["psi"])
        first, second = (at_level(path.thetas(), j) for j in (0, 1))
        level = Level(
            nvi.Transition(nvi.kernels.CategoricalKernel(p["forward"])), first, second, None
        )
        log_w = jax.lax.stop_gradient(log_hat(p)[PREV, NEW])
        incoming = Particles(jnp.asarray(PREV), jnp.asarray(PREV), log_w)
        terms = weigh(
            jnp.asarray(NEW),
            None,
            incoming,
            level,
            path,
            GradientRule(hold_theta=optimise == "partial"),
        )
        return surrogates(NAMES, terms, log_w)

    assert_same(jacobians(loss, p)[0], jacobians(with_value(exact), p)[0], TOL)


def outcomes(num_particles):
    return jnp.asarray(list(itertools.product(range(N), repeat=num_particles)))


def score_gradients(p, starts, log_w, baseline, hold_q, num_particles):
    """The φ̂ gradient of every joint outcome of S particles, and each outcome's probability."""
    picks = outcomes(num_particles)
    prob = jnp.prod(jnp.exp(jax.nn.log_softmax(p["forward"])[starts, picks]), axis=1)

    def loss(forward, z):
        here = level_of({**p, "forward": forward})
        terms = weigh(
            z, None, Particles(starts, starts, log_w), here, PATH, GradientRule(hold_q=hold_q)
        )
        return surrogate(nvi.ReverseKL(), terms, log_w, baseline=baseline, hold_q=hold_q)[0]

    return jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(p["forward"], picks), prob


@pytest.mark.parametrize("hold_q", [False, True])
@pytest.mark.parametrize(
    ("starts", "log_w"),
    [((0, 2), (0.0, 0.0)), ((0, 1, 1), (0.0, 0.0, 0.0)), ((2, 0, 1), (0.5, -1.0, 0.2))],
)
def test_leave_one_out_baseline_is_unbiased(starts, log_w, hold_q):
    """Reverse KL with the baseline: the estimated normaliser cancels, so E[gradient] is exact for
    any number of particles.
    """
    p = parameters(8)
    starts, log_w = jnp.asarray(starts), jnp.asarray(log_w)
    w_bar = jax.nn.softmax(log_w)

    def exact(forward):
        log_q = jax.nn.log_softmax(forward)
        log_v = (
            p["theta"][None, :]
            + jax.nn.log_softmax(p["reverse"]).T
            - p["theta_prev"][:, None]
            - log_q
        )
        inner = jnp.sum(jnp.exp(log_q) * -log_v, axis=1)
        return jnp.sum(w_bar * inner[starts])

    grads, prob = score_gradients(p, starts, log_w, True, hold_q, len(starts))
    expected = jax.jit(jax.grad(exact))(p["forward"])
    np.testing.assert_allclose(
        jnp.einsum("o,oij->ij", prob, grads), expected, rtol=1e-10, atol=1e-10
    )
    assert np.abs(expected).max() > 1e-2


def test_baseline_removes_bias_and_variance():
    """S = 3 particles from one state: without the baseline the particles' own estimate of Z biases
    the score term, with it the exact variance falls and the mean is right (the test above)."""
    p = parameters(9)
    moments = []
    for baseline in (False, True):
        grads, prob = score_gradients(p, jnp.zeros(3, int), jnp.zeros(3), baseline, False, 3)
        mean = jnp.einsum("o,oij->ij", prob, grads)
        moments.append((mean, float(jnp.einsum("o,oij->", prob, (grads - mean) ** 2))))
    (mean_off, var_off), (mean_on, var_on) = moments
    assert var_on < 0.5 * var_off
    assert np.abs(mean_on - mean_off).max() > 0.01
