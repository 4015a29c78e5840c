"""The methods table: every row builds, runs and trains; what the rows mean."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro import distributions

import nestedvi as nvi

IDS = list(nvi.METHODS)
LEARNED = [name for name in IDS if nvi.METHODS[name].objective is not None]
LABELS = {
    "svi": "SVI",
    "iwae": "IWAE",
    "rws": "RWS",
    "avo": "AVO",
    "nvi": "NVI",
    "nvir": "NVIR",
    "nvi-star": "NVI*",
    "nvir-star": "NVIR*",
    "svi-flow": "SVI-flow",
    "avo-flow": "AVO-flow",
    "nvi-flow": "NVI-flow",
    "nvir-flow": "NVIR-flow",
    "nvi-star-flow": "NVI*-flow",
    "nvir-star-flow": "NVIR*-flow",
    "vsmc": "VSMC",
    "ula-ais": "ULA-AIS",
    "mcd": "MCD",
    "cmcd": "CMCD",
    "nvir-star-langevin": "NVIR*-Langevin",
    "ais": "AIS",
    "smc-random-walk": "SMC",
}


@pytest.fixture
def shallow_flows(monkeypatch):
    """Two layers in place of the paper's 32: the same code in less compilation."""
    monkeypatch.setitem(
        nvi.methods.KERNELS, "flow", lambda key, dim: nvi.PlanarFlow(dim, 2, key=key)
    )


def make(method, num_levels, key=1):
    initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
    return nvi.build(
        jax.random.key(key),
        method,
        target=nvi.targets.ring(),
        initial=initial,
        num_levels=num_levels,
    ).sampler


def two_steps(key, sampler, objective):
    """Two updates by Adam in one small program; the trained parameters, which gradients were
    finite, what was reported.
    """
    optimiser = optax.adam(1e-2)
    params, rest = eqx.partition(sampler, objective.trainable(sampler))

    def step(carry, key_step):
        params, state = carry
        result = nvi.train.orders.gradient(key_step, eqx.combine(params, rest), objective, 4)
        updates, state = optimiser.update(result.grads, state, params)
        return (optax.apply_updates(params, updates), state), (result.finite, result.info)

    (after, _), (finite, info) = jax.lax.scan(
        step, (params, optimiser.init(params)), jax.random.split(key, 2)
    )
    return params, after, finite, info


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "num_levels"), [(name, 2 + i % 2) for i, name in enumerate(LEARNED)]
)
def test_every_learned_method_trains(name, num_levels, shallow_flows):
    """Rows take turns with K = 2 and K = 3, so that every kind of row meets both."""
    method = nvi.METHODS[name]
    sampler = make(method, num_levels)
    before, after, finite, info = eqx.filter_jit(two_steps)(
        jax.random.key(0), sampler, method.make_objective()
    )
    assert finite.all() and all(np.isfinite(x).all() for x in (*jax.tree.leaves(after), *info))
    # β has nothing to choose between two ends.
    moved = {
        jax.tree_util.keystr(at)
        for (at, a), b in changes(before, after)
        if not np.array_equal(a, b)
    }
    assert any("transitions" in at for at in moved)
    assert any("logits" in at for at in moved) == (
        num_levels > 2 and "path" in method.make_objective().learn
    )


def changes(before, after):
    return zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)


@pytest.mark.parametrize(("name", "num_levels"), [(name, 3 - i % 2) for i, name in enumerate(IDS)])
def test_every_method_can_be_traced_with_the_other_number_of_levels(
    name, num_levels, shallow_flows
):
    method = nvi.METHODS[name]
    sampler = make(method, num_levels)
    densities = 2 if method.path == "none" else num_levels
    assert sampler.num_levels == densities
    particles = jax.eval_shape(lambda key: nvi.run(key, sampler, 4), jax.random.key(0)).particles
    assert particles.z.shape == (4, 2) and particles.log_w.shape == (4,)
    if method.objective is not None:
        gradient = jax.eval_shape(
            lambda key: nvi.train.orders.gradient(key, sampler, method.make_objective(), 4),
            jax.random.key(0),
        )
        assert gradient.finite.shape == (densities,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bounded"),
    [("ais", False), ("smc-random-walk", False), ("nvi-flow", True), ("svi", True), ("cmcd", True)],
)
def test_methods_are_evaluated_and_upper_bounds_need_a_way_back(name, bounded, shallow_flows):
    e = nvi.evaluate(jax.random.key(0), make(name, 3), num_particles=3, num_batches=2)
    assert np.isfinite(e.log_Z) and 1 <= e.ess <= 3.0001
    assert (e.upper_bound is not None) == bounded


@pytest.mark.parametrize("name", ["ais", "smc-random-walk"])
def test_methods_without_parameters_are_not_fitted(name):
    with pytest.raises(ValueError, match=f"{LABELS[name]} learns nothing: run it with evaluate"):
        nvi.METHODS[name].make_objective()
    with pytest.raises(ValueError, match="Nothing to learn"):
        nvi.fit(jax.random.key(0), make(name, 2), num_steps=1, num_particles=2)


