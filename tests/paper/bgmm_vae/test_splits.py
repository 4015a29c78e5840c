"""Images by use: which are trained on, matched with and evaluated on."""

import numpy as np
import pytest

from nestedvi.paper.bgmm_vae.splits import Split, shrink, split_images


def numbered(start, stop):
    """Image i is one pixel with the number i."""
    return Split(np.arange(start, stop)[:, None, None], np.arange(stop - start) % 10)


def test_no_image_is_evaluated_on_that_was_trained_on():
    """Test: held-out images match. Validation: they are evaluated on, and training images match."""
    published = numbered(0, 200), numbered(200, 255)
    test = split_images(*published, evaluate="test", held_out=100)
    assert [(s.images[0].item(), s.images[-1].item()) for s in test] == [
        (0, 99),
        (100, 199),
        (200, 254),
    ]
    validation = split_images(*published, evaluate="validation", held_out=100, train_images=50)
    assert len(validation.train.images) == 50
    assert validation.evaluate.images.ravel().tolist() == list(range(100, 200))
    assert set(validation.match.images.ravel()) <= set(validation.train.images.ravel())
    with pytest.raises(ValueError, match="held out"):
        split_images(*published, evaluate="test", held_out=200)


def test_shrunk_images_average_their_pixels():
    split = Split(np.array([[[0, 10, 7, 7], [20, 30, 7, 7]]], np.uint8), np.zeros(1))
    np.testing.assert_array_equal(shrink(split, 2).images, [[[15, 7]]])
    np.testing.assert_array_equal(shrink(split, 1).images, split.images)
    with pytest.raises(ValueError, match="must divide"):
        shrink(split, 3)
