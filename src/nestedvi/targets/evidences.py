"""Evidences that were computed in two independent ways, from the file `evidences.json` beside this
module. `tools/publish_evidences.py` writes it from what `nestedvi bench evidences` recorded; no
number is written by hand, and none is computed here.
"""

import json
from importlib import resources
from typing import NamedTuple

__all__ = ["EVIDENCES", "Evidence"]


class Evidence(NamedTuple):
    """log Z with its standard error, and both ways with theirs: `auto`, and bridge sampling from
    draws of NUTS.
    """

    log_Z: float
    stderr: float
    auto: tuple[float, float]
    bridge: tuple[float, float]


def _read() -> dict[str, Evidence]:
    file = resources.files("nestedvi.targets") / "evidences.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return {
        row["problem"]: Evidence(
            row["log_Z"], row["stderr"], tuple(row["auto"]), tuple(row["bridge"])
        )
        for row in rows
    }


# Names of targets, and those of posteriors of posteriordb.
EVIDENCES: dict[str, Evidence] = _read()
