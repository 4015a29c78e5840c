"""A posterior's files, with ArviZ and without."""

import json
import sys

import jax.numpy as jnp
import pytest

from nestedvi.inference.answer import Answer
from nestedvi.inference.output import write_posterior
from nestedvi.inference.posterior import make_posterior
from nestedvi.inference.report import posterior_content


@pytest.fixture
def posterior():
    z = jnp.linspace(-1.0, 1.0, 40)[:, None]
    return make_posterior(z, Answer(z, jnp.zeros(40), 0.5, 0.01))


@pytest.mark.parametrize("installed", [True, False])
def test_files_of_a_posterior(posterior, installed, tmp_path, monkeypatch):
    if installed:
        pytest.importorskip("arviz")
    else:
        monkeypatch.setitem(sys.modules, "arviz", None)
    content = {**posterior_content(posterior), "model": "m.py:line"}
    names = write_posterior(tmp_path, posterior, content)
    always = ["posterior.json", "posterior.png", "report.html"]
    assert names == always + ["posterior.nc"] * installed
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    written = json.loads((tmp_path / "posterior.json").read_text())
    assert written["log_Z"] == 0.5 and written["sites"]["z[0]"]["mean"] == pytest.approx(
        0, abs=1e-6
    )
    assert "<h1>m.py:line</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")
