"""Models from files: they may import their neighbours, and nothing of that stays on the path."""

import sys

import pytest

import nestedvi as nvi
from nestedvi.inference.model_file import load_model


def test_a_model_may_import_its_neighbour(tmp_path, monkeypatch):
    (tmp_path / "beside_model.py").write_text("SCALE = 3.0\n")
    file = tmp_path / "model.py"
    file.write_text("from beside_model import SCALE\n\ndef log_gamma(z):\n    return -SCALE * z\n")
    path = list(sys.path)
    assert load_model(f"{file}:log_gamma")(2.0) == -6.0
    assert sys.path == path
    monkeypatch.delitem(sys.modules, "beside_model")


@pytest.mark.parametrize(
    ("text", "name", "error", "message"),
    [
        ("raise SystemExit('half\\ndone')", "f", nvi.errors.ModelError, "SystemExit: half"),
        ("def coin(): ...", "cion", nvi.errors.UnknownNameError, "Did you mean 'coin'?"),
        ("", "", ValueError, "Say which model of the file"),
    ],
)
def test_failures_name_the_file(tmp_path, text, name, error, message):
    file = tmp_path / "model.py"
    file.write_text(text)
    with pytest.raises(error, match=message) as caught:
        load_model(f"{file}:{name}")
    assert "model.py" in str(caught.value)
