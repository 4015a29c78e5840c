"""What trained models are worth: inferred class proportions against true ones, clusters against
classes. It trains nothing and writes nothing.

Clusters are matched to classes on images that are not evaluated on; see `splits`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestedvi._types import Key
from nestedvi.paper.bgmm_vae.cells import Cell
from nestedvi.paper.bgmm_vae.clusters import confusion, match_clusters, total_variation
from nestedvi.paper.bgmm_vae.config import BgmmVaeConfig
from nestedvi.paper.bgmm_vae.inference import (
    bound,
    cluster_of,
    expected_lam,
    generate,
    mean_field_lam,
)
from nestedvi.paper.bgmm_vae.minibatches import by_class, draw_batches
from nestedvi.paper.bgmm_vae.mnist import CLASSES
from nestedvi.paper.bgmm_vae.model import BgmmVae
from nestedvi.paper.bgmm_vae.splits import Split, Splits
from nestedvi.paper.bgmm_vae.training import unstack
from nestedvi.train.loop import Training

__all__ = [
    "diverged_row",
    "evaluate_model",
    "evaluation_batches",
    "floors",
    "summarise",
]

# Images of a mini-batch that figures show.
_SHOWN = 100
_FIGURES = (
    "lambda_tv_median",
    "lambda_tv_mean",
    "lambda_tv_std",
    "cluster_accuracy_mean",
    "bound_per_image",
    "train_seconds",
    "lambda_tv_mean_field_median",
    "images_per_second",
    "skipped_gradients",
)
_SEED_FIGURES = (
    "lambda_tv_seeds",
    "cluster_accuracy_seeds",
    "bound_per_image_seeds",
    "clusters_used_seeds",
    "lambda_tv_mean_field_seeds",
)

Batches = tuple[Array, Int[Array, "batches N"], Float[Array, "batches classes"]]


@eqx.filter_jit
def _clusters(model: BgmmVae, images: Array) -> Int[Array, " n"]:
    def one(x):
        return cluster_of(model, model.code(x.astype(jnp.float32) / 255.0))

    return jax.lax.map(one, images, batch_size=500)


@eqx.filter_jit
def _infer(key: Key, model: BgmmVae, x: Array, num_samples: int) -> tuple[Array, Array, Array]:
    """E[λ], its mean-field refinement and the bound per image, for every mini-batch."""

    def one(inputs):
        key, x = inputs
        key_lam, key_field, key_bound = jax.random.split(key, 3)
        coded = jax.vmap(model.code)(x)
        lam = expected_lam(key_lam, model, coded, num_samples)
        return (
            lam,
            mean_field_lam(key_field, model, coded, num_samples),
            bound(key_bound, model, coded) / x.shape[0],
        )

    return jax.lax.map(one, (jax.random.split(key, x.shape[0]), x))


def evaluation_batches(config: BgmmVaeConfig, evaluate: Split) -> Batches:
    """The mini-batches that every method and seed of a data set is evaluated on."""
    data = by_class(*evaluate, CLASSES)
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    return jax.jit(
        lambda k: draw_batches(k, data, config.alpha, config.eval_batches, config.eval_size)
    )(key)


def evaluate_model(
    key: Key, model: BgmmVae, splits: Splits, batches: Batches, num_samples: int
) -> dict[str, Any]:
    """One seed: what it infers for every mini-batch, in the order of the classes, and how that
    compares with the truth.
    """
    x, lam_true = batches[0], np.asarray(batches[2])
    on_match, on_evaluate = (
        np.asarray(_clusters(model, jnp.asarray(split.images)))
        for split in (splits.match, splits.evaluate)
    )
    matching = match_clusters(confusion(on_match, splits.match.labels, CLASSES))
    lam, refined, bounds = (np.asarray(v) for v in _infer(key, model, x, num_samples))
    # Column k of the result is the cluster that stands for class k.
    order = np.argsort(matching)
    return {
        "order": order,
        "lam": lam[:, order],
        "tv": total_variation(lam[:, order], lam_true).mean(),
        "tv_mean_field": total_variation(refined[:, order], lam_true).mean(),
        "accuracy": np.mean(matching[on_evaluate] == splits.evaluate.labels),
        "bound": bounds.mean(),
        "clusters_used": len(np.unique(on_evaluate)),
    }


def diverged_row(cell: Cell, reason: str) -> dict[str, Any]:
    """The row of a training that diverged: NaN in place of every figure, and the sentence that says
    why.
    """
    each = {name: np.full(cell.config.seeds, np.nan) for name in _SEED_FIGURES}
    return {**cell.description, **dict.fromkeys(_FIGURES, np.nan), **each, "diverged": reason}


def summarise(
    cell: Cell, models: BgmmVae, trained: Training, splits: Splits
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A row of the table, and what the figures need. TV is a mean over mini-batches for each seed;
    median, mean and standard deviation are over seeds."""
    config = cell.config
    batches = evaluation_batches(config, splits.evaluate)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 2), config.seeds)
    each = unstack(models)
    results = [
        evaluate_model(keys[i], model, splits, batches, config.eval_samples)
        for i, model in enumerate(each)
    ]
    tv, refined, accuracy, bounds = (
        np.array([r[name] for r in results])
        for name in ("tv", "tv_mean_field", "accuracy", "bound")
    )
    images = config.num_batches * config.batch_size
    row = {
        **cell.description,
        "lambda_tv_median": np.median(tv),
        "lambda_tv_mean": tv.mean(),
        "lambda_tv_std": tv.std(),
        "cluster_accuracy_mean": accuracy.mean(),
        "bound_per_image": bounds.mean(),
        "train_seconds": trained.seconds,
        "lambda_tv_seeds": tv,
        "cluster_accuracy_seeds": accuracy,
        "bound_per_image_seeds": bounds,
        "clusters_used_seeds": [r["clusters_used"] for r in results],
        "lambda_tv_mean_field_median": np.median(refined),
        "lambda_tv_mean_field_seeds": refined,
        "images_per_second": images * config.seeds / trained.step_seconds,
        "skipped_gradients": int(trained.skipped.sum()),
    }
    # The seed whose total variation is the median (the better of the two middle ones) stands for
    # the method in figures.
    shown = int(np.argsort(tv)[(len(tv) - 1) // 2])
    return row, _drawings(config, each[shown], results[shown], batches, trained)


def _drawings(
    config: BgmmVaeConfig,
    model: BgmmVae,
    result: dict[str, Any],
    batches: Batches,
    trained: Training,
) -> dict[str, np.ndarray]:
    """The first mini-batch with what was inferred and generated for it, every cluster's images,
    curves of the training.
    """
    x, _, lam_true = batches
    key_batch, key_clusters = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 3))
    draw = eqx.filter_jit(generate)
    # Back from the classes' order to the clusters'.
    lam = jnp.zeros(CLASSES).at[result["order"]].set(result["lam"][0])
    one_cluster = [
        draw(jax.random.fold_in(key_clusters, k), model, jnp.eye(CLASSES)[k], 10)
        for k in result["order"]
    ]

    def grey(images):
        return np.asarray(np.round(255 * np.asarray(images)), np.uint8)

    return {
        "batch": grey(x[0, :_SHOWN]),
        "generated": grey(draw(key_batch, model, lam, _SHOWN)),
        "clusters": grey(np.stack(one_cluster)),
        "lam_true": np.asarray(lam_true[0]),
        "lam": np.asarray(result["lam"][0]),
        "curve": _thin(np.asarray(trained.record.bound)),
    }


def _thin(curve: np.ndarray, points: int = 200) -> np.ndarray:
    """Means over about `points` equal stretches of the steps."""
    width = max(1, len(curve) // points)
    whole = len(curve) // width * width
    return curve[:whole].reshape(-1, width, *curve.shape[1:]).mean(axis=1)


def floors(config: BgmmVaeConfig, evaluate: Split) -> dict[str, float]:
    """What the mini-batches allow: TV of E[λ] from their true labels, and of uniform
    proportions.
    """
    _, classes, lam_true = (np.asarray(v) for v in evaluation_batches(config, evaluate))
    counts = np.stack([np.bincount(c, minlength=CLASSES) for c in classes])
    posterior = (counts + config.alpha) / (
        counts.sum(axis=1, keepdims=True) + CLASSES * config.alpha
    )
    uniform = np.full(CLASSES, 1 / CLASSES)
    return {
        "lambda_tv_true_labels": float(total_variation(posterior, lam_true).mean()),
        "lambda_tv_uniform": float(total_variation(uniform, lam_true).mean()),
    }
