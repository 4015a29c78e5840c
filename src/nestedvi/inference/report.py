"""A posterior's files: its summary as JSON, its figure, its report, and its draws for ArviZ where
that is installed.

A report is one page to look at: the diagnosis first, then log Z with its batches, the marginals,
the levels, the cost, and what made it. Its numbers are those of `posterior.json`; nothing is
computed here.
"""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from nestedvi.inference.posterior import Posterior
from nestedvi.inference.summary import QUANTILES, scalar_elements
from nestedvi.plot.charts import (
    bars_chart,
    curve_chart,
    interval_chart,
    lines_chart,
    marginal_chart,
    pair_chart,
)
from nestedvi.plot.figures import save_figure
from nestedvi.plot.page import Section, facts, figures, paragraphs, sentences, table, write_page
from nestedvi.storage.files import write_atomic, write_json

__all__ = ["posterior_content", "write_posterior", "write_posterior_report"]

_MARGINALS, _PAIRED, _ROWS = 16, 4, 200
_GUIDE = (
    "No diagnosis is no proof: a part of the posterior that no particle ever visited leaves no"
    " trace. Two seeds that agree are better evidence than one."
)


def posterior_content(posterior: Any) -> dict[str, Any]:
    """Everything that a report shows of a posterior, as plain values."""
    trace = {} if posterior.trace is None else posterior.trace.to_dict()
    return {
        **posterior.summary().to_dict(),
        "cost": None if posterior.cost is None else posterior.cost._asdict(),
        "timings": dict(posterior.timings),
        **trace,
    }


def write_posterior_report(
    path: str | Path, posterior: Any, content: Mapping[str, Any], *, title: str
) -> Path:
    """Writes the page; `content` is what `posterior_content` gives, and what made the result."""
    sections = [
        Section("Diagnosis", _diagnosis(content)),
        Section("Evidence", _evidence(content)),
        Section("Posterior", _sites(posterior, content)),
        Section("Levels and weights", _levels(content)),
        Section("Cost", _cost(content)),
        Section("What made it", _provenance(content)),
    ]
    return write_page(path, title, sections, content)


def _number(x: Any, form: str) -> str:
    """A number, or a dash where there is none: JSON has no NaN either."""
    return "–" if x is None or not np.isfinite(x) else format(x, form)


def _log_Z(content: Mapping[str, Any]) -> str:
    return f"{_number(content['log_Z'], '.4f')} ± {_number(content['log_Z_stderr'], '.4f')}"


def _diagnosis(content: Mapping[str, Any]) -> str:
    known = {
        "log Z": _log_Z(content),
        "effective sample size": f"{_number(content['ess'], '.0f')} of {content['num_particles']}",
        "k̂ of the weights": _number(content["khat"], ".2f"),
    }
    return (
        sentences(content["diagnosis"], otherwise="Nothing found wrong.")
        + facts(known)
        + paragraphs(_GUIDE, quiet=True)
    )


def _evidence(content: Mapping[str, Any]) -> str:
    known = {"log Z": _log_Z(content)}
    if content.get("log_Z_true") is not None:
        known["known log Z"] = f"{content['log_Z_true']:.4f}"
    batches = content.get("batches")
    if not batches:
        return facts(known)
    chart = interval_chart(
        batches["log_Z"], content["log_Z"], content["log_Z_stderr"], ylabel="log Ẑ"
    )
    caption = "log Ẑ of each independent batch, and the estimate ± its standard error"
    rows = [
        (b + 1, _number(log_Z, ".4f"), ancestors)
        for b, (log_Z, ancestors) in enumerate(
            zip(batches["log_Z"], batches["num_ancestors"], strict=True)
        )
    ]
    numbers = table(("batch", "log Ẑ", "ancestors"), rows)
    return (
        facts(known)
        + figures({caption: chart})
        + f"<details><summary>Numbers of every batch</summary>{numbers}</details>"
    )


