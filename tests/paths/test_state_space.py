"""State-space paths: increments telescope to the joint density, and heuristic factors leave no
trace at the end.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.kernels.gaussian import normal_log_prob

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


class Quadratic(eqx.Module):
    """log ψ_k(z) = −c_k z², no normalised density of anything."""

    c: jax.Array

    def __call__(self, k, z):
        return -self.c[k - 1] * z**2


XS = np.array([0.2, -0.4, 1.1, 0.7])
ZS = np.array([0.5, -0.1, 0.8, 0.9])
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
    steps, xs = path.thetas()
    assert path.num_levels == 4 and steps.tolist() == [1, 2, 3, 4]
    assert xs["x"].shape == (4, 2) and xs["mask"].shape == (4,)
