"""Results as arrays and JSON: what comes back has the same bits, types and structure, and nothing
but classes of this package is ever made.
"""

import json
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.mixtures import Mixture, ScaleMixture, StudentMixture
from nestedvi.inference.answer import Answer, Cost
from nestedvi.storage.codec import decode, encode
from tests.helpers.small_training import assert_same_bits, build


def bell(z):
    return -0.5 * jnp.sum(z**2)


DENSITY = nvi.Density(bell)
KNOWN = {"density": DENSITY}
RESULTS = {
    "values": (None, True, 3, 0.1 + 0.2, float("nan"), float("-inf"), "text", 2**70),
    "structures": {"a": [1, (2.0, [])], "b": {}, "nested": {3: ()}},
    "arrays": [np.arange(6).reshape(2, 3), np.zeros((0, 2)), np.float32(1.5), np.array(2)],
    "of jax": [jnp.ones(3), jnp.array(True), jnp.zeros(2, jnp.bfloat16), jnp.arange(2)],
    "keys": [jax.random.key(3), jax.random.split(jax.random.key(1), 2)],
    "a density": Pullback(DENSITY, AffineMap(jnp.ones(2), jnp.ones(2))),
    "mixtures": Mixture(
        (ScaleMixture(2), StudentMixture(jnp.ones((2, 2)), jnp.ones((2, 2, 2)), jnp.zeros(2))),
        jnp.zeros(2),
    ),
    "a sampler": build(jax.random.key(0)),
    "an answer": Answer(jnp.ones((2, 1)), jnp.zeros(2), 1.0, 0.1, cost=Cost(1.0, 2.0, 3.0)),
}


def round_trip(result):
    spec, arrays = encode(result, KNOWN)
    return decode(json.loads(json.dumps(spec)), arrays, KNOWN)


@pytest.mark.parametrize("name", RESULTS)
def test_what_comes_back_is_what_went_in(name):
    before, after = RESULTS[name], round_trip(RESULTS[name])
    assert jax.tree.structure(after) == jax.tree.structure(before)
    for one, two in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert type(one) is type(two)
        if hasattr(one, "dtype"):
            assert one.dtype == two.dtype
            if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
                one, two = jax.random.key_data(one), jax.random.key_data(two)
            assert_same_bits(one, two)
        else:
            assert one == two or one != one


def test_what_is_known_is_not_stored():
    result = round_trip(Pullback(DENSITY, AffineMap(jnp.zeros(1), jnp.ones(1))))
    assert result.density is DENSITY


def test_a_module_works_after_it_came_back():
    sampler = round_trip(build(jax.random.key(0)))
    once = nvi.run(jax.random.key(1), build(jax.random.key(0)), 4)
    assert_same_bits(nvi.run(jax.random.key(1), sampler, 4), once)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_order_of_entries_stays(order):
    array = np.asarray(np.random.default_rng(0).normal(size=(50, 70)), order=order)
    after = round_trip(array)
    assert after.flags.c_contiguous == (order == "C")
    assert after.sum(axis=0).tobytes() == array.sum(axis=0).tobytes()


def test_what_its_owner_changes_later_does_not_change_here():
    array = np.zeros(2)
    spec, arrays = encode(array, {})
    array[0] = 1
    assert decode(spec, arrays, {})[0] == 0


class Foreign(NamedTuple):
    x: int


@pytest.mark.parametrize(
    "wrong", [bell, object(), Foreign(1), np.array([None]), {1, 2}, nvi.Density(bell)]
)
def test_what_cannot_be_stored_is_refused(wrong):
    with pytest.raises(TypeError, match="cannot be stored"):
        encode(wrong, KNOWN)


@pytest.mark.parametrize(
    "name", ["os:system", "nestedvi.storage.files:write_text", "nestedvi.errors:DataError"]
)
@pytest.mark.parametrize("kind", ["named", "module"])
def test_no_other_code_is_ever_run(name, kind):
    with pytest.raises(ValueError, match="is no "):
        decode({kind: name, "items": [], "fields": {}}, [], {})
