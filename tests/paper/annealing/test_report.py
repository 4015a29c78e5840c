"""Which cells go into which table and figure, from arrays that are made up."""

import numpy as np
import pytest

from nestedvi.paper.annealing import report
from nestedvi.paper.annealing.config import AnnealingConfig
from nestedvi.paper.annealing.report import draw_figures, neighbour_kls, tables_text

CONFIG = AnnealingConfig(methods=("avo", "nvir-star"), levels=(2, 4))
ROW = {
    "method": "avo",
    "K": 4,
    "particles": 72,
    "iterations": 10,
    "log_Z_hat_mean": 2.0,
    "log_Z_hat_std": 0.1,
    "ess_percent": 50.0,
    "ess_percent_std": 1.0,
}


@pytest.fixture
def arrays():
    """Two restarts of each method at K = 4; at K = 2 nothing that a figure may use."""
    rng = np.random.default_rng(0)
    cell = {
        "z": rng.normal(size=(4, 30, 2)),
        "weights": np.full((4, 30), 1 / 30),
        "ess_rolling": rng.uniform(0, 100, (20, 2)),
        "betas": np.array([[0.0, 0.1, 0.4, 1.0], [0.0, 0.2, 0.5, 1.0]]),
    }
    return {"avo-K4": cell, "nvir-star-K4": cell, "avo-K2": {}, "nvir-star-K2": {}}


def test_a_table_of_what_was_run():
    """What lies beyond the table stands there only if it was run."""
    text = tables_text({"rows": [ROW], "large_k": [], "budget": []})
    assert "| AVO |" in text and "(1.96 / 44)" in text and "Many levels" not in text
    more = {**ROW, "level_parallel_temp_bytes": 1, "sequential_temp_bytes": 1, "step_seconds": 1}
    budget = {**ROW, "particle_moves": 5, "learning_rate": 1e-3, "reached": True}
    content = {"rows": [ROW], "large_k": [{**more, "train_seconds": 1}], "budget": [budget]}
    assert "# Many levels" in tables_text(content) and "# Training budgets" in tables_text(content)


def test_figures_of_the_largest_K(arrays, tmp_path, monkeypatch):
    """Samples, schedules and training curves; no figure of flows, for which there are no cells."""
    drawn = {}
    monkeypatch.setattr(
        report, "save_figure", lambda figure, path: drawn.update({path.name: figure})
    )
    kls = {"linear": np.ones((1, 3)), "NVIR*": np.ones((2, 3))}
    draw_figures(tmp_path, CONFIG, {"large_k": []}, arrays, kls)
    assert set(drawn) == {"samples.png", "schedules.png", "training_ess.png"}
    titles = [axes.get_title() for axes in drawn["training_ess.png"].axes if axes.axison]
    assert titles == ["NVIR*"], "AVO has no curve in the paper"
    assert len(drawn["samples.png"].axes) == 2 * 4


def test_divergences_of_neighbours_for_every_restart(arrays, monkeypatch):
    """A row a restart, and one for the linear schedule; rounding of a learned end does not
    matter.
    """
    seen = []

    def kl(path, *, limit):
        seen.append(np.asarray(path.thetas()))
        return np.full(3, len(seen))

    monkeypatch.setattr(report, "neighbour_kl", kl)
    arrays["nvir-star-K4"]["betas"][:, -1] = 0.9999999
    kls = neighbour_kls(CONFIG, arrays)
    assert {name: x.shape for name, x in kls.items()} == {"linear": (1, 3), "NVIR*": (2, 3)}
    np.testing.assert_allclose(seen[0], np.linspace(0, 1, 4), rtol=1e-6)
    np.testing.assert_allclose(seen[2], [0.0, 0.2, 0.5, 1.0], rtol=1e-6)
