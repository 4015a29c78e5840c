"""The numbers that define targets are as they always were."""

from importlib import resources

import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.targets.data import BROWNIAN_OBSERVED, GMM40_MEANS, load_table


def test_gmm40_is_frozen():
    """Forty means in the square, the first and the last as they always were."""
    assert GMM40_MEANS.shape == (40, 2) and np.abs(GMM40_MEANS).max() < 40
    np.testing.assert_array_equal(GMM40_MEANS[[0, -1]], [[18.392, 15.473], [-18.868, -5.783]])
    density = nvi.targets.gmm40()
    # Far from the others, one mode has a fortieth of the mass.
    np.testing.assert_allclose(
        density.log_gamma(jnp.array([35.354, -35.228])), -np.log(40 * 2 * np.pi), rtol=1e-4
    )


def test_brownian_observations_are_frozen():
    """Thirty of them, the ten in the middle missing, the first and the last as they always were."""
    missing = np.isnan(BROWNIAN_OBSERVED)
    assert missing[10:20].all() and missing.sum() == 10 and len(missing) == 30
    np.testing.assert_array_equal(BROWNIAN_OBSERVED[[0, -1]], [0.21592641, -0.6202789])


@pytest.mark.parametrize(
    ("name", "shape", "total", "ones"),
    [
        ("german-credit", (1000, 25), 118_363, 700),
        ("ionosphere", (351, 35), 2956.01597, 225),
        ("sonar", (208, 61), 3510.8897, 111),
        ("pound-dollar", (937, 1), 1415.5058, 0),
    ],
)
def test_tables_are_frozen(name, shape, total, ones):
    """Shape, sum of all but the last column, and how many labels are 1."""
    table = load_table(name)
    assert table.shape == shape and np.isfinite(table).all()
    features = table[:, :-1] if shape[1] > 1 else table
    assert features.sum() == pytest.approx(total, abs=1e-6) and (table[:, -1] == 1).sum() == ones


def test_every_table_has_its_source():
    folder = resources.files("nestedvi.targets") / "tables"
    sources = (folder / "README.md").read_text(encoding="utf-8")
    names = [file.name for file in folder.iterdir() if file.name.endswith(".gz")]
    assert len(names) == 4 and all(f"`{name}`" in sources for name in names)
