"""The f of every divergence as the textbooks write it, and the exact D_f on a finite or discretised
space.
"""

import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.divergences.surrogate import surrogate


def _alpha_half(w):
    return 4.0 * (0.5 + 0.5 * w - jnp.sqrt(w))


def _jensen_shannon(w):
    return 0.5 * (w * jnp.log(w) - (1 + w) * jnp.log(0.5 * (1 + w)))


# name: (the library's divergence, f written by hand).
CASES = {
    "reverse-kl": (nvi.ReverseKL, lambda w: -jnp.log(w)),
    "forward-kl": (nvi.ForwardKL, lambda w: w * jnp.log(w)),
    "chi-squared": (nvi.divergences.chi_squared, lambda w: w**2 - 2 * w + 1),
    "alpha-half": (lambda: nvi.divergences.alpha_divergence(0.5), _alpha_half),
    "jensen-shannon": (nvi.divergences.jensen_shannon, _jensen_shannon),
}


NAMES = tuple(CASES)
# Those whose g = F' is not constant: every one but the reverse KL.
VARYING = tuple(name for name in NAMES if not CASES[name][0]().constant_slope)


def divergences(names, log_target, log_proposal, log_cell=0.0):
    """D_f(target ‖ proposal) = ∫ p̂ f(p̌/p̂) for each name, from log densities on a grid whose
    cells have size e^log_cell.
    """
    ratio, mass = jnp.exp(log_target - log_proposal), jnp.exp(log_proposal + log_cell)
    return jnp.stack([jnp.sum(mass * CASES[name][1](ratio)) for name in names])


def surrogates(names, terms, log_w, hold_q=False):
    """The library's surrogate and reported divergence for each name, without baseline."""
    pairs = [
        surrogate(CASES[name][0](), terms, log_w, baseline=False, hold_q=hold_q) for name in names
    ]
    return tuple(jnp.stack(values) for values in zip(*pairs, strict=True))


def jacobians(fn, p):
    """Gradients of a stack of scalars, one compilation for all of them; `fn` also returns what it
    reports.
    """
    return jax.jit(jax.jacrev(fn, has_aux=True))(p)


def with_value(fn):
    """A function and its own value as what it reports."""

    def both(p):
        value = fn(p)
        return value, value

    return both


def assert_same(got, expected, tol, nonzero=1e-3):
    """Leaf by leaf, row by row; an expected gradient of zero would prove nothing."""
    for (at, a), b in zip(
        jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol, err_msg=jax.tree_util.keystr(at))
        rows = np.abs(np.asarray(b)).reshape(b.shape[0], -1).max(axis=1)
        assert (rows > nonzero).all(), (
            f"{jax.tree_util.keystr(at)}: the example must have a gradient to find, {rows}"
        )


def log_normalise(log_table):
    return log_table - jax.nn.logsumexp(log_table)
