"""Comparison with reference moments, by numbers that can be worked out by hand."""

import numpy as np
import pytest

from nestedvi.bench.posteriordb.compare import compare, stan_names
from nestedvi.bench.posteriordb.data import Moments, Reference
from nestedvi.inference.answer import Answer
from nestedvi.inference.posterior import make_posterior


def made_up_posterior(samples):
    num = len(next(iter(samples.values())))
    answer = Answer(np.zeros((num, 1)), np.zeros(num), 0.0, 0.01, num_batches=10)
    return make_posterior(samples, answer)


def test_names_are_stans():
    assert stan_names("beta", (2,)) == ["beta[1]", "beta[2]"]
    assert stan_names("mu", ()) == ["mu"]
    assert stan_names("L", (1, 2)) == ["L[1,1]", "L[1,2]"]


def test_errors_in_both_units():
    rng = np.random.default_rng(0)
    mu, beta = rng.normal(size=1000), rng.normal(size=(1000, 2)) * [2.0, 0.5] + 1.0
    posterior = made_up_posterior({"mu": mu, "beta": beta})
    moments = {
        "mu": Moments(mu.mean() + 0.3, 1.0, 0, 0, 0),
        "beta[1]": Moments(beta[:, 0].mean(), 1.0, 0, 0, 0),
        "beta[2]": Moments(beta[:, 1].mean() - 0.05, 0.5, 0, 0, 0),
    }
    result = compare(posterior, Reference(400, moments))
    assert result["worst_off_in_sds"] == pytest.approx(-0.3)
    assert result["worst_off_in_sds_parameter"] == "mu"
    error = result["parameters"]["mu"]["error"]
    assert error == pytest.approx(1 / np.sqrt(1000), rel=0.6)
    assert result["worst_off_in_errors"] == pytest.approx(-0.3 / np.hypot(error, 0.05))
    assert result["worst_sd_ratio_parameter"] == "beta[1]"
    assert result["worst_sd_ratio"] == pytest.approx(2.0, rel=0.1)
    left_out = compare(posterior, Reference(400, moments), ("beta[1]",))
    assert left_out["worst_sd_ratio_parameter"] != "beta[1]"


def test_a_lost_parameter_is_named():
    posterior = made_up_posterior({"mu": np.arange(20.0)})
    with pytest.raises(ValueError, match="lacks parameters of its reference: tau"):
        compare(posterior, Reference(10, {"tau": Moments(0, 1, 0, 0, 0)}))
