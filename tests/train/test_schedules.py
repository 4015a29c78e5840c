"""Three schedules of the same levels: the same gradients, each of them local to its level.

Sequential and two-phase training must agree to rounding; level-parallel training must have the same
expectation, and keep log Ẑ unbiased while parameters change under its particles.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.particles.resampling import Particles
from nestedvi.train.schedules import initial_population
from tests.helpers.finite import Table

pytestmark = pytest.mark.usefixtures("compiled_once")

ALL = ("initial", "forward", "reverse", "path")
gradient = eqx.filter_jit(nvi.train.schedules.gradient)


def gaussian(key, dim=1):
    slope, shift, scale = 0.3 * jax.random.normal(key, (3, dim))
    return nvi.kernels.GaussianKernel(0.8 + slope, shift, scale)


def gaussian_pair(key, dim=1):
    a, b = jax.random.split(key)
    return nvi.Transition(gaussian(a, dim), gaussian(b, dim))


BASE, TARGET = (0.3, 1.5), (1.0, 0.8)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "divergence"),
    [
        *((name, "reverse-kl") for name in SAMPLERS),
        ("NVIR*", "forward-kl"),
        ("flows", "forward-kl"),
        ("state space", "forward-kl"),
    ],
)
def test_two_phase_is_sequential(name, divergence, key, x64):
    """Every leaf's gradient, the report, and that there is something to compare."""
    sampler, objective = SAMPLERS[name](), nvi.Objective(divergence, learn=ALL)
    one, two = (gradient(key, sampler, objective, 12, order=s) for s in ("sequential", "two-phase"))
    assert_trees(two.grads, one.grads)
    assert_trees(two.info, one.info)
    assert bool(one.finite.all()) and bool(two.finite.all())
    largest = [float(np.abs(x).max()) for x in jax.tree.leaves(one.grads)]
    assert min(largest) > 1e-6, largest


@pytest.mark.parametrize("name", ["NVIR*", "state space"])
def test_unequal_levels_have_the_same_gradient(name, key, x64):
    """A loop over a tuple of transitions against the scan, leaf by leaf."""
    sampler, objective = SAMPLERS[name](), nvi.Objective(learn=ALL)
    scan, loop = (
        gradient(key, sampler, objective, 12),
        gradient(key, untied(sampler), objective, 12),
    )
    assert_trees(loop.info, scan.info)
    assert_trees(loop.grads.initial, scan.grads.initial)
    assert_trees(loop.grads.path, scan.grads.path)
    restacked = jax.tree.map(lambda *xs: jnp.stack(xs), *loop.grads.transitions)
    assert_trees(restacked, scan.grads.transitions.transition)


def perturbed(sampler, level):
    """The sampler with the reverse kernel of one level (2 … K) changed."""

    def move(x):
        return x.at[level - 2].add(0.3)

    return eqx.tree_at(lambda s: s.transitions.transition.reverse.shift, sampler, replace_fn=move)


def test_gradients_are_local(key, x64):
    """Changing r at level 4 changes no gradient at levels 2 and 3: nothing flows back. A bound's
    gradient does change there.
    """
    sampler = nvi_sampler()
    changed = perturbed(sampler, 4)
    for objective, local in ((nvi.Objective(), True), (nvi.Objective(kind="bound"), False)):
        one, two = (
            gradient(key, s, objective, 8).grads.transitions.transition.forward.shift
            for s in (sampler, changed)
        )
        assert bool(jnp.allclose(one[:2], two[:2], rtol=1e-12, atol=0)) == local
        assert not np.allclose(one[2], two[2])


def test_a_level_learns_from_its_own_divergence_only(key, x64):
    """φ̂ and φ̌ of level 3 from the particles that entered it, by the formula written out (reverse
    KL, log q held).
    """
    sampler = nvi_sampler()
    got = gradient(key, sampler, nvi.Objective(), 8).grads.transitions.transition
    history = nvi.run(key, sampler, 8, history=True).history
    level, prev, w_bar = sampler.level(3), history.z[1, :, 0], jax.nn.softmax(history.log_w[1])
    fixed = level.transition.forward

    def log_q(z, k):
        return jax.scipy.stats.norm.logpdf(
            z, k.slope[0] * prev + k.shift[0], jnp.exp(k.log_scale[0])
        )

    eps = (history.z[2, :, 0] - fixed.slope[0] * prev - fixed.shift[0]) / jnp.exp(
        fixed.log_scale[0]
    )

    def divergence(kernels):
        q, r = kernels.forward, kernels.reverse
        z = q.slope[0] * prev + q.shift[0] + jnp.exp(q.log_scale[0]) * eps
        log_base, log_target = (jax.scipy.stats.norm.logpdf(z, *at) for at in (BASE, TARGET))
        log_gamma = (1 - level.theta) * log_base + level.theta * log_target
        log_r = jax.scipy.stats.norm.logpdf(
            prev, r.slope[0] * z + r.shift[0], jnp.exp(r.log_scale[0])
        )
        return -jnp.sum(w_bar * (log_gamma + log_r - log_q(z, fixed)))

    expected = jax.grad(divergence)(level.transition)
    assert_trees(jax.tree.map(lambda x: x[1], got), expected)


