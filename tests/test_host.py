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
    # 300 × 7 products, eight at once, 300 squares, one sum.
    assert num_operations(lambda z: jnp.sum(jnp.square(matrix @ z)), z) == 300 * 7 / 8 + 300 + 1
    once = num_operations(lambda z: z * 2.0, z)
    looped = num_operations(lambda z: jax.lax.fori_loop(0, 50, lambda _, c: c * 2.0, z), z)
    assert 50 * once <= looped <= 50 * (once + 2)


def test_inner_functions_are_looked_into():
    inner = jax.jit(lambda z: jnp.sin(z) + 1.0)
    assert num_operations(inner, jnp.zeros(9)) == 18


def test_where_there_is_no_choice_nothing_is_counted_or_moved(monkeypatch):
    monkeypatch.setattr(host, "is_on_host", lambda: True)

    def fail(tree, z):
        raise AssertionError("no choice, nothing to count")

    tree = {"x": jnp.ones(3)}
    with on_host(tree, fail, jnp.ones(3), 1) as there:
        assert there is tree
    monkeypatch.undo()
    assert is_on_host() == (jax.default_backend() == "cpu")


def _product(tree, z):
    return tree["x"] * z


@pytest.mark.parametrize(("times", "moved"), [(10, True), (10**12, False)])
def test_small_work_moves(monkeypatch, times, moved):
    monkeypatch.setattr(host, "is_on_host", lambda: False)
    tree = {"x": jnp.ones(3), "name": "kept"}
    with on_host(tree, _product, jnp.ones(3), times) as there:
        assert (there is not tree) == moved
        assert there["name"] == "kept"
        if moved:
            assert next(iter(there["x"].devices())).platform == "cpu"
            assert jax.config.jax_default_device.platform == "cpu"
            assert next(iter(jnp.ones(2).devices())).platform == "cpu"


def test_what_was_counted_is_not_traced_again(monkeypatch):
    """Other numbers of the same shapes are no other work, other shapes are."""
    monkeypatch.setattr(host, "is_on_host", lambda: False)
    traced = []

    def ask(tree, z):
        traced.append(z.shape)
        return tree["x"] * z

    for size, value in ((3, 1.0), (3, 2.0), (4, 1.0)):
        with on_host({"x": jnp.asarray(value)}, ask, jnp.ones(size), 1):
            pass
    assert traced == [(3,), (4,)]


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
