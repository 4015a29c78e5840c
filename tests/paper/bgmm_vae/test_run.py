"""The BGMM-VAE experiment end to end on images made here: files, statistics, resuming, settings
from text.
"""

import json
import shutil
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

from nestedvi.errors import NonFiniteGradientError
from nestedvi.grid.cells import fingerprint
from nestedvi.paper.bgmm_vae import run as bgmm_vae
from nestedvi.paper.bgmm_vae.mnist import Split
from nestedvi.paper.bgmm_vae.run import (
    METHODS,
    BgmmVaeConfig,
    Settings,
    build_models,
    cells_of,
    choose,
    draw_batches,
    evaluation_batches,
    floors,
    parse_settings,
    quick_config,
    reproduce_bgmm_vae,
    run_cell,
    split_images,
    train_cell,
    unstack,
)
from nestedvi.progress import Silent
from nestedvi.train.loop import Training

pytestmark = pytest.mark.slow


def fake_images(num, seed):
    """Class k is bright in pixel k of a 4 × 4 image."""
    rng = np.random.default_rng(seed)
    labels = np.arange(num) % 10
    images = rng.integers(0, 40, (num, 16), dtype=np.uint8)
    images[np.arange(num), labels] = 255
    return Split(images.reshape(num, 4, 4), labels)


SPLITS = fake_images(400, 0), fake_images(200, 1)
CONFIG = BgmmVaeConfig(
    datasets=("mnist",),
    methods=("nvi", "rws"),
    seeds=2,
    iterations=40,
    num_batches=2,
    batch_size=3,
    dim=2,
    channels=(2, 2),
    hidden=3,
    flow_depth=2,
    held_out=100,
    eval_batches=5,
    eval_size=40,
    eval_samples=2,
)


class Watching(Silent):
    """Notes where a training starts, and may press Ctrl-C at the first report."""

    def __init__(self, impatient=False):
        self.impatient, self.started_at, self.stopped_at = impatient, None, None

    def start(self, total, done):
        self.started_at = done

    def update(self, done, **measures):
        self.stopped_at = done
        if self.impatient:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """The first cell, stopped and gone on with: the folder, and who watched each time."""
    folder = tmp_path_factory.mktemp("bgmm-vae")
    (folder / "cells").mkdir()
    first, second = Watching(impatient=True), Watching()
    cell, parts = next(cells_of(CONFIG)), split_images(CONFIG, *SPLITS)
    with pytest.raises(KeyboardInterrupt):
        run_cell(cell, parts, folder / "cells", first)
    assert [p for p in (folder / "cells").iterdir() if p.is_dir()], "a checkpoint is left behind"
    return folder, first, second, run_cell(cell, parts, folder / "cells", second)


@pytest.fixture(scope="module")
def finished(interrupted):
    """The whole experiment; the first cell is there already."""
    folder = interrupted[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bgmm_vae, "load_images", lambda *_: SPLITS)
        return folder, reproduce_bgmm_vae(CONFIG, folder)


def test_an_interrupted_cell_goes_on_where_it_was(interrupted):
    _, first, second, (row, arrays) = interrupted
    assert (
        first.started_at == 0
        and 0 < first.stopped_at == second.started_at < second.stopped_at == CONFIG.iterations
    )
    # Five candidates took three steps each.
    assert row["iterations"] == CONFIG.iterations and arrays["curve"].shape == (
        CONFIG.iterations - 15,
        CONFIG.seeds,
    )
    assert arrays["clusters"].shape == (10, 10, 4, 4) and arrays["batch"].dtype == np.uint8


