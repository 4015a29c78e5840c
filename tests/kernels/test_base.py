"""What all kernels and transitions share: roles, scores, independent proposals, stacks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.kernels.base import Independent, check_stacked
from tests.helpers.finite import Table

NOTHING = nvi.kernels.Context(None, None)


def test_a_growing_transition_has_no_way_back(key, x64):
    """Without a reverse kernel log r = 0, and running it backwards is an error."""
    transition = nvi.Transition(
        nvi.kernels.Append(
            nvi.kernels.GaussianKernel(jnp.array(0.5), jnp.array(0.1), jnp.array(0.0))
        )
    )
    z_prev = jnp.array([0.2])
    z, aux = transition.move(key, z_prev, NOTHING)
    scores = transition.score(z, z_prev, aux, NOTHING)
    expected = -0.5 * (float(z[1]) - 0.2) ** 2 - 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(scores.log_q, expected, rtol=1e-9)
    assert float(scores.log_r) == 0.0
    assert set(jax.tree.leaves(transition.groups())) == {"forward"}
    with pytest.raises(NotImplementedError, match="without a reverse kernel"):
        transition.reverse_move(key, z, NOTHING)


def test_a_kernel_without_a_score_term_is_refused(key):
    """Neither a pathwise gradient nor a score term would be a silent zero gradient."""

    class Silent(nvi.AbstractKernel):
        @property
        def reparameterised(self):
            return False

        def sample(self, key, z, context):
            return jax.lax.stop_gradient(z)

        def log_prob(self, z_new, z, context):
            return jnp.zeros(())

    with pytest.raises(
        nvi.errors.MissingScoreError, match=r"Silent is not reparameterised.*log_prob_score"
    ):
        nvi.Transition(Silent()).score(jnp.zeros(1), jnp.zeros(1), None, NOTHING)


def test_stack_makes_modules_of_their_own(key):
    stacked = nvi.stack(key, lambda k: nvi.ResidualGaussian(2, 3, key=k), 4)
    assert stacked.hidden_weight.shape == (4, 2, 3)
    assert len({row.tobytes() for row in np.asarray(stacked.hidden_weight)}) == 4


def test_an_independent_proposal_ignores_where_the_particle_was(key):
    """q(z' | z) = γ(z') / Z, also of an unnormalised table; draws without a gradient score
    themselves.
    """
    table = jnp.array([0.3, -1.0, 2.0])
    kernel = Independent(Table(table))
    expected = table - jax.nn.logsumexp(table)
    for z in range(3):
        for before in (jnp.array(0), jnp.array(2)):
            np.testing.assert_allclose(
                kernel.log_prob(jnp.array(z), before, NOTHING), expected[z], rtol=1e-5
            )
            np.testing.assert_allclose(
                kernel.log_prob_score(jnp.array(z), before, NOTHING), expected[z], rtol=1e-5
            )
    normal = Independent(nvi.DiagonalNormal(0.0, 1.0))
    assert float(normal.log_prob_score(jnp.ones(1), jnp.zeros(1), NOTHING)) == 0.0
    assert jnp.array_equal(
        normal.sample(key, jnp.zeros(1), NOTHING), normal.sample(key, jnp.ones(1), NOTHING)
    )


@pytest.mark.parametrize(
    ("module", "shapes"),
    [
        (nvi.Density(lambda z: z), "no arrays"),
        (nvi.kernels.GaussianKernel(jnp.ones((2, 3)), jnp.ones((4, 3)), jnp.ones((2, 3))), "4, 3"),
        (nvi.kernels.GaussianKernel(*[jnp.array(1.0)] * 3), r"\(\)"),
    ],
)
def test_what_is_not_stacked_is_refused(module, shapes):
    with pytest.raises(ValueError, match=rf"who\(…\).*got shapes.*{shapes}.*why"):
        check_stacked(module, "who", "why")
