"""Mini-batches with class proportions of their own: labels decide what is drawn, and no model sees
them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestedvi._types import Key
from nestedvi.densities.dirichlet import SymmetricDirichlet

__all__ = ["ByClass", "by_class", "draw_batches"]


class ByClass(NamedTuple):
    """Images as bytes, and for every class the places of its images (padded) and how many there
    are.
    """

    images: Array
    places: Int[Array, "classes most"]
    counts: Int[Array, " classes"]

    def draw(
        self, key: Key, proportions: Float[Array, " classes"], num: int
    ) -> tuple[Array, Int[Array, " N"]]:
        """`num` images in [0, 1], with replacement, of classes drawn from `proportions`; and those
        classes.
        """
        key_class, key_place = jax.random.split(key)
        classes = jax.random.choice(key_class, proportions.shape[0], (num,), p=proportions)
        counts = self.counts[classes]
        place = jnp.floor(counts * jax.random.uniform(key_place, (num,))).astype(jnp.int32)
        images = self.images[self.places[classes, jnp.minimum(place, counts - 1)]]
        return images.astype(jnp.float32) / 255.0, classes


def by_class(images: np.ndarray, labels: np.ndarray, classes: int) -> ByClass:
    """The tables for drawing, on the default device; every class must have an image."""
    places = [np.flatnonzero(labels == k) for k in range(classes)]
    counts = np.array([len(p) for p in places])
    if counts.min() == 0 or len(images) != len(labels):
        raise ValueError(
            f"Every one of {classes} classes needs images, and every image a label; got"
            f" {counts.tolist()} images by class, {len(images)} images and {len(labels)} labels."
        )
    table = np.zeros((classes, counts.max()), np.int32)
    for row, own in zip(table, places, strict=True):
        row[: len(own)] = own
    return ByClass(jnp.asarray(images), jnp.asarray(table), jnp.asarray(counts, jnp.int32))


def draw_batches(
    key: Key, data: ByClass, alpha: float, num_batches: int, size: int
) -> tuple[Array, Int[Array, "batches N"], Float[Array, "batches classes"]]:
    """Mini-batches with class proportions λ* ~ Dir(α) of their own: images, classes, λ*."""
    key_lam, key_images = jax.random.split(key)
    prior = SymmetricDirichlet(alpha, data.counts.shape[0])
    lam = jax.vmap(prior.sample)(jax.random.split(key_lam, num_batches))
    x, classes = jax.vmap(lambda k, p: data.draw(k, p, size))(
        jax.random.split(key_images, num_batches), lam
    )
    return x, classes, lam
