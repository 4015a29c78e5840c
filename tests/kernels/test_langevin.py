"""Langevin transitions: densities in closed form, their limit, their gradients, and what they do
where γ has no gradient.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import nestedvi as nvi

pytestmark = pytest.mark.slow

PRECISION = np.array([[1.5, 0.6], [0.6, 0.9]])
CENTRE = np.array([0.5, -1.0])
STEP = np.array([0.2, 0.05])
Z_PREV, Z = np.array([0.3, 0.8]), np.array([-0.2, 1.1])


def quadratic(z):
    """An unnormalised correlated Gaussian: ∇log γ(z) = −P (z − c)."""
    return 2.0 - 0.5 * (z - CENTRE) @ PRECISION @ (z - CENTRE)


CONTEXT = nvi.kernels.Context(None, quadratic)


class Bend(eqx.Module):
    slope: jax.Array

    def __call__(self, z, context):
        return self.slope * jnp.sin(z)


def closed_form(z_new, z, drift=0.0, step=STEP):
    loc = z + step * (-PRECISION @ (z - CENTRE) + drift)
    return stats.multivariate_normal(loc, np.diag(2 * step * np.ones(2))).logpdf(z_new)


@pytest.mark.parametrize(
    ("keywords", "drift", "reverse_drift"),
    [
        ({}, 0.0, 0.0),
        ({"drift": Bend(0.7)}, 0.7 * np.sin(Z_PREV), 0.0),
        ({"reverse_drift": Bend(0.7)}, 0.0, 0.7 * np.sin(Z)),
        ({"drift": Bend(0.7), "reverse_drift": Bend(-0.4)}, 0.7 * np.sin(Z_PREV), -0.4 * np.sin(Z)),
        ({"drift": Bend(0.7), "opposite": True}, 0.7 * np.sin(Z_PREV), -0.7 * np.sin(Z)),
    ],
)
def test_scores_are_normal_densities(keywords, drift, reverse_drift, x64):
    transition = nvi.kernels.LangevinTransition(STEP, **keywords)
    scores = transition.score(jnp.asarray(Z), jnp.asarray(Z_PREV), None, CONTEXT)
    expected = closed_form(Z, Z_PREV, drift), closed_form(Z_PREV, Z, reverse_drift), 0.0
    np.testing.assert_allclose(scores, expected, rtol=1e-10)


def test_one_step_size_serves_all_coordinates(x64):
    one, each = (
        nvi.kernels.LangevinKernel(step).log_prob(jnp.asarray(Z), jnp.asarray(Z_PREV), CONTEXT)
        for step in (0.2, [0.2, 0.2])
    )
    np.testing.assert_allclose(one, closed_form(Z, Z_PREV, step=0.2), rtol=1e-10)
    np.testing.assert_allclose(each, one, rtol=1e-12)


def test_a_transition_is_two_kernels_with_one_step(key, x64):
    """The same draws and scores as `Transition` of two kernels, in both directions."""
    shared = nvi.kernels.LangevinTransition(STEP, drift=Bend(0.7), reverse_drift=Bend(-0.4))
    apart = nvi.Transition(
        nvi.kernels.LangevinKernel(STEP, Bend(0.7)), nvi.kernels.LangevinKernel(STEP, Bend(-0.4))
    )
    z_prev, z = jnp.asarray(Z_PREV), jnp.asarray(Z)
    for a, b in (
        (shared.move(key, z_prev, CONTEXT)[0], apart.move(key, z_prev, CONTEXT)[0]),
        (shared.reverse_move(key, z, CONTEXT)[0], apart.reverse_move(key, z, CONTEXT)[0]),
        (shared.score(z, z_prev, None, CONTEXT), apart.score(z, z_prev, None, CONTEXT)),
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def annealed(step, num_levels=6, resampling=None, **keywords):
    """N(0, 2²) to an unnormalised, correlated Gaussian with log Z = 2 + log 2π − ½ log |P|."""
    initial = nvi.DiagonalNormal(jnp.zeros(2), 2.0)
    path = nvi.Annealing(initial, nvi.Density(quadratic), nvi.LinearSchedule(num_levels))
    steps = jnp.full((num_levels - 1, 2), step)
    return nvi.NestedSampler(
        initial,
        path,
        nvi.Stacked(jax.vmap(lambda s: nvi.kernels.LangevinTransition(s, **keywords))(steps)),
        resampling,
    )


LOG_Z = 2.0 + math.log(2 * math.pi) - 0.5 * math.log(np.linalg.det(PRECISION))


@pytest.mark.parametrize("resampling", [None, nvi.Resampling("systematic", 0.9)])
def test_weights_are_proper(resampling, key, x64):
    """The mean of Ẑ over independent runs is Z within five standard errors; weighted means are
    those of the target.
    """
    sampler = annealed(0.3, resampling=resampling)
    runs = jax.jit(jax.vmap(lambda k: nvi.run(k, sampler, 50)))(jax.random.split(key, 400))
    z_hat = np.exp(np.asarray(runs.log_Z_hat) - LOG_Z)
    assert abs(z_hat.mean() - 1) < 5 * z_hat.std() / math.sqrt(400)
    weighted = np.asarray(
        jnp.mean(jnp.exp(runs.particles.log_w - LOG_Z)[..., None] * runs.particles.z, axis=1)
    )
    assert (
        np.abs(weighted.mean(axis=0) - CENTRE) < 5 * weighted.std(axis=0) / math.sqrt(400)
    ).all()
    assert z_hat.std() < 1


def test_small_steps_are_annealed_importance_sampling(key, x64):
    """log r − log q = log γ_k(z_{k-1}) − log γ_k(z_k), as for an invariant move, up to −ε/4 of the
    change in |∇log γ_k|²; with z_k − z_{k-1} of order ε^½ the gap shrinks like ε^1.5."""
    keys, start = jax.random.split(key, 200), 2.0 * jax.random.normal(key, (200, 2))

    @jax.jit
    @jax.vmap
    def gaps(step):
        transition = nvi.kernels.LangevinTransition(step)

        def one(key, z_prev):
            z, aux = transition.move(key, z_prev, CONTEXT)
            scores = transition.score(z, z_prev, aux, CONTEXT)
            squares = [jnp.sum((PRECISION @ (x - CENTRE)) ** 2) for x in (z, z_prev)]
            return scores.log_r - scores.log_q - (quadratic(z_prev) - quadratic(z)), -step / 4 * (
                squares[0] - squares[1]
            )

        return jax.vmap(one)(keys, start)

    found, expected = gaps(jnp.array([1e-2, 1e-4]))
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert jnp.std(found[1]) < 2e-3 * jnp.std(found[0])


def by_hand(log_step, beta, noise):
    """log v of one annealed Langevin step from N(0, 2²) towards the quadratic, with derivatives
    written out.
    """
    z_prev = jnp.asarray(Z_PREV)

    def score(z):
        return -(1 - beta) * z / 4 - beta * PRECISION @ (z - CENTRE)

    def base(z):
        return jnp.sum(-(z**2) / 8 - jnp.log(2.0) - 0.5 * jnp.log(2 * jnp.pi))

    def log_gamma(z):
        return (1 - beta) * base(z) + beta * quadratic(z)

    def normal(z, loc):
        return jnp.sum(
            -((z - loc) ** 2) / (4 * jnp.exp(log_step))
            - 0.5 * jnp.log(4 * jnp.pi * jnp.exp(log_step))
        )

    z = z_prev + jnp.exp(log_step) * score(z_prev) + jnp.sqrt(2 * jnp.exp(log_step)) * noise
    there, back = (
        normal(z, z_prev + jnp.exp(log_step) * score(z_prev)),
        normal(z_prev, z + jnp.exp(log_step) * score(z)),
    )
    return log_gamma(z) + back - there - base(z_prev)


def test_gradients_in_step_and_temperature(key, x64):
    """Through the draw, both kernels and γ_k at once: against derivatives by hand, and against
    finite differences.
    """
    base = nvi.DiagonalNormal(jnp.zeros(2), 2.0)
    path = nvi.Annealing(base, nvi.Density(quadratic), nvi.LinearSchedule(3))

    @jax.jit
    def log_v(log_step, beta):
        context = nvi.kernels.Context(beta, lambda z: path.log_density(beta, path.stats(z)))
        transition = nvi.kernels.LangevinTransition(jnp.exp(log_step))
        z, aux = transition.move(key, jnp.asarray(Z_PREV), context)
        scores = transition.score(z, jnp.asarray(Z_PREV), aux, context)
        return (
            context.log_gamma(z) + scores.log_r - scores.log_q - base.log_gamma(jnp.asarray(Z_PREV))
        )

    at = jnp.log(jnp.asarray(STEP)), jnp.array(0.4)
    noise = jax.random.normal(key, (2,))
    np.testing.assert_allclose(log_v(*at), by_hand(*at, noise), rtol=1e-10)
    got, expected = (
        jax.jit(jax.grad(fn, argnums=(0, 1)))(*at) for fn in (log_v, lambda *x: by_hand(*x, noise))
    )
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-9)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-9)
    slope = (log_v(at[0], 0.4 + 1e-6) - log_v(at[0], 0.4 - 1e-6)) / 2e-6
    np.testing.assert_allclose(got[1], slope, rtol=1e-6)
    assert min(abs(float(x)) for x in (*got[0], got[1])) > 1e-3


def test_training_the_steps_raises_the_bound(key):
    """ULA-AIS from steps that are too small: a better bound, a better ESS, and the evidence stays
    right.
    """
    row = nvi.get_method("ula-ais")
    sampler = nvi.build(
        key, row, target=quadratic, initial=nvi.DiagonalNormal(jnp.zeros(2), 3.0), num_levels=6
    ).sampler
    trained = nvi.fit(
        key,
        sampler,
        row.make_objective(),
        num_steps=150,
        num_particles=32,
        optimiser=optax.adam(4e-2),
    ).sampler
    run = eqx.filter_jit(lambda sampler: nvi.run(key, sampler, 4000))
    before, after = run(sampler), run(trained)
    elbos = [np.asarray(r.particles.log_w) for r in (before, after)]
    stderr = math.hypot(*(x.std() / math.sqrt(4000) for x in elbos))
    assert elbos[1].mean() > elbos[0].mean() + 10 * stderr
    assert float(after.ess) > 1.3 * float(before.ess)
    z_hat = np.exp(elbos[1] - LOG_Z)
    assert abs(z_hat.mean() - 1) < 5 * z_hat.std() / math.sqrt(4000)


def box(z):
    """A density on (0, 1)² whose gradient is NaN outside: the square root there has none."""
    return jnp.where(jnp.all((z > 0) & (z < 1)), jnp.sum(jnp.log(jnp.sqrt(z))), -jnp.inf)


def test_where_there_is_no_gradient_the_move_is_a_random_walk(key, x64):
    outside, inside = jnp.array([-0.2, 0.5]), jnp.array([0.3, 0.5])
    assert jnp.isnan(jax.grad(box)(outside)).any()
    kernel, context = nvi.kernels.LangevinKernel(0.1), nvi.kernels.Context(None, box)
    expected = stats.norm(np.asarray(outside), math.sqrt(0.2)).logpdf(np.asarray(inside)).sum()
    np.testing.assert_allclose(kernel.log_prob(inside, outside, context), expected, rtol=1e-10)
    slope = jax.grad(lambda z: kernel.log_prob(inside, z, context))(outside)
    np.testing.assert_allclose(slope, (inside - outside) / 0.2, rtol=1e-10)
    scores = nvi.kernels.LangevinTransition(0.1).score(outside, inside, None, context)
    assert all(jnp.isfinite(score) for score in scores)


def test_a_target_without_mass_somewhere_can_be_learned(key):
    """Particles that the target excludes have weight zero, and finite gradients in every
    parameter.
    """

    def target(z):
        return jnp.where(z[0] > 0, -0.5 * jnp.sum(z**2), -jnp.inf)

    initial = nvi.DiagonalNormal(jnp.zeros(2), 1.5)
    sampler = nvi.build(
        key, "nvir-star-langevin", target=target, initial=initial, num_levels=3
    ).sampler
    objective = nvi.get_method("nvir-star-langevin").make_objective()
    grads = jax.jit(lambda k: nvi.train.orders.gradient(k, sampler, objective, 16).grads)(key)
    assert all(jnp.isfinite(g).all() and g.any() for g in jax.tree.leaves(grads))
    with pytest.warns(nvi.NestedviWarning, match="is zero for some particles"):
        nvi.evaluate(key, sampler, num_particles=20, num_batches=2, bounds=False)


def test_what_cannot_be_built(key):
    for step in (0.0, -1.0, [0.1, math.inf]):
        with pytest.raises(ValueError, match="must be positive and finite"):
            nvi.kernels.LangevinTransition(step)
    with pytest.raises(ValueError, match=r"one for each coordinate; got shape \(2, 2\)"):
        nvi.kernels.LangevinKernel(jnp.ones((2, 2)))
    for keywords in ({}, {"drift": Bend(0.1), "reverse_drift": Bend(0.1)}):
        with pytest.raises(ValueError, match="give `drift`, and no `reverse_drift`"):
            nvi.kernels.LangevinTransition(0.1, opposite=True, **keywords)
    with pytest.raises(ValueError, match=r"particles of shape \(3,\); got shape \(2,\)"):
        nvi.kernels.LangevinKernel(jnp.ones(3)).sample(key, jnp.zeros(2), CONTEXT)
    with pytest.raises(ValueError, match=r"moves vectors; got shape \(\)"):
        nvi.kernels.LangevinKernel(0.1).sample(key, jnp.zeros(()), CONTEXT)
    with pytest.raises(ValueError, match="A Langevin move needs a density γ_k"):
        nvi.kernels.LangevinKernel(0.1).sample(key, jnp.zeros(2), nvi.kernels.Context(None, None))
    with pytest.raises(ValueError, match="dim ≥ 1 and hidden ≥ 1"):
        nvi.kernels.DriftNetwork(0, key=key)


def test_new_drifts_are_zero(key):
    network = nvi.kernels.DriftNetwork(3, key=key)
    np.testing.assert_array_equal(network(jnp.ones(3), CONTEXT), np.zeros(3))
    assert jax.grad(lambda n: jnp.sum(n(jnp.ones(3), CONTEXT)))(network).out_weight.any()


def test_a_new_drift_changes_nothing_for_many_particles(key):
    """As a matrix product with constant zeros the network was compiled wrongly here (jaxlib 0.10.2
    on a CPU).
    """
    z, to = jax.random.normal(key, (2, 8000, 2))
    kernels = (
        nvi.kernels.LangevinKernel(0.1, nvi.kernels.DriftNetwork(2, key=key)),
        nvi.kernels.LangevinKernel(0.1),
    )
    with_drift, without = (
        jax.jit(jax.vmap(lambda a, b, k=k: k.log_prob(a, b, CONTEXT)))(to, z) for k in kernels
    )
    np.testing.assert_allclose(with_drift, without, rtol=1e-4)
