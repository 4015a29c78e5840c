"""State-space paths without and with global variables: increments telescope to the joint density,
and heuristic factors leave no trace at the end.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.kernels.gaussian import normal_log_prob
from nestedvi.train.orders import initial_population
from tests.helpers import finite_global
from tests.helpers.finite_global import (
    ETAS,
    STATES,
    log_psi,
    log_targets,
    make_world,
    path_of,
)

A, STEP, NOISE = 0.9, 0.5, 0.3


class LinearGaussian(nvi.AbstractStateSpaceModel):
    """z_1 ~ N(0, 1), z_k ~ N(0.9 z_{k-1}, 0.5²), x_k ~ N(z_k, 0.3²)."""

    scale: jax.Array

    def log_initial(self, z):
        return normal_log_prob(z, 0.0, 1.0)

    def log_transition(self, z, z_prev):
        return normal_log_prob(z, A * z_prev, STEP)

    def log_observation(self, x, z):
        return normal_log_prob(x, z, self.scale)


class Quadratic(nvi.paths.AbstractHeuristic):
    """log ψ_k(z) = −c_k z², no normalised density of anything."""

    c: jax.Array

    def messages(self, eta, observations):
        return nvi.paths.Messages(self.c)

    def log_psi(self, message, z):
        return -message * z**2


XS = np.array([0.2, -0.4, 1.1, 0.7])
ZS = np.array([0.5, -0.1, 0.8, 0.9])
STEPS = len(finite_global.XS)
C = np.array([0.3, 0.1, 2.0, 50.0])


def log_normal(z, loc, scale):
    return -0.5 * ((z - loc) / scale) ** 2 - math.log(scale) - 0.5 * math.log(2 * math.pi)


def log_joint(k):
    """log p(x_{1:k}, z_{1:k}) by hand."""
    total = log_normal(ZS[0], 0.0, 1.0) + sum(log_normal(XS[j], ZS[j], NOISE) for j in range(k))
    return total + sum(log_normal(ZS[j], A * ZS[j - 1], STEP) for j in range(1, k))


def path_with(heuristic=None):
    model, xs = LinearGaussian(jnp.array(NOISE)), jnp.asarray(XS)
    return nvi.StateSpace(model, xs) if heuristic is None else nvi.StateSpace(model, xs, heuristic)


def increments(path):
    """log γ_k − log γ_{k-1} along ZS, with one θ a level."""
    thetas = [jax.tree.map(lambda x, j=j: x[j], path.thetas()) for j in range(path.num_levels)]
    stats = [path.stats(jnp.asarray(z)) for z in ZS]
    first = path.log_gamma(thetas[0], stats[0], None)
    rest = [
        path.log_gamma(thetas[k], stats[k], stats[k - 1])
        - path.log_gamma_prev(thetas[k - 1], stats[k - 1])
        for k in range(1, path.num_levels)
    ]
    return jnp.stack([first, *rest])


@pytest.mark.parametrize(
    "heuristic", [lambda: None, lambda: nvi.paths.NoHeuristic(), lambda: Quadratic(jnp.asarray(C))]
)
def test_increments_add_up_to_the_joint(heuristic, x64):
    """Σ_k log(γ_k/γ_{k-1}) = log p(x_{1:K}, z_{1:K}) whatever ψ: it telescopes, and ψ_K = 1 even
    where it would return 50 z².
    """
    np.testing.assert_allclose(
        jnp.sum(increments(path_with(heuristic()))), log_joint(4), rtol=1e-12
    )


def test_intermediate_targets_carry_the_heuristic(x64):
    """Up to level k < K the increments add up to log p(x_{1:k}, z_{1:k}) + log ψ_k(z_k)."""
    partial = jnp.cumsum(increments(path_with(Quadratic(jnp.asarray(C)))))
    expected = [log_joint(k) - (C[k - 1] * ZS[k - 1] ** 2 if k < 4 else 0.0) for k in range(1, 5)]
    np.testing.assert_allclose(partial, expected, rtol=1e-12)


def test_only_the_heuristic_learns(x64):
    path = path_with(Quadratic(jnp.asarray(C)))
    mask = path.trainable()
    assert jax.tree.structure(mask) == jax.tree.structure(path)
    chosen = [
        jax.tree_util.keystr(at) for at, on in jax.tree_util.tree_leaves_with_path(mask) if on
    ]
    assert chosen == [".heuristic.c"]
    assert not any(jax.tree.leaves(path_with().trainable()))


def test_gradient_of_the_heuristic(x64):
    """Each c_k enters once with each sign, and c_K not at all."""
    gradient = eqx.filter_grad(lambda h: increments(path_with(h))[1])(Quadratic(jnp.asarray(C)))
    np.testing.assert_allclose(gradient.c, [ZS[0] ** 2, -(ZS[1] ** 2), 0, 0], rtol=1e-12)
    last = eqx.filter_grad(lambda h: increments(path_with(h))[3])(Quadratic(jnp.asarray(C)))
    np.testing.assert_allclose(last.c, [0, 0, ZS[2] ** 2, 0], rtol=1e-12)


@pytest.mark.parametrize("enabled", [False, True])
def test_jit_vmap_and_precision(enabled):
    with jax.enable_x64(enabled):
        path = path_with(Quadratic(jnp.asarray(C)))
        theta = jax.tree.map(lambda x: x[1], path.thetas())
        z, z_prev = jnp.asarray([0.1, 0.2, 0.3]), jnp.asarray([0.0, 1.0, 2.0])
        log_gamma = jax.jit(jax.vmap(lambda z, z_prev: path.log_gamma(theta, z, z_prev)))(z, z_prev)
        assert log_gamma.shape == (3,) and log_gamma.dtype == (
            jnp.float64 if enabled else jnp.float32
        )
        expected = log_normal(0.2, A * 1.0, STEP) + log_normal(XS[1], 0.2, NOISE) - C[1] * 0.2**2
        np.testing.assert_allclose(log_gamma[1], expected, rtol=1e-5)


def test_observations_may_be_trees():
    """K is the leading size of the observations; θ_k holds level k's part of each."""
    observations = {"x": jnp.zeros((4, 2)), "mask": jnp.ones(4, bool)}
    path = nvi.StateSpace(LinearGaussian(jnp.array(NOISE)), observations)
    steps, xs, message, first = path.thetas()
    assert message is None and first is None
    assert path.num_levels == 4 and steps.tolist() == [1, 2, 3, 4]
    assert xs["x"].shape == (4, 2) and xs["mask"].shape == (4,)


