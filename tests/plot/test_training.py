"""The page of a training: its numbers are means of the record, and it says what went wrong."""

import numpy as np

from nestedvi.plot.training import training_content, write_training_report
from tests.helpers.html import check_page, numbers_of, text_of

RNG = np.random.default_rng(0)
STEPS, LEVELS = 400, 3


def record(*restarts, fall=0.0):
    noise = RNG.normal(size=(STEPS, *restarts, LEVELS))
    trend = np.linspace(fall, 0, STEPS).reshape(-1, *(1,) * len(restarts), 1)
    return {
        "log_Z_hat": RNG.normal(size=(STEPS, *restarts)),
        "ess": RNG.uniform(5, 10, size=(STEPS, *restarts)),
        "level_ess": RNG.uniform(5, 10, size=(STEPS, *restarts, LEVELS)),
        "level_divergence": 1.0 + trend + 0.1 * noise,
    }


def test_numbers_are_means_over_stretches_and_restarts():
    given = record(2)
    content = training_content(given, np.zeros((2, LEVELS), int))
    assert content["step"][0] == 4 and content["step"][-1] == STEPS and len(content["step"]) == 100
    np.testing.assert_allclose(content["log_Z_hat"][1][0], given["log_Z_hat"][:4, 1].mean())
    np.testing.assert_allclose(
        content["level_ess"][-1], given["level_ess"][-4:].mean(axis=(0, 1)), rtol=1e-12
    )
    assert content["diagnosis"] == []


def test_what_is_not_finite_is_left_out():
    given = record()
    given["level_divergence"][:2, 1] = np.inf
    content = training_content(given, np.array([0, 2, 0]))
    expected = given["level_divergence"][2:4, 1].mean()
    np.testing.assert_allclose(content["level_divergence"][0][1], expected)
    (sentence,) = content["diagnosis"]
    assert sentence.startswith("Level 2: 2 updates were skipped")


def test_a_divergence_that_still_falls_is_said():
    content = training_content(record(fall=5.0), np.zeros(LEVELS, int))
    assert "still falls" in content["diagnosis"][0]


def test_short_trainings_have_a_page_too(tmp_path):
    short = {name: x[:3] for name, x in record().items()}
    path = write_training_report(
        tmp_path / "fit.html",
        short,
        skipped=np.array([0, 1, 0]),
        seconds=1.5,
        step_seconds=float("nan"),
        title="Ring",
    )
    page = path.read_text(encoding="utf-8")
    check_page(page)
    content, text = numbers_of(page), text_of(page)
    assert content["num_steps"] == 3 and content["step_seconds"] is None
    assert content["versions"]["jax"] and content["command"]
    assert page.count("<svg") == 6 and "updates skipped 1" in text and "time of a step" not in text
