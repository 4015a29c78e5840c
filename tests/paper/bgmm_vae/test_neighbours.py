"""What neighbours tell, against the Pólya urn's closed form and sums by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from nestedvi.paper.bgmm_vae.model import BgmmVae
from nestedvi.paper.bgmm_vae.neighbours import log_own_batch, neighbour_information, neighbour_kl
from tests.helpers.small_bgmm import printed

pytestmark = pytest.mark.usefixtures("x64")

CLUSTERS, ALPHA = 3, 0.5


def model_of(key, clusters=CLUSTERS):
    model = BgmmVae(
        key=key,
        size=4,
        clusters=clusters,
        dim=2,
        channels=(2, 2),
        hidden=3,
        flow_depth=2,
        alpha=ALPHA,
        mean_scale=1.0,
        half=False,
    )
    return eqx.tree_at(lambda m: m.pi_c_logits, model, jnp.linspace(-0.4, 0.6, clusters))


def log_urn(counts):
    """log p(c_{1:N}) with λ ~ Dir(α) integrated out."""
    counts = np.asarray(counts)
    start = special.gammaln(len(counts) * ALPHA) - special.gammaln(
        counts.sum() + len(counts) * ALPHA
    )
    return start + np.sum(special.gammaln(counts + ALPHA) - special.gammaln(ALPHA))


def test_known_clusters_give_the_exact_posterior_of_the_mini_batch(key):
    """With one-hot clusters q(b | c) is Bayes' rule: every mini-batch's predictive of c from its
    other images, by the urn.
    """
    batches, num = 4, 5
    c = np.asarray(jax.random.randint(key, (batches, num), 0, CLUSTERS))
    hot = np.eye(CLUSTERS)
    found = log_own_batch(jnp.asarray(hot[c]), jnp.array([0.2, 0.5, 0.3]), ALPHA)
    for b in range(batches):
        for n in range(num):
            rest = [hot[np.delete(c[d], n)].sum(axis=0) for d in range(batches)]
            log_p = np.array([log_urn(r + hot[c[b, n]]) - log_urn(r) for r in rest])
            np.testing.assert_allclose(found[b, n], log_p[b] - special.logsumexp(log_p), rtol=1e-10)


def test_soft_clusters_by_hand(key):
    """ρ of the mixture, E[λ] from a mini-batch's others, and the share of the right one, all in
    loops.
    """
    model, z = model_of(key), jax.random.normal(key, (3, 4, 2))
    log_pi = special.log_softmax(np.asarray(model.pi_c_logits))
    mu, log_tau = np.asarray(model.mixture.mu), np.asarray(model.mixture.log_tau)
    log_p = [
        [0.5 * np.sum(log_tau - (x - mu) ** 2 * np.exp(log_tau), axis=1) for x in row]
        for row in np.asarray(z)
    ]
    rho = special.softmax(log_pi + np.asarray(log_p), axis=-1)
    total = 0.0
    for b in range(3):
        for n in range(4):
            scores = []
            for d in range(3):
                lam = ALPHA + sum(rho[d, m] for m in range(4) if m != n)
                scores.append(np.sum(rho[b, n] * lam / lam.sum() / np.exp(log_pi)))
            total += np.log(scores[b] / sum(scores)) / 12
    np.testing.assert_allclose(neighbour_kl(model, z), -total - np.log(3), rtol=1e-9)


def test_clusters_that_say_nothing_have_no_information(key):
    rho = jnp.full((4, 5, CLUSTERS), 1 / CLUSTERS)
    np.testing.assert_allclose(
        log_own_batch(rho, jnp.full(CLUSTERS, 1 / CLUSTERS), ALPHA), -np.log(4), rtol=1e-12
    )
    model = model_of(key)
    model = eqx.tree_at(lambda m: m.mixture.mu, model, jnp.zeros_like(model.mixture.mu))
    np.testing.assert_allclose(
        neighbour_kl(model, jax.random.normal(key, (4, 5, 2))), 0.0, atol=1e-12
    )


@pytest.mark.slow
def test_the_kl_trains_codes_and_mixture(key):
    """Downhill, an image between two clusters goes to that of its mini-batch; π_c and everything
    else stay.
    """
    model = eqx.tree_at(
        lambda m: m.mixture.mu, model_of(key, 2), jnp.array([[-1.0, 0.0], [1.0, 0.0]])
    )
    model = eqx.tree_at(lambda m: m.pi_c_logits, model, jnp.zeros(2))
    z = jnp.array([[[-1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]])
    slope = jax.grad(lambda z: neighbour_kl(model, z))(z)
    assert slope[0, 2, 0] > 0 > slope[1, 2, 0]
    gradient = eqx.filter_grad(lambda m: neighbour_kl(m, z))(model)
    assert np.any(gradient.mixture.mu)
    others = [
        getattr(gradient, name)
        for name in ("decode", "encoder", "classify", "proportions", "pi_c_logits", "pi_z")
    ]
    assert not any(np.any(x) for x in jax.tree.leaves(others))


@pytest.mark.slow
def test_the_objective_adds_it_with_its_weight(key):
    """Same draws with and without: the difference is the weighted KL at the codes, and the encoder
    feels it.
    """
    model, x = model_of(key), jax.random.uniform(key, (3, 4, 4, 4))

    def surrogate(objective):
        slope = eqx.filter_value_and_grad(
            lambda model: objective.surrogate(key, model, x), has_aux=True
        )
        return eqx.filter_jit(slope)(model)

    (plain, terms), before = surrogate(printed(num_prior=5))
    assert np.isnan(terms.neighbours)
    (added, terms), after = surrogate(printed(num_prior=5, neighbours=2.0))
    np.testing.assert_allclose(added - plain, 2 * terms.neighbours, rtol=1e-9)
    assert not np.allclose(before.encoder.head.weight, after.encoder.head.weight)
    np.testing.assert_allclose(
        before.decode.network.dense.weight, after.decode.network.dense.weight, rtol=1e-9
    )


def test_neighbour_information_against_its_definition(key):
    """Soft clusters of made-up images: the joint of two different images of one mini-batch, and its
    information, by hand.
    """
    model, x = model_of(key), jax.random.uniform(key, (6, 3, 4, 4))
    probs = np.exp(jax.vmap(jax.vmap(lambda x: model.classify.log_probs(model.code(x).loc)))(x))
    joint = np.zeros((CLUSTERS, CLUSTERS))
    for batch in probs:
        for i in range(3):
            for j in range(3):
                if i != j:
                    joint += np.outer(batch[i], batch[j])
    joint /= joint.sum()
    expected = np.sum(joint * np.log(joint / np.outer(joint.sum(axis=1), joint.sum(axis=0))))
    np.testing.assert_allclose(neighbour_information(model, x), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weights_that_make_no_sense(weight):
    with pytest.raises(ValueError, match="weight of the neighbours"):
        printed(neighbours=weight)
