"""Data files: what is read, and every reason for which one is refused."""

import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.inference.data_file import check_takes, load_data

FILES = {
    "numbers first": ("1,2\n3,4\n", r"first line .* must name its columns.*'1,2'"),
    "twice": ("a,a\n3,4\n", r"must name its columns, each once"),
    "empty": ("", r"must name its columns"),
    "no rows": ("a,b\n", r"a header and no rows"),
    "short row": ("a,b\n1,2\n3\n", r"Row 3 of .* has 1 entries; its header names 2 columns"),
    "words": ("a,b\n1,2\n3,four\n", r"Column 'b' of .* must hold numbers; got 'four' in row 3"),
    "an empty cell": ("a,b\n1,2\n3,\n", r"Column 'b' of .* row 3 is empty there"),
    "thousands": ("a;b\n1;2\n3;1.234,5\n", r"must hold numbers; got '1\.234,5' in row 3"),
}


@pytest.mark.parametrize("case", FILES)
def test_tables_that_cannot_be_read(tmp_path, case):
    text, message = FILES[case]
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(nvi.errors.DataError, match=message):
        load_data(str(tmp_path / "table.csv"))


def test_data_files(tmp_path):
    """Columns by name; whole numbers stay whole. Damaged and pickled arrays are refused."""
    (tmp_path / "table.csv").write_text('"group", y\n0, 1.5\n2, -1\n\n')
    data = load_data(str(tmp_path / "table.csv"))
    assert data["group"].dtype.kind == "i" and data["group"].tolist() == [0, 2]
    assert data["y"].dtype.kind == "f" and data["y"].tolist() == [1.5, -1.0]
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object))
    (tmp_path / "latin.csv").write_bytes("größe\n1".encode("latin-1"))
    for name, message in (
        ("bad.npz", r"Cannot read .* plain arrays"),
        ("pickled.npz", "plain arrays"),
        ("latin.csv", "no text"),
    ):
        with pytest.raises(nvi.errors.DataError, match=message):
            load_data(str(tmp_path / name))


SPREADSHEETS = {
    "byte-order mark": "\ufeffgroup,y\n0,1.5\n2,-1\n".encode(),
    "semicolons": b"group;y\r\n0;1.5\r\n2;-1\r\n",
    "decimal commas": b"group;y\r\n0;1,5\r\n2;-1,0\r\n",
    "quotes": b'"group","y"\n"0","1.5"\n"2","-1"\n',
    "quoted decimal commas": b'"group";"y"\n0;"1,5"\n2;"-1"\n',
    "tabs in UTF-16": "group\ty\r\n0\t1,5\r\n2\t-1\r\n".encode("utf-16"),
    "separator named": b"sep=;\ngroup;y\n0;1,5\n2;-1\n",
    "touched columns": b"group,y,,\n0,1.5,,\n2,-1,,\n,,,\n",
}


@pytest.mark.parametrize("case", SPREADSHEETS)
def test_tables_as_spreadsheets_write_them(tmp_path, case):
    (tmp_path / "table.csv").write_bytes(SPREADSHEETS[case])
    data = load_data(str(tmp_path / "table.csv"))
    assert list(data) == ["group", "y"]
    assert data["group"].dtype.kind == "i" and data["group"].tolist() == [0, 2]
    assert data["y"].tolist() == [1.5, -1.0]


def model(x, y=None): ...


def keywords(**data): ...


def test_data_must_be_arguments_of_the_model():
    names = {"model_name": "file.py:model", "file": "data.csv"}
    check_takes(model, {"x": 1, "y": 2}, **names)
    check_takes(model, {"x": 1}, **names)
    check_takes(model, {"y": 1}, model_takes_particle=True, **names)
    with pytest.raises(nvi.errors.DataError, match=r"no 'x', which file\.py:model needs; .* 'y'"):
        check_takes(model, {"y": 2}, **names)
    check_takes(keywords, {"anything": 1}, **names)
    with pytest.raises(nvi.errors.DataError, match=r"'z', which file\.py:model does not take"):
        check_takes(model, {"x": 1, "z": 2}, **names)
    with pytest.raises(nvi.errors.DataError, match="takes no data"):
        check_takes(nvi.targets.ring(), {"x": 1}, **names)
