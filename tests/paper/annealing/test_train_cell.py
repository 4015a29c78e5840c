"""What a cell of the annealing experiment keeps of its training."""

import numpy as np
import pytest

from nestedvi.paper.annealing.train_cell import rolling


def test_rolling_mean():
    ess = np.arange(1000.0)[:, None]
    mean = rolling(ess, 100, window=100, points=10)
    assert mean[0, 0] == pytest.approx(np.mean(np.arange(100))) and mean.shape[1] == 1
    assert rolling(ess[:5], 100).shape == (1, 1)