def test_a_heuristic_of_any_particle():
    """log ψ_k(z) for k = 1 … K from its own message; ψ_K is one."""
    path = path_with(Quadratic(jnp.asarray(C)))
    for k in range(1, 5):
        expected = 0.0 if k == 4 else -C[k - 1] * 0.25
        np.testing.assert_allclose(path.log_psi(k, jnp.asarray(0.5)), expected, rtol=1e-6)


def test_a_plain_function_is_no_heuristic():
    """What it would be asked is named."""
    with pytest.raises(TypeError, match="`messages` and `log_psi`; got function"):
        path_with(lambda k, z: 0.0)


def global_increments(path, eta, zs):
    """log γ_k − log γ_{k-1} along one trajectory, through a table in which η has the last of three
    rows.
    """
    zero = jnp.zeros(3, jnp.int32)
    z = nvi.paths.Latent(jnp.asarray([0, 1, 0]).at[2].set(eta), zero, zero)
    first = path.log_gamma(
        jax.tree.map(lambda x: x[0], path.thetas()),
        path.stats(jax.tree.map(lambda x: x[2], z)),
        None,
    )
    ready, z = path.prepare(z)
    thetas = [jax.tree.map(lambda x, j=j: x[j], ready.thetas()) for j in range(ready.num_levels)]
    here = jax.tree.map(lambda x: x[2], z)
    stats = [ready.stats(here), *(ready.stats(here._replace(state=s)) for s in zs)]
    rest = [
        ready.log_gamma(thetas[k], stats[k], stats[k - 1])
        - ready.log_gamma_prev(thetas[k - 1], stats[k - 1])
        for k in range(1, ready.num_levels)
    ]
    return jnp.stack([first, *rest])


