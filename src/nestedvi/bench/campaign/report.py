"""The campaign as Markdown. It only formats."""

from typing import Any

__all__ = ["campaign_table"]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _coverage(coverage: dict[str, Any]) -> str:
    shares = " / ".join(_share(coverage[f"within_{k}"]) for k in (1, 2, 3))
    return f"{shares} of {coverage['count']:.0f}"


def _totals(summary: dict[str, Any]) -> list[str]:
    columns = {"all": summary["all"], **summary["methods"]}
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    rows = (
        ("targets", lambda t: str(t["targets"])),
        ("runs", lambda t: str(t["runs"])),
        ("silent failures", lambda t: str(t["silent"])),
        ("failures that were warned of", lambda t: str(t["failed"] - t["silent"])),
        ("good answers", lambda t: str(t["good"])),
        ("of them warned of", lambda t: f"{t['good_warned']} ({_share(t['good_warned_share'])})"),
        ("refused, though there is an answer", lambda t: str(t["refused_wrongly"])),
        ("refused rightly", lambda t: str(t["refused_rightly"])),
        ("log Z within 1 / 2 / 3 standard errors", lambda t: _coverage(t["log_Z_coverage"])),
        ("means within 1 / 2 / 3 standard errors", lambda t: _coverage(t["mean_coverage"])),
        ("ESS of a coordinate within a factor of 1.5", lambda t: _share(t["ess_ratio_within_1.5"])),
        (
            "ESS of a target within it, of twenty runs or more",
            lambda t: f"{_share(t['ess_targets_within_1.5'])} of {t['ess_targets']}",
        ),
    )
    for name, cell in rows:
        lines.append(f"| {name} | {' | '.join(cell(column) for column in columns.values())} |")
    return lines


def campaign_table(result: dict[str, Any]) -> str:
    """Totals, one line for each target and method, and every failure in words."""
    lines = [*_totals(result["summary"]), ""]
    lines += [
        (
            "| target | what it is | method | mean error | worst | median stderr | failed | silent"
            " | good but warned | refused | ESS ratio | seconds |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["summary"]["cells"]:
        if row["skipped"]:
            continue
        error = _number(row["mean_error"], "+.4f")
        if row["mean_error_stderr"] is not None:
            error += f" ± {row['mean_error_stderr']:.4f}"
        cells = [
            row["target"],
            result["targets"][row["target"]]["about"],
            row["method"],
            error,
            _number(row["worst_error"], "+.3f"),
            _number(row["median_stderr"], ".4f"),
            *(
                f"{row[name]} of {row['runs']}" if row[name] else "0"
                for name in ("failed", "silent", "warned_good", "refused")
            ),
            _number(row["ess_ratio"], ".2f"),
            f"{row['seconds']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        (
            "A failure is an error of log Z above max(0.1, 4 standard errors); it is silent if the"
            " diagnosis is empty. Coverage and ESS are of answers without a diagnosis. The ESS"
            " ratio is the ESS that is reported over the one that the spread of the means between"
            " runs shows, a mean over coordinates. Seconds: the median run, on one core."
        ),
    ]
    skipped = sorted({row["target"] for row in result["runs"] if "skipped" in row})
    if skipped:
        lines += ["", f"Left out, since their data were not there: {', '.join(skipped)}."]
    return "\n".join(lines) + "\n"
