"""What every transition promises: its scores keep proper weighting, whatever it is made of.

With z_{k-1} ~ π_{k-1} and v = γ_k(z_k) r / (γ_{k-1}(z_{k-1}) q), E[v g(z_k)] = (Z_k / Z_{k-1})
E_{π_k}[g]. One law covers Gaussian kernels, flows, chains and MCMC moves, and a wrong log q, log r
or Jacobian breaks it.
"""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.moves import chain_of_flows, chain_of_pairs, concrete_parts, mild_flow

LOG_Z = 0.7
NUM = 8_000
BLACKJAX_STEPS = 2


def before():
    return nvi.DiagonalNormal([0.0, 0.2], [1.3, 1.1])


def after():
    return nvi.densities.Scaled(nvi.DiagonalNormal([0.3, 0.0], [1.0, 0.9]), LOG_Z)


def context():
    return nvi.kernels.Context(None, after().log_gamma)


def kernel(slope, scale):
    return nvi.kernels.GaussianKernel(
        jnp.full(2, slope), jnp.array([0.1, -0.1]), jnp.log(jnp.full(2, scale))
    )


def independence_step(key, z, log_gamma):
    """Metropolis with proposals from a wide normal: any function that leaves γ_k invariant will
    do.
    """
    key_new, key_accept = jax.random.split(key)
    wide = nvi.DiagonalNormal(jnp.zeros(2), 2.0)
    new = wide.sample(key_new)
    log_ratio = log_gamma(new) - wide.log_gamma(new) - log_gamma(z) + wide.log_gamma(z)
    return jnp.where(jnp.log(jax.random.uniform(key_accept)) < log_ratio, new, z)


def blackjax_case(name, **parameters):
    blackjax = pytest.importorskip("blackjax")
    if name == "rmh":
        parameters["proposal_generator"] = lambda key, z: z + 0.8 * jax.random.normal(key, z.shape)
    else:
        parameters["inverse_mass_matrix"] = jnp.ones(2)
    return nvi.kernels.blackjax_move(getattr(blackjax, name), steps=BLACKJAX_STEPS, **parameters)


def drift(z, context):
    """Any function will do for proper weighting, discontinuous ones included."""
    return jnp.where(z > 0.2, 0.7, -0.3 * z)


def network(key):
    """A drift network away from its zero start."""
    start = nvi.kernels.DriftNetwork(2, 5, key=key)
    return eqx.tree_at(lambda n: n.out_weight, start, jax.random.normal(key, (5, 2)) / 5)


TRANSITIONS = {
    "pair": lambda key: nvi.Transition(kernel(0.9, 0.5), kernel(0.9, 0.6)),
    "flow": lambda key: mild_flow(key, 5),
    "chain-of-pairs": chain_of_pairs,
    "chain-of-flows": chain_of_flows,
    "langevin": lambda key: nvi.kernels.LangevinTransition(0.1),
    "langevin-reverse": lambda key: nvi.kernels.LangevinTransition(
        [0.1, 0.2], drift=drift, reverse_drift=network(key)
    ),
    "langevin-opposite": lambda key: nvi.kernels.LangevinTransition(
        [0.1, 0.2], drift=drift, opposite=True
    ),
    "random-walk": lambda key: nvi.RandomWalk(jnp.array([0.8, 0.5]), steps=3),
    "invariant": lambda key: nvi.kernels.Invariant(independence_step),
    "hmc": lambda key: blackjax_case("hmc", step_size=0.5, num_integration_steps=3),
    "rmh": lambda key: blackjax_case("rmh"),
    "nuts": lambda key: blackjax_case("nuts", step_size=0.8, max_num_doublings=2),
}
LANGEVIN = ["langevin", "langevin-reverse", "langevin-opposite"]
REVERSIBLE = ["pair", "chain-of-pairs", *LANGEVIN]
INVARIANT = ["random-walk", "invariant", "hmc", "rmh", "nuts"]


def features(z):
    return jnp.concatenate([jnp.ones(1, z.dtype), z, z**2, z[:1] * z[1:]])


def moments(density):
    """E[1, z, z², z_1 z_2] of a diagonal normal."""
    loc, scale = np.asarray(density.loc), np.exp(np.asarray(density.log_scale))
    return np.concatenate([[1.0], loc, loc**2 + scale**2, [loc[0] * loc[1]]])


def assert_mean(samples, expected):
    stderr = jnp.std(samples, axis=0) / math.sqrt(samples.shape[0])
    assert (jnp.abs(jnp.mean(samples, axis=0) - expected) < 5 * stderr).all()


