"""Objectives are data: which groups learn, which gradients flow, and errors that name the nearest
choice.
"""

import jax
import jax.numpy as jnp
import pytest

import nestedvi as nvi
from nestedvi.sampler.level import GradientRule

GROUPS = ("initial", "forward", "reverse", "path")


def gaussian(score_only=False):
    return nvi.kernels.GaussianKernel(jnp.ones(1), jnp.zeros(1), jnp.zeros(1), score_only)


def stacked_sampler(kind="stacked"):
    base = nvi.DiagonalNormal(0.0, 2.0)
    path = nvi.Annealing(base, nvi.DiagonalNormal(1.0, 1.0), nvi.LearnedSchedule(3))
    one = nvi.Transition(gaussian(), gaussian())
    transitions = {
        "stacked": lambda: nvi.Stacked(jax.tree.map(lambda x: jnp.stack([x, x]), one)),
        "shared": lambda: nvi.Shared(one, 2),
        "tuple": lambda: (one, nvi.Transition(gaussian(), gaussian())),
    }[kind]()
    return nvi.NestedSampler(base, path, transitions)


def chosen(sampler, learn):
    """The names of the leaves that a mask selects."""
    mask = nvi.Objective(learn=learn).trainable(sampler)
    assert jax.tree.structure(mask) == jax.tree.structure(sampler)
    leaves = jax.tree_util.tree_leaves_with_path(mask)
    return {jax.tree_util.keystr(at) for at, on in leaves if on}


@pytest.mark.parametrize("kind", ["stacked", "shared", "tuple"])
def test_masks_select_exactly_the_named_groups(kind):
    """Each group alone; q_1's copy inside the path is not a parameter, and neither is the
    target.
    """
    sampler = stacked_sampler(kind)
    each = {group: chosen(sampler, (group,)) for group in GROUPS}
    moves = 2 if kind == "tuple" else 1
    assert each["initial"] == {".initial.loc", ".initial.log_scale"}
    assert each["path"] == {".path.schedule.logits"}
    for group in ("forward", "reverse"):
        assert len(each[group]) == 3 * moves and all(f".{group}." in name for name in each[group])
    assert chosen(sampler, GROUPS) == set().union(*each.values())
    assert chosen(sampler, ()) == set()


def test_masks_know_flows_and_fixed_moves():
    base = nvi.DiagonalNormal(jnp.zeros(2), 2.0)
    path = nvi.Annealing(base, base, nvi.LinearSchedule(3))
    flows = nvi.Stacked(nvi.stack(jax.random.key(0), lambda k: nvi.PlanarFlow(2, 1, key=k), 2))
    sampler = nvi.NestedSampler(base, path, flows)
    assert len(chosen(sampler, ("forward",))) == 3 and chosen(sampler, ("reverse",)) == set()
    moves = nvi.NestedSampler(base, path, nvi.Shared(nvi.RandomWalk(jnp.ones(())), 2))
    assert chosen(moves, GROUPS) == {".initial.loc", ".initial.log_scale"}


def test_masks_respect_densities_that_do_not_learn():
    densities = [nvi.DiagonalNormal(0.0, 1.0), nvi.DiagonalNormal(1.0, 1.0)]
    sampler = nvi.NestedSampler(
        densities[0],
        nvi.paths.DensitySequence(densities, [False, True]),
        [nvi.Transition(gaussian(), gaussian())],
    )
    assert chosen(sampler, ("path",)) == {".path.densities[1].loc", ".path.densities[1].log_scale"}


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        ({"divergence": "reverse_kl"}, "reverse-kl"),
        ({"learn": ("foward",)}, "forward"),
        ({"kind": "nestd"}, "nested"),
        ({"optimise": "ful"}, "full"),
        ({"estimator": "pathwize"}, "pathwise"),
        ({"weights": "normalized"}, "normalised"),
    ],
)
def test_unknown_names_give_the_nearest(arguments, nearest):
    with pytest.raises(nvi.errors.UnknownNameError, match=f"Did you mean '{nearest}'"):
        nvi.Objective(**arguments)


@pytest.mark.parametrize(
    "option",
    [
        {"divergence": "forward-kl"},
        {"optimise": "partial"},
        {"estimator": "score"},
        {"weights": "uniform"},
    ],
)
def test_a_bound_refuses_what_it_would_ignore(option):
    with pytest.raises(ValueError, match=f"{next(iter(option))} would have no effect"):
        nvi.Objective(kind="bound", learn="forward", **option)
    assert nvi.Objective("reverse-kl", kind="bound", estimator="pathwise").kind == "bound"


def test_partial_optimisation_refuses_reverse_kernels():
    with pytest.raises(ValueError, match="reverse"):
        nvi.Objective(optimise="partial")
    assert (
        nvi.Objective(learn=("forward",), optimise="partial")
        .gradient_rule(nvi.Transition(gaussian()))
        .hold_theta
    )


def test_pathwise_is_refused_where_draws_carry_no_gradient():
    with pytest.raises(nvi.errors.MissingScoreError, match="not reparameterised"):
        nvi.Objective(estimator="pathwise").gradient_rule(nvi.Transition(gaussian(score_only=True)))
    # A flow and an MCMC move have no such kernel, and need no score.
    assert (
        nvi.Objective(estimator="pathwise").gradient_rule(nvi.RandomWalk(jnp.ones(())))
        == GradientRule()
    )
    assert (
        nvi.Objective(estimator="pathwise").gradient_rule(
            nvi.PlanarFlow(1, 1, key=jax.random.key(0))
        )
        == GradientRule()
    )
