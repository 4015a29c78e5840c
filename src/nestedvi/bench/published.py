"""Which evidences are published: those on which both ways agree. From what `bench evidences`
recorded, it makes the content of the package's `evidences.json` and the table of the docs. It
computes no evidence.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nestedvi.bench.evidences import LARGEST_RHAT, WAYS, Row, errors_apart
from nestedvi.targets.catalogue import MEASURED, TARGETS

__all__ = ["publish", "published_table", "reason_left_out"]

# Standard errors that two right answers may be apart: one pair in 16 000 is further.
_APART = 4.0
_LARGEST_STDERR = 0.05
_RECORDED = ("command", "versions", "device", "cpu_count", "seed", "config")


def reason_left_out(row: Row) -> str | None:
    """Why a row is not published, in words; None if it is."""
    apart = errors_apart(row)
    if apart is None:
        reasons = [f"{way}: {row[way].get('why')}" for way in WAYS if row[way].get("log_Z") is None]
        return "; ".join(reasons)
    if abs(apart) > _APART:
        return f"the two ways are {abs(apart):.1f} standard errors apart"
    if row["bridge"]["rhat"] > LARGEST_RHAT:
        return f"the chains do not agree (R̂ = {row['bridge']['rhat']:.3f})"
    if _combined(row)[1] > _LARGEST_STDERR:
        return f"the standard error is {_combined(row)[1]:.2f}, more than {_LARGEST_STDERR}"
    return None


def publish(recorded: dict[str, Any]) -> dict[str, Any]:
    """The package's file from that of `bench evidences`: log Z where both ways agree, each way's
    answer, and why the others are left out.
    """
    rows, left_out = [], {}
    for row in recorded["rows"]:
        reason = reason_left_out(row)
        if reason is not None:
            left_out[row["problem"]] = reason
            continue
        log_Z, stderr = _combined(row)
        ways = {way: [row[way]["log_Z"], row[way]["stderr"]] for way in WAYS}
        warned = bool(row["auto"]["diagnosis"])
        rows.append({"problem": row["problem"], "log_Z": log_Z, "stderr": stderr, **ways})
        rows[-1]["auto_warned"] = warned
    record = {name: recorded[name] for name in _RECORDED}
    return {"rows": rows, "left_out": left_out, **record}


def _combined(row: Row) -> tuple[float, float]:
    """The mean of both, weighted by their precisions. Its error is not below half of what they are
    apart: where both errors are tiny, they may not count what both ways round.
    """
    log_Z = np.array([row[way]["log_Z"] for way in WAYS])
    precision = np.array([1 / row[way]["stderr"] ** 2 for way in WAYS])
    stderr = max(precision.sum() ** -0.5, abs(log_Z[0] - log_Z[1]) / 2)
    return float(log_Z @ precision / precision.sum()), float(stderr)


def published_table(content: dict[str, Any]) -> str:
    """Markdown: log Z, both ways, and what is known of the problem otherwise."""
    lines = [
        "| problem | log Z | `auto` | bridge sampling | known otherwise |",
        "|---|---|---|---|---|",
    ]
    for row in content["rows"]:
        auto = _pair(row["auto"]) + (" (warned)" if row["auto_warned"] else "")
        cells = [f"`{row['problem']}`", _pair([row["log_Z"], row["stderr"]]), auto]
        lines.append(_line([*cells, _pair(row["bridge"]), _known_log_Z(row["problem"])]))
    for problem, reason in content["left_out"].items():
        lines.append(_line([f"`{problem}`", f"– ({reason})", "", "", _known_log_Z(problem)]))
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _pair(pair: Sequence[float]) -> str:
    return f"{pair[0]:.4f} ± {pair[1]:.4f}"


def _known_log_Z(problem: str) -> str:
    if problem not in TARGETS or problem in MEASURED:
        return ""
    return f"{TARGETS[problem].log_Z:.4f} ({TARGETS[problem].source})"
