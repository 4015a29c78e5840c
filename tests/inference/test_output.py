"""A posterior's files, with ArviZ and without."""

import json
import sys

import jax.numpy as jnp
import pytest

from nestedvi.inference.answer import Answer
from nestedvi.inference.output import write_posterior
from nestedvi.inference.posterior import make_posterior


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
    names = write_posterior(tmp_path, posterior, {"log_Z": 0.5})
    assert names == ["posterior.json", "posterior.png"] + ["posterior.nc"] * installed
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert json.loads((tmp_path / "posterior.json").read_text()) == {"log_Z": 0.5}
