"""A function compiled in little time computes the same; inside of another it is itself."""

import jax
import jax.numpy as jnp

from nestedvi.compilation import compiled_soon, uncompiled

traced = []


@compiled_soon
def double(x, what: str):
    """Twice."""
    traced.append(what)
    return 2 * x


def test_it_is_compiled_once_for_a_shape():
    traced.clear()
    for _ in range(3):
        assert double(jnp.ones(4), "a").tolist() == [2.0] * 4
    double(jnp.ones(5), "a")
    assert traced == ["a", "a"]
    assert double.__doc__ == "Twice."


def test_inside_of_another_it_is_the_function_itself():
    assert jax.jit(lambda x: uncompiled(double)(x, "inner"))(jnp.ones(2)).tolist() == [2.0, 2.0]
    assert uncompiled(len) is len
