"""The BGMM-VAE of section 5.3: a variational autoencoder whose prior is a Bayesian Gaussian
mixture, and its inference networks.

    λ ~ Dir(α)   c_n ~ Cat(λ)   z_n ~ N(μ_{c_n}, 1/τ_{c_n})   x_n ~ CB(decoder(z_n))   n = 1 … N
    q(z | x)     q(c | z)       q(λ | c_{1:N})                intermediate densities π_c(c), π_z(z)

It holds the parameters and names the factors, which are in `parts`; `objectives` trains it,
`inference` asks it.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.base import Numpyro
from nestedvi.densities.dirichlet import SymmetricDirichlet
from nestedvi.kernels.planar import PlanarDensity, PlanarFlow
from nestedvi.paper.bgmm_vae.networks import ImageDecoder, ImageEncoder
from nestedvi.paper.bgmm_vae.parts import (
    Classify,
    Coded,
    Decode,
    Mixture,
    MixtureMarginal,
    Proportions,
)

__all__ = ["BgmmVae"]


class BgmmVae(eqx.Module):
    """All parts of the model; `alpha` is given, everything else is learned.

    **Arguments:** images of `size` × `size` pixels, codes of size `dim`, `channels` of the encoder,
    `hidden` units in q(c|z) and q(λ|c), `flow_depth` layers in π_z. The clusters' means start from
    N(0, `mean_scale`²). `half` computes the image networks in bfloat16.
    """

    mixture: Mixture
    decode: Decode
    encoder: ImageEncoder
    classify: Classify
    proportions: Proportions
    pi_c_logits: Float[Array, " clusters"]
    pi_z: PlanarDensity
    alpha: float = eqx.field(static=True)

    def __init__(
        self,
        *,
        key: Key,
        size: int,
        clusters: int,
        dim: int,
        channels: Sequence[int],
        hidden: int,
        flow_depth: int,
        alpha: float,
        mean_scale: float,
        half: bool,
    ):
        keys = jax.random.split(key, 6)
        self.mixture = Mixture(
            mean_scale * jax.random.normal(keys[0], (clusters, dim)), jnp.zeros((clusters, dim))
        )
        # The decoder's channels are the encoder's last ones throughout, as in the paper.
        self.decode = Decode(
            ImageDecoder(size, dim, (channels[-1],) * len(channels), key=keys[1], half=half)
        )
        self.encoder = ImageEncoder(size, 2 * dim, channels, key=keys[2], half=half)
        self.classify = Classify(dim, clusters, hidden, key=keys[3])
        self.proportions = Proportions(clusters, hidden, key=keys[4])
        self.pi_c_logits = jnp.zeros(clusters)
        self.pi_z = PlanarDensity(PlanarFlow(dim, flow_depth, key=keys[5]))
        self.alpha = alpha

    @property
    def clusters(self) -> int:
        return self.pi_c_logits.shape[-1]

    @property
    def prior(self) -> SymmetricDirichlet:
        """p(λ)."""
        return SymmetricDirichlet(self.alpha, self.clusters)

    def pi_c(self, num: int | None = None) -> Numpyro:
        """π_c, for one assignment or for `num` independent ones."""
        one = dist.Categorical(logits=self.pi_c_logits)
        return Numpyro(one if num is None else one.expand([num]))

    @property
    def marginal(self) -> MixtureMarginal:
        """Σ_c π_c(c) p(z | c)."""
        return MixtureMarginal(self.pi_c_logits, self.mixture)

    def code(self, x: Float[Array, "size size"]) -> Coded:
        """The image with mean and log scale of q(z | x)."""
        loc, log_scale = jnp.split(self.encoder(x), 2)
        return Coded(x, loc, log_scale)
