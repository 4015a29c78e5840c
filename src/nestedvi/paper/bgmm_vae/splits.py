"""Labelled images by use: what is trained on, what matches clusters to classes, what is evaluated
on. It neither finds images nor draws mini-batches of them.
"""

from typing import NamedTuple

import numpy as np

__all__ = ["Split", "Splits", "shrink", "split_images"]


class Split(NamedTuple):
    """Images as bytes, and the class of each."""

    images: np.ndarray
    labels: np.ndarray

    def between(self, start: int, stop: int | None) -> "Split":
        """The images from `start` up to `stop`."""
        return Split(self.images[start:stop], self.labels[start:stop])


class Splits(NamedTuple):
    """A data set's images by use."""

    train: Split
    match: Split
    evaluate: Split


def shrink(split: Split, factor: int) -> Split:
    """The same images with every `factor` × `factor` pixels averaged into one."""
    num, height, width = split.images.shape
    if factor < 1 or height % factor or width % factor:
        raise ValueError(
            f"Images of {height} × {width} pixels cannot be shrunk by {factor}; it must divide both"
            " sizes."
        )
    blocks = split.images.reshape(num, height // factor, factor, width // factor, factor)
    return Split(np.round(blocks.mean(axis=(2, 4))).astype(np.uint8), split.labels)


def split_images(
    train_split: Split,
    test_split: Split,
    *,
    evaluate: str,
    held_out: int,
    train_images: int | None = None,
) -> Splits:
    """The published splits by use; what is evaluated on is never trained on.

    The last `held_out` images of the training split are left out of training. With `evaluate` =
    "test" they match clusters to classes for the test split; with "validation" they are evaluated
    on, and as many of those trained on match.
    """
    kept = len(train_split.images) - held_out
    if kept < 1:
        raise ValueError(f"{held_out} images cannot be held out of {len(train_split.images)}.")
    train = train_split.between(0, kept if train_images is None else min(kept, train_images))
    last = train_split.between(kept, None)
    if evaluate == "test":
        return Splits(train, last, test_split)
    return Splits(train, train.between(0, held_out), last)
