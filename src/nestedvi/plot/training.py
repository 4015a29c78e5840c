"""The page of a training: what the divergence and the ESS of every level did from step to step.
It averages over stretches of steps; what the numbers are of is not known here.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nestedvi.plot.charts import heat_chart, lines_chart, steps_chart
from nestedvi.plot.page import Section, facts, figures, paragraphs, sentences, table, write_page
from nestedvi.storage.files import provenance

__all__ = ["training_content", "write_training_report"]

_STRETCHES = 100
# A fall from one tenth of the training to the next that is this many standard errors is no noise.
_STANDARD_ERRORS = 4.0


def training_content(record: Mapping[str, np.ndarray], skipped: np.ndarray) -> dict[str, Any]:
    """The record of a training, averaged over stretches of steps and over restarts.

    `log_Z_hat` and `ess` have an axis of steps and perhaps one of restarts, `level_ess` and
    `level_divergence` one more of levels.
    """
    num_steps, num_levels = record["level_ess"].shape[0], record["level_ess"].shape[-1]
    edges = np.unique(np.linspace(0, num_steps, min(_STRETCHES, num_steps) + 1).astype(int))

    def averaged(name: str, *axes: int) -> np.ndarray:
        x = np.asarray(record[name], np.float64).reshape(num_steps, -1, *axes)
        return np.stack([_mean(x[a:b], axis=0) for a, b in pairwise(edges)])

    return {
        "num_steps": num_steps,
        "step": edges[1:].tolist(),
        "log_Z_hat": averaged("log_Z_hat").T.tolist(),
        "ess": averaged("ess").T.tolist(),
        "level_ess": _mean(averaged("level_ess", num_levels), axis=1).tolist(),
        "level_divergence": _mean(averaged("level_divergence", num_levels), axis=1).tolist(),
        "skipped": np.asarray(skipped).reshape(-1, num_levels).sum(axis=0).tolist(),
        "diagnosis": _diagnose(record, skipped, num_levels),
    }


def _mean(x: np.ndarray, axis: int) -> np.ndarray:
    """The mean of what is finite; NaN where nothing is."""
    finite = np.isfinite(x)
    count = finite.sum(axis=axis)
    total = np.where(finite, x, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _diagnose(record: Mapping[str, np.ndarray], skipped: np.ndarray, num_levels: int) -> list[str]:
    diagnosis = []
    lost = np.asarray(skipped).reshape(-1, num_levels).sum(axis=0)
    for level in np.flatnonzero(lost):
        diagnosis.append(
            f"Level {level + 1}: {lost[level]} updates were skipped, because a gradient was not"
            " finite. A few at the start do no harm; many ask for a smaller learning rate or more"
            " levels."
        )
    steps = np.asarray(record["level_divergence"], np.float64)
    total = _mean(steps.reshape(len(steps), -1), axis=1)
    tenth = len(total) // 10
    if tenth >= 20:
        before, last = total[-2 * tenth : -tenth], total[-tenth:]
        error = np.sqrt((np.nanvar(before) + np.nanvar(last)) / tenth)
        if np.nanmean(before) - np.nanmean(last) > _STANDARD_ERRORS * error:
            diagnosis.append(
                "The divergence still falls at the end of the training: more steps would help."
            )
    return diagnosis


def write_training_report(
    path: str | Path,
    record: Mapping[str, np.ndarray],
    *,
    skipped: np.ndarray,
    seconds: float,
    step_seconds: float,
    title: str,
) -> Path:
    """Writes the page of a training."""
    content = {
        **training_content(record, skipped),
        "seconds": seconds,
        "step_seconds": step_seconds,
        **provenance(),
    }
    sections = [
        Section("Diagnosis", _summary(content)),
        Section("From step to step", _steps(content)),
        Section("Levels at the end", _levels(content)),
        Section("What made it", _provenance(content)),
    ]
    return write_page(path, title, sections, content)


def _summary(content: Mapping[str, Any]) -> str:
    last = {name: np.array(content[name])[..., -1] for name in ("log_Z_hat", "ess")}
    known = {
        "steps": f"{content['num_steps']}",
        "log Ẑ at the end": f"{last['log_Z_hat'].mean():.4f}",
        "ESS at the end": f"{last['ess'].mean():.1f} particles",
        "updates skipped": f"{sum(content['skipped'])}",
        "time": f"{content['seconds']:.1f} s",
    }
    if np.isfinite(content["step_seconds"]):
        known["time of a step"] = f"{1e3 * content['step_seconds']:.2f} ms"
    note = (
        f"Numbers at the end are means over the last {_stretch(content)} steps of the training"
        " itself, with few particles. evaluate() says what the trained sampler is worth."
    )
    return (
        sentences(content["diagnosis"], otherwise="Nothing found wrong.")
        + facts(known)
        + paragraphs(note, quiet=True)
    )


def _stretch(content: Mapping[str, Any]) -> int:
    step = [0, *content["step"]]
    return step[-1] - step[-2]


def _steps(content: Mapping[str, Any]) -> str:
    step = content["step"]
    return figures(
        {
            "log Ẑ, a line a restart": steps_chart(step, content["log_Z_hat"], ylabel="log Ẑ"),
            "ESS of the final weights, in particles": steps_chart(
                step, content["ess"], ylabel="ESS"
            ),
            "Divergence of every level": heat_chart(
                step, content["level_divergence"], label="divergence", log=True
            ),
            "ESS of every level, in particles": heat_chart(step, content["level_ess"], label="ESS"),
        }
    )


def _levels(content: Mapping[str, Any]) -> str:
    divergence, ess = content["level_divergence"][-1], content["level_ess"][-1]
    rows = [
        (k + 1, f"{divergence[k]:.4g}", f"{ess[k]:.1f}", content["skipped"][k])
        for k in range(len(ess))
    ]
    return table(("level", "divergence", "ESS", "updates skipped"), rows) + figures(
        {
            "Divergence of each level at the end": lines_chart(
                [divergence], xlabel="level", ylabel="divergence"
            ),
            "ESS of each level at the end, in particles": lines_chart(
                [ess], xlabel="level", ylabel="ESS"
            ),
        }
    )


def _provenance(content: Mapping[str, Any]) -> str:
    rows = [(name, content[name]) for name in ("command", "device")]
    rows += [(f"version of {name}", x) for name, x in content["versions"].items()]
    return table(("what", ""), rows, words=True)
