"""Operations are counted as by hand, and what is small goes to the host where there is a choice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from nestedvi import host
from nestedvi.host import is_on_host, num_operations, on_host, one_thread


def test_elements_products_and_loops_are_counted():
    matrix, z = jnp.ones((300, 7)), jnp.zeros(7)
    # 300 × 7 products, 300 squares, one sum.
    assert num_operations(lambda z: jnp.sum(jnp.square(matrix @ z)), z) == 300 * 7 + 300 + 1
    once = num_operations(lambda z: z * 2.0, z)
    looped = num_operations(lambda z: jax.lax.fori_loop(0, 50, lambda _, c: c * 2.0, z), z)
    assert 50 * once <= looped <= 50 * (once + 2)


def test_inner_functions_are_looked_into():
    inner = jax.jit(lambda z: jnp.sin(z) + 1.0)
    assert num_operations(inner, jnp.zeros(9)) == 18


def test_where_there_is_no_choice_nothing_is_counted_or_moved(monkeypatch):
    monkeypatch.setattr(host, "is_on_host", lambda: True)

    def fail() -> float:
        raise AssertionError("no choice, nothing to count")

    tree = {"x": jnp.ones(3)}
    with on_host(tree, fail) as there:
        assert there is tree
    monkeypatch.undo()
    assert is_on_host() == (jax.default_backend() == "cpu")


@pytest.mark.parametrize(("operations", "moved"), [(10.0, True), (1e12, False)])
def test_small_work_moves(monkeypatch, operations, moved):
    monkeypatch.setattr(host, "is_on_host", lambda: False)
    tree = {"x": jnp.ones(3), "name": "kept"}
    with on_host(tree, lambda: operations) as there:
        assert (there is not tree) == moved
        assert there["name"] == "kept"
        if moved:
            assert next(iter(there["x"].devices())).platform == "cpu"
            assert jax.config.jax_default_device.platform == "cpu"
            assert next(iter(jnp.ones(2).devices())).platform == "cpu"


def test_a_default_device_decides():
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        assert is_on_host()


def _threads():
    np.linalg.cholesky(np.eye(3))
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def test_linear_algebra_has_one_thread_while_matrices_are_small():
    before = _threads()
    with one_thread(10):
        assert set(_threads()) == {1}
    assert _threads() == before
    with one_thread(1000):
        assert _threads() == before
