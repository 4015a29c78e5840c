"""A posterior's files: its summary as JSON, its figure, its report, and its draws for ArviZ where
that is installed. Computes nothing.
"""

from pathlib import Path
from typing import Any

from nestedvi.inference.posterior import Posterior
from nestedvi.inference.report import write_posterior_report
from nestedvi.plot.figures import save_figure
from nestedvi.storage.files import write_atomic, write_json

__all__ = ["write_posterior"]


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
