"""Targets by name: each entry is its density, unknown names, and rotated targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi


@pytest.mark.parametrize("name", nvi.targets.TARGETS)
def test_entries_agree_with_their_density(name, key):
    if name == "breast-cancer":
        pytest.importorskip("sklearn")
    target = nvi.targets.get_target(name)
    density = target.build()
    assert jax.eval_shape(density.log_gamma, jnp.ones(target.dim)).shape == ()
    if isinstance(density, nvi.AbstractSampleable):
        assert abs(float(density.log_Z) - target.log_Z) < 1e-6
        assert density.sample(key).shape == (target.dim,)


@pytest.mark.parametrize(
    ("name", "nearest"), [("rign", "ring"), ("many_well", "many-well"), ("twomoons", "two-moons")]
)
def test_unknown_names_suggest_the_nearest(name, nearest):
    with pytest.raises(
        nvi.errors.UnknownNameError,
        match=f"target '{name}'.*Did you mean '{nearest}'.*Known: .*funnel",
    ):
        nvi.targets.get_target(name)


def test_names_like_nothing_get_the_list_only():
    with pytest.raises(nvi.errors.UnknownNameError) as error:
        nvi.targets.get_target("xyzzy")
    assert "Did you mean" not in str(error.value)


def test_rotated_targets(key):
    """A rotation turns points and leaves values: γ_R(R z) = γ(z), det R = 1, the same for the same
    seed.
    """
    funnel = nvi.targets.get_target("funnel")

    def rotation(seed):
        return np.asarray(nvi.targets.rotated(funnel, seed).build().map.matrix).T

    target, turn = nvi.targets.rotated(funnel, 3), rotation(3)
    np.testing.assert_allclose(turn.astype(float) @ turn.T, np.eye(10), atol=1e-6)
    assert np.linalg.det(turn.astype(float)) == pytest.approx(1.0, abs=1e-5)
    z = jax.random.normal(key, (10,))
    np.testing.assert_allclose(
        target.build().log_gamma(turn @ z), funnel.build().log_gamma(z), rtol=1e-4
    )
    assert (target.dim, target.log_Z) == (10, 0.0) and "rotated (seed 3)" in target.about
    np.testing.assert_array_equal(rotation(3), turn)
    assert np.abs(rotation(4) - turn).max() > 0.1