def test_every_file_is_there(finished):
    folder, _ = finished
    figures = {f"{kind}-mnist.png" for kind in ("batches", "clusters", "training")}
    assert {p.name for p in folder.iterdir()} == figures | {"cells", "results.json", "table.md"}
    content = json.loads((folder / "results.json").read_text())
    wanted = {
        "dataset",
        "method",
        "seeds",
        "lambda_tv_median",
        "lambda_tv_mean",
        "lambda_tv_std",
        "cluster_accuracy_mean",
    }
    assert all(
        wanted | {"bound_per_image", "train_seconds", "images_per_second"} <= row.keys()
        for row in content["rows"]
    )
    assert {"command", "versions", "device", "seed", "floors"} <= content.keys()
    assert not [p for p in (folder / "cells").iterdir() if p.is_dir()], (
        "a finished cell leaves no checkpoint behind"
    )
    table = (folder / "table.md").read_text()
    assert "| NVI |" in table and "| RWS |" in table and "true labels" in table


def test_rows_summarise_their_seeds(finished):
    for row in finished[1]["rows"]:
        tv = row["lambda_tv_seeds"]
        assert len(tv) == row["seeds"] == 2 and row["training_images_per_seed"] == 40 * 6
        assert row["lambda_tv_median"] == pytest.approx(np.median(tv)) and row[
            "lambda_tv_std"
        ] == pytest.approx(np.std(tv))
        assert 0 < row["lambda_tv_mean"] < 1 and 0 <= row["cluster_accuracy_mean"] <= 1
        assert np.isfinite(row["bound_per_image"]) and row["skipped_gradients"] == 0


def test_what_is_there_is_not_trained_again(finished, monkeypatch):
    """Also when other methods are asked for; another setting is another cell."""
    folder, result = finished
    monkeypatch.setattr(bgmm_vae, "load_images", lambda *_: SPLITS)
    monkeypatch.setattr(bgmm_vae, "train_cell", lambda *_: pytest.fail("trained again"))
    before = {p: p.stat().st_mtime_ns for p in (folder / "cells").iterdir()}
    again = reproduce_bgmm_vae(replace(CONFIG, methods=("rws", "nvi")), folder)
    assert {p: p.stat().st_mtime_ns for p in (folder / "cells").iterdir()} == before
    assert [r["lambda_tv_mean"] for r in again["rows"]] == [
        r["lambda_tv_mean"] for r in result["rows"][::-1]
    ]
    configs = (
        CONFIG,
        replace(CONFIG, seed=1),
        replace(CONFIG, variants=("rate_rest=1e-2",)),
        replace(CONFIG, split="validation"),
    )
    assert len({fingerprint(next(cells_of(c)).content) for c in configs}) == 4


def test_a_cell_that_diverges_does_not_stop_the_others(finished, tmp_path, monkeypatch):
    """Its row has no figures and says why, in JSON that is JSON; figures show the rest, and it is
    not tried again.
    """
    reason = "The gradient of part 5 was not finite 125 times in a row."

    def diverge(*_):
        raise NonFiniteGradientError(reason)

    monkeypatch.setattr(bgmm_vae, "load_images", lambda *_: SPLITS)
    monkeypatch.setattr(bgmm_vae, "train_cell", diverge)
    (tmp_path / "cells").mkdir()
    for old in (finished[0] / "cells").glob("mnist-nvi-*"):
        shutil.copy(old, tmp_path / "cells")
    config = replace(CONFIG, methods=("rws", "nvi"))
    reproduce_bgmm_vae(config, tmp_path)
    content = json.loads(
        (tmp_path / "results.json").read_text(),
        parse_constant=lambda word: pytest.fail(f"{word} is no JSON"),
    )
    bad, good = content["rows"]
    assert (
        bad["diverged"] == reason
        and bad["lambda_tv_median"] is None
        and bad["lambda_tv_seeds"] == [None, None]
    )
    assert (
        bad.keys() - good.keys() == {"diverged"}
        and good.keys() <= bad.keys()
        and 0 < good["lambda_tv_median"] < 1
    )
    table = (tmp_path / "table.md").read_text()
    assert (
        "| RWS | 2 | diverged |" in table
        and f"*RWS* diverged: {reason}" in table
        and "| NVI | 2 | 0." in table
    )
    assert len(list(tmp_path.glob("*.png"))) == 3
    monkeypatch.setattr(bgmm_vae, "train_cell", lambda *_: pytest.fail("trained again"))
    assert reproduce_bgmm_vae(config, tmp_path)["rows"] == content["rows"]


