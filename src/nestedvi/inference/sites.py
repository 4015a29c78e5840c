"""Names for what a posterior holds: sites, and their elements as ArviZ writes them. Values are not
read here.
"""

from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import PyTree

__all__ = ["element_names", "named_sites"]


def named_sites(samples: PyTree) -> dict[str, jax.Array]:
    """Arrays by name: a dict's own keys, the path of other pytrees' leaves (`a.0`), and `z` for a
    bare array.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(samples)
    return {".".join(_key(part) for part in path) or "z": leaf for path, leaf in leaves}


def _key(part) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(part, attribute):
            return str(getattr(part, attribute))
    return str(part)


def element_names(site: str, shape: tuple[int, ...]) -> Iterator[str]:
    """`theta[0, 1]` for every element of a site, in C order; a scalar is its site."""
    for index in np.ndindex(*shape):
        yield f"{site}[{', '.join(map(str, index))}]" if index else site
