"""Clusters against classes."""

import numpy as np
import pytest

from nestedvi.paper.bgmm_vae.clusters import confusion, match_clusters, total_variation


def test_matching_is_one_to_one_and_as_good_as_any():
    """Cluster 0 would take class 1 by itself, but the whole agrees best otherwise."""
    table = np.array([[4, 5, 0], [0, 6, 0], [0, 3, 2]])
    np.testing.assert_array_equal(match_clusters(table), [0, 1, 2])
    permutation = np.random.default_rng(0).permutation(10)
    labels = np.random.default_rng(1).integers(0, 10, 500)
    np.testing.assert_array_equal(
        match_clusters(confusion(permutation[labels], labels, 10))[permutation], np.arange(10)
    )


def test_confusion_counts_every_item():
    table = confusion(np.array([0, 0, 1, 2, 0]), np.array([1, 1, 0, 2, 2]), 3)
    np.testing.assert_array_equal(table, [[0, 2, 1], [1, 0, 0], [0, 0, 1]])


def test_total_variation():
    assert total_variation(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5])) == pytest.approx(
        0.5
    )
    assert total_variation(np.eye(3), np.eye(3)[[0, 2, 2]]).tolist() == [0.0, 1.0, 0.0]
