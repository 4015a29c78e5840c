"""The BGMM-VAE as a whole: its sizes, its densities, and what of it is learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from nestedvi.paper.bgmm_vae.config import BgmmVaeConfig
from nestedvi.paper.bgmm_vae.model import BgmmVae
from tests.helpers.small_bgmm import images, tiny

pytestmark = pytest.mark.usefixtures("x64")


def test_the_papers_sizes(key):
    """Ten clusters in ten dimensions, 28 × 28 pixels, an eight-layer flow: shapes only."""
    config = BgmmVaeConfig()

    def make(key):
        return BgmmVae(
            key=key,
            size=28,
            clusters=10,
            dim=config.dim,
            channels=config.channels,
            hidden=config.hidden,
            flow_depth=config.flow_depth,
            alpha=config.alpha,
            mean_scale=1.0,
            half=False,
        )

    model = eqx.filter_eval_shape(make, key)
    assert model.mixture.mu.shape == (10, 10) and model.clusters == 10
    assert [layer.weight.shape for layer in model.classify.layers] == [(10, 64), (64, 64), (64, 10)]
    assert model.decode.network.dense.weight.shape == (10, 256)
    assert model.pi_z.flow.w.shape == (8, 10)


def test_assignments_under_pi_c():
    """One or N independent ones, by the softmax of the logits."""
    model = tiny()
    log_pi = special.log_softmax(np.asarray(model.pi_c_logits))
    np.testing.assert_allclose(model.pi_c().log_gamma(jnp.array(1)), log_pi[1], rtol=1e-12)
    c = np.array([0, 1, 1])
    np.testing.assert_allclose(model.pi_c(3).log_gamma(jnp.array(c)), log_pi[c].sum(), rtol=1e-12)


def test_an_image_is_coded_by_halves_of_the_encoders_answer():
    """Means first, log standard deviations after."""
    model, x = tiny(dim=2), images()[0, 0]
    coded = model.code(x)
    np.testing.assert_allclose(jnp.concatenate([coded.loc, coded.log_scale]), model.encoder(x))
    assert coded.loc.shape == (2,)
    np.testing.assert_array_equal(coded.x, x)


def test_alpha_is_not_learned(key):
    """It is no leaf; the prior has it."""
    model = tiny(key)
    assert all(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
    assert model.alpha == 0.5 and not eqx.is_array(model.alpha)
    # Dir(1/2, 1/2) at λ = (1/2, 1/2): density 1/(π √(λ_1 λ_2)).
    np.testing.assert_allclose(
        model.prior.log_gamma(jnp.array([0.5, 0.5])), np.log(2 / np.pi), rtol=1e-9
    )
