"""Data in a folder of the user's: where they are found, and what is said if they are not."""

import gzip
import json

import pytest

from nestedvi.bench.posteriordb.data import find_folder, load_data, load_references
from nestedvi.errors import DataError

REFERENCES = {"a-b": {"draws": 100, "reference": {"mu[1]": [1.0, 2.0, -2.0, 1.0, 4.0]}}}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "posteriordb"
    place.mkdir()
    (place / "references.json").write_text(json.dumps(REFERENCES))
    (place / "a.json.gz").write_bytes(gzip.compress(b'{"N": 3, "y": [1, 2, 3]}'))
    return place


def test_it_is_found_by_name_or_variable(folder, monkeypatch):
    monkeypatch.delenv("NESTEDVI_DATA", raising=False)
    assert find_folder(folder) == folder and find_folder(folder.parent) == folder
    with pytest.raises(DataError, match="--data-dir or NESTEDVI_DATA"):
        find_folder()
    monkeypatch.setenv("NESTEDVI_DATA", str(folder.parent))
    assert find_folder() == folder
    with pytest.raises(DataError, match="holds no references"):
        find_folder(folder.parent.parent)


def test_files_are_read(folder):
    assert load_data("a", folder) == {"N": 3, "y": [1, 2, 3]}
    reference = load_references(folder)["a-b"]
    assert reference.draws == 100 and reference.moments["mu[1]"].sd == 2.0
    (folder / "b.json.gz").write_bytes(b"no gzip")
    for name in ("b", "c"):
        with pytest.raises(DataError, match=rf"Cannot read .*{name}\.json"):
            load_data(name, folder)
