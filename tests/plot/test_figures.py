"""Figures render without a display and hold what they are given."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from nestedvi.plot.figures import (
    annealing_figure,
    draw_density,
    draw_particles,
    draw_schedules,
    sampling_figure,
    save_figure,
)

RANDOM = np.random.default_rng(0)


def particles(num=30):
    return RANDOM.normal(size=(num, 2)), RANDOM.uniform(size=num)


def assert_png(path, figure):
    """A file that decodes to an image which is not blank, with nothing beside it."""
    save_figure(figure, path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    image = matplotlib.image.imread(path)
    assert min(image.shape[:2]) > 50 and np.ptp(image[..., :3]) > 0.5
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("num_levels", [2, 3, 8])
def test_annealing_figures_have_a_panel_a_level(num_levels, tmp_path):
    betas = np.linspace(0, 1, num_levels) ** 2
    figure = annealing_figure([particles() for _ in range(num_levels)], betas, limit=15)
    titles = [axes.get_title() for axes in figure.axes]
    assert [t for t in titles if t.startswith("k =")] == [
        f"k = {k + 1},  β = {b:.3f}" for k, b in enumerate(betas)
    ]
    lines = {
        line.get_label(): line.get_ydata() for axes in figure.axes for line in axes.get_lines()
    }
    np.testing.assert_allclose(lines["learned"], betas)
    np.testing.assert_allclose(lines["linear"], np.linspace(0, 1, num_levels))
    assert_png(tmp_path / "a.png", figure)


def test_particles_are_as_dark_as_their_weights():
    axes = Figure().subplots()
    draw_particles(axes, np.zeros((3, 2)), np.array([0.0, 0.1, 0.9]), limit=4, title="here")
    (dots,) = axes.collections
    alpha = dots.get_alpha()
    assert alpha[0] < alpha[1] < alpha[2] <= 0.6
    assert axes.get_xlim() == (-4, 4) and axes.get_title() == "here"


def test_densities_are_drawn_the_right_way_up(tmp_path):
    """A bump at (2, −1) is brightest there."""
    figure = Figure()
    axes = figure.subplots()
    draw_density(axes, lambda z: -5 * np.sum((z - [2.0, -1.0]) ** 2, axis=1), limit=4)
    (image,) = axes.images
    row, column = np.unravel_index(np.argmax(image.get_array()), image.get_array().shape)
    grid = np.linspace(-4, 4, 200)
    assert abs(grid[column] - 2) < 0.05 and abs(grid[row] + 1) < 0.05 and image.origin == "lower"
    assert_png(tmp_path / "density.png", figure)


def test_restarts_show_their_spread():
    axes = Figure().subplots()
    restarts = np.array([[0.0, 0.2, 1.0], [0.0, 0.4, 1.0]])
    draw_schedules(axes, {"linear": np.linspace(0, 1, 3), "learned": restarts})
    np.testing.assert_allclose(axes.get_lines()[1].get_ydata(), [0.0, 0.3, 1.0])
    assert len(axes.collections) == 1
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["linear", "learned"]


def test_rows_may_differ_in_length(tmp_path):
    rows = [
        (name, [(f"{name} {k}", *particles()) for k in range(num)])
        for name, num in (("AVO", 2), ("NVIR*", 3))
    ]
    figure = sampling_figure(rows, limit=5)
    drawn = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in drawn] == [
        "AVO 0",
        "AVO 1",
        "NVIR* 0",
        "NVIR* 1",
        "NVIR* 2",
    ]
    assert [axes.get_ylabel() for axes in drawn if axes.get_ylabel()] == ["AVO", "NVIR*"]
    assert_png(tmp_path / "rows.png", figure)