def test_first_level_is_a_mean_not_a_sum(key):
    """The scale of q_1's gradient must not grow with the number of particles; the exact one is
    known for two Gaussians.
    """
    sampler = nvi.NestedSampler(initial(), annealing(2), stacked(gaussian_pair, 1))
    objective = nvi.Objective(learn=("initial",))
    keys = jax.random.split(key, 400)
    # KL(N(0, 1.7²) ‖ N(0.3, 1.5²)): derivatives in the mean and in the log scale.
    exact = np.array([-BASE[0] / BASE[1] ** 2, (1.7 / BASE[1]) ** 2 - 1])
    for num in (5, 80):
        grads = jax.jit(
            jax.vmap(
                lambda k, n=num: (
                    nvi.train.schedules.gradient(k, sampler, objective, n).grads.initial
                )
            )
        )(keys)
        got = np.stack([np.asarray(grads.loc[:, 0]), np.asarray(grads.log_scale[:, 0])], axis=1)
        error = got.std(axis=0, ddof=1) / np.sqrt(len(keys))
        np.testing.assert_array_less(np.abs(got.mean(axis=0) - exact), 5 * error)
        assert (error < 0.3).all()


def test_discrete_kernels_learn(key):
    """Never a silent zero: a score term under "auto" and "score", an error under "pathwise"."""
    sampler = discrete_sampler()
    for estimator in ("auto", "score"):
        grads = gradient(key, sampler, nvi.Objective(estimator=estimator), 16).grads
        assert np.abs(grads.transitions.transition.forward.logits).max(axis=(1, 2)).min() > 1e-3
    with pytest.raises(nvi.errors.MissingScoreError):
        gradient(key, sampler, nvi.Objective(estimator="pathwise"), 16)


def test_bound_matches_finite_differences(key, x64):
    """−log Ẑ with the same key, through every level."""
    sampler, objective = nvi_sampler(), nvi.Objective(kind="bound", learn=ALL)
    got = gradient(key, sampler, objective, 8)
    diff, fixed = eqx.partition(sampler, objective.trainable(sampler))
    value = jax.jit(lambda d: -nvi.run(key, eqx.combine(d, fixed), 8).log_Z_hat)
    direction = jax.tree.map(
        lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), diff
    )

    def step(h):
        return jax.tree.map(lambda x, d: x + h * d, diff, direction)

    numeric = (value(step(1e-5)) - value(step(-1e-5))) / 2e-5
    slope = sum(
        jnp.vdot(g, d)
        for g, d in zip(jax.tree.leaves(got.grads), jax.tree.leaves(direction), strict=True)
    )
    np.testing.assert_allclose(slope, numeric, rtol=1e-6)
    np.testing.assert_allclose(got.info.log_Z_hat, -value(diff), rtol=1e-12)


def level_gradient(sampler, objective, population, key):
    return gradient(key, sampler, objective, 8, order="level-parallel", population=population)


def test_uniform_weights_ignore_what_comes_in(key, x64):
    """AVO: scaling the incoming weights of a population changes nothing; with NVI's weights it
    does.
    """
    sampler = nvi_sampler()
    population = initial_population(key, sampler, "level-parallel", 8)
    spread = jnp.linspace(-2.0, 2.0, 8)
    tilted = population._replace(
        particles=population.particles._replace(log_w=population.particles.log_w + spread)
    )
    for weights, ignores in (("uniform", True), ("normalised", False)):
        objective = nvi.Objective(weights=weights)
        one, two = (
            level_gradient(sampler, objective, p, key).grads.transitions.transition
            for p in (population, tilted)
        )
        same = [
            np.allclose(a, b, rtol=1e-12)
            for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
        ]
        assert all(same) if ignores else not any(same)


KEYS = 3000


def small_sampler(resampling=None):
    return nvi.NestedSampler(initial(), annealing(3), stacked(gaussian_pair, 2), resampling)


@pytest.mark.slow
@pytest.mark.parametrize(
    "resampling", [None, nvi.Resampling("systematic", "always")], ids=["NVI*", "NVIR*"]
)
def test_level_parallel_has_the_sequential_expectation(resampling, key, x64):
    """With frozen parameters every population is distributed as in a run, so the mean gradients
    agree.
    """
    sampler, objective = small_sampler(resampling), nvi.Objective(learn=ALL)

    def parallel(key):
        # Two steps replace every population of a three-level sampler.
        keys = jax.random.split(key, 3)
        population = initial_population(keys[0], sampler, "level-parallel", 6)
        for k in keys[1:]:
            result = nvi.train.schedules.gradient(
                k, sampler, objective, 6, order="level-parallel", population=population
            )
            population = result.carry
        return result.grads, jnp.exp(result.info.log_Z_hat)

    def sequential(key):
        result = nvi.train.schedules.gradient(key, sampler, objective, 6)
        return result.grads, jnp.exp(result.info.log_Z_hat)

    keys = jax.random.split(key, (2, KEYS))
    one, two = jax.jit(jax.vmap(parallel))(keys[0]), jax.jit(jax.vmap(sequential))(keys[1])
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        error = np.sqrt((np.var(a, axis=0) + np.var(b, axis=0)) / KEYS)
        np.testing.assert_array_less(
            np.abs(np.mean(a, axis=0) - np.mean(b, axis=0)), 5 * error + 1e-12
        )


