"""Training a cell: rates by group, the choice among candidates, and what it costs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.paper.bgmm_vae import training
from nestedvi.paper.bgmm_vae.cells import cells_of
from nestedvi.paper.bgmm_vae.config import Settings
from nestedvi.paper.bgmm_vae.minibatches import by_class
from nestedvi.paper.bgmm_vae.training import (
    build_models,
    choose,
    make_optimiser,
    train_cell,
    unstack,
)
from nestedvi.progress import Silent
from nestedvi.train.loop import Training
from tests.helpers.small_bgmm import CONFIG, SPLITS

pytestmark = pytest.mark.slow


def test_models_differ_and_come_apart_again(key):
    """Every one of a stack starts from weights of its own, in the sizes of the configuration."""
    models = build_models(key, next(cells_of(CONFIG)), 4, 3)
    each = unstack(models)
    assert len(each) == 3 and each[0].mixture.mu.shape == (10, CONFIG.dim)
    np.testing.assert_array_equal(each[2].mixture.mu, models.mixture.mu[2])
    assert not np.allclose(each[0].mixture.mu, each[1].mixture.mu)


def test_rates_by_group(key):
    """Encoder and decoder move by one rate, everything else by the other; a decay ends at zero."""
    cell = next(cells_of(CONFIG))
    models = build_models(key, cell, 4, 1)
    params = jax.tree.map(
        lambda x: x[0],
        jax.tree.map(jnp.asarray, eqx.filter(models, eqx.is_inexact_array)),
    )
    ones = jax.tree.map(jnp.ones_like, params)
    for decay, last in ((False, 1.0), (True, 0.0)):
        optimiser = make_optimiser(
            Settings("x", learning_rate=1e-3, rate_rest=1e-2, decay=decay), 2
        )
        state = optimiser.init(params)
        first, state = optimiser.update(ones, state, params)
        np.testing.assert_allclose(first.encoder.head.bias, -1e-3, rtol=1e-4)
        np.testing.assert_allclose(first.decode.network.dense.bias, -1e-3, rtol=1e-4)
        np.testing.assert_allclose(first.mixture.mu, -1e-2, rtol=1e-4)
        np.testing.assert_allclose(first.pi_c_logits, -1e-2, rtol=1e-4)
        _, state = optimiser.update(ones, state, params)
        third, _ = optimiser.update(ones, state, params)
        np.testing.assert_allclose(third.mixture.mu, -1e-2 * last, rtol=1e-4, atol=1e-9)


def test_the_best_candidate_of_each_seed_goes_on(key, monkeypatch):
    """The best within a seed's own group, whatever others score; one without a score is never taken
    for the best.
    """
    monkeypatch.setattr(training, "neighbour_information", lambda model, x: model.pi_c_logits[0])
    models = build_models(key, next(cells_of(CONFIG)), 4, 6)
    scores = jnp.array([7.0, 9.0, 8.0, np.nan, 1.0, 2.0])
    models = eqx.tree_at(lambda m: m.pi_c_logits, models, models.pi_c_logits.at[:, 0].set(scores))
    chosen = choose(key, models, by_class(*SPLITS[0], 10), CONFIG, 3)
    assert chosen.pi_c_logits[:, 0].tolist() == [9.0, 2.0]
    each = unstack(models)
    for got, want in zip(unstack(chosen), (each[1], each[5]), strict=True):
        assert eqx.tree_equal(got, want)


def test_candidates_cost_no_more_images(key, tmp_path, monkeypatch):
    """All trials and the training of what was chosen take as many steps together as one training of
    every seed.
    """
    seen = []

    def fake(key, learner, *, num_steps, progress, checkpoint):
        state = learner.start(key)
        seen.append(
            (len(unstack(learner.model(learner.learned(state)))), num_steps, checkpoint.name)
        )
        return Training(learner.learned(state), None, np.zeros(1), num_steps, 10.0, 1.0)

    monkeypatch.setattr(training, "train", fake)
    monkeypatch.setattr(training, "neighbour_information", lambda model, x: model.pi_c_logits[0])
    data = by_class(*SPLITS[0], 10)
    models, trained = train_cell(key, next(cells_of(CONFIG)), data, Silent(), tmp_path)
    assert seen == [(10, 3, "trial"), (2, 25, "chosen")]
    assert sum(models * steps for models, steps, _ in seen) == CONFIG.seeds * CONFIG.iterations
    assert len(unstack(models)) == CONFIG.seeds and trained.seconds == 20.0