def test_no_figure_where_all_diverged(tmp_path, monkeypatch):
    def diverge(*_):
        raise NonFiniteGradientError("no")

    monkeypatch.setattr(bgmm_vae, "load_images", lambda *_: SPLITS)
    monkeypatch.setattr(bgmm_vae, "train_cell", diverge)
    reproduce_bgmm_vae(CONFIG, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"cells", "results.json", "table.md"}


def test_the_best_candidate_of_each_seed_goes_on(key, monkeypatch):
    """The best within a seed's own group, whatever others score; one without a score is never taken
    for the best.
    """
    monkeypatch.setattr(bgmm_vae, "neighbour_information", lambda model, x: model.pi_c_logits[0])
    models = build_models(next(cells_of(CONFIG)), key, 4, 6)
    scores = jax.numpy.array([7.0, 9.0, 8.0, np.nan, 1.0, 2.0])
    models = eqx.tree_at(lambda m: m.pi_c_logits, models, models.pi_c_logits.at[:, 0].set(scores))
    chosen = choose(key, models, bgmm_vae.by_class(*SPLITS[0], 10), CONFIG, 3)
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

    monkeypatch.setattr(bgmm_vae, "train", fake)
    monkeypatch.setattr(bgmm_vae, "neighbour_information", lambda model, x: model.pi_c_logits[0])
    data = bgmm_vae.by_class(*SPLITS[0], 10)
    models, trained = train_cell(next(cells_of(CONFIG)), key, data, Silent(), tmp_path)
    assert seen == [(10, 3, "trial"), (2, 25, "chosen")]
    assert sum(models * steps for models, steps, _ in seen) == CONFIG.seeds * CONFIG.iterations
    assert len(unstack(models)) == CONFIG.seeds and trained.seconds == 20.0


def test_no_image_is_used_twice():
    """Test: held-out images match. Validation: they are evaluated on, and training images match."""

    def as_split(start, stop):
        return Split(np.arange(start, stop)[:, None, None], np.arange(stop - start) % 10)

    numbered = as_split(0, 200), as_split(200, 255)
    test = split_images(CONFIG, *numbered)
    assert (
        test.train.images[-1] == 99
        and test.match.images[0] == 100
        and test.evaluate.images[0] == 200
    )
    validation = split_images(replace(CONFIG, split="validation", train_images=50), *numbered)
    assert len(
        validation.train.images
    ) == 50 and validation.evaluate.images.ravel().tolist() == list(range(100, 200))
    assert set(validation.match.images.ravel()) <= set(validation.train.images.ravel())
    with pytest.raises(ValueError, match="held out"):
        split_images(replace(CONFIG, held_out=200), *numbered)


def test_mini_batches_have_dirichlet_proportions(key):
    """Classes follow λ*, λ* follows Dir(α): the variance of a class's count in a mini-batch is the
    Dirichlet-multinomial's.
    """
    data = bgmm_vae.by_class(*SPLITS[0], 10)
    num, size, alpha = 3000, 10, 0.5
    x, classes, lam = jax.jit(lambda k: draw_batches(k, data, alpha, num, size))(key)
    assert x.shape == (num, size, 4, 4) and float(x.max()) == 1.0
    counts = np.stack([(np.asarray(classes) == k).sum(axis=1) for k in range(10)], axis=1)
    residual = counts - size * np.asarray(lam)
    assert (np.abs(residual.mean(axis=0)) < 5 * residual.std(axis=0) / np.sqrt(num)).all()
    exact = size * 0.1 * 0.9 * (size + 10 * alpha) / (1 + 10 * alpha)
    square = (counts - 1.0) ** 2
    assert (np.abs(square.mean(axis=0) - exact) < 5 * square.std(axis=0) / np.sqrt(num)).all()