def ratios(key, old, new, log_Z, forget):
    """Ẑ/Z of one level-parallel step under new parameters from populations of old ones; `forget`
    drops the reweighting.
    """

    def one(key):
        key_old, key_new = jax.random.split(key)
        population = initial_population(key_old, old, "level-parallel", 6)
        if forget:
            population = population._replace(path=eqx.filter(new.path, eqx.is_array))
        result = nvi.train.schedules.gradient(
            key_new, new, nvi.Objective(), 6, order="level-parallel", population=population
        )
        return jnp.exp(result.info.log_Z_hat - log_Z)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(key, KEYS)))


@pytest.mark.parametrize(
    "resampling", [None, nvi.Resampling("systematic", "always")], ids=["NVI*", "NVIR*"]
)
def test_level_parallel_reweights_for_new_parameters(resampling, key, x64):
    """log Ẑ stays unbiased when θ moves between steps, and would not without γ_k(z; new θ)/γ_k(z;
    old θ).
    """
    old = discrete_sampler()
    old = nvi.NestedSampler(old.initial, old.path, old.transitions, resampling)
    new = eqx.tree_at(
        lambda s: s.path.inner.log_table,
        old,
        replace_fn=lambda x: x.at[:, 0].add(-1.5).at[:, 1].add(0.7),
    )
    log_Z = float(jax.nn.logsumexp(new.path.target.log_table))
    kept, forgotten = ratios(key, old, new, log_Z, False), ratios(key, old, new, log_Z, True)
    error = kept.std(ddof=1) / np.sqrt(KEYS)
    assert error < 0.05 and abs(kept.mean() - 1) < 4.5 * error
    assert abs(forgotten.mean() - 1) > 8 * forgotten.std(ddof=1) / np.sqrt(KEYS)


def test_level_parallel_reweights_for_a_new_heuristic(key, x64):
    """The heuristic belongs to the whole path, not to a level's θ; particles made under an old one
    must be reweighted too.
    """
    old = state_space_sampler()
    new = eqx.tree_at(lambda s: s.path.heuristic.centre, old, jnp.asarray(-0.4))
    reference = jax.jit(jax.vmap(lambda k: jnp.exp(nvi.run(k, new, 64).log_Z_hat)))(
        jax.random.split(key, KEYS)
    )
    log_Z = float(jnp.log(jnp.mean(reference)))
    got = ratios(jax.random.fold_in(key, 1), old, new, log_Z, False)
    error = np.hypot(got.std(ddof=1), np.std(reference) / np.exp(log_Z)) / np.sqrt(KEYS)
    assert error < 0.05 and abs(got.mean() - 1) < 4.5 * error


def test_level_parallel_needs_equal_levels(key):
    with pytest.raises(ValueError, match="sequential"):
        initial_population(key, untied(nvi_sampler()), "level-parallel", 4)
    assert initial_population(key, nvi_sampler(), "sequential", 4) is None


def test_schedules_that_would_change_nothing_are_refused(key):
    with pytest.raises(ValueError, match=r"A bound runs through all levels at once: 'two-phase'"):
        nvi.train.schedules.gradient(
            key, nvi_sampler(), nvi.Objective(kind="bound"), 4, order="two-phase"
        )
    with pytest.raises(ValueError, match=r"unequal kinds run one by one: 'two-phase'"):
        nvi.train.schedules.gradient(
            key, untied(nvi_sampler()), nvi.Objective(), 4, order="two-phase"
        )


@pytest.mark.parametrize("call", ["gradient", "population"])
def test_unknown_schedule(call, key):
    with pytest.raises(nvi.errors.UnknownNameError, match="two-phase"):
        if call == "gradient":
            nvi.train.schedules.gradient(key, nvi_sampler(), nvi.Objective(), 4, order="two_phase")
        else:
            initial_population(key, nvi_sampler(), "two_phase", 4)


def test_non_finite_levels_are_named(key):
    """A NaN at one level is flagged there, and not at the others."""
    sampler = densities_sampler()
    spoilt = eqx.tree_at(
        lambda s: s.transitions.transition.reverse.shift,
        sampler,
        replace_fn=lambda x: x.at[1].set(jnp.nan),
    )
    finite = np.asarray(gradient(key, spoilt, nvi.Objective(), 8).finite)
    assert finite[0] and finite[1] and not finite[2]


def test_population_is_what_left_each_level(key):
    """Levels 1 … K-1, with the path they were made under."""
    sampler = nvi_sampler()
    population = initial_population(key, sampler, "level-parallel", 5)
    assert isinstance(population.particles, Particles)
    assert population.particles.z.shape == (3, 5, 1)
    assert eqx.tree_equal(population.path, eqx.filter(sampler.path, eqx.is_array))
