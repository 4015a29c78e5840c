"""Mini-batches by class: the proportions asked for, only images of the class drawn, all of them
equally often.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.paper.bgmm_vae.minibatches import by_class, draw_batches
from tests.helpers.small_bgmm import SPLITS

LABELS = np.array([2, 0, 1, 2, 2, 0, 1, 2])


def numbered():
    """Image i is filled with the number i."""
    return np.broadcast_to(np.arange(8, dtype=np.uint8)[:, None, None], (8, 2, 2))


def test_draws(key):
    data, proportions, num = by_class(numbered(), LABELS, 3), np.array([0.2, 0.0, 0.8]), 20_000
    x, classes = jax.jit(lambda k: data.draw(k, jnp.asarray(proportions, jnp.float32), num))(key)
    assert x.shape == (num, 2, 2) and x.dtype == jnp.float32
    which = np.round(np.asarray(x)[:, 0, 0] * 255).astype(int)
    np.testing.assert_array_equal(LABELS[which], classes)
    share = np.bincount(classes, minlength=3) / num
    assert share[1] == 0 and abs(share[0] - 0.2) < 5 * np.sqrt(0.2 * 0.8 / num)
    # The four images of class 2 are equally likely.
    within = np.bincount(which, minlength=8)[LABELS == 2] / np.sum(classes == 2)
    assert (np.abs(within - 0.25) < 5 * np.sqrt(0.25 * 0.75 / np.sum(classes == 2))).all()


@pytest.mark.parametrize("labels", [np.zeros(8, int), LABELS[:5]])
def test_a_class_without_images_or_images_without_labels(labels):
    with pytest.raises(ValueError, match="Every one of 3 classes needs images"):
        by_class(numbered(), labels, 3)


def test_mini_batches_have_dirichlet_proportions(key):
    """Classes follow λ*, λ* follows Dir(α): the variance of a class's count in a mini-batch is the
    Dirichlet-multinomial's.
    """
    data = by_class(*SPLITS[0], 10)
    num, size, alpha = 3000, 10, 0.5
    x, classes, lam = jax.jit(lambda k: draw_batches(k, data, alpha, num, size))(key)
    assert x.shape == (num, size, 4, 4) and float(x.max()) == 1.0
    counts = np.stack([(np.asarray(classes) == k).sum(axis=1) for k in range(10)], axis=1)
    residual = counts - size * np.asarray(lam)
    assert (np.abs(residual.mean(axis=0)) < 5 * residual.std(axis=0) / np.sqrt(num)).all()
    exact = size * 0.1 * 0.9 * (size + 10 * alpha) / (1 + 10 * alpha)
    square = (counts - 1.0) ** 2
    assert (np.abs(square.mean(axis=0) - exact) < 5 * square.std(axis=0) / np.sqrt(num)).all()
