"""Training the models of one cell: all seeds side by side, from several candidates a seed where the
settings ask for it. It refuses to evaluate.
"""

from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import optax

from nestedvi._types import Key
from nestedvi.kernels.base import stack
from nestedvi.paper.bgmm_vae.cells import Cell
from nestedvi.paper.bgmm_vae.config import BgmmVaeConfig, Settings
from nestedvi.paper.bgmm_vae.minibatches import ByClass, draw_batches
from nestedvi.paper.bgmm_vae.mnist import CLASSES
from nestedvi.paper.bgmm_vae.model import BgmmVae
from nestedvi.paper.bgmm_vae.neighbours import neighbour_information
from nestedvi.progress import Reporter, Stretch
from nestedvi.train.loop import LoopOptions, Training, train
from nestedvi.train.surrogate_learner import SurrogateLearner

__all__ = ["build_models", "choose", "make_optimiser", "train_cell", "unstack"]

_CHOICE_BATCHES = 1000


def build_models(key: Key, cell: Cell, size: int, num: int) -> BgmmVae:
    """`num` models for images of `size` × `size` pixels, stacked."""
    config = cell.config

    def make(k):
        return BgmmVae(
            key=k,
            size=size,
            clusters=CLASSES,
            dim=config.dim,
            channels=config.channels,
            hidden=config.hidden,
            flow_depth=config.flow_depth,
            alpha=config.alpha,
            mean_scale=cell.settings.mean_scale,
            half=config.half,
        )

    return stack(key, make, num)


def unstack(models: BgmmVae) -> list[BgmmVae]:
    """Stacked models, one by one."""
    arrays, static = eqx.partition(models, eqx.is_array)
    num = jax.tree.leaves(arrays)[0].shape[0]
    return [eqx.combine(jax.tree.map(lambda a, i=i: a[i], arrays), static) for i in range(num)]


def make_optimiser(settings: Settings, iterations: int) -> optax.GradientTransformation:
    """Adam with one rate for encoder and decoder and one for the rest."""

    def schedule(rate):
        return optax.cosine_decay_schedule(rate, iterations) if settings.decay else rate

    rates = {"networks": settings.learning_rate, "rest": settings.rate_rest}

    def group(at, _):
        return "networks" if at[0].name in ("encoder", "decode") else "rest"

    def groups(params):
        return jax.tree_util.tree_map_with_path(group, params)

    return optax.multi_transform(
        {name: optax.adam(schedule(rate)) for name, rate in rates.items()}, groups
    )


def _make_learner(
    cell: Cell, models: BgmmVae, data: ByClass, replicas: int, iterations: int
) -> SurrogateLearner:
    """`replicas` stacked models, the objective of the cell, and a learning rate for so many
    iterations.
    """
    config, settings = cell.config, cell.settings
    objective = settings.make_objective()

    def surrogate(key, model, data):
        key_draw, key_step = jax.random.split(key)
        x, _, _ = draw_batches(key_draw, data, config.alpha, config.num_batches, config.batch_size)
        return objective.surrogate(key_step, model, x)

    return SurrogateLearner(
        models,
        surrogate,
        optimiser=make_optimiser(settings, iterations),
        name=f"{objective!r}, {config.num_batches} x {config.batch_size}, alpha {config.alpha}",
        shared=data,
        restarts=replicas,
        average=settings.average,
    )


def train_cell(
    key: Key, cell: Cell, data: ByClass, reporter: Reporter, checkpoint: Path
) -> tuple[BgmmVae, Training]:
    """The trained models, stacked, and the record of their training."""
    config, settings = cell.config, cell.settings

    def train_models(key, models, replicas, iterations, folder, progress):
        learner = _make_learner(cell, models, data, replicas, iterations)
        trained = train(key, learner, LoopOptions(iterations, progress, folder))
        return learner.model(trained.params), trained

    key_build, key_train = jax.random.split(key)
    replicas = config.seeds * settings.candidates
    models = build_models(key_build, cell, data.images.shape[1], replicas)
    if settings.candidates == 1:
        return train_models(key_train, models, replicas, config.iterations, checkpoint, reporter)
    key_trial, key_choice, key_train = jax.random.split(key_train, 3)
    trials = Stretch(reporter, config.iterations, 0, settings.candidates)
    models, trial = train_models(
        key_trial, models, replicas, cell.trial_iterations, checkpoint / "trial", trials
    )
    models = choose(key_choice, models, data, config, settings.candidates)
    spent = cell.spent_iterations
    rest = Stretch(reporter, config.iterations, spent)
    models, trained = train_models(
        key_train, models, config.seeds, config.iterations - spent, checkpoint / "chosen", rest
    )
    return models, trained._replace(seconds=trial.seconds + trained.seconds)


def choose(
    key: Key, models: BgmmVae, data: ByClass, config: BgmmVaeConfig, candidates: int
) -> BgmmVae:
    """Of every `candidates` models the one whose clusters tell training mini-batches apart best;
    labels are not used.
    """
    x, _, _ = jax.jit(
        lambda k: draw_batches(k, data, config.alpha, _CHOICE_BATCHES, config.batch_size)
    )(key)
    score = eqx.filter_jit(neighbour_information)
    scores = np.array([score(model, x) for model in unstack(models)]).reshape(
        config.seeds, candidates
    )
    # argmax would take NaN for the largest.
    scores = np.where(np.isnan(scores), -np.inf, scores)
    best = np.arange(config.seeds) * candidates + np.argmax(scores, axis=1)
    arrays, static = eqx.partition(models, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda a: a[best], arrays), static)
