"""The evaluation of trained models: against a model that tells classes apart by construction."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.paper.bgmm_vae import evaluation
from nestedvi.paper.bgmm_vae.cells import cells_of
from nestedvi.paper.bgmm_vae.clusters import total_variation
from nestedvi.paper.bgmm_vae.evaluation import (
    diverged_row,
    evaluate_model,
    evaluation_batches,
    floors,
)
from nestedvi.paper.bgmm_vae.training import build_models, unstack
from tests.helpers.small_bgmm import CONFIG, splits_of


@pytest.mark.slow
def test_a_perfect_classifier_is_as_good_as_true_labels(key, monkeypatch):
    """Clusters that are the classes in another order: after the matching every image is right, and
    E[λ] is that of the labels.
    """
    permutation = jnp.asarray(np.random.default_rng(0).permutation(10))
    splits = splits_of(CONFIG)
    batches = evaluation_batches(CONFIG, splits.evaluate)

    def cluster(x):
        """The bright pixel's place is the class."""
        return permutation[jnp.argmax(x.reshape(x.shape[0], -1), axis=-1)]

    def infer(key, model, x, num_samples):
        counts = jax.vmap(lambda c: jnp.bincount(c, length=10))(jax.vmap(cluster)(x))
        lam = (counts + CONFIG.alpha) / (CONFIG.eval_size + 10 * CONFIG.alpha)
        return lam, jnp.full_like(lam, 0.1), jnp.arange(len(x))

    monkeypatch.setattr(evaluation, "_clusters", lambda model, images: cluster(images))
    monkeypatch.setattr(evaluation, "_infer", infer)
    result = evaluate_model(key, None, splits, batches, 2)
    limits = floors(CONFIG, splits.evaluate)
    assert result["accuracy"] == 1.0 and result["clusters_used"] == 10
    np.testing.assert_array_equal(result["order"], permutation)
    np.testing.assert_allclose(result["tv"], limits["lambda_tv_true_labels"], rtol=1e-5)
    np.testing.assert_allclose(result["tv_mean_field"], limits["lambda_tv_uniform"], rtol=1e-5)
    assert result["bound"] == np.mean(np.arange(CONFIG.eval_batches))


@pytest.mark.slow
def test_proportions_are_inferred_for_every_mini_batch(key):
    """From an untrained model too: proportions that sum to one, in the order of the classes."""
    model = unstack(build_models(key, next(cells_of(CONFIG)), 4, 1))[0]
    model = eqx.tree_at(lambda m: m.proportions.out.bias, model, jnp.zeros(10))
    splits = splits_of(CONFIG)
    batches = evaluation_batches(CONFIG, splits.evaluate)
    result = evaluate_model(key, model, splits, batches, 2)
    assert result["lam"].shape == (CONFIG.eval_batches, 10)
    np.testing.assert_allclose(result["lam"].sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(
        result["tv"], total_variation(result["lam"], np.asarray(batches[2])).mean(), rtol=1e-6
    )


@pytest.mark.slow
def test_floors():
    """True labels leave the noise of a mini-batch, which shrinks with its size; uniform proportions
    do not care.
    """
    evaluate = splits_of(CONFIG).evaluate
    small, large = (
        floors(replace(CONFIG, eval_size=n, eval_batches=100), evaluate) for n in (20, 500)
    )
    assert (
        large["lambda_tv_true_labels"]
        < 0.5 * small["lambda_tv_true_labels"]
        < small["lambda_tv_uniform"]
    )
    x, _, _ = evaluation_batches(CONFIG, evaluate)
    np.testing.assert_array_equal(
        x, evaluation_batches(replace(CONFIG, methods=("rws",)), evaluate)[0]
    )


def test_a_diverged_row_has_no_figures():
    row = diverged_row(next(cells_of(CONFIG)), "because")
    assert row["diverged"] == "because" and row["method"] == "nvi" and row["seeds"] == 2
    assert np.isnan(row["lambda_tv_median"]) and np.isnan(row["lambda_tv_seeds"]).all()


def test_curves_are_thinned_by_means():
    curve = np.arange(12.0).reshape(6, 2)
    np.testing.assert_array_equal(evaluation._thin(curve, 3), [[1, 2], [5, 6], [9, 10]])
    np.testing.assert_array_equal(evaluation._thin(curve, 100), curve)
