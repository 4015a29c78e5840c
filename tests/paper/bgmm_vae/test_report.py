"""Tables and figures show the numbers that they are given."""

import numpy as np
import pytest

from nestedvi.paper.bgmm_vae.report import (
    batch_figure,
    clusters_figure,
    curves_figure,
    results_table,
)

ROW = {
    "seeds": 5,
    "lambda_tv_median": 0.0631,
    "lambda_tv_mean": 0.077,
    "lambda_tv_std": 0.03,
    "lambda_tv_mean_field_median": 0.056,
    "cluster_accuracy_mean": 0.945,
    "bound_per_image": 1853.12,
    "train_seconds": 157.9,
    "images_per_second": 444213.4,
}
FLOORS = {"lambda_tv_true_labels": 0.0526, "lambda_tv_uniform": 0.4656}


@pytest.fixture
def entries():
    """Two rows, images of 3 × 3 pixels, two seeds; the second row tried candidates for 60 steps."""
    rng = np.random.default_rng(0)

    def images(*shape):
        return rng.integers(0, 256, (*shape, 3, 3), dtype=np.uint8)

    entry = {
        "batch": images(20),
        "generated": images(20),
        "clusters": images(2, 4),
        "lam_true": np.array([0.25, 0.75]),
        "lam": np.array([0.5, 0.5]),
        # No distance of those two: it must be shown, not computed.
        "tv": 0.123,
        "curve": np.arange(8.0).reshape(4, 2),
        "start": 0,
    }
    return [("one", entry), ("two", {**entry, "start": 60})]


def test_a_row_of_the_table():
    lines = results_table([("NVI", ROW)], FLOORS).splitlines()
    assert lines[2] == (
        "| NVI | 5 | 0.063 | 0.077 ± 0.030 | 0.056 | 0.945 | 1853.1 | 158 | 444,213 |"
    )
    assert lines[3].startswith("| *true labels* | | 0.053 |")
    assert lines[4].startswith("| *uniform λ* | | 0.466 |")
    assert len({line.count("|") for line in lines}) == 1


def test_a_row_that_diverged_says_why():
    text = results_table([("RWS", {"seeds": 5, "diverged": "Because."})], FLOORS)
    assert "| RWS | 5 | diverged | – |" in text and "*RWS* diverged: Because." in text


def test_mini_batches_show_bars_and_the_given_distance(entries):
    axes = batch_figure(entries, ["a", "b"]).axes
    assert len(axes) == 6
    bars = axes[2]
    assert bars.get_title() == "total variation 0.123"
    assert [patch.get_height() for patch in bars.patches] == [0.25, 0.75, 0.5, 0.5]


def test_every_image_has_its_place_in_a_sheet(entries):
    """Rows of ten with a white line between: image 11 is the second of the second row."""
    shown = np.asarray(batch_figure(entries, ["a", "b"]).axes[0].images[0].get_array())
    assert shown.shape == (2 * 4 + 1, 10 * 4 + 1)
    np.testing.assert_array_equal(shown[5:8, 5:8], entries[0][1]["batch"][11])
    assert (shown[4] == 255).all() and (shown[:, 4] == 255).all()


def test_clusters_are_rows_named_after_classes(entries):
    axes = clusters_figure(entries, ["a", "b"]).axes
    assert [a.get_title() for a in axes] == ["one", "two"]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["a", "b"]


def test_curves_start_after_the_trials(entries):
    """A line a seed; four points in the middle of four equal stretches of what was trained."""
    lines = curves_figure(entries, 100).axes[0].get_lines()
    assert len(lines) == 4
    np.testing.assert_allclose(lines[0].get_xdata(), [12.5, 37.5, 62.5, 87.5])
    np.testing.assert_allclose(lines[2].get_xdata(), [65, 75, 85, 95])
    np.testing.assert_allclose(lines[1].get_ydata(), [1, 3, 5, 7])
