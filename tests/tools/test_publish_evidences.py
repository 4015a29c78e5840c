"""The tool writes the package's file and the page's table, and nothing else of the page."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import publish_evidences as tool  # noqa: E402


def test_file_and_table_are_written(tmp_path, monkeypatch, capsys):
    answer = {"log_Z": 1.0, "stderr": 0.01, "diagnosis": [], "rhat": 1.0}
    rows = [{"problem": "cox", "auto": answer, "bridge": answer}]
    rows.append({"problem": "sonar", "auto": answer, "bridge": {"log_Z": None, "why": "lost"}})
    names = ("command", "versions", "device", "cpu_count", "seed", "config")
    record, package, page = (tmp_path / name for name in ("r.json", "p.json", "page.md"))
    record.write_text(json.dumps({"rows": rows, **dict.fromkeys(names)}))
    page.write_text(f"Before.\n\n{tool.BEGIN}\nold\n\n{tool.END}\n\nAfter.\n")
    for name, path in (("RECORD", record), ("PACKAGE", package), ("PAGE", page)):
        monkeypatch.setattr(tool, name, path)
    tool.main()
    written = page.read_text()
    assert written.startswith("Before.\n") and written.endswith("\nAfter.\n")
    assert "| `cox` | 1.0000" in written and "old" not in written
    assert [row["problem"] for row in json.loads(package.read_text())["rows"]] == ["cox"]
    assert "1 evidences published, 1 left out:\n  sonar: bridge: lost" in capsys.readouterr().out
    tool.main()
    assert page.read_text() == written
