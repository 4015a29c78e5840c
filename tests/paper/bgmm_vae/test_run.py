"""The BGMM-VAE experiment end to end on images made here: files, resuming, divergence."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from nestedvi.errors import NonFiniteGradientError
from nestedvi.paper.bgmm_vae import run as bgmm_vae
from nestedvi.paper.bgmm_vae.cells import cells_of
from nestedvi.paper.bgmm_vae.run import reproduce_bgmm_vae, run_cell
from nestedvi.progress import Silent
from tests.helpers.small_bgmm import CONFIG, SPLITS, splits_of

pytestmark = pytest.mark.slow


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
    cell, splits = next(cells_of(CONFIG)), splits_of(CONFIG)
    with pytest.raises(KeyboardInterrupt):
        run_cell(cell, splits, folder / "cells", first)
    assert [p for p in (folder / "cells").iterdir() if p.is_dir()], "a checkpoint is left behind"
    return folder, first, second, run_cell(cell, splits, folder / "cells", second)


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
    """Also when other methods are asked for."""
    folder, result = finished
    monkeypatch.setattr(bgmm_vae, "load_images", lambda *_: SPLITS)
    monkeypatch.setattr(bgmm_vae, "train_cell", lambda *_: pytest.fail("trained again"))
    before = {p: p.stat().st_mtime_ns for p in (folder / "cells").iterdir()}
    again = reproduce_bgmm_vae(replace(CONFIG, methods=("rws", "nvi")), folder)
    assert {p: p.stat().st_mtime_ns for p in (folder / "cells").iterdir()} == before
    assert [r["lambda_tv_mean"] for r in again["rows"]] == [
        r["lambda_tv_mean"] for r in result["rows"][::-1]
    ]


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
