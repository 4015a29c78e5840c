"""Design matrices: one column a coefficient, ones first, every design of full rank."""

import numpy as np
import pytest

from nestedvi.bench.posteriordb.catalogue import POSTERIORS
from nestedvi.bench.posteriordb.designs import DESIGNS, diamonds_design, plain_design
from tests.helpers.stan_data import made_up_data

DATA = {name.split("-")[1]: entry.data for name, entry in POSTERIORS.items()}
# Volume, area and shape of the canopy with its height would be one column too many, were the total
# height not another one.
COLUMNS = {"nes": 9, "mesquite": 7, "logmesquite": 7, "logmesquite_logvas": 7, "earn_height": 2}


@pytest.mark.parametrize("name", DESIGNS)
def test_designs_have_ones_first_and_full_rank(name):
    x, y = DESIGNS[name](made_up_data(DATA[name]))
    assert len(x) == len(y) and (x[:, 0] == 1).all()
    assert np.linalg.matrix_rank(x) == x.shape[1] == COLUMNS.get(name, x.shape[1])


def test_centred_ones_are_centred():
    x, _ = diamonds_design(made_up_data("diamonds"))
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    standard, _ = DESIGNS["kidscore_interaction_z"](made_up_data("kidiq_with_mom_work"))
    np.testing.assert_allclose(standard[:, 1:3].std(axis=0, ddof=1), 0.5)


def test_a_plain_design_is_the_datas_own():
    data = made_up_data("sblri")
    np.testing.assert_array_equal(plain_design(data)[0], data["X"])
