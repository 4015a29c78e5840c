"""What the inference networks give for a mini-batch, against densities written out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from nestedvi.paper.bgmm_vae.inference import (
    bound,
    cluster_of,
    expected_lam,
    generate,
    infer,
    log_joint,
    log_proposal,
    mean_field,
    mean_field_lam,
)
from tests.helpers.small_bgmm import by_hand, images, separated, tiny

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]


def test_joint_and_proposal_densities(key):
    """log p(x, z, c, λ) and log q(z, c, λ | x) with scipy's densities."""
    model, x = tiny(dim=2), images()[0]
    coded = jax.vmap(model.code)(x)
    latents = infer(key, model, coded)
    log_p, log_q = by_hand(model, x, latents)
    np.testing.assert_allclose(log_joint(model, coded, latents), log_p, rtol=1e-9)
    np.testing.assert_allclose(log_proposal(model, coded, latents), log_q, rtol=1e-9)


def test_the_bound_is_the_log_ratio_of_a_draw(key):
    model, x = tiny(), images()[0]
    coded = jax.vmap(model.code)(x)
    log_p, log_q = by_hand(model, x, infer(key, model, coded))
    np.testing.assert_allclose(bound(key, model, coded), log_p - log_q, rtol=1e-9)


def test_mean_field_is_a_fixed_point_and_sees_the_neighbours():
    """At the fixed point r and the Dirichlet agree; an undecided image goes where its mini-batch
    is.
    """
    log_p = jnp.array([[0.0, -8.0], [0.0, -8.0], [0.0, -8.0], [0.0, 0.0]])
    r, concentration = mean_field(log_p, 0.5, jnp.full((4, 2), 0.5), 200)
    np.testing.assert_allclose(concentration, 0.5 + r.sum(axis=0), rtol=1e-12)
    expected = special.softmax(
        special.digamma(np.asarray(concentration)) + np.asarray(log_p), axis=1
    )
    np.testing.assert_allclose(r, expected, rtol=1e-10)
    assert r[3, 0] > 0.9


def test_inferred_proportions(key):
    """One image in the first cluster and three in the second, beyond doubt."""
    model, coded = separated()
    c = infer(key, model, coded).c
    assert (
        c.tolist() == [0, 1, 1, 1] == jax.vmap(lambda one: cluster_of(model, one))(coded).tolist()
    )
    expected = model.proportions.concentration(jnp.array([1.0, 3.0]))
    np.testing.assert_allclose(
        expected_lam(key, model, coded, 3), expected / expected.sum(), rtol=1e-9
    )
    np.testing.assert_allclose(mean_field_lam(key, model, coded, 3), [1.5 / 5, 3.5 / 5], rtol=1e-3)


def test_generated_images_follow_the_proportions(key):
    model, _ = separated()
    x = generate(key, model, jnp.array([0.0, 1.0]), 5)
    assert x.shape == (5, 4, 4) and ((x > 0) & (x < 1)).all()
    other = generate(key, model, jnp.array([1.0, 0.0]), 5)
    assert np.abs(x - other).max() > 1e-3
