"""Numbers that define targets, frozen: a benchmark whose data moved with a library's generator
would be another benchmark. Nothing is drawn or fetched here; larger tables are files of the
package, and `tables/README.md` names their sources and licences.
"""

import gzip
from importlib import resources

import numpy as np
from jaxtyping import Float

__all__ = ["BROWNIAN_OBSERVED", "GMM40_MEANS", "SEEDS", "load_table"]


def load_table(name: str) -> Float[np.ndarray, "rows columns"]:
    """A table of the package by its name, such as "sonar"."""
    file = resources.files("nestedvi.targets") / "tables" / f"{name}.csv.gz"
    text = gzip.decompress(file.read_bytes()).decode()
    return np.loadtxt(text.splitlines(), delimiter=",", ndmin=2)


# 40 points drawn once, uniform on the square [−40, 40]².
# fmt: off
GMM40_MEANS = np.array([
    (18.392, 15.473), (35.354, -35.228), (15.242, 33.792), (-1.945, -12.929), (8.151, 18.45),
    (-31.019, -31.31), (10.981, -36.614), (-36.183, -14.458), (-23.104, 22.1), (23.779, -26.257),
    (-28.8, -10.397), (2.371, 3.389), (-9.59, -5.467), (-11.147, -18.039), (9.655, -18.456),
    (-6.511, 1.008), (-15.685, -13.26), (-20.585, -18.87), (-21.818, -16.615), (16.377, -28.438),
    (9.522, -0.116), (-24.793, -13.799), (-13.505, -15.401), (-31.032, 4.976), (8.952, -26.968),
    (-35.717, -1.575), (-8.894, -29.216), (-31.86, 38.512), (24.051, 8.979), (-5.949, 34.71),
    (5.708, 7.801), (-17.975, 5.278), (12.689, 20.189), (15.881, 30.603), (-33.182, 34.038),
    (6.832, -14.85), (21.31, -30.165), (-28.74, 39.667), (25.627, 35.741), (-18.868, -5.783),
])

# The observations of inference_gym's BrownianMotionMissingMiddleObservations (TensorFlow
# Probability, Apache-2.0), ten missing.
BROWNIAN_OBSERVED = np.array([
    0.21592641, 0.118771404, -0.07945447, 0.037677474, -0.27885845, -0.1484156,
    -0.3250906, -0.22957903, -0.44110894, -0.09830782,
    *[np.nan] * 10,
    -0.8786016, -0.83736074, -0.7384849, -0.8939254, -0.7774566,
    -0.70238715, -0.87771565, -0.51853573, -0.6948214, -0.6202789,
])

# Seeds that germinated on 21 plates (Crowder 1978, Table 3): how many of how many, the seed's
# variety (0 or 1) and the root extract (0 or 1).
SEEDS = np.array([
    (10, 39, 0, 0), (23, 62, 0, 0), (23, 81, 0, 0), (26, 51, 0, 0), (17, 39, 0, 0),
    (5, 6, 0, 1), (53, 74, 0, 1), (55, 72, 0, 1), (32, 51, 0, 1), (46, 79, 0, 1), (10, 13, 0, 1),
    (8, 16, 1, 0), (10, 30, 1, 0), (8, 28, 1, 0), (23, 45, 1, 0), (0, 4, 1, 0),
    (3, 12, 1, 1), (22, 41, 1, 1), (15, 30, 1, 1), (32, 51, 1, 1), (3, 7, 1, 1),
])
# fmt: on
