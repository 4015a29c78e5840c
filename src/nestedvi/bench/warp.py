"""Coordinates in which draws look more like those of a Gaussian: each is standardised and then goes
through the power transformation of Yeo and Johnson (2000) that makes it most symmetric. A bijection
of the whole space, so that a Gaussian on the other side is a density on this one.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special, stats

__all__ = ["Warp", "fit_warp"]


class Warp(NamedTuple):
    """x ↦ y, coordinate by coordinate: with u = (x − centre)/scale and a power λ in [0, 2],
    y = ((u + 1)^λ − 1)/λ for u ≥ 0 and y = −((1 − u)^(2−λ) − 1)/(2 − λ) for u < 0.
    """

    centre: Float[np.ndarray, " dim"]
    scale: Float[np.ndarray, " dim"]
    power: Float[np.ndarray, " dim"]

    def forward(self, x: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "rows dim"]:
        u = (x - self.centre) / self.scale
        above = special.boxcox1p(np.maximum(u, 0), self.power)
        below = special.boxcox1p(np.maximum(-u, 0), 2 - self.power)
        return np.where(u >= 0, above, -below)

    def inverse(self, y: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "rows dim"]:
        above = special.inv_boxcox1p(np.maximum(y, 0), self.power)
        below = special.inv_boxcox1p(np.maximum(-y, 0), 2 - self.power)
        return self.centre + self.scale * np.where(y >= 0, above, -below)

    def log_det(self, x: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, " rows"]:
        """log |dy/dx|."""
        u = (x - self.centre) / self.scale
        slopes = np.sign(u) * (self.power - 1) * np.log1p(np.abs(u)) - np.log(self.scale)
        return slopes.sum(axis=1)


def fit_warp(x: Float[np.ndarray, "rows dim"]) -> Warp:
    """The powers of largest likelihood for these draws, coordinate by coordinate."""
    centre, scale = np.median(x, axis=0), x.std(axis=0)
    powers = [_power(column) for column in ((x - centre) / scale).T]
    return Warp(centre, scale, np.array(powers))


def _power(u: Float[np.ndarray, " rows"]) -> float:
    """Outside of [0, 2] the transformation would not reach all numbers."""
    return float(np.clip(stats.yeojohnson_normmax(u, brack=(0.0, 2.0)), 0.0, 2.0))
