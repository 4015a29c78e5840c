"""Every row of the gradient table for reparameterised, mixed and deterministic moves, against
quadrature.

Particles are the nodes of a product quadrature rule: z_{k-1} on a grid, the noise of z_k on
another, so z_k moves with the parameters as a pathwise gradient needs. The exact divergence is
computed apart from the library, on a fixed grid of both. The trapezium rule converges faster than
any power here (smooth, decaying integrands), so 1e-8 is no loose tolerance.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi
from nestedvi.particles.resampling import Particles
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

pytestmark = pytest.mark.usefixtures("x64")

LOG_2PI = np.log(2 * np.pi)
GRID = np.linspace(-9.0, 9.0, 73)
NOISE = np.linspace(-8.0, 8.0, 65)
TOL = 1e-8


class Bump(nvi.AbstractDensity):
    """log γ(z) = c − ½ a z² + b sin z: unnormalised, skewed, with no closed form."""

    value: jax.Array

    def log_gamma(self, z):
        a, b, c = self.value
        return c - 0.5 * a * z[0] ** 2 + b * jnp.sin(z[0])


PATH = nvi.paths.DensitySequence([Bump(jnp.zeros(3)), Bump(jnp.zeros(3))])


def log_bump(value, z):
    return value[2] - 0.5 * value[0] * z**2 + value[1] * jnp.sin(z)


def log_normal(z, loc, log_scale):
    return -0.5 * ((z - loc) / jnp.exp(log_scale)) ** 2 - log_scale - 0.5 * LOG_2PI


def log_gauss(p, z_new, z):
    return log_normal(z_new, p[0] * z + p[1], p[2])


def parameters():
    """q is a little wide, so that χ² is finite."""
    return {
        "theta_prev": jnp.array([0.8, 0.5, 1.3]),
        "theta": jnp.array([1.1, -0.7, -0.4]),
        "forward": jnp.array([0.4, 0.2, 0.1]),
        "reverse": jnp.array([0.5, -0.1, -0.1]),
    }


def exact(names):
    """∫∫ π̂ f(π̌/π̂) on a fixed grid of (z_{k-1}, z_k)."""
    cell = np.log(GRID[1] - GRID[0])
    z, new = jnp.asarray(GRID)[:, None], jnp.asarray(GRID)[None, :]

    def fn(p):
        log_prev = log_normalise(log_bump(p["theta_prev"], GRID)) - cell
        log_now = log_normalise(log_bump(p["theta"], GRID)) - cell
        log_hat = log_prev[:, None] + log_gauss(p["forward"], new, z)
        log_check = log_now[None, :] + log_gauss(p["reverse"], z, new)
        return divergences(names, log_check, log_hat, 2 * cell)

    return with_value(fn)


def gaussian(p, score_only=False):
    return nvi.kernels.GaussianKernel(p[:1], p[1:2], p[2:], score_only)


def estimated(names, flow, score_only=False):
    """The surrogate on quadrature nodes."""
    prev, eps = (jnp.asarray(x.ravel()) for x in np.meshgrid(GRID, NOISE, indexing="ij"))
    prev = prev[:, None]

    def fn(p):
        log_w = jax.lax.stop_gradient(log_bump(p["theta_prev"], prev[:, 0])) - 0.5 * eps**2
        transition = nvi.Transition(gaussian(p["forward"], score_only), gaussian(p["reverse"]))
        level = Level(transition, Bump(p["theta_prev"]), Bump(p["theta"]), None)
        slope, shift, log_scale = p["forward"]
        z = slope * prev + shift + jnp.exp(log_scale) * eps[:, None]
        if score_only or flow.score_only:
            z = jax.lax.stop_gradient(z)
        terms = weigh(z, None, Particles(prev, prev, log_w), level, PATH, flow)
        return surrogates(names, terms, log_w, flow.hold_q)

    return fn


LANDING = GradientRule(hold_q=True, split=True)
HELD = GradientRule(hold_q=True)
# (flow, kernel declared non-reparameterised, divergences): every estimator of φ̂ that an objective
# can choose.
ESTIMATORS = {
    "pathwise": (GradientRule(), False, NAMES),
    "landing": (LANDING, False, NAMES),
    "held log q": (HELD, False, ("reverse-kl",)),
    "score": (GradientRule(score_only=True), False, NAMES),
    "score-only kernel": (GradientRule(), True, NAMES),
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gaussian_kernels(estimator):
    """All parameters, all estimators of φ̂; the reported divergence is the divergence."""
    flow, score_only, names = ESTIMATORS[estimator]
    p = parameters()
    expected, value = jacobians(exact(names), p)
    got, reported = jacobians(estimated(names, flow, score_only), p)
    assert_same(got, expected, TOL)
    np.testing.assert_allclose(reported, value, rtol=TOL)


@pytest.mark.parametrize("name", NAMES)
def test_objectives_choose_those_flows(name):
    """What was proved above is what training uses."""
    p = parameters()
    transition = nvi.Transition(gaussian(p["forward"]), gaussian(p["reverse"]))

    def choose(**kw):
        return nvi.Objective(CASES[name][0](), **kw).gradient_rule(transition)

    assert choose(estimator="pathwise") == (HELD if name == "reverse-kl" else LANDING)
    assert choose(estimator="pathwise", sticking_the_landing=False) == GradientRule()
    assert choose(estimator="score") == GradientRule(score_only=True)
    assert choose() == (
        GradientRule(score_only=True) if name == "forward-kl" else choose(estimator="pathwise")
    )


def test_partial_optimisation():
    """Sticking the landing with γ_k held: φ̂ still learns through z_k, θ_k does not."""
    p = parameters()
    expected, got = (
        jacobians(exact(NAMES), p)[0],
        jacobians(estimated(NAMES, LANDING._replace(hold_theta=True)), p)[0],
    )
    right = ("theta_prev", "forward")
    assert_same({n: got[n] for n in right}, {n: expected[n] for n in right}, TOL)
    np.testing.assert_array_equal(got["theta"], np.zeros((len(NAMES), 3)))


class Sine(eqx.Module):
    value: jax.Array

    def __call__(self, z, context):
        return self.value * jnp.sin(z)


def langevin_parameters():
    return {
        "theta_prev": jnp.array([0.8, 0.5, 1.3]),
        "theta": jnp.array([1.1, -0.7, -0.4]),
        "log_step": jnp.array([-1.4]),
        "drift": jnp.array([0.6]),
    }


def langevin_params(theta, log_step, drift, z):
    """Mean and log scale of one Langevin step, with the derivative of the bump by hand."""
    score = -theta[0] * z + theta[1] * jnp.cos(z)
    return z + jnp.exp(log_step) * (score + drift * jnp.sin(z)), 0.5 * (jnp.log(2.0) + log_step)


def exact_langevin(partial):
    """∫∫ π̂ f(π̌/π̂) where q_k and r_{k-1} share a step size and a drift, and both read θ_k."""
    cell = np.log(GRID[1] - GRID[0])
    z, new = jnp.asarray(GRID)[:, None], jnp.asarray(GRID)[None, :]
    hold = jax.lax.stop_gradient if partial else lambda x: x

    def fn(p):
        theta = hold(p["theta"])
        log_prev = log_normalise(log_bump(p["theta_prev"], GRID)) - cell
        log_now = log_normalise(log_bump(theta, GRID)) - cell
        there = langevin_params(theta, p["log_step"], p["drift"], z)
        back = langevin_params(theta, hold(p["log_step"]), -hold(p["drift"]), new)
        return divergences(
            NAMES,
            log_now[None, :] + log_normal(z, *back),
            log_prev[:, None] + log_normal(new, *there),
            2 * cell,
        )

    return with_value(fn)


def estimated_langevin(flow):
    prev, eps = (jnp.asarray(x.ravel()) for x in np.meshgrid(GRID, NOISE, indexing="ij"))
    prev = prev[:, None]

    def fn(p):
        log_w = jax.lax.stop_gradient(log_bump(p["theta_prev"], prev[:, 0])) - 0.5 * eps**2
        transition = nvi.kernels.LangevinTransition(
            jnp.exp(p["log_step"]), drift=Sine(p["drift"]), opposite=True
        )
        theta = jax.lax.stop_gradient(p["theta"]) if flow.hold_theta else p["theta"]
        loc, log_scale = langevin_params(theta, p["log_step"], p["drift"], prev)
        z = loc + jnp.exp(log_scale) * eps[:, None]
        z = jax.lax.stop_gradient(z) if flow.score_only else z
        level = Level(transition, Bump(p["theta_prev"]), Bump(p["theta"]), None)
        terms = weigh(z, None, Particles(prev, prev, log_w), level, PATH, flow)
        return surrogates(NAMES, terms, log_w, flow.hold_q)

    return fn


@pytest.mark.parametrize(
    "flow",
    [GradientRule(), LANDING, GradientRule(score_only=True)],
    ids=["pathwise", "landing", "score"],
)
def test_langevin_moves(flow):
    """Step size and drift in both kernels, θ_k in γ_k and in both kernels: every way in adds up."""
    p = langevin_parameters()
    expected, value = jacobians(exact_langevin(False), p)
    got, reported = jacobians(estimated_langevin(flow), p)
    assert_same(got, expected, TOL, nonzero=1e-4)
    np.testing.assert_allclose(reported, value, rtol=TOL)


@pytest.mark.parametrize("flow", [GradientRule(), LANDING], ids=["pathwise", "landing"])
def test_partial_optimisation_of_shared_parameters(flow):
    """What q_k shares with r_{k-1} is held in its role in r_{k-1}."""
    p = langevin_parameters()
    expected = jacobians(exact_langevin(True), p)[0]
    got = jacobians(estimated_langevin(flow._replace(hold_theta=True)), p)[0]
    right = ("theta_prev", "log_step", "drift")
    assert_same({n: got[n] for n in right}, {n: expected[n] for n in right}, TOL, nonzero=1e-4)
    np.testing.assert_array_equal(got["theta"], np.zeros((len(NAMES), 3)))


def test_landing_without_split_is_wrong_where_g_varies():
    """Holding log q in a pathwise gradient needs the other coefficient F' − F'' unless g is
    constant: the check can fail.
    """
    p, names = parameters(), VARYING
    wrong = (
        jacobians(estimated(names, HELD), p)[0]["forward"]
        - jacobians(exact(names), p)[0]["forward"]
    )
    assert (np.abs(wrong).max(axis=1) > 1e-3).all()


def test_first_term():
    """D_f(π_1 ‖ q_1) for a learned Gaussian q_1."""
    p = {
        "theta": jnp.array([1.1, -0.7, -0.4]),
        "loc": jnp.array([0.3]),
        "log_scale": jnp.array([0.2]),
    }
    cell, noise = np.log(GRID[1] - GRID[0]), jnp.asarray(NOISE)

    def exact_first(p):
        log_pi = log_normalise(log_bump(p["theta"], GRID)) - cell
        return divergences(NAMES, log_pi, log_normal(GRID, p["loc"][0], p["log_scale"][0]), cell)

    def loss(flow):
        def fn(p):
            initial = eqx.tree_at(
                lambda d: (d.loc, d.log_scale),
                nvi.DiagonalNormal(0.0, 1.0),
                (p["loc"], p["log_scale"]),
            )
            path = nvi.paths.DensitySequence([Bump(p["theta"]), Bump(jnp.ones(3))])
            sampler = nvi.NestedSampler(
                initial, path, [nvi.Transition(gaussian(jnp.zeros(3)), gaussian(jnp.zeros(3)))]
            )
            log_w = -0.5 * noise**2
            z = p["loc"] + jnp.exp(p["log_scale"]) * noise[:, None]
            terms = weigh(z, None, Particles(None, None, log_w), sampler.first_level(), path, flow)
            return surrogates(NAMES, terms, log_w, flow.hold_q)

        return fn

    expected = jacobians(with_value(exact_first), p)[0]
    for flow in (GradientRule(), LANDING):
        assert_same(jacobians(loss(flow), p)[0], expected, TOL)


class Continuous(eqx.Module):
    """x' | z, d' ~ N(loc[d'] + slope x, scale)."""

    loc: jax.Array
    slope: jax.Array
    log_scale: jax.Array

    def __call__(self, z, context):
        return dist.Normal(self.loc[z["d"]] + self.slope * z["x"], jnp.exp(self.log_scale))


class Discrete(eqx.Module):
    """d' | z, x' ~ softmax(logits[d] + gain x')."""

    logits: jax.Array
    gain: jax.Array

    def __call__(self, z, context):
        return dist.Categorical(logits=self.logits[z["d"]] + self.gain * z["x"])


class MixedDensity(nvi.AbstractDensity):
    """log γ(d, x) = b_d + m_d x − ½ a_d x²."""

    a: jax.Array
    m: jax.Array
    b: jax.Array

    def log_gamma(self, z):
        d, x = z["d"], z["x"]
        return self.b[d] + self.m[d] * x - 0.5 * self.a[d] * x**2


def mixed_parts(seed):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return jnp.asarray(0.5 * rng.normal(size=shape))

    return {
        "x": Continuous(draw(2), jnp.asarray(0.3), jnp.asarray(0.15)),
        "d": Discrete(draw(2, 2), draw(2)),
    }


def mixed_kernel(parts, order):
    wrap = {n: nvi.DistributionKernel(parts[n], reparameterised=n == "x") for n in ("x", "d")}
    return nvi.ProductKernel({n: wrap[n] for n in order})


def mixed_parameters():
    rng = np.random.default_rng(3)

    def draw():
        return jnp.asarray(0.4 * rng.normal(size=2))

    prev = MixedDensity(jnp.array([0.9, 1.3]), draw(), draw())
    now = MixedDensity(jnp.array([1.2, 1.0]), draw(), draw())
    return {"theta_prev": prev, "theta": now, "forward": mixed_parts(4), "reverse": mixed_parts(5)}


MIXED_PATH = nvi.paths.StackedDensities(
    MixedDensity(jnp.ones((2, 2)), jnp.ones((2, 2)), jnp.ones((2, 2)))
)
X = np.linspace(-8.0, 8.0, 49)
EPS = np.linspace(-7.5, 7.5, 47)


def log_conditional(parts, order, new, old):
    """log q(d', x' | d, x) written out; the part that comes second sees the first's new value."""
    d_new, x_new, d, x = *new, *old
    seen_d, seen_x = (d_new, x) if order[0] == "d" else (d, x_new)
    cont, disc = parts["x"], parts["d"]
    log_x = log_normal(x_new, cont.loc[seen_d] + cont.slope * x, cont.log_scale)
    logits = disc.logits[d] + disc.gain * (seen_x if order[0] == "x" else x)
    return log_x + jax.nn.log_softmax(logits)[d_new]


def mixed_exact(names, order):
    """Sum over both discrete states, quadrature over both continuous ones."""
    cell = np.log(X[1] - X[0])
    d, x, d_new, x_new = (
        jnp.asarray(g.ravel()) for g in np.meshgrid(range(2), X, range(2), X, indexing="ij")
    )
    one_d, one_x = (jnp.asarray(g.ravel()) for g in np.meshgrid(range(2), X, indexing="ij"))
    cond = jax.vmap(
        lambda parts, new, old: log_conditional(parts, order, new, old), in_axes=(None, 0, 0)
    )

    def log_density(t, d, x):
        def table(d, x):
            return t.b[d] + t.m[d] * x - 0.5 * t.a[d] * x**2

        return table(d, x) - jax.nn.logsumexp(table(one_d, one_x)) - cell

    def fn(p):
        log_hat = log_density(p["theta_prev"], d, x) + cond(p["forward"], (d_new, x_new), (d, x))
        log_check = log_density(p["theta"], d_new, x_new) + cond(
            p["reverse"], (d, x), (d_new, x_new)
        )
        return divergences(names, log_check, log_hat, 2 * cell)

    return with_value(fn)


def mixed_estimated(names, flow, order):
    d, x, d_new, eps = (
        jnp.asarray(g.ravel()) for g in np.meshgrid(range(2), X, range(2), EPS, indexing="ij")
    )
    old = {"d": d, "x": x}

    def fn(p):
        cont, disc = p["forward"]["x"], p["forward"]["d"]
        x_new = (
            cont.loc[d_new if order[0] == "d" else d]
            + cont.slope * x
            + jnp.exp(cont.log_scale) * eps
        )
        if flow.score_only:
            x_new = jax.lax.stop_gradient(x_new)
        shown = (x if order[0] == "d" else x_new)[:, None]
        log_d = jnp.take_along_axis(
            jax.nn.log_softmax(disc.logits[d] + disc.gain * shown), d_new[:, None], 1
        )[:, 0]
        log_w = jax.lax.stop_gradient(
            jax.vmap(p["theta_prev"].log_gamma)(old) + log_d - 0.5 * eps**2
        )
        transition = nvi.Transition(
            mixed_kernel(p["forward"], order), mixed_kernel(p["reverse"], order)
        )
        level = Level(transition, p["theta_prev"], p["theta"], None)
        terms = weigh(
            {"d": d_new, "x": x_new}, None, Particles(old, old, log_w), level, MIXED_PATH, flow
        )
        return surrogates(names, terms, log_w, flow.hold_q)

    return fn


MIXED_FLOWS = [
    (GradientRule(), NAMES),
    (HELD, ("reverse-kl",)),
    (GradientRule(score_only=True), ("forward-kl",)),
]


@pytest.mark.parametrize("order", ["dx", "xd"])
def test_mixed_kernels(order):
    """Pathwise for x and score function for d in one kernel, whichever of them depends on the
    other.
    """
    p = mixed_parameters()
    expected = jacobians(mixed_exact(NAMES, order), p)[0]
    for flow, names in MIXED_FLOWS:
        rows = np.array([NAMES.index(name) for name in names])
        got = jacobians(mixed_estimated(names, flow, order), p)[0]
        assert_same(got, jax.tree.map(lambda x, rows=rows: x[rows], expected), 1e-7, nonzero=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_objectives_choose_those_flows_for_mixed_kernels(name):
    """Sticking the landing is dropped for a mixed kernel unless g is constant."""
    flow = nvi.Objective(CASES[name][0]()).gradient_rule(
        nvi.Transition(mixed_kernel(mixed_parts(4), "dx"))
    )
    assert flow == {"reverse-kl": HELD, "forward-kl": GradientRule(score_only=True)}.get(
        name, GradientRule()
    )


class Bump2(nvi.AbstractDensity):
    """A smooth density on the plane."""

    value: jax.Array

    def log_gamma(self, z):
        a, b, c = self.value
        return c - 0.5 * jnp.sum(z**2) * a + b * jnp.sin(z[0]) * jnp.cos(z[1])


@pytest.mark.parametrize(
    "flow", [GradientRule(), GradientRule(score_only=True)], ids=["pathwise", "asked for the score"]
)
def test_planar_flow(flow):
    """A deterministic transition: D = ∫ π_{k-1}(z) f(π_k(T z) |det J| / π_{k-1}(z)) dz, J by
    automatic differentiation.

    It has no density to score, so its gradient is the pathwise one whatever was asked for.
    """
    side = np.linspace(-7.5, 7.5, 51)
    grid = jnp.asarray(np.stack([g.ravel() for g in np.meshgrid(side, side)], axis=1))
    p = {
        "theta_prev": jnp.array([0.9, 0.4, 0.7]),
        "theta": jnp.array([1.1, 0.5, -0.3]),
        "forward": nvi.PlanarFlow(2, 2, key=jax.random.key(1), scale=0.5),
    }

    def exact_flow(p):
        prev, now = (jax.vmap(Bump2(p[name]).log_gamma) for name in ("theta_prev", "theta"))

        def go(z):
            return p["forward"].forward_and_log_det(z)[0]

        log_det = jax.vmap(lambda z: jnp.linalg.slogdet(jax.jacfwd(go)(z))[1])(grid)
        return divergences(
            NAMES,
            now(jax.vmap(go)(grid)) - jax.nn.logsumexp(now(grid)) + log_det,
            log_normalise(prev(grid)),
        )

    def loss(p):
        path = nvi.paths.DensitySequence([Bump2(p["theta_prev"]), Bump2(p["theta"])])
        level = Level(p["forward"], *path.densities, None)
        log_w = jax.lax.stop_gradient(jax.vmap(path.densities[0].log_gamma)(grid))
        z, aux = jax.vmap(p["forward"].forward_and_log_det)(grid)
        return surrogates(
            NAMES, weigh(z, aux, Particles(grid, grid, log_w), level, path, flow), log_w
        )

    assert_same(jacobians(loss, p)[0], jacobians(with_value(exact_flow), p)[0], 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reverse-kl", "forward-kl"])
def test_no_divergence_silences_a_flow(name):
    """A deterministic move has no score function: under every divergence its draw must keep its
    pathwise gradient.
    """
    base = nvi.DiagonalNormal(jnp.zeros(2), 2.0)
    flows = nvi.Stacked(nvi.stack(jax.random.key(0), lambda key: nvi.PlanarFlow(2, 1, key=key), 1))
    sampler = nvi.NestedSampler(
        base,
        nvi.Annealing(base, nvi.DiagonalNormal(jnp.ones(2), 1.0), nvi.LinearSchedule(2)),
        flows,
    )
    objective = nvi.Objective(CASES[name][0](), learn=("forward",))
    grads = nvi.train.orders.gradient(jax.random.key(1), sampler, objective, 16).grads
    assert all(np.abs(x).max() > 1e-6 for x in jax.tree.leaves(grads))
