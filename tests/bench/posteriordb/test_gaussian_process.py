"""Gaussian processes: the two ways of writing one agree, and schools shrink to their mean."""

import numpy as np
from numpyro import handlers

from nestedvi.bench.posteriordb.gaussian_process import eight_schools, gp_poisson, gp_regression

X = np.array([-2.0, 0.0, 1.0])
SCALES = {"rho": np.array(2.0), "alpha": np.array(1.5)}


def trace_of(model, values, *arguments):
    return handlers.trace(handlers.substitute(model, values)).get_trace(*arguments)


def test_values_have_the_covariance_of_the_marginal(x64):
    """f = L f̃ for unit vectors f̃ gives L; L Lᵀ + σ I is what the other model sums out."""
    columns = [
        trace_of(gp_poisson, {**SCALES, "f_tilde": unit}, X, np.zeros(3, int))["f"]["value"]
        for unit in np.eye(3)
    ]
    root = np.stack(columns, axis=1)
    sigma = np.array(0.3)
    marginal = trace_of(gp_regression, {**SCALES, "sigma": sigma}, X, X)["y"]["fn"]
    np.testing.assert_allclose(
        root @ root.T + 0.3 * np.eye(3), marginal.covariance_matrix, atol=1e-8
    )
    expected = 2.25 * np.exp(-0.5 * (2.0 / 2.0) ** 2)
    np.testing.assert_allclose((root @ root.T)[0, 1], expected)


def test_without_spread_all_schools_are_one(x64):
    values = {"mu": np.array(3.0), "tau": np.array(0.0), "theta_trans": np.array([1.0, -2.0])}
    trace = trace_of(eight_schools, values, np.zeros(2), np.ones(2))
    np.testing.assert_array_equal(trace["theta"]["value"], [3.0, 3.0])