def test_floors():
    """True labels leave the noise of a mini-batch, which shrinks with its size; uniform proportions
    do not care.
    """
    parts = split_images(CONFIG, *SPLITS)
    small, large = (
        floors(replace(CONFIG, eval_size=n, eval_batches=100), parts) for n in (20, 500)
    )
    assert (
        large["lambda_tv_true_labels"]
        < 0.5 * small["lambda_tv_true_labels"]
        < small["lambda_tv_uniform"]
    )
    x, _, _ = evaluation_batches(CONFIG, parts)
    np.testing.assert_array_equal(
        x, evaluation_batches(replace(CONFIG, methods=("rws",)), parts)[0]
    )


def test_the_papers_settings():
    config = BgmmVaeConfig()
    assert (config.num_batches, config.batch_size, config.iterations, config.alpha) == (
        20,
        10,
        50_000,
        0.5,
    )
    assert config.eval_batches >= 100 and config.eval_size == 300 and config.seeds >= 5
    printed = METHODS["nvi-printed"]
    assert (
        printed.learning_rate,
        printed.rate_rest,
        printed.pi_c_from,
        printed.mixture_update,
    ) == (1e-3, 5e-2, "both", "sample")
    assert printed.num_prior > config.batch_size
    assert METHODS["rws-printed"].rate_rest == 5e-2 and METHODS["rws-printed"].num_samples == 10


def test_the_quick_version():
    """One data set, few steps, the collapsing row left out; methods that were asked for stay."""
    quick = quick_config(BgmmVaeConfig())
    assert (
        quick.datasets == ("mnist",)
        and quick.iterations < 5000
        and quick.methods == ("nvi-printed", "nvi", "rws")
    )
    assert quick_config(BgmmVaeConfig(methods=("rws-printed",))).methods == ("rws-printed",)


def test_rates_by_group(key):
    """Encoder and decoder move by one rate, everything else by the other; a decay ends at zero."""
    cell = next(cells_of(CONFIG))
    models = bgmm_vae.build_models(cell, key, 4, 1)
    params = jax.tree.map(
        lambda x: x[0],
        jax.tree.map(jax.numpy.asarray, bgmm_vae.eqx.filter(models, bgmm_vae.eqx.is_inexact_array)),
    )
    ones = jax.tree.map(jax.numpy.ones_like, params)
    for decay, last in ((False, 1.0), (True, 0.0)):
        optimiser = bgmm_vae.make_optimiser(
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


def test_a_new_setting_at_its_default_leaves_finished_cells_valid():
    """A cell's content names only what differs from the defaults."""
    cell = next(cells_of(replace(CONFIG, methods=("nvi-printed",), variants=("",))))
    assert cell.content["settings"] == {}
    assert replace(cell, settings=replace(cell.settings, neighbours=1.0)).content["settings"] == {
        "neighbours": 1.0
    }


def test_settings_from_text():
    found = parse_settings("rate_rest=5e-3, pi_c_from=first,decay=true,average=none,num_prior=300")
    assert found == {
        "rate_rest": 5e-3,
        "pi_c_from": "first",
        "decay": True,
        "average": None,
        "num_prior": 300,
    }
    assert parse_settings("") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate=1", "Did you mean 'rate_rest'"),
        ("rate_rest", "name=value"),
        ("rate_rest=fast", "is a number"),
        ("decay=maybe", "true or false"),
        ("label=x", "Unknown setting"),
    ],
)
def test_settings_that_make_no_sense(text, message):
    with pytest.raises(ValueError, match=message):
        parse_settings(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("nvy",)}, "Did you mean 'nvi'"),
        ({"datasets": ("mnits",)}, "mnist"),
        ({"datasets": ()}, "at least one data set"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"split": "train"}, "Unknown split"),
    ],
)
def test_configurations_that_make_no_sense(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"rate_rest": 0.0},
        {"average": 2.0},
        {"objective": "vae"},
        {"pi_c_from": "none"},
        {"candidates": 0},
        {"candidates": 13},
    ],
)
def test_settings_are_checked(change):
    with pytest.raises(ValueError):
        replace(METHODS["nvi"], **change)
