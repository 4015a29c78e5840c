"""Who descends from whom, against a slow walk back through the ancestors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi


def walk_back(ancestors, particle):
    """Indices at levels 1 … K of one final particle's line, by following its parents one by one."""
    line = [particle]
    for parents in reversed(np.asarray(ancestors)):
        line.append(int(parents[line[-1]]))
    return line[::-1]


@pytest.fixture(params=[(1, 1), (1, 5), (4, 5), (7, 3)])
def ancestors(request, key):
    moves, num = request.param
    return jax.random.randint(key, (moves, num), 0, num)


def slow_lineage(ancestors):
    return np.stack([walk_back(ancestors, s) for s in range(ancestors.shape[1])], axis=1)


def test_lineage(ancestors):
    assert np.array_equal(jax.jit(nvi.particles.lineage)(ancestors), slow_lineage(ancestors))


def test_distinct_ancestors(ancestors):
    expected = [len(set(row)) for row in slow_lineage(ancestors)]
    assert nvi.particles.distinct_ancestors(ancestors).tolist() == expected
    assert expected[-1] == ancestors.shape[1]


def test_trajectories(ancestors):
    """Every leaf is followed back along its own line, trailing axes untouched."""
    levels, num = ancestors.shape[0] + 1, ancestors.shape[1]
    names = jnp.arange(levels * num).reshape(levels, num)
    zs = {"name": names, "vector": jnp.stack([names, -names], axis=-1)}
    found = nvi.particles.trajectories(zs, ancestors)
    expected = np.stack(
        [np.asarray(names)[np.arange(levels), walk_back(ancestors, s)] for s in range(num)], axis=1
    )
    assert np.array_equal(found["name"], expected)
    assert np.array_equal(found["vector"], np.stack([expected, -expected], axis=-1))


def test_one_survivor():
    """Everyone descends from particle 2 of the first level: later diversity does not hide it."""
    ancestors = jnp.array([[2, 2, 2], [0, 1, 2]])
    assert nvi.particles.distinct_ancestors(ancestors).tolist() == [1, 3, 3]
