"""The BGMM-VAE's gradients against sums and quadrature, on two clusters, mini-batches of two,
one-dimensional codes.

Estimates are means over keys and must lie within five standard errors of the exact gradient of the
exact objective, in which whatever a term must not optimise is held.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import stop_gradient
from scipy import special, stats

import nestedvi as nvi
from nestedvi.paper.bgmm_vae import objectives as bgmm_objectives
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
from nestedvi.paper.bgmm_vae.model import BgmmVae, Coded, Proportions, draw_categorical
from nestedvi.paper.bgmm_vae.objectives import NestedKLs, WakeSleep

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]

N, CLUSTERS, KEYS = 2, 2, 1500
GRID = np.linspace(-14.0, 14.0, 561)
STEP = GRID[1] - GRID[0]


def tiny(key=None, dim=1):
    model = BgmmVae(
        key=jax.random.key(3) if key is None else key,
        size=4,
        clusters=CLUSTERS,
        dim=dim,
        channels=(2, 2),
        hidden=3,
        flow_depth=2,
    )
    # Away from the symmetric start, where many gradients vanish; codes narrow enough for the grid.
    return eqx.tree_at(
        lambda m: (m.pi_c_logits, m.mixture.log_tau),
        model,
        (jnp.array([0.6, -0.4]), jnp.full((CLUSTERS, dim), 0.3)),
    )


def images(num_batches=1):
    return jax.random.uniform(jax.random.key(4), (num_batches, N, 4, 4))


def hold(tree):
    return jax.tree.map(lambda x: stop_gradient(x) if eqx.is_array(x) else x, tree)


def exact_first(model):
    """Σ over c of p(c) E[log p(λ, c) − log π_c(c) − log q(λ|c)]; λ given c is Dirichlet, so every
    expectation is closed.
    """
    total, alpha = 0.0, model.alpha
    log_pi = jax.nn.log_softmax(model.pi_c_logits)
    lgamma, digamma = jax.scipy.special.gammaln, jax.scipy.special.digamma

    def norm(a):
        return jnp.sum(lgamma(a)) - lgamma(jnp.sum(a))

    for c in np.ndindex(*(CLUSTERS,) * N):
        counts = jnp.asarray(np.bincount(c, minlength=CLUSTERS), float)
        prior, posterior = jnp.full(CLUSTERS, alpha), alpha + counts
        log_lam = digamma(posterior) - digamma(jnp.sum(posterior))
        q = model.proportions.concentration(counts)
        log_p = jnp.sum((posterior - 1) * log_lam) - norm(prior)
        log_q = jnp.sum((q - 1) * log_lam) - norm(q)
        total += jnp.exp(norm(posterior) - norm(prior)) * (log_p - jnp.sum(counts * log_pi) - log_q)
    return total


def exact_second(model, pi_c_from):
    """N times the KL of one pair: a sum over c and a quadrature over z."""
    logits = model.pi_c_logits if pi_c_from == "both" else stop_gradient(model.pi_c_logits)
    left = jax.nn.log_softmax(logits) + jax.vmap(hold(model.mixture).log_probs)(GRID[:, None])
    right = (
        jax.vmap(model.classify.log_probs)(GRID[:, None])
        + jax.vmap(model.pi_z.log_gamma)(GRID[:, None])[:, None]
    )
    return N * jnp.sum(jnp.exp(left) * (left - right)) * STEP


def exact_third(model, x):
    """E_q[log q(z|x) − log π_z(z) − log p(x|z)] by quadrature, the decoder free, for the bound; and
    −E_q[log p(z|c)] for μ, τ.
    """

    def one(x):
        coded = model.code(x)
        log_q = jax.scipy.stats.norm.logpdf(GRID, coded.loc, jnp.exp(coded.log_scale))
        log_pi = jax.vmap(hold(model.pi_z).log_gamma)(GRID[:, None])
        log_x = jax.vmap(lambda z: model.decode.log_prob(coded, z, None))(GRID[:, None])
        kl = jnp.sum(jnp.exp(log_q) * (log_q - log_pi - log_x)) * STEP
        probs = jnp.exp(jax.vmap(model.classify.log_probs)(GRID[:, None]))
        weight = stop_gradient(jnp.exp(log_q)[:, None] * probs)
        return kl, -jnp.sum(weight * jax.vmap(model.mixture.log_probs)(GRID[:, None])) * STEP

    kl, mixture = jax.vmap(one)(x.reshape(-1, 4, 4))
    return jnp.mean(kl), jnp.mean(mixture)


@pytest.mark.parametrize(
    ("pi_c_from", "mixture_update"), [("both", "sample"), ("first", "probabilities")]
)
def test_the_nested_gradient_is_that_of_the_exact_objective(pi_c_from, mixture_update):
    """Every parameter of the model at once, and the three divergences as reported."""
    model, x = tiny(), images()
    objective = NestedKLs(N, pi_c_from, mixture_update)

    def exact(model):
        terms = exact_first(model), exact_second(model, pi_c_from), *exact_third(model, x)
        return sum(terms), jnp.stack(terms[:3])

    params, static = eqx.partition(model, eqx.is_inexact_array)
    expected, values = jax.jit(jax.grad(lambda p: exact(eqx.combine(p, static)), has_aux=True))(
        params
    )

    def one(k):
        return jax.grad(lambda p: objective.surrogate(k, eqx.combine(p, static), x), has_aux=True)(
            params
        )

    found, terms = jax.jit(lambda k: jax.lax.map(one, k, batch_size=500))(
        jax.random.split(jax.random.key(5), KEYS)
    )
    pairs = zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True)
    for (name, got), want in pairs:
        error = np.std(got, axis=0, ddof=1) / np.sqrt(KEYS)
        np.testing.assert_array_less(
            np.abs(np.mean(got, axis=0) - want),
            5 * error + 1e-7,
            err_msg=jax.tree_util.keystr(name),
        )
        # An estimate so noisy that it could be anything would prove nothing; nor would a gradient
        # of zero.
        assert np.median(error) < 0.2 * np.abs(want).max(), name
    for got, want in zip(terms[:3], values, strict=True):
        assert abs(np.mean(got) - want) < 5 * np.std(got) / np.sqrt(KEYS)


def test_each_term_trains_only_what_it_should(key):
    """The first: π_c, q(λ|c). The second: π, q(c|z), never μ and τ. The third: encoder and decoder,
    never π_z.
    """
    model = tiny()

    def moved(surrogate):
        gradient = eqx.filter_jit(eqx.filter_grad(surrogate))(model)
        fields = ("mixture", "decode", "encoder", "classify", "proportions", "pi_c_logits", "pi_z")
        return {
            f
            for f in fields
            if any(np.any(x) for x in jax.tree.leaves(getattr(gradient, f)) if eqx.is_array(x))
        }

    for pi_c_from, extra in (("both", {"pi_c_logits"}), ("first", set())):
        objective = NestedKLs(N, pi_c_from)
        assert moved(lambda m, o=objective: o.first(m).surrogate(key, "forward-kl", 4)[0]) == {
            "pi_c_logits",
            "proportions",
        }
        second = moved(lambda m, o=objective: o.second(m).surrogate(key, "forward-kl", 4)[0])
        assert second == {"classify", "pi_z"} | extra

    def third(model):
        coded = jax.vmap(model.code)(images()[0])
        samples = jax.vmap(lambda k, x: NestedKLs().third(model, coded).proposal.complete(k, x))(
            jax.random.split(key, N), coded
        )
        return NestedKLs().third(model, coded).surrogate_at(samples, "reverse-kl")[0]

    assert moved(third) == {"encoder", "decode"}
    z = jnp.ones((2, 3, 1))
    for update in ("sample", "probabilities", "mean-field"):
        assert moved(lambda m, u=update: NestedKLs(mixture_update=u).mixture(key, m, z)) == {
            "mixture"
        }


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


def test_wake_sleep_against_a_hand_computation(key):
    """Weights from densities written out, applied to the gradients of log p and log q of every
    sample on its own.
    """
    model, x, num = tiny(dim=2), images(), 4

    def surrogate(m):
        return WakeSleep(num).surrogate(key, m, x)

    gradient, terms = eqx.filter_jit(eqx.filter_grad(surrogate, has_aux=True))(model)
    keys = jax.random.split(jax.random.split(key, (1,))[0], (num,))
    coded = eqx.filter_jit(lambda m: jax.vmap(m.code)(x[0]))(model)
    samples = eqx.filter_jit(lambda m: jax.vmap(lambda k: infer(k, m, coded))(keys))(model)
    log_p, log_q = np.array(
        [by_hand(model, x[0], jax.tree.map(lambda a, i=i: a[i], samples)) for i in range(num)]
    ).T
    w = np.exp(log_p - log_q - (log_p - log_q).max())
    np.testing.assert_allclose(
        terms.bound, (np.log(w.mean()) + (log_p - log_q).max()) / N, rtol=1e-9
    )

    def scores(model):
        coded = jax.vmap(model.code)(x[0])

        def one(h):
            return log_joint(model, coded, h) + log_proposal(model, coded, h)

        return jax.vmap(one)(hold(samples))

    each = eqx.filter_jit(eqx.filter_jacrev(scores))(model)
    expected = jax.tree.map(lambda g: -np.tensordot(w / w.sum(), g, 1) / N, each)
    for (name, got), want in zip(
        jax.tree_util.tree_leaves_with_path(gradient), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(
            got, want, rtol=1e-8, atol=1e-11, err_msg=jax.tree_util.keystr(name)
        )
    for unused in (gradient.pi_c_logits, *jax.tree.leaves(gradient.pi_z)):
        assert not np.any(unused)


def test_one_sample_drawn_by_weight_has_the_gradient_of_all_on_average(key, monkeypatch):
    """Σ_i w̄_i (gradient if sample i is drawn) is the gradient that uses all samples:
    enumerated.
    """
    model, x, num = tiny(dim=2), images(), 3

    def gradient(objective):
        return eqx.filter_grad(lambda m: objective.surrogate(key, m, x), has_aux=True)(model)[0]

    keys = jax.random.split(jax.random.split(key, (1,))[0], (num,))
    coded = jax.vmap(model.code)(x[0])
    samples = jax.vmap(lambda k: infer(k, model, coded))(keys)
    log_w = jax.vmap(lambda h: log_joint(model, coded, h) - log_proposal(model, coded, h))(samples)
    w_bar = np.asarray(jax.nn.softmax(log_w))
    total = None
    for i in range(num):
        monkeypatch.setattr(bgmm_objectives, "draw_categorical", lambda key, probs, i=i: i)
        part = jax.tree.map(lambda g, i=i: w_bar[i] * g, gradient(WakeSleep(num, "one")))
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    for got, want in zip(
        jax.tree.leaves(total), jax.tree.leaves(gradient(WakeSleep(num))), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-11)


def test_the_mixture_as_intermediate_density_is_that_of_codes():
    """Σ_c π_c p(z|c): it integrates to one, is the density of its own draws' c and z, and trains
    q(c|z) alone.
    """
    model = tiny()
    density = np.exp(jax.vmap(model.marginal.log_gamma)(GRID[:, None]))
    np.testing.assert_allclose(density.sum() * STEP, 1.0, rtol=1e-8)
    weights = special.softmax(np.asarray(model.pi_c_logits))
    scale = np.exp(-0.5 * np.asarray(model.mixture.log_tau))[:, 0]
    expected = sum(
        w * stats.norm.pdf(GRID, m, s)
        for w, m, s in zip(weights, model.mixture.mu[:, 0], scale, strict=True)
    )
    np.testing.assert_allclose(density, expected, rtol=1e-8, atol=1e-300)
    draws = jax.vmap(model.marginal.sample)(jax.random.split(jax.random.key(5), 4000))[:, 0]
    mean, variance = np.sum(GRID * expected) * STEP, np.sum(GRID**2 * expected) * STEP
    assert abs(draws.mean() - mean) < 5 * np.sqrt((variance - mean**2) / 4000)

    def level(m):
        return NestedKLs(N, "first", intermediate="mixture").second(m)

    gradient = eqx.filter_grad(lambda m: level(m).surrogate(jax.random.key(6), "forward-kl", 4)[0])(
        model
    )
    assert not any(
        np.any(x) for x in jax.tree.leaves((gradient.mixture, gradient.pi_c_logits, gradient.pi_z))
    )
    assert np.any(gradient.classify.layers[0].weight)


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


def test_the_bound_is_the_log_ratio_of_a_draw(key):
    model, x = tiny(), images()[0]
    coded = jax.vmap(model.code)(x)
    log_p, log_q = by_hand(model, x, infer(key, model, coded))
    np.testing.assert_allclose(bound(key, model, coded), log_p - log_q, rtol=1e-9)


def test_proportions_average_features_over_the_mini_batch(key):
    """The mean over clusters weighted by counts is the mean over the mini-batch, as the
    architecture says.
    """
    q, c = Proportions(4, 5, key=key), np.array([1, 3, 3, 0, 3])
    onehot = np.eye(4)[c]
    mean = jnp.mean(jax.nn.silu(q.features(jnp.asarray(onehot))), axis=0)
    expected = jax.nn.softplus(q.out(jax.nn.silu(q.hidden(mean)))) + onehot.sum(axis=0)
    np.testing.assert_allclose(
        q.concentration(jnp.asarray(onehot.sum(axis=0))), expected, rtol=1e-12
    )


def test_categorical_draws(key):
    probs, num = np.array([0.1, 0.0, 0.6, 0.3]), 20_000
    share = np.bincount(draw_categorical(key, jnp.asarray(probs), (num,)), minlength=4) / num
    assert (
        share[1] == 0
        and (np.abs(share - probs) < 5 * np.sqrt(probs * (1 - probs) / num) + 1e-12).all()
    )


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


def test_replicas_side_by_side(key):
    """Stacked models under vmap get the gradients that each gets alone."""
    models, x = nvi.stack(key, tiny, 2), images()
    arrays, static = eqx.partition(models, eqx.is_array)

    def gradient(a):
        return jax.grad(lambda a: NestedKLs(N).surrogate(key, eqx.combine(a, static), x)[0])(a)

    together = jax.jit(jax.vmap(gradient))(arrays)
    alone = jax.jit(gradient)(jax.tree.map(lambda a: a[1], arrays))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[1], b, rtol=1e-7, atol=1e-9), together, alone
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NestedKLs(0), "at least one"),
        (lambda: NestedKLs(pi_c_from="frist"), "first"),
        (lambda: NestedKLs(mixture_update="smaple"), "sample"),
        (lambda: WakeSleep(1), "at least 2"),
    ],
)
def test_settings_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()
