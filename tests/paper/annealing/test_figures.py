"""Figures hold the numbers that they are given: means and spreads over restarts."""

import numpy as np

from nestedvi.paper.annealing.figures import (
    large_k_figure,
    schedule_figure,
    targets_figure,
    training_figure,
)


def test_schedules_beside_the_divergences_of_neighbours():
    """KLs of two restarts: their mean, from level 2 on, with two standard deviations."""
    betas = np.array([[0.0, 0.2, 1.0], [0.0, 0.4, 1.0]])
    kls = {"NVIR*": np.array([[1.0, 4.0], [3.0, 4.0]])}
    left, right = schedule_figure({"NVIR*": betas}, kls).axes
    assert left.get_lines()
    (line,) = [line for line in right.get_lines() if len(line.get_xdata()) == 2]
    np.testing.assert_allclose(line.get_xdata(), [2, 3])
    np.testing.assert_allclose(line.get_ydata(), [2.0, 4.0])
    bars = right.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(bars[0][:, 1], [0.0, 4.0])
    assert right.get_yscale() == "log"


def test_training_curves_are_means_over_restarts():
    """A panel a method, three in a row; panels without a method are empty."""
    values = np.stack([np.linspace(10, 50, 20), np.linspace(20, 70, 20)], axis=1)
    figure = training_figure({f"method {i}": values for i in range(4)}, 2000)
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(figure.axes) == 6 and len(shown) == 4
    assert [axes.get_title() for axes in shown] == [f"method {i}" for i in range(4)]
    (line,) = shown[0].get_lines()
    np.testing.assert_allclose(line.get_ydata(), values.mean(axis=1))
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (100, 2000)


def test_a_target_and_its_samples_side_by_side():
    z, weights = np.array([[0.5, 0.5], [-0.5, 0.0]]), np.array([0.75, 0.25])

    def log_gamma(z):
        return -np.sum(np.asarray(z) ** 2, axis=-1)

    density, samples = targets_figure([("bell", log_gamma, z, weights, 2.0)]).axes
    assert density.get_title() == "bell: density" and samples.get_title() == "bell: NVIR*"
    np.testing.assert_allclose(np.sort(samples.collections[0].get_offsets()[:, 0]), [-0.5, 0.5])
    assert samples.get_xlim() == (-2.0, 2.0)


def test_many_levels_against_K():
    rows = [
        {
            "K": k,
            "log_Z_hat_mean": 2.0,
            "log_Z_hat_std": 0.1,
            "ess_percent": 90.0,
            "ess_percent_std": 1.0,
            "step_seconds": 1e-4 if k == 8 else None,
            "level_parallel_temp_bytes": 1e6 * k,
            "sequential_temp_bytes": 1e6,
        }
        for k in (8, 16)
    ]
    quality, _, step, memory = large_k_figure(rows, 2.079).axes
    assert any(set(line.get_ydata()) == {2.079} for line in quality.get_lines()), "the truth"
    np.testing.assert_allclose(step.get_lines()[0].get_ydata(), [100.0, np.nan])
    lines = {line.get_label(): line.get_ydata() for line in memory.get_lines()}
    np.testing.assert_allclose(lines["level-parallel"], [8, 16])
    np.testing.assert_allclose(lines["sequential"], [1, 1])
