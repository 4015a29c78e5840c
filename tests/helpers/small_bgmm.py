"""BGMM-VAEs small enough to be enumerated, and images made here whose classes are easy to tell."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from nestedvi.paper.bgmm_vae.config import METHODS, BgmmVaeConfig
from nestedvi.paper.bgmm_vae.model import BgmmVae
from nestedvi.paper.bgmm_vae.parts import Coded
from nestedvi.paper.bgmm_vae.splits import Split, split_images

N, CLUSTERS = 2, 2


def fake_images(num, seed):
    """Class k is bright in pixel k of a 4 × 4 image."""
    rng = np.random.default_rng(seed)
    labels = np.arange(num) % 10
    images = rng.integers(0, 40, (num, 16), dtype=np.uint8)
    images[np.arange(num), labels] = 255
    return Split(images.reshape(num, 4, 4), labels)


SPLITS = fake_images(400, 0), fake_images(200, 1)
CONFIG = BgmmVaeConfig(
    datasets=("mnist",),
    methods=("nvi", "rws"),
    seeds=2,
    iterations=40,
    num_batches=2,
    batch_size=3,
    dim=2,
    channels=(2, 2),
    hidden=3,
    flow_depth=2,
    held_out=100,
    eval_batches=5,
    eval_size=40,
    eval_samples=2,
)


def splits_of(config):
    """The images made here, by use."""
    return split_images(
        *SPLITS,
        evaluate=config.split,
        held_out=config.held_out,
        train_images=config.train_images,
    )


def printed(**changes):
    """The nested objective as printed, with changes."""
    return replace(METHODS["nvi-printed"], **changes).make_objective()


def wake_sleep(num_samples, model_gradient="all"):
    settings = replace(METHODS["rws"], num_samples=num_samples, model_gradient=model_gradient)
    return settings.make_objective()


def tiny(key=None, dim=1):
    model = BgmmVae(
        key=jax.random.key(3) if key is None else key,
        size=4,
        clusters=CLUSTERS,
        dim=dim,
        channels=(2, 2),
        hidden=3,
        flow_depth=2,
        alpha=0.5,
        mean_scale=1.0,
        half=False,
    )
    # Away from the symmetric start, where many gradients vanish; codes narrow enough for the grid.
    return eqx.tree_at(
        lambda m: (m.pi_c_logits, m.mixture.log_tau),
        model,
        (jnp.array([0.6, -0.4]), jnp.full((CLUSTERS, dim), 0.3)),
    )


def images(num_batches=1):
    return jax.random.uniform(jax.random.key(4), (num_batches, N, 4, 4))


def separated():
    """A model whose clusters sit at −4 and 4, and whose encoder's answers are given."""
    model = eqx.tree_at(
        lambda m: (m.mixture.mu, m.mixture.log_tau),
        tiny(),
        (jnp.array([[-4.0], [4.0]]), jnp.zeros((2, 1))),
    )
    last = jnp.array([[0.0, 20.0], [0.0, 0.0], [0.0, 0.0]]), jnp.array([0.0, -9.0])
    weights = [jnp.array([[1.0, 0.0, 0.0]]), jnp.zeros(3), jnp.eye(3), jnp.zeros(3), *last]
    layers = jax.tree.unflatten(jax.tree.structure(model.classify.layers), weights)
    model = eqx.tree_at(lambda m: m.classify.layers, model, layers)
    loc = jnp.array([-4.0, 4.0, 4.0, 4.0])[:, None]
    return model, Coded(jnp.zeros((4, 4, 4)), loc, jnp.full((4, 1), -3.0))


def by_hand(model, x, latents):
    """log p(x, z, c, λ) and log q(z, c, λ | x) of one mini-batch with scipy's densities."""
    lam, c, z = (np.asarray(v) for v in latents)
    scale = np.exp(-0.5 * np.asarray(model.mixture.log_tau))
    log_p = stats.dirichlet.logpdf(lam, np.full(CLUSTERS, model.alpha)) + np.log(lam[c]).sum()
    log_p += stats.norm.logpdf(z, np.asarray(model.mixture.mu)[c], scale[c]).sum()
    log_q = stats.dirichlet.logpdf(
        lam, np.asarray(model.proportions.concentration(jnp.bincount(c, length=CLUSTERS)))
    )
    for n in range(N):
        coded = model.code(x[n])
        eta = np.asarray(model.decode.network(jnp.asarray(z[n])))
        log_p += (np.asarray(x[n]) * eta - np.log(np.expm1(eta) / eta)).sum()
        log_q += stats.norm.logpdf(
            z[n], np.asarray(coded.loc), np.exp(np.asarray(coded.log_scale))
        ).sum()
        log_q += np.asarray(model.classify.log_probs(jnp.asarray(z[n])))[c[n]]
    return log_p, log_q
