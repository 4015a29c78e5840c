"""Checks that need eight devices: files `check_*.py`, run by pytest in a process of its own,
because the number of virtual devices is fixed when JAX starts.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_checks(*names, marks="not slow", num_devices=8, timeout=600):
    """Runs some files of `tests/virtual_devices`; fails with its output."""
    flags = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={num_devices}"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marks),
            *("-o", "python_files=check_*.py"),
            *(f"tests/virtual_devices/{name}" for name in names),
        ],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
