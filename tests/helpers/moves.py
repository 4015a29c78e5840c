"""Kernels and transitions that several tests move particles with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi


def residual(dim):
    """A residual kernel away from its identity start: every layer matters, and both precisions get
    the same numbers.
    """
    kernel, draw = (
        nvi.ResidualGaussian(dim, 7, key=jax.random.key(1), scale=0.7),
        np.random.default_rng(4).normal,
    )

    def where(k):
        return (k.hidden_weight, k.hidden_bias, k.out_weight)

    return eqx.tree_at(
        where, kernel, tuple(jnp.asarray(0.4 * draw(size=x.shape)) for x in where(kernel))
    )


def chain_of_pairs(key):
    def make(k):
        return nvi.Transition(
            nvi.ResidualGaussian(2, 5, key=k, scale=0.3),
            nvi.ResidualGaussian(2, 5, key=jax.random.fold_in(k, 1), scale=0.3),
        )

    return nvi.kernels.Chain(nvi.stack(key, make, 3))


def mild_flow(key, depth):
    """A random flow near the identity, so that v has a small variance: |w| = 1 and a small u."""
    flow = nvi.PlanarFlow(2, depth, key=key, scale=0.2)
    return eqx.tree_at(lambda f: f.w, flow, flow.w / jnp.linalg.norm(flow.w, axis=1, keepdims=True))


def chain_of_flows(key):
    return nvi.kernels.Chain(nvi.stack(key, lambda k: mild_flow(k, 3), 3))


def concrete_parts(kind):
    """The names of the library's own kernels or transitions of a kind; classes of tests and of
    experiments are not among them.
    """
    names = set()
    for sub in kind.__subclasses__():
        if sub.__module__.startswith("nestedvi.kernels") and not sub.__name__.startswith(
            "Abstract"
        ):
            names.add(sub.__name__)
        names |= concrete_parts(sub)
    return names
