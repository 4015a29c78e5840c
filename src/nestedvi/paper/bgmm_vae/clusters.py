"""How well unsupervised clusters agree with classes: a matching made on one set of data, applied to
another. No model is known here.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

__all__ = ["confusion", "match_clusters", "total_variation"]


def confusion(
    clusters: Int[np.ndarray, " n"], classes: Int[np.ndarray, " n"], num: int
) -> Int[np.ndarray, "num num"]:
    """How many items of each class (columns) fall to each cluster (rows)."""
    table = np.zeros((num, num), np.int64)
    np.add.at(table, (np.asarray(clusters), np.asarray(classes)), 1)
    return table


def match_clusters(table: Int[np.ndarray, "num num"]) -> Int[np.ndarray, " num"]:
    """The class of every cluster, one to one, such that as many items as possible agree (Hungarian
    algorithm).
    """
    clusters, classes = linear_sum_assignment(table, maximize=True)
    matching = np.empty(len(table), np.int64)
    matching[clusters] = classes
    return matching


def total_variation(
    p: Float[np.ndarray, "*batch num"], q: Float[np.ndarray, "*batch num"]
) -> Float[np.ndarray, " *batch"]:
    """½ Σ |p − q| over the last axis."""
    return 0.5 * np.abs(np.asarray(p) - np.asarray(q)).sum(axis=-1)
