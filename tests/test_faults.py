"""The campaign of faults: its quick part, in processes of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_the_quick_part_of_the_campaign(tmp_path):
    """Kills, damage, a disk that fills up, two processes at once, Ctrl-C: everything ends with the
    same bits or a sentence.
    """
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "faults.py"), "--quick", "--out", str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = json.loads((tmp_path / "faults.json").read_text())["parts"]
    assert len(parts) == 5 and parts["kills of fit"]["kills"] == 2
    assert parts["kills of fit"]["outcomes"] == {"same bits": 1}
    assert parts["damaged files"]["outcomes"].keys() <= {"same bits", "said"}
    assert parts["disks"]["outcomes"] == parts["two processes"]["outcomes"] == {"same bits": 1}
    assert parts["Ctrl-C"]["outcomes"] == {"said": 1}
    assert "| kills of fit | 1 | 2 |" in (tmp_path / "faults.md").read_text()
