"""What tells one training from another: each difference is named, and nothing else counts."""

import json

import jax
import jax.numpy as jnp
import optax
import pytest

import nestedvi as nvi
import nestedvi.train.fit as fit_module
from nestedvi.storage.checkpoints import Checkpoints
from nestedvi.train.fingerprint import describe_objective
from tests.helpers.small_training import OBJECTIVE, build, stacked, train

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, compiled_once):
    folder = tmp_path_factory.mktemp("finished")
    train(9, checkpoint=folder)
    return folder


OTHERS = {
    "num_particles": lambda: {"num_particles": 9},
    "order": lambda: {"order": "two-phase"},
    "objective": lambda: {
        "objective": nvi.Objective(learn=OBJECTIVE.learn, sticking_the_landing=False)
    },
    "optimiser": lambda: {"rate": 2e-2},
    "key": lambda: {"key": 5},
    "start": lambda: {"sampler": build(jax.random.key(77))},
    "fixed": lambda: {"sampler": shifted_target()},
    "restarts": lambda: {"sampler": stacked(2), "restarts": 2},
    "average": lambda: {"average": 0.9},
}


def shifted_target():
    sampler = build(jax.random.key(1))
    target = nvi.densities.Scaled(nvi.DiagonalNormal(jnp.full(1, 1.5), 0.5), 1.3)
    return nvi.NestedSampler(
        sampler.initial,
        nvi.Annealing(sampler.initial, target, sampler.path.schedule),
        sampler.transitions,
        sampler.resampling,
    )


def fingerprint(
    *,
    key=0,
    sampler=None,
    objective=OBJECTIVE,
    num_particles=8,
    order="sequential",
    restarts=None,
    **options,
):
    """The fingerprint of `train(...)` with those arguments."""
    sampler = build(jax.random.key(1)) if sampler is None else sampler
    optimiser = options.get("optimiser", optax.adam(options.get("rate", 1e-2)))
    trainer = fit_module.Trainer(
        sampler, objective, optimiser, order, num_particles, restarts, options.get("average")
    )
    return trainer.fingerprint(jax.random.key(key), trainer.start(jax.random.key(key)))


@pytest.mark.parametrize("differs", OTHERS)
def test_another_configuration_is_refused_by_name(differs, finished):
    store = Checkpoints(finished, fingerprint(**OTHERS[differs]()))
    with pytest.raises(
        nvi.errors.CheckpointError, match=rf"another configuration \(.*\b{differs}: here .*, there "
    ):
        store.restore(lambda step: [])
    store.close()


def test_training_refuses_another_configuration_and_leaves_its_files(finished):
    before = sorted(finished.rglob("*"))
    with pytest.raises(nvi.errors.CheckpointError, match=r"\(num_particles: here 9, there 8\)"):
        train(9, checkpoint=finished, num_particles=9)
    assert sorted(finished.rglob("*")) == before


def probe(optimiser):
    return fingerprint(optimiser=optimiser)["optimiser"]


def test_optimisers_that_differ_late_or_in_memory_are_told_apart():
    """The same first update: only momentum, or a order's later values, differ."""
    makes = [
        lambda: optax.sgd(0.1, momentum=0.9),
        lambda: optax.sgd(0.1, momentum=0.5),
        lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 1000), momentum=0.9),
        lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 2000), momentum=0.9),
    ]
    probes = [json.dumps(probe(make())) for make in makes]
    assert len(set(probes)) == 4
    assert probes[0] == json.dumps(probe(makes[0]()))


def test_divergences_given_by_functions_are_told_apart():
    describe = describe_objective
    one, two = (
        describe(nvi.Objective(nvi.divergences.alpha_divergence(alpha))) for alpha in (0.3, 0.5)
    )
    assert one != two
    assert one == describe(
        nvi.Objective(nvi.divergences.alpha_divergence(0.3), learn=("reverse", "forward"))
    )


def test_what_is_not_an_array_counts_too():
    """Two targets given by functions, two resampling rules, two given schedules: each is another
    configuration.
    """

    def prints(target, resampling="never", middle=0.5):
        base = nvi.DiagonalNormal(jnp.zeros(1), 1.0)
        path = nvi.Annealing(base, nvi.Density(target), nvi.GivenSchedule([0, middle, 1]))
        links = nvi.stack(
            jax.random.key(0),
            lambda k: nvi.Transition(
                nvi.ResidualGaussian(1, key=k), nvi.ResidualGaussian(1, key=k)
            ),
            2,
        )
        sampler = nvi.NestedSampler(base, path, nvi.Stacked(links), nvi.Resampling(when=resampling))
        trainer = fit_module.Trainer(sampler, nvi.Objective(), None, "sequential", 4, None)
        return trainer.fingerprint(jax.random.key(0), trainer.start(jax.random.key(0)))

    here = prints(lambda z: -jnp.sum(z**2))
    assert prints(lambda z: -jnp.sum(z**2)) == here
    others = [
        prints(lambda z: -jnp.sum(z**4)),
        prints(lambda z: -jnp.sum(z**2), "always"),
        prints(lambda z: -jnp.sum(z**2), middle=0.1),
    ]
    assert all(other != here for other in others)
