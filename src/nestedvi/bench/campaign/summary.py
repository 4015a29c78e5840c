"""What the runs of a campaign add up to. It only counts.

A failure is an error above max(0.1, 4 standard errors). It is silent if the diagnosis is empty. An
improper posterior that is answered without a word is a silent failure as well, and so is an answer
whose diagnosis lacks the word that it must hold.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["failed", "failed_silently", "summarise_campaign", "summarise_target", "warned_wrongly"]

Row = dict[str, Any]
_LEAST, _ERRORS = 0.1, 4.0
_COVERAGES = (1, 2, 3)
# Of fewer runs than the second number the spread of a mean says little of an ESS: of seven, half
# would be off by the factor that the first number is.
_WITHIN, _MANY_RUNS = 1.5, 20


def answered(row: Row) -> bool:
    return "refused" not in row and "skipped" not in row


def failed(row: Row) -> bool:
    """Whether an answer is wrong by more than its standard error allows."""
    if not answered(row):
        return False
    if row["error"] is None:
        return True
    stderr = np.nan_to_num(row["stderr"] or 0.0)
    return not abs(row["error"]) <= max(_LEAST, _ERRORS * stderr)


def lacks_warning(row: Row) -> bool:
    """Whether the diagnosis lacks the word that it must hold."""
    word = row.get("must_say") or ""
    return answered(row) and not any(word in sentence for sentence in row["diagnosis"] or [""])


def failed_silently(row: Row) -> bool:
    """Whether a wrong answer, or one that calls for a warning, comes without."""
    return answered(row) and ((failed(row) and not row["diagnosis"]) or lacks_warning(row))


def warned_wrongly(row: Row) -> bool:
    """Whether a good answer has warnings other than the one that it must have."""
    word = row.get("must_say") or ""
    others = [sentence for sentence in row.get("diagnosis", []) if not word or word not in sentence]
    return answered(row) and not failed(row) and bool(others)


def refused_wrongly(row: Row) -> bool:
    """An improper posterior is refused rightly."""
    return "refused" in row and row.get("log_Z_true") is not None


def _coverage(scores: np.ndarray) -> dict[str, float | None]:
    """The shares within one, two and three standard errors."""
    sizes = np.abs(scores[np.isfinite(scores)])
    return {
        f"within_{k}": float(np.mean(sizes <= k)) if sizes.size else None for k in _COVERAGES
    } | {"count": float(sizes.size)}


def log_Z_scores(rows: Sequence[Row]) -> np.ndarray:
    """Errors in standard errors, of answers that are not warned of."""
    return np.array(
        [
            row["error"] / row["stderr"]
            for row in rows
            if answered(row) and row["error"] is not None and row["stderr"] and not row["diagnosis"]
        ]
    )


def mean_scores(rows: Sequence[Row]) -> np.ndarray:
    return np.array(
        [
            (m["mean"] - m["true"]) / m["stderr"]
            for row in rows
            if answered(row) and not row["diagnosis"]
            for m in row["means"]
        ]
    )


def _with_means(rows: Sequence[Row]) -> list[Row]:
    """Answers that are not warned of and whose means have a truth."""
    return [row for row in rows if answered(row) and row["means"] and not row["diagnosis"]]


def ess_ratios(rows: Sequence[Row]) -> np.ndarray:
    """ESS over what the spread of the means between runs says it is, for each coordinate of one
    target and method.
    """
    runs = _with_means(rows)
    if len(runs) < 5:
        return np.zeros(0)
    means = np.array([[m["mean"] for m in row["means"]] for row in runs])
    sds = np.array([np.nan if m["sd"] is None else m["sd"] for m in runs[0]["means"]])
    with np.errstate(divide="ignore", invalid="ignore"):
        real = sds**2 / means.var(axis=0, ddof=1)
    ratios = np.mean([row["ess"] for row in runs]) / real
    return ratios[np.isfinite(ratios)]


def summarise_target(rows: Sequence[Row]) -> Row:
    """Of one target and method."""
    done = [row for row in rows if answered(row)]
    errors = np.array([row["error"] for row in done if row["error"] is not None], dtype=float)
    ratios = ess_ratios(rows)
    return {
        "target": rows[0]["target"],
        "method": rows[0]["method"],
        "runs": len(rows),
        "skipped": any("skipped" in row for row in rows),
        "mean_error": float(errors.mean()) if errors.size else None,
        "mean_error_stderr": (
            float(errors.std(ddof=1) / np.sqrt(errors.size)) if errors.size > 1 else None
        ),
        "mean_abs_error": float(np.abs(errors).mean()) if errors.size else None,
        "worst_error": float(errors[np.argmax(np.abs(errors))]) if errors.size else None,
        "median_stderr": float(np.median([row["stderr"] for row in done])) if done else None,
        "failed": sum(map(failed, rows)),
        "silent": sum(map(failed_silently, rows)),
        "warned_good": sum(map(warned_wrongly, rows)),
        "refused": sum("refused" in row for row in rows),
        "ess_ratio": _mean_ratio(ratios) if ratios.size else None,
        "seconds": float(np.median([row["seconds"] for row in rows if "seconds" in row] or [0.0])),
    }


def _mean_ratio(ratios: np.ndarray) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def summarise_campaign(rows: Sequence[Row]) -> dict[str, Any]:
    """Of all runs, and of each target and method; by method as well."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["target"], row["method"]), []).append(row)
    methods = sorted({row["method"] for row in rows})
    return {
        "all": _totals(rows),
        "methods": {m: _totals([row for row in rows if row["method"] == m]) for m in methods},
        "cells": [summarise_target(cell) for cell in cells.values()],
    }


def _totals(rows: Sequence[Row]) -> dict[str, Any]:
    good = [row for row in rows if answered(row) and not failed(row)]
    ratios, of_cells = [], []
    for cell in {(row["target"], row["method"]) for row in rows}:
        own = [row for row in rows if (row["target"], row["method"]) == cell]
        of_coordinates = ess_ratios(own)
        ratios += list(of_coordinates)
        if len(_with_means(own)) >= _MANY_RUNS and of_coordinates.size:
            of_cells.append(_mean_ratio(of_coordinates))
    return {
        "targets": len({row["target"] for row in rows if "skipped" not in row}),
        "runs": sum("skipped" not in row for row in rows),
        "failed": sum(map(failed, rows)),
        "silent": sum(map(failed_silently, rows)),
        "good": len(good),
        "good_warned": sum(map(warned_wrongly, rows)),
        "good_warned_share": sum(map(warned_wrongly, rows)) / len(good) if good else None,
        "refused_wrongly": sum(map(refused_wrongly, rows)),
        "refused_rightly": sum("refused" in row and not refused_wrongly(row) for row in rows),
        "log_Z_coverage": _coverage(log_Z_scores(rows)),
        "mean_coverage": _coverage(mean_scores(rows)),
        "ess_ratios": len(ratios),
        "ess_ratio_within_1.5": _share_within(ratios),
        "ess_targets": len(of_cells),
        "ess_targets_within_1.5": _share_within(of_cells),
    }


def _share_within(ratios: Sequence[float]) -> float | None:
    return float(np.mean([1 / _WITHIN <= r <= _WITHIN for r in ratios])) if ratios else None