def _sites(posterior: Any, content: Mapping[str, Any]) -> str:
    elements, w_bar = dict(scalar_elements(posterior.samples)), posterior.normalised_weights()
    sites = content["sites"]
    columns = ("mean", "error", "sd", *QUANTILES)
    rows = [
        (name, *(_number(values[column], ".4g") for column in columns))
        for name, values in list(sites.items())[:_ROWS]
    ]
    drawn = {
        f"{name}: {_number(sites[name]['mean'], '.4g')} ± {_number(sites[name]['sd'], '.2g')}"
        f" (mean ± sd)": marginal_chart(x, w_bar, name)
        for name, x in list(elements.items())[:_MARGINALS]
    }
    pairs = {
        f"{a} and {b}": pair_chart(elements[a], elements[b], w_bar, (a, b))
        for a, b in combinations(list(elements)[:_PAIRED], 2)
    }
    left_out = [
        f"{len(elements)} scalar elements; figures of the first {_MARGINALS}, pairs of the first"
        f" {_PAIRED}, table of the first {_ROWS}. All are in the data of this page."
    ]
    note = left_out if len(elements) > _PAIRED else []
    text = "error is the standard error of the mean; sd the posterior's spread."
    return (
        table(("site", *columns), rows)
        + paragraphs(text, *note, quiet=True)
        + figures(drawn)
        + (figures(pairs) if pairs else "")
    )


def _levels(content: Mapping[str, Any]) -> str:
    batches, levels = content.get("batches"), content.get("levels")
    if not batches:
        return paragraphs("This posterior has no record of its batches.")
    drawn = {}
    from_base = "Temperatures β by level from the base (β = 0) to the target, a line a batch"
    betas = [level["beta"] for level in levels or () if level["beta"]]
    if betas:
        drawn[from_base] = lines_chart(
            [[0.0, *beta] for beta in betas], xlabel="level", ylabel="β", first=0
        )
    if levels:
        drawn["ESS of the weights of each level, as a share of its particles"] = lines_chart(
            [level["ess_share"] for level in levels], xlabel="level", ylabel="ESS share"
        )
    if content.get("weight_share"):
        drawn["Share of all weight that the largest draws carry; dashed: equal weights"] = (
            curve_chart(content["weight_share"], xlabel="share of draws", ylabel="share of weight")
        )
    most = content["num_particles"] / len(batches["log_Z"])
    drawn["First draws that the particles of a batch descend from; line: as many as particles"] = (
        bars_chart(batches["num_ancestors"], xlabel="batch", ylabel="ancestors", most=most)
    )
    note = (
        ""
        if levels
        else paragraphs("One step of importance sampling: there are no levels in between.")
    )
    return note + figures(drawn)


def _cost(content: Mapping[str, Any]) -> str:
    parts = ""
    if content["cost"]:
        words = {
            "learning": "gradients to find and learn the sampler",
            "sampling": "gradients to run it",
            "values": "values of the density",
        }
        parts += paragraphs("Asked of the target, for each particle that is returned:")
        parts += table(
            ("what", "number"),
            [(words[name], _number(content["cost"][name], ".4g")) for name in words],
        )
    if content["timings"]:
        rows = [(name, _number(seconds, ".2f")) for name, seconds in content["timings"].items()]
        parts += table(("stage", "seconds"), rows)
        parts += paragraphs("Compilation is part of the stages before it.", quiet=True)
    return parts or paragraphs("Not recorded for this method.")


def _provenance(content: Mapping[str, Any]) -> str:
    rows = [
        (name, content[name])
        for name in ("command", "model", "device", "seed")
        if content.get(name) is not None
    ]
    rows += [(f"version of {name}", x) for name, x in content.get("versions", {}).items()]
    return table(("what", ""), rows, words=True) + paragraphs(
        "The numbers of this page are in its source as JSON, under the id “data”.", quiet=True
    )


def write_posterior(folder: Path, posterior: Posterior, content: dict[str, Any]) -> list[str]:
    """Writes `posterior.json` (`content`), `posterior.png`, `report.html` and, where ArviZ is
    installed, `posterior.nc`; returns their names.
    """
    write_json(folder / "posterior.json", content)
    save_figure(posterior.plot(), folder / "posterior.png")
    write_posterior_report(folder / "report.html", posterior, content, title=content["model"])
    names = ["posterior.json", "posterior.png", "report.html"]
    if _has_arviz():
        write_atomic(
            folder / "posterior.nc", lambda path: posterior.to_arviz().to_netcdf(str(path))
        )
        names.append("posterior.nc")
    return names


def _has_arviz() -> bool:
    try:
        import arviz  # noqa: F401
    except ImportError:
        return False
    return True
