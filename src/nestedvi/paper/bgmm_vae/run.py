"""Experiment 3 (section 5.3): amortised inference in the BGMM-VAE on MNIST and FashionMNIST, nested
KLs against wake-sleep.

Every cell (a data set and a method, all seeds side by side) is trained, evaluated and written to
`cells/` on its own; an interrupted run goes on with the cell that it was in, and cells trained on
other occasions are read back. The last images of the training split are held out: they match
clusters to classes for the test batches, and settings are chosen on them (`split="validation"`). A
cell whose training diverges is a result as well: a row without figures that says so.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from nestedvi.densities.dirichlet import SymmetricDirichlet
from nestedvi.errors import NonFiniteGradientError, UnknownNameError
from nestedvi.grid.cells import cell_key, public, run_cached
from nestedvi.grid.progress import GridProgress
from nestedvi.kernels.base import stack
from nestedvi.paper.bgmm_vae.clusters import confusion, match_clusters, total_variation
from nestedvi.paper.bgmm_vae.inference import (
    bound,
    cluster_of,
    expected_lam,
    generate,
    mean_field_lam,
)
from nestedvi.paper.bgmm_vae.minibatches import ByClass, by_class
from nestedvi.paper.bgmm_vae.mnist import Split, get_dataset, load_images, shrink
from nestedvi.paper.bgmm_vae.model import BgmmVae
from nestedvi.paper.bgmm_vae.neighbours import neighbour_information
from nestedvi.paper.bgmm_vae.objectives import NestedKLs, WakeSleep
from nestedvi.paper.bgmm_vae.report import (
    batch_figure,
    clusters_figure,
    curves_figure,
    results_table,
)
from nestedvi.plot.figures import save_figure
from nestedvi.progress import Stretch
from nestedvi.storage.files import output_folder, provenance, write_json, write_text
from nestedvi.train.loop import Training, train
from nestedvi.train.surrogate_learner import SurrogateLearner

__all__ = [
    "METHODS",
    "BgmmVaeConfig",
    "Cell",
    "Settings",
    "parse_settings",
    "quick_config",
    "reproduce_bgmm_vae",
]

_CLASSES = 10
_SHOWN = 100
_CHOICE_BATCHES = 1000
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


@dataclass(frozen=True)
class Settings:
    """How one row is trained; `learning_rate` is for encoder and decoder, `rate_rest` for
    everything else.

    With `candidates` > 1 every seed starts as so many models, trained for a share `trial` of the
    iterations each; the one whose clusters tell mini-batches apart best goes on, for as many
    iterations as are left of the same number of training images.
    """

    label: str
    objective: str = "nvi"
    learning_rate: float = 1e-3
    rate_rest: float = 5e-2
    decay: bool = False
    average: float | None = None
    num_prior: int = 100
    pi_c_from: str = "both"
    mixture_update: str = "sample"
    intermediate: str = "flow"
    neighbours: float = 0.0
    num_samples: int = 10
    model_gradient: str = "all"
    mean_scale: float = 1.0
    candidates: int = 1
    trial: float = 0.08

    def __post_init__(self) -> None:
        if self.candidates < 1 or not 0 < self.trial * self.candidates < 1:
            raise ValueError(
                "The trials of all candidates take less than the whole training; got"
                f" {self.candidates} of a share {self.trial}."
            )
        if self.learning_rate <= 0 or self.rate_rest <= 0:
            raise ValueError(
                f"Learning rates must be positive; got {self.learning_rate} and {self.rate_rest}."
            )
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"The decay of an average is between 0 and 1; got {self.average}.")
        self.make_objective()

    def make_objective(self) -> NestedKLs | WakeSleep:
        if self.objective == "nvi":
            names = ("num_prior", "pi_c_from", "mixture_update", "intermediate", "neighbours")
            return NestedKLs(**{name: getattr(self, name) for name in names})
        if self.objective == "rws":
            return WakeSleep(self.num_samples, self.model_gradient)  # type: ignore[arg-type]
        raise UnknownNameError("objective", self.objective, ["nvi", "rws"])


_NVI = Settings(
    "NVI",
    rate_rest=1e-3,
    pi_c_from="first",
    mixture_update="probabilities",
    intermediate="mixture",
    candidates=5,
)
METHODS: dict[str, Settings] = {
    "nvi-printed": Settings("NVI, as printed"),
    "nvi-three": replace(_NVI, label="NVI, three KLs"),
    "nvi": replace(_NVI, neighbours=10.0),
    "rws-printed": Settings("RWS, as printed", "rws", model_gradient="one"),
    "rws": Settings("RWS", "rws", rate_rest=1e-3, model_gradient="one"),
}


def parse_settings(text: str) -> dict[str, Any]:
    """ "rate_rest=5e-3,decay=true" → the fields of `Settings` to change."""
    kinds = {
        field.name: field.type
        for field in fields(Settings)
        if field.name not in ("label", "objective")
    }
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (x.strip() for x in part.partition("="))
        if not equals:
            raise ValueError(f"A setting is written name=value; got {part!r}.")
        if name not in kinds:
            raise UnknownNameError("setting", name, kinds)
        found[name] = _parse(name, value, str(kinds[name]))
    return found


def _parse(name: str, value: str, kind: str) -> Any:
    if "str" in kind:
        return value
    if "bool" in kind:
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{name} is true or false; got {value!r}.")
        return value.lower() == "true"
    if "None" in kind and value.lower() == "none":
        return None
    try:
        return int(value) if "int" in kind else float(value)
    except ValueError:
        raise ValueError(f"{name} is a number; got {value!r}.") from None


@dataclass(frozen=True)
class BgmmVaeConfig:
    """The experiment as in the paper's appendix; `variants` are changes of settings, each of which
    is tried with each method.
    """

    datasets: tuple[str, ...] = ("mnist", "fashion-mnist")
    methods: tuple[str, ...] = tuple(METHODS)
    variants: tuple[str, ...] = ("",)
    seeds: int = 5
    iterations: int = 50_000
    num_batches: int = 20
    batch_size: int = 10
    alpha: float = 0.5
    dim: int = 10
    channels: tuple[int, ...] = (32, 64, 64, 64)
    hidden: int = 64
    flow_depth: int = 8
    held_out: int = 10_000
    train_images: int | None = None
    shrink: int = 1
    split: str = "test"
    eval_batches: int = 100
    eval_size: int = 300
    eval_samples: int = 10
    half: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.datasets or not self.methods or not self.variants:
            raise ValueError("The BGMM-VAE experiment needs at least one data set and one method.")
        for name in self.datasets:
            get_dataset(name)
        for name in self.methods:
            if name not in METHODS:
                raise UnknownNameError("method", name, METHODS)
        for variant in self.variants:
            parse_settings(variant)
        sizes = (
            "seeds",
            "iterations",
            "num_batches",
            "batch_size",
            "held_out",
            "eval_batches",
            "eval_size",
            "eval_samples",
        )
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.split not in ("test", "validation"):
            raise UnknownNameError("split", self.split, ["test", "validation"])


def quick_config(config: BgmmVaeConfig) -> BgmmVaeConfig:
    """A coarse version: small networks and images, few mini-batches a step, minutes on two cores.

    Of all methods it leaves out our own settings without the fourth KL, and wake-sleep at the
    printed rates, which ends with one cluster however long it is trained.
    """
    methods = ("nvi-printed", "nvi", "rws")
    return replace(
        config,
        datasets=config.datasets[:1],
        methods=methods if config.methods == tuple(METHODS) else config.methods,
        seeds=min(config.seeds, 1),
        iterations=min(config.iterations, 4500),
        num_batches=2,
        channels=(8, 16, 16),
        shrink=2,
        eval_batches=50,
    )


@dataclass(frozen=True)
class Cell:
    """One training of several seeds: a data set, a method, its settings."""

    dataset: str
    method: str
    variant: str
    settings: Settings
    config: BgmmVaeConfig

    @property
    def name(self) -> str:
        variant = "".join(x if x.isalnum() or x in "._-=" else "_" for x in self.variant)
        return "-".join(filter(None, (self.dataset, self.method, variant, self.config.split)))

    @property
    def cost(self) -> float:
        """Expected time, in units of one image through the networks once."""
        samples = self.settings.num_samples if self.settings.objective == "rws" else 1
        config = self.config
        return float(
            config.iterations
            * config.seeds
            * config.num_batches
            * config.batch_size
            * (1 + 2 * samples)
        )

    @property
    def trial_iterations(self) -> int:
        """How long every candidate is trained before one is chosen; nothing where there is no
        choice.
        """
        settings = self.settings
        return (
            max(1, round(settings.trial * self.config.iterations)) if settings.candidates > 1 else 0
        )

    @property
    def spent_iterations(self) -> int:
        """What the trials of all candidates of a seed take."""
        return self.settings.candidates * self.trial_iterations

    @property
    def content(self) -> dict[str, Any]:
        """What the result depends on; which other cells are asked for does not matter.

        Settings at their defaults are left out: a new one, which changes nothing by default, leaves
        finished cells valid.
        """
        content = asdict(self)
        for name in ("datasets", "methods", "variants"):
            del content["config"][name]
        usual = asdict(Settings(self.settings.label))
        content["settings"] = {
            name: value for name, value in content["settings"].items() if value != usual[name]
        }
        return content


def cells_of(config: BgmmVaeConfig) -> Iterator[Cell]:
    """Every data set, method and variant."""
    for dataset in config.datasets:
        for method in config.methods:
            for variant in config.variants:
                yield Cell(
                    dataset,
                    method,
                    variant,
                    replace(METHODS[method], **parse_settings(variant)),
                    config,
                )


@dataclass(frozen=True)
class Parts:
    """A data set's images by use: trained on, for matching clusters to classes, evaluated on; none
    is in two of them.
    """

    train: Split
    match: Split
    evaluate: Split


def split_images(config: BgmmVaeConfig, train_split: Split, test_split: Split) -> Parts:
    """Test: the held-out images match. Validation: they are evaluated on, and as many of the
    remaining ones match.
    """
    train_split, test_split = shrink(train_split, config.shrink), shrink(test_split, config.shrink)
    kept = len(train_split.images) - config.held_out
    if kept < 1:
        raise ValueError(
            f"{config.held_out} images cannot be held out of {len(train_split.images)}."
        )

    def take(part, start, stop):
        return Split(part.images[start:stop], part.labels[start:stop])

    trained = take(
        train_split, 0, kept if config.train_images is None else min(kept, config.train_images)
    )
    held_out = take(train_split, kept, None)
    if config.split == "test":
        return Parts(trained, held_out, test_split)
    return Parts(trained, take(trained, 0, config.held_out), held_out)


def build_models(cell: Cell, key, size: int, num: int) -> BgmmVae:
    """`num` models, stacked."""
    config = cell.config

    def make(k):
        return BgmmVae(
            key=k,
            size=size,
            clusters=_CLASSES,
            dim=config.dim,
            channels=config.channels,
            hidden=config.hidden,
            flow_depth=config.flow_depth,
            alpha=config.alpha,
            mean_scale=cell.settings.mean_scale,
            half=config.half,
        )

    return stack(key, make, num)


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


def draw_batches(key, data: ByClass, alpha: float, num_batches: int, size: int):
    """Mini-batches with class proportions λ* ~ Dir(α) of their own: images, classes, λ*."""
    key_lam, key_images = jax.random.split(key)
    lam = jax.vmap(SymmetricDirichlet(alpha, _CLASSES).sample)(
        jax.random.split(key_lam, num_batches)
    )
    x, classes = jax.vmap(lambda k, p: data.draw(k, p, size))(
        jax.random.split(key_images, num_batches), lam
    )
    return x, classes, lam


def train_cell(
    cell: Cell, key, data: ByClass, reporter: Any, checkpoint: Path
) -> tuple[BgmmVae, Training]:
    """The trained models, stacked, and the record of their training."""
    config, settings = cell.config, cell.settings
    key_build, key_train = jax.random.split(key)
    objective = settings.make_objective()

    def surrogate(key, model, data):
        key_draw, key_step = jax.random.split(key)
        x, _, _ = draw_batches(key_draw, data, config.alpha, config.num_batches, config.batch_size)
        return objective.surrogate(key_step, model, x)

    def go(
        key, models: BgmmVae, replicas: int, iterations: int, folder: Path, progress: Any
    ) -> tuple[BgmmVae, Training]:
        learner = SurrogateLearner(
            models,
            surrogate,
            optimiser=make_optimiser(settings, iterations),
            name=f"{objective!r}, {config.num_batches} x {config.batch_size}, alpha {config.alpha}",
            shared=data,
            restarts=replicas,
            average=settings.average,
        )
        trained = train(key, learner, num_steps=iterations, progress=progress, checkpoint=folder)
        return learner.model(trained.params), trained

    replicas = config.seeds * settings.candidates
    models = build_models(cell, key_build, data.images.shape[1], replicas)
    if settings.candidates == 1:
        return go(key_train, models, replicas, config.iterations, checkpoint, reporter)
    key_trial, key_choice, key_train = jax.random.split(key_train, 3)
    models, trial = go(
        key_trial,
        models,
        replicas,
        cell.trial_iterations,
        checkpoint / "trial",
        Stretch(reporter, config.iterations, 0, settings.candidates),
    )
    models = choose(key_choice, models, data, config, settings.candidates)
    spent = cell.spent_iterations
    rest = Stretch(reporter, config.iterations, spent)
    models, trained = go(
        key_train, models, config.seeds, config.iterations - spent, checkpoint / "chosen", rest
    )
    return models, trained._replace(seconds=trial.seconds + trained.seconds)


def choose(key, models: BgmmVae, data: ByClass, config: BgmmVaeConfig, candidates: int) -> BgmmVae:
    """Of every `candidates` models the one whose clusters tell training mini-batches apart best;
    labels are not used.
    """
    x, _, _ = jax.jit(
        lambda k: draw_batches(k, data, config.alpha, _CHOICE_BATCHES, config.batch_size)
    )(key)
    score = eqx.filter_jit(neighbour_information)
    found = np.array([score(model, x) for model in unstack(models)]).reshape(
        config.seeds, candidates
    )
    # argmax would take NaN for the largest.
    found = np.where(np.isnan(found), -np.inf, found)
    best = np.arange(config.seeds) * candidates + np.argmax(found, axis=1)
    arrays, static = eqx.partition(models, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda a: a[best], arrays), static)


def unstack(models: BgmmVae) -> list[BgmmVae]:
    """Stacked models, one by one."""
    arrays, static = eqx.partition(models, eqx.is_array)
    num = jax.tree.leaves(arrays)[0].shape[0]
    return [eqx.combine(jax.tree.map(lambda a, i=i: a[i], arrays), static) for i in range(num)]


def run_cell(
    cell: Cell, parts: Parts, folder: Path, reporter: Any
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains and evaluates one cell, or reads it back if it is there; one that diverged has no
    arrays.
    """

    def compute(work: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        # One key for all variants of a method: they start from the same networks and see the same
        # images.
        key = cell_key(cell.config.seed, f"{cell.dataset} {cell.settings.objective}")
        try:
            models, trained = train_cell(
                cell, key, by_class(*parts.train, _CLASSES), reporter, work
            )
        except NonFiniteGradientError as error:
            return diverged_row(cell, str(error)), {}
        return summarise(cell, models, trained, parts)

    return run_cached(cell.name, cell.content, folder, compute)


@eqx.filter_jit
def _clusters(model: BgmmVae, images) -> Any:
    def one(x):
        return cluster_of(model, model.code(x.astype(jnp.float32) / 255.0))

    return jax.lax.map(one, images, batch_size=500)


@eqx.filter_jit
def _infer(key, model: BgmmVae, x, num_samples: int) -> Any:
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


def evaluation_batches(config: BgmmVaeConfig, parts: Parts):
    """The mini-batches that every method and seed of a data set is evaluated on."""
    data = by_class(*parts.evaluate, _CLASSES)
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    return jax.jit(
        lambda k: draw_batches(k, data, config.alpha, config.eval_batches, config.eval_size)
    )(key)


def evaluate_model(key, model: BgmmVae, parts: Parts, batches, num_samples: int) -> dict[str, Any]:
    """One seed: what it infers for every mini-batch, in the order of the classes, and how that
    compares with the truth.
    """
    x, _, lam_true = batches
    on = {
        name: np.asarray(_clusters(model, jnp.asarray(getattr(parts, name).images)))
        for name in ("match", "evaluate")
    }
    matching = match_clusters(confusion(on["match"], parts.match.labels, _CLASSES))
    lam, refined, bounds = (np.asarray(v) for v in _infer(key, model, x, num_samples))
    # Column k of the result is the cluster that stands for class k.
    order = np.argsort(matching)
    return {
        "order": order,
        "lam": lam[:, order],
        "tv": total_variation(lam[:, order], lam_true).mean(),
        "tv_mean_field": total_variation(refined[:, order], lam_true).mean(),
        "accuracy": np.mean(matching[on["evaluate"]] == parts.evaluate.labels),
        "bound": bounds.mean(),
        "clusters_used": len(np.unique(on["evaluate"])),
    }


def describe(cell: Cell) -> dict[str, Any]:
    """What is known of a row before it is trained."""
    config = cell.config
    return {
        "dataset": cell.dataset,
        "method": cell.method,
        "variant": cell.variant,
        "settings": asdict(cell.settings),
        "split": config.split,
        "seeds": config.seeds,
        "iterations": config.iterations,
        "training_images_per_seed": config.iterations * config.num_batches * config.batch_size,
    }


def diverged_row(cell: Cell, reason: str) -> dict[str, Any]:
    """The row of a training that diverged: NaN in place of every figure, and the sentence that says
    why.
    """
    each = {name: np.full(cell.config.seeds, np.nan) for name in _SEED_FIGURES}
    return {**describe(cell), **dict.fromkeys(_FIGURES, np.nan), **each, "diverged": reason}


def summarise(
    cell: Cell, models: BgmmVae, trained: Training, parts: Parts
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A row of the table, and what the figures need. TV is a mean over mini-batches for each seed;
    median, mean and standard deviation are over seeds."""
    config = cell.config
    batches = evaluation_batches(config, parts)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 2), config.seeds)
    each = unstack(models)
    found = [
        evaluate_model(keys[i], model, parts, batches, config.eval_samples)
        for i, model in enumerate(each)
    ]
    tv, refined, accuracy, bounds = (
        np.array([f[name] for f in found]) for name in ("tv", "tv_mean_field", "accuracy", "bound")
    )
    images = config.num_batches * config.batch_size
    row = {
        **describe(cell),
        "lambda_tv_median": np.median(tv),
        "lambda_tv_mean": tv.mean(),
        "lambda_tv_std": tv.std(),
        "cluster_accuracy_mean": accuracy.mean(),
        "bound_per_image": bounds.mean(),
        "train_seconds": trained.seconds,
        "lambda_tv_seeds": tv,
        "cluster_accuracy_seeds": accuracy,
        "bound_per_image_seeds": bounds,
        "clusters_used_seeds": [f["clusters_used"] for f in found],
        "lambda_tv_mean_field_median": np.median(refined),
        "lambda_tv_mean_field_seeds": refined,
        "images_per_second": images * config.seeds / trained.step_seconds,
        "skipped_gradients": int(trained.skipped.sum()),
    }
    # The seed whose total variation is the median (the better of the two middle ones) stands for
    # the method in figures.
    shown = int(np.argsort(tv)[(len(tv) - 1) // 2])
    return row, _drawings(config, each[shown], found[shown], batches, trained)


def _drawings(
    config: BgmmVaeConfig, model: BgmmVae, found: dict[str, Any], batches, trained: Training
) -> dict[str, np.ndarray]:
    """The first mini-batch with what was inferred and generated for it, every cluster's images,
    curves of the training.
    """
    x, _, lam_true = batches
    key_batch, key_clusters = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 3))
    draw = eqx.filter_jit(generate)
    # Back from the classes' order to the clusters'.
    lam = jnp.zeros(_CLASSES).at[found["order"]].set(found["lam"][0])
    one_cluster = [
        draw(jax.random.fold_in(key_clusters, k), model, jnp.eye(_CLASSES)[k], 10)
        for k in found["order"]
    ]

    def grey(images):
        return np.asarray(np.round(255 * np.asarray(images)), np.uint8)

    curve = np.asarray(trained.record.bound)
    return {
        "batch": grey(x[0, :_SHOWN]),
        "generated": grey(draw(key_batch, model, lam, _SHOWN)),
        "clusters": grey(np.stack(one_cluster)),
        "lam_true": np.asarray(lam_true[0]),
        "lam": np.asarray(found["lam"][0]),
        "curve": _thin(curve),
    }


def _thin(curve: np.ndarray, points: int = 200) -> np.ndarray:
    """Means over about `points` equal stretches of the steps."""
    width = max(1, len(curve) // points)
    whole = len(curve) // width * width
    return curve[:whole].reshape(-1, width, *curve.shape[1:]).mean(axis=1)


def floors(config: BgmmVaeConfig, parts: Parts) -> dict[str, float]:
    """What the mini-batches allow: TV of E[λ] from their true labels, and of uniform
    proportions.
    """
    _, classes, lam_true = (np.asarray(v) for v in evaluation_batches(config, parts))
    counts = np.stack([np.bincount(c, minlength=_CLASSES) for c in classes])
    posterior = (counts + config.alpha) / (
        counts.sum(axis=1, keepdims=True) + _CLASSES * config.alpha
    )
    uniform = np.full(_CLASSES, 1 / _CLASSES)
    return {
        "lambda_tv_true_labels": float(total_variation(posterior, lam_true).mean()),
        "lambda_tv_uniform": float(total_variation(uniform, lam_true).mean()),
    }


def reproduce_bgmm_vae(
    config: BgmmVaeConfig,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    console: Any = None,
) -> dict[str, Any]:
    """Runs every cell; writes `results.json`, `table.md` and the figures; returns the first's
    content.
    """
    folder = output_folder(out)
    cells_folder = output_folder(folder / "cells")
    parts = {
        name: split_images(config, *load_images(name, data_dir, console))
        for name in config.datasets
    }
    cells = list(cells_of(config))
    rows: list[dict[str, Any]] = []
    arrays: list[dict[str, np.ndarray]] = []
    with GridProgress(sum(cell.cost for cell in cells), console) as progress:
        for cell in cells:
            label = f"{cell.settings.label} on {get_dataset(cell.dataset).label} {cell.variant}"
            with progress.cell(label, cell.cost) as reporter:
                row, found = run_cell(cell, parts[cell.dataset], cells_folder, reporter)
            rows.append(public(row))
            arrays.append(found)
    limits = {name: floors(config, part) for name, part in parts.items()}
    result = {"rows": rows, "floors": limits, "config": asdict(config), **provenance(config.seed)}
    write_json(folder / "results.json", result)
    write_text(folder / "table.md", _tables(result))
    _figures(config, folder, cells, arrays)
    return result


def _label(method: str, variant: str) -> str:
    return METHODS[method].label + (f" ({variant})" if variant else "")


def _tables(result: dict[str, Any]) -> str:
    parts = []
    for name, limits in result["floors"].items():
        rows = [
            (_label(row["method"], row["variant"]), row)
            for row in result["rows"]
            if row["dataset"] == name
        ]
        parts += [
            f"# {get_dataset(name).label}, {result['config']['split']} mini-batches",
            results_table(rows, limits),
        ]
    return "\n\n".join(parts)


def _figures(
    config: BgmmVaeConfig, folder: Path, cells: list[Cell], arrays: list[dict[str, np.ndarray]]
) -> None:
    """Of every data set, for the rows that have something to show."""
    for name in config.datasets:
        here = [
            (_label(cell.method, cell.variant), {**found, "start": cell.spent_iterations})
            for cell, found in zip(cells, arrays, strict=True)
            if cell.dataset == name and found
        ]
        if not here:
            continue
        classes = get_dataset(name).classes
        save_figure(batch_figure(here, classes), folder / f"batches-{name}.png")
        save_figure(clusters_figure(here, classes), folder / f"clusters-{name}.png")
        save_figure(curves_figure(here, config.iterations), folder / f"training-{name}.png")
