"""The package's evidences: what the file says is what the catalogue and the docs say."""

import json
import sys
from pathlib import Path

import pytest

import nestedvi as nvi
from nestedvi.bench.evidences import ALL
from nestedvi.bench.published import publish, published_table
from nestedvi.targets.catalogue import MEASURED, TARGETS

ROOT = Path(__file__).parents[2]
CONTENT = json.loads((ROOT / "src/nestedvi/targets/evidences.json").read_text(encoding="utf-8"))
RECORD = ROOT / "results/evidences/evidences.json"

sys.path.insert(0, str(ROOT / "tools"))
import publish_evidences  # noqa: E402


def test_every_number_has_its_problem():
    assert set(nvi.targets.EVIDENCES) <= set(ALL)
    for row in CONTENT["rows"]:
        found = nvi.targets.EVIDENCES[row["problem"]]
        assert (found.log_Z, found.stderr) == (row["log_Z"], row["stderr"])
        assert min(found.auto[0], found.bridge[0]) <= found.log_Z
        assert found.log_Z <= max(found.auto[0], found.bridge[0])


@pytest.mark.parametrize("name", MEASURED)
def test_a_target_claims_no_more_than_the_file(name):
    found = nvi.targets.EVIDENCES.get(name)
    if found is None:
        assert TARGETS[name].log_Z is None and TARGETS[name].source == "not measured"
        with pytest.raises(ValueError, match="not measured for this target"):
            _ = TARGETS[name].known_log_Z
    else:
        assert TARGETS[name].known_log_Z == found.log_Z
        assert f"± {found.stderr:.2g}" in TARGETS[name].source


def test_the_file_is_that_of_the_record():
    if not RECORD.exists():
        assert CONTENT["rows"] == []
    else:
        again = publish(json.loads(RECORD.read_text(encoding="utf-8")))
        assert {**again, "rows": None} == {**CONTENT, "rows": None}
        for one, other in zip(again["rows"], CONTENT["rows"], strict=True):
            # Another processor may round the last digit of a weighted mean otherwise.
            assert one.keys() == other.keys()
            for name, value in one.items():
                is_text = isinstance(value, str)
                assert other[name] == (value if is_text else pytest.approx(value, rel=1e-12))


def test_the_page_has_the_files_table():
    page = publish_evidences.PAGE.read_text(encoding="utf-8")
    assert publish_evidences.with_table(page, published_table(CONTENT)) == page


@pytest.mark.parametrize("name", ["breast-cancer", "seeds"])
def test_what_is_known_otherwise_is_confirmed(name):
    found = nvi.targets.EVIDENCES.get(name)
    if found is None:
        pytest.skip("not measured")
    assert abs(found.log_Z - TARGETS[name].known_log_Z) < 4 * found.stderr