@functools.cache
def moved(name):
    """Everything about NUM moves in float64, from one program a transition: (z_prev, z, scores,
    v).
    """
    with jax.enable_x64(True):
        transition = TRANSITIONS[name](jax.random.key(7))
        prev, target = before(), after()

        def one(key):
            key_start, key_move = jax.random.split(key)
            z_prev = prev.sample(key_start)
            z, aux = transition.move(key_move, z_prev, context())
            scores = transition.score(z, z_prev, aux, context())
            v = jnp.exp(target.log_gamma(z) + scores.log_r - prev.log_gamma(z_prev) - scores.log_q)
            return z_prev, z, scores, v

        return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(8), NUM))


@pytest.mark.parametrize("name", TRANSITIONS)
def test_proper_weighting(name, x64):
    """E[v g(z_k)] = Z_k/Z_{k-1} E_{π_k}[g] within five standard errors, for g = 1, z, z² and a
    product.
    """
    z_prev, z, scores, v = moved(name)
    assert all(score.shape == (NUM,) and score.dtype == jnp.float64 for score in scores)
    assert float(jnp.mean(jnp.any(z != z_prev, axis=1))) > 0.3
    assert_mean(v[:, None] * jax.vmap(features)(z), math.exp(LOG_Z) * moments(after().base))


@pytest.mark.parametrize("name", REVERSIBLE)
def test_proper_weighting_backwards(name, x64):
    """From z_k ~ π_k through r, E[1/v g(z_{k-1})] = Z_{k-1}/Z_k E_{π_{k-1}}[g]: what upper bounds
    rest on.
    """
    transition, target, prev = TRANSITIONS[name](jax.random.key(7)), after(), before()

    def one(key):
        key_start, key_move = jax.random.split(key)
        z = target.sample(key_start)
        z_prev, aux = transition.reverse_move(key_move, z, context())
        scores = transition.score(z, z_prev, aux, context())
        log_v = target.log_gamma(z) + scores.log_r - prev.log_gamma(z_prev) - scores.log_q
        return jnp.exp(-log_v) * features(z_prev)

    assert_mean(
        jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(9), NUM)),
        math.exp(-LOG_Z) * moments(prev),
    )


@pytest.mark.parametrize("name", TRANSITIONS)
def test_contract(name, key):
    """In float32: shapes and precision, groups shaped like the transition, honest words about draws
    and reversal.
    """
    transition, z_prev = TRANSITIONS[name](key), jnp.array([0.3, -0.4])
    z, aux = transition.move(key, z_prev, context())
    scores = transition.score(z, z_prev, aux, context())
    assert z.shape == (2,) and z.dtype == jnp.float32
    assert all(score.shape == () and score.dtype == jnp.float32 for score in scores)
    groups = transition.groups()
    assert jax.tree.structure(groups) == jax.tree.structure(transition)
    expected = {"fixed"} if name in INVARIANT else {"forward"}
    expected |= {"reverse"} if name in ("pair", "chain-of-pairs", "langevin-reverse") else set()
    assert set(jax.tree.leaves(groups)) == expected
    assert transition.reparameterised is (name not in INVARIANT)
    assert transition.holdable is (name in REVERSIBLE)
    if name in INVARIANT:
        with pytest.raises(NotImplementedError):
            transition.reverse_move(key, z, context())


@pytest.mark.parametrize("name", ["flow", "chain-of-flows"])
def test_flows_run_backwards(name, key, x64):
    """The way back ends where the way there began, with the same log determinant."""
    transition, z_prev = TRANSITIONS[name](key), jnp.array([0.3, -0.4])
    z, aux = transition.move(key, z_prev, context())
    back, aux_back = transition.reverse_move(key, z, context())
    np.testing.assert_allclose(back, z_prev, atol=1e-12)
    there, again = (transition.score(z, z_prev, a, context()).log_q for a in (aux, aux_back))
    np.testing.assert_allclose(again, there, rtol=1e-10)


@pytest.mark.parametrize("name", [*INVARIANT, *LANGEVIN])
def test_moves_that_need_a_density_say_so(name, key):
    with pytest.raises(ValueError, match="needs a density γ_k"):
        TRANSITIONS[name](key).move(key, jnp.zeros(2), nvi.kernels.Context(None, None))


def test_every_transition_is_here(key):
    """Two have files of their own: test_flowjax.py, which needs an extra, and test_hmc.py."""
    seen = {type(make(key)).__name__ for make in TRANSITIONS.values()}
    assert concrete_parts(nvi.AbstractTransition) - seen == {"BijectionFlow", "Hamiltonian"}