def test_svi_is_one_bound_on_the_final_weight():
    """Its gradient is that of −E[log w] through the whole chain, by automatic differentiation, to
    rounding.
    """
    sampler = make("svi", 3)
    objective = nvi.Objective(**nvi.METHODS["svi"].objective, sticking_the_landing=False)
    params, rest = eqx.partition(sampler, objective.trainable(sampler))

    def loss(params, key):
        return -jnp.mean(nvi.run(key, eqx.combine(params, rest), 6).particles.log_w)

    @jax.jit
    def both(key):
        result = nvi.train.orders.gradient(key, sampler, objective, 6)
        return result.grads, result.info, *jax.value_and_grad(loss)(params, key)[::-1]

    grads, info, expected, value = both(jax.random.key(3))
    np.testing.assert_allclose(info.level_divergence[1] - info.log_Z_hat, value, rtol=1e-5)
    for got, want in zip(jax.tree.leaves(grads), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-4 * (1 + np.abs(want).max()))
    assert max(np.abs(g).max() for g in jax.tree.leaves(expected)) > 0.1


def test_labels_are_those_of_the_paper():
    assert {name: method.label for name, method in nvi.METHODS.items()} == LABELS


def test_rows_differ_as_the_paper_says():
    rows = nvi.METHODS
    assert (
        rows["avo"].make_objective().weights == "uniform"
        and rows["nvi"].make_objective().weights == "normalised"
    )
    for name, row in rows.items():
        assert (row.resampling.when == "always") == (name.startswith("nvir") or name == "vsmc")
        assert (row.path == "learned") == ("star" in name)
        assert (row.path == "none") == name.startswith(("svi", "iwae", "rws"))
        assert (row.kernels == "flow") == name.endswith("flow")
        if row.objective is not None:
            assert ("path" in row.make_objective().learn) == ("star" in name)


@pytest.mark.parametrize("num_levels", [1, 0, -1])
def test_a_path_has_two_ends(num_levels):
    with pytest.raises(ValueError, match=f"at least 2 levels.*K = {num_levels}"):
        make("nvi", num_levels)


def test_a_misspelt_method_gets_the_nearest_name():
    with pytest.raises(
        nvi.errors.UnknownNameError, match=r"Unknown method 'nvri'\. Did you mean 'nvi.?'\?"
    ):
        make("nvri", 2)
    with pytest.raises(
        nvi.errors.UnknownNameError, match=r"Unknown kernel 'gausian'\. Did you mean 'gaussian'"
    ):
        make(nvi.Method("mine", kernels="gausian"), 2)
    with pytest.raises(
        nvi.errors.UnknownNameError, match=r"Unknown path 'lerned'\. Did you mean 'learned'"
    ):
        make(nvi.Method("mine", path="lerned"), 2)


def test_methods_move_vectors():
    scalar = distributions.Normal(0.0, 1.0)
    with pytest.raises(ValueError, match=r"draws particles of shape \(\)"):
        nvi.build(jax.random.key(0), "nvi", target=nvi.targets.ring(), initial=scalar, num_levels=2)


def test_a_method_of_ones_own():
    """Kernels and path given as functions, resampling and objective chosen: no other code asks
    which method it is.
    """

    def kernels(key, dim):
        def one(a):
            return nvi.kernels.GaussianKernel(jnp.full(dim, a), jnp.zeros(dim), jnp.zeros(dim))

        return nvi.Transition(one(0.9), one(0.8))

    mine = nvi.Method(
        "mine",
        kernels=kernels,
        path=lambda num: nvi.GivenSchedule(np.linspace(0, 1, num) ** 2),
        resampling=nvi.Resampling("residual", when=0.5),
        objective={"learn": ("forward",), "divergence": "forward-kl"},
    )
    sampler = make(mine, 3)
    np.testing.assert_allclose(sampler.path.thetas(), [0, 0.25, 1])
    trained = nvi.fit(
        jax.random.key(0), sampler, mine.make_objective(), num_steps=2, num_particles=4
    ).sampler
    np.testing.assert_array_equal(
        trained.transitions.transition.reverse.slope, sampler.transitions.transition.reverse.slope
    )
    assert (
        trained.transitions.transition.forward.slope != sampler.transitions.transition.forward.slope
    ).all()


def test_dimensions_must_agree(key):
    """A target of another dimension is refused when the sampler is built, not broadcast."""
    for dim in (1, 3):
        with pytest.raises(ValueError, match="shape"):
            nvi.build(
                key,
                "smc-random-walk",
                target=nvi.targets.ring(),
                initial=nvi.DiagonalNormal(jnp.zeros(dim), 5.0),
                num_levels=3,
            )
