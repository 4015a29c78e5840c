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

import nestedvi as nvi
from nestedvi.paper.bgmm_vae import objectives
from nestedvi.paper.bgmm_vae.inference import infer, log_joint, log_proposal
from tests.helpers.small_bgmm import CLUSTERS, N, by_hand, images, printed, tiny, wake_sleep

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]

KEYS = 1500
GRID = np.linspace(-14.0, 14.0, 561)
STEP = GRID[1] - GRID[0]


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
    objective = printed(num_prior=N, pi_c_from=pi_c_from, mixture_update=mixture_update)

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
        objective = printed(num_prior=N, pi_c_from=pi_c_from)
        assert moved(lambda m, o=objective: o.first(m).surrogate(key, "forward-kl", 4)[0]) == {
            "pi_c_logits",
            "proportions",
        }
        second = moved(lambda m, o=objective: o.second(m).surrogate(key, "forward-kl", 4)[0])
        assert second == {"classify", "pi_z"} | extra

    def third(model):
        coded = jax.vmap(model.code)(images()[0])
        samples = jax.vmap(lambda k, x: printed().third(model, coded).proposal.complete(k, x))(
            jax.random.split(key, N), coded
        )
        return printed().third(model, coded).surrogate_at(samples, "reverse-kl")[0]

    assert moved(third) == {"encoder", "decode"}
    z = jnp.ones((2, 3, 1))
    for update in ("sample", "probabilities", "mean-field"):
        assert moved(lambda m, u=update: printed(mixture_update=u).mixture(key, m, z)) == {
            "mixture"
        }


def sample_keys(key, num):
    """The keys of the samples of the first mini-batch."""
    key_latents, _ = jax.random.split(jax.random.split(key, 1)[0])
    return jax.random.split(key_latents, num)


def test_wake_sleep_against_a_hand_computation(key):
    """Weights from densities written out, applied to the gradients of log p and log q of every
    sample on its own.
    """
    model, x, num = tiny(dim=2), images(), 4

    def surrogate(m):
        return wake_sleep(num).surrogate(key, m, x)

    gradient, terms = eqx.filter_jit(eqx.filter_grad(surrogate, has_aux=True))(model)
    keys = sample_keys(key, num)
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


def test_no_key_of_wake_sleep_is_used_twice(key, monkeypatch):
    """Three samples and the draw among them, in each of two mini-batches: eight keys."""
    used = []

    def noting(draw):
        def wrapped(key, *rest):
            jax.debug.callback(lambda k: used.append(tuple(k.tolist())), jax.random.key_data(key))
            return draw(key, *rest)

        return wrapped

    monkeypatch.setattr(objectives, "infer", noting(objectives.infer))
    monkeypatch.setattr(objectives, "draw_categorical", noting(objectives.draw_categorical))
    wake_sleep(3, "one").surrogate(key, tiny(), images(2))
    jax.effects_barrier()
    assert len(used) == len(set(used)) == 8


def test_one_sample_drawn_by_weight_has_the_gradient_of_all_on_average(key, monkeypatch):
    """Σ_i w̄_i (gradient if sample i is drawn) is the gradient that uses all samples:
    enumerated.
    """
    model, x, num = tiny(dim=2), images(), 3

    def gradient(objective):
        return eqx.filter_grad(lambda m: objective.surrogate(key, m, x), has_aux=True)(model)[0]

    keys = sample_keys(key, num)
    coded = jax.vmap(model.code)(x[0])
    samples = jax.vmap(lambda k: infer(k, model, coded))(keys)
    log_w = jax.vmap(lambda h: log_joint(model, coded, h) - log_proposal(model, coded, h))(samples)
    w_bar = np.asarray(jax.nn.softmax(log_w))
    total = None
    for i in range(num):
        monkeypatch.setattr(objectives, "draw_categorical", lambda key, probs, i=i: i)
        part = jax.tree.map(lambda g, i=i: w_bar[i] * g, gradient(wake_sleep(num, "one")))
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    for got, want in zip(
        jax.tree.leaves(total), jax.tree.leaves(gradient(wake_sleep(num))), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-11)


def test_replicas_side_by_side(key):
    """Stacked models under vmap get the gradients that each gets alone."""
    models, x = nvi.stack(key, tiny, 2), images()
    arrays, static = eqx.partition(models, eqx.is_array)

    def gradient(a):
        return jax.grad(
            lambda a: printed(num_prior=N).surrogate(key, eqx.combine(a, static), x)[0]
        )(a)

    together = jax.jit(jax.vmap(gradient))(arrays)
    alone = jax.jit(gradient)(jax.tree.map(lambda a: a[1], arrays))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[1], b, rtol=1e-7, atol=1e-9), together, alone
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: printed(num_prior=0), "at least one"),
        (lambda: printed(pi_c_from="frist"), "first"),
        (lambda: printed(mixture_update="smaple"), "sample"),
        (lambda: wake_sleep(1), "at least 2"),
    ],
)
def test_settings_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_mixture_as_intermediate_density_trains_the_classifier_alone(key):
    """In the second KL nothing else of the model is free."""

    def surrogate(model):
        objective = printed(num_prior=N, pi_c_from="first", intermediate="mixture")
        return objective.second(model).surrogate(key, "forward-kl", 4)[0]

    gradient = eqx.filter_grad(surrogate)(tiny())
    assert not any(
        np.any(x) for x in jax.tree.leaves((gradient.mixture, gradient.pi_c_logits, gradient.pi_z))
    )
    assert np.any(gradient.classify.layers[0].weight)
