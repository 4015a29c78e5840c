"""The posterior's figure: a panel an element, weights respected, far particles cut off."""

import numpy as np
import pytest

from nestedvi.plot.posterior import posterior_figure

NUM = 400
X = np.random.default_rng(0).normal(size=NUM)
UNIFORM = np.full(NUM, 1 / NUM)


def shown(figure):
    return [axes for axes in figure.axes if axes.axison]


@pytest.mark.parametrize("num", [1, 2, 5])
def test_few_elements_come_with_their_pairs(num):
    elements = {f"x{i}": X + i for i in range(num)}
    panels = shown(posterior_figure(elements, UNIFORM, title="why"))
    assert len(panels) == num * (num + 1) // 2
    assert [axes.get_title() for axes in panels if axes.get_title()] == list(elements)


def test_many_elements_are_cut_and_the_title_says_so():
    elements = {f"x{i}": X for i in range(17)}
    figure = posterior_figure(elements, UNIFORM, title="title")
    assert len(shown(figure)) == 16
    assert figure.get_suptitle() == "title   (first 16 of 17 elements)"
    assert len(shown(posterior_figure({k: X for k in list(elements)[:6]}, UNIFORM))) == 6


def test_marginals_are_weighted():
    """All weight on the positive half: the line is its mean, and no bar stands left of it."""
    w_bar = np.where(X > 0, 1.0, 0.0)
    w_bar /= w_bar.sum()
    (axes,) = posterior_figure({"x": X}, w_bar).axes
    assert axes.get_lines()[0].get_xdata()[0] == pytest.approx(X[X > 0].mean())
    bars = [(bar.get_x() + bar.get_width(), bar.get_height()) for bar in axes.patches]
    assert all(height == 0 for right, height in bars if right < 0)
    area = sum(bar.get_width() * bar.get_height() for bar in axes.patches)
    assert area == pytest.approx(1.0)


def test_one_far_particle_does_not_squeeze_the_rest():
    """A particle with less than a thousandth of the weight is left out of the range."""
    x, w_bar = np.append(X, 1e6), np.append(UNIFORM * (1 - 1e-5), 1e-5)
    (axes,) = posterior_figure({"x": x}, w_bar).axes
    assert max(bar.get_x() for bar in axes.patches) < 10