@jax.jit
def everywhere(path):
    """The increments along every trajectory: axes η, z_1 … z_K, level."""
    etas, *zs = jnp.meshgrid(jnp.arange(ETAS), *[jnp.arange(STATES)] * STEPS, indexing="ij")
    values = jax.vmap(lambda eta, zs: global_increments(path, eta, zs))(
        etas.ravel(), jnp.stack([z.ravel() for z in zs], axis=-1)
    )
    return values.reshape(*etas.shape, STEPS + 1)


@pytest.mark.parametrize("silent", [False, True])
def test_increments_with_global_variables_add_up_to_the_joint(silent, x64):
    """Σ_k log(γ_k/γ_{k-1}) = log p(η, x, z) whatever ψ for every η and z, and ψ_K = 1 whatever the
    heuristic says of it.
    """
    world = make_world(2)
    path = path_of(world, nvi.paths.NoHeuristic() if silent else world.heuristic)
    np.testing.assert_allclose(
        everywhere(path).sum(axis=-1), finite_global.log_joint(world.model, STEPS), rtol=1e-12
    )


def test_intermediate_targets_carry_the_messages(x64):
    """Up to level k the increments add up to log p(η, x_{1:k}, z_{1:k}) + log ψ_k(z_k, η); the
    first is log p(η) + log ψ_0(η).
    """
    world = make_world(3)
    partial = np.cumsum(everywhere(path_of(world)), axis=-1)
    for k, target in enumerate(jax.jit(lambda: log_targets(world.model, world.heuristic, STEPS))()):
        expected = np.asarray(target).reshape(target.shape + (1,) * (STEPS - k))
        np.testing.assert_allclose(
            partial[..., k], np.broadcast_to(expected, partial.shape[:-1]), rtol=1e-11
        )


def test_heuristic_of_any_global_variables(x64):
    """log ψ_k(z_k, η) of any η without a table, for k = 0 … K."""
    world = make_world(3)
    path = path_of(world)
    etas, states = jnp.meshgrid(jnp.arange(ETAS), jnp.arange(STATES), indexing="ij")
    log_psi_at = jax.jit(
        lambda k: jax.vmap(
            jax.vmap(lambda eta, state: path.log_psi(k, nvi.paths.Latent(eta, state, None)))
        )(etas, states)
    )
    for k in range(STEPS + 1):
        expected = np.asarray(log_psi(world.heuristic, k, STEPS)).reshape(ETAS, -1)
        np.testing.assert_allclose(
            log_psi_at(k), np.broadcast_to(expected, (ETAS, STATES)), rtol=1e-12
        )


def test_only_the_heuristic_learns_with_global_variables(x64):
    """Neither the model's tables nor η of the prepared path are parameters, and no derivative is
    taken of an observation.
    """
    world = make_world()
    path = path_of(world)
    ready, _ = path.prepare(
        nvi.paths.Latent(jnp.asarray([0.1, 0.2]), jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32))
    )
    for some in (path, ready):
        mask = some.trainable()
        assert jax.tree.structure(mask) == jax.tree.structure(some)
        chosen = [
            jax.tree_util.keystr(at) for at, on in jax.tree_util.tree_leaves_with_path(mask) if on
        ]
        assert chosen == [".heuristic.T", ".heuristic.u"]
    theta = path.prepare(
        nvi.paths.Latent(jnp.arange(2), jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32))
    )[0].thetas()
    assert path.learned(theta) == nvi.paths.Step(k=False, x=False, message=True, first=True)


def test_level_parallel_training_is_refused():
    """The table belongs to one step's particles; a population of several steps has none."""
    with pytest.raises(ValueError, match="first-level particles"):
        initial_population(jax.random.key(0), make_world().sampler(2), "level-parallel", 4)
